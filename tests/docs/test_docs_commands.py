# SPDX-License-Identifier: Apache-2.0
"""Command lines on the pages: commands accept their options, and filters match C++ tests."""

from __future__ import annotations

import argparse
import fnmatch
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mindspore_rec.command.options import add_commands
from mindspore_rec.common.launch import command as launch
from mindspore_rec.common.run import command as checkpoint
from mindspore_rec.plan import __main__ as plan
from mindspore_rec.serve.command import command_parser, declared_models
from tests.support.processes import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "examples").rglob("*.md"))
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
TESTS = ROOT / "tests" / "csrc"
COMMAND = re.compile(r"(?:python -m mindspore_rec\.(\w+)|(mindspore-rec)) (.*)")
PLACEHOLDERS = re.compile(r"\b[A-Z]+\b|\[|\.\.\.")


def lines_of(page: Path) -> list[str]:
    """Return the commands of the library on a page, in blocks and in backticks."""
    text = page.read_text(encoding="utf-8")
    found = []
    for language, block in BLOCK.findall(text):
        if language in ("", "bash"):
            found += re.sub(r"\\\n", " ", block).splitlines()
    found += re.findall(r"`([^`]+)`", BLOCK.sub("", text))
    lines = [" ".join(re.sub(r"\s#.*", "", each).split()) for each in found]
    return [each.removeprefix("$ ").removeprefix("PYTHONPATH=. ") for each in lines]


def is_whole(line: str) -> bool:
    """Return True for a command with arguments, but without placeholders."""
    match = COMMAND.fullmatch(line)
    if match is None or PLACEHOLDERS.search(line):
        return False
    name, words = match[1] or match[2], match[3].split()
    return name in PARSERS and (len(words) > 1 or words[0] not in BARE)


def command() -> argparse.ArgumentParser:
    """Return the parser of `mindspore-rec`."""
    parser = argparse.ArgumentParser()
    add_commands(parser)
    return parser


def serve(words: Sequence[str]) -> None:
    """Check a command line of the server."""
    declared_models(command_parser().parse_args(words))


def of_command(words: Sequence[str]) -> None:
    """Check a command line of `mindspore-rec`."""
    options, further = command().parse_known_args(words)
    assert options.takes_further or not further, further
    if options.command == "init" and not options.json_schema:
        assert options.source is not None and options.label is not None


PARSERS: dict[str, Callable[[Sequence[str]], object]] = {
    "serving": serve,
    "plan": lambda words: plan._parser().parse_args(words),
    "launch": lambda words: launch._parser().parse_args(words),
    "checkpoint": lambda words: checkpoint._parser().parse_args(words),
    "mindspore-rec": of_command,
}
# Names of commands in a sentence, without their arguments.
BARE = {"init", "train", "eval", "predict", "explain", "tune", "serve", "export", "--tiers"}
BARE |= {"--workers", "merge", "publish", "verify", "diff", "ls"}

LINES = sorted({(page, line) for page in PAGES for line in lines_of(page) if is_whole(line)})


@pytest.mark.parametrize(
    ("page", "line"), LINES, ids=[f"{page.stem}: {line}" for page, line in LINES]
)
def test_a_command_accepts_its_options(page: Path, line: str) -> None:
    match = COMMAND.fullmatch(line)
    assert match is not None
    words = shlex.split(match[3])
    words = words[: words.index(">")] if ">" in words else words
    PARSERS[match[1] or match[2]](words)


def test_filters_of_cpp_tests_match_tests() -> None:
    sources = "".join(each.read_text(encoding="utf-8") for each in TESTS.rglob("*.cc"))
    suites = set(re.findall(r"^TEST\w*\((\w+),", sources, re.MULTILINE))
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    filters = re.findall(r"--gtest_filter='([^']+)'", page)
    names = [name for each in filters for name in each.split(":")]
    assert len(names) > 10
    for name in names:
        suite = name.rpartition("/")[2].partition(".")[0]
        assert fnmatch.filter(suites, suite), name


def test_commands_are_found() -> None:
    named = {name for name in PARSERS for _, line in LINES if name in line}
    assert named == {*PARSERS} and len(LINES) > 40
