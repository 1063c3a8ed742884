# SPDX-License-Identifier: Apache-2.0
"""Links of pages lead to files and to headings that are there, and files that pages name exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import ROOT

FOLDERS = (".", "benchmarks", "datasets", "docs", "examples", "models")
PAGES = sorted(
    page
    for folder in FOLDERS
    for page in (ROOT.glob("*.md") if folder == "." else (ROOT / folder).rglob("*.md"))
)


CHANGELOG = ROOT / "CHANGELOG.md"  # names files of earlier versions, too
TOP = (*FOLDERS[1:], "mindspore_rec", "tests", "tools")
NAMED = re.compile(rf"(?<![\w./-])(?:{'|'.join(TOP)}|\.ci)/[\w./*-]*[\w/*]")
ELSEWHERE = {
    "docs/from_mindrec.md": {  # files of MindRec
        "benchmarks/wide_deep",
        "datasets/criteo_1tb/process_data.py",
        "docs/api",
        "models/deep_and_cross",
        "models/deep_fm",
    },
    "models/README.md": {"models/shared_bottom"},  # a folder that the reader makes
}


def missing(text: str) -> set[str]:
    """Return the paths in a text that begin with a folder of the repository and do not exist."""
    return {path for path in NAMED.findall(text) if not any(ROOT.glob(path.rstrip("/")))}


def anchors(page: Path) -> set[str]:
    """Return the names by which links lead to the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


def broken(page: Path, text: str) -> Iterator[str]:
    """Yield the links of a page's text that lead nowhere in this repository."""
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists():
            yield link
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page: Path) -> None:
    assert list(broken(page, page.read_text(encoding="utf-8"))) == []


def test_a_wrong_link_is_found() -> None:
    text = "[a](docs/nowhere.md) [b](README.md#use) [c](README.md#no-such) [d](https://example.com)"
    assert list(broken(ROOT / "README.md", text)) == ["docs/nowhere.md", "README.md#no-such"]


@pytest.mark.parametrize(
    "page", [each for each in PAGES if each != CHANGELOG], ids=lambda page: str(page.name)
)
def test_named_files_exist(page: Path) -> None:
    name = page.relative_to(ROOT).as_posix()
    assert missing(page.read_text(encoding="utf-8")) == ELSEWHERE.get(name, set())


def test_a_missing_file_is_found() -> None:
    text = "`tests/gone.py`, `docs/data.md`. docs/gone/, tests/docs/*.py, tools/*.gone, a/tests/b"
    assert missing(text) == {"tests/gone.py", "docs/gone/", "tools/*.gone"}
