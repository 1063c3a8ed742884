# SPDX-License-Identifier: Apache-2.0
"""Draw sentences from pages, docstrings and comments; a reader marks the hard sentences.

    python tools/sentences.py
    python tools/sentences.py --count 20 --seed 7

Each draw is reproducible: the seed is the hash of the last commit that changed any text.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PATTERNS = ("*.md", "*.py", "*.h", "*.cc")
CODE = ("mindspore_rec", "models", "examples", "datasets", "benchmarks", "tools")
FEWEST_WORDS = 5  # fewer are a heading or a label
_END = re.compile(r"(?<=[.?!])\s+(?=[A-Z`*])")


class Sentence(NamedTuple):
    """A sentence and the file that it is in."""

    text: str
    file: str


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text.

    Example:
        >>> list(sentences("Return the rows of the keys. See below.  Rows of one key are added."))
        ['Return the rows of the keys.', 'Rows of one key are added.']
    """
    for paragraph in re.split(r"\n\s*\n", text):
        for each in _END.split(" ".join(paragraph.split())):
            if each.endswith((".", "?", "!")) and len(each.split()) >= FEWEST_WORDS:
                yield each


def of_page(text: str) -> Iterator[str]:
    """Yield the sentences of a page, without code blocks and tables."""
    running = re.sub(r"^(```.*?^```|    .*?$|\|.*?$|#.*?$)", "\n", text, flags=re.M | re.S)
    running = re.sub(r"^\s*[*-] ", "\n", running, flags=re.M)
    yield from sentences(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", running))


def of_python(text: str) -> Iterator[str]:
    """Yield the sentences of docstrings and comments, without examples."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            docstring = ast.get_docstring(node) or ""
            running = re.sub(r"^\s*>>> .*(\n.*\S.*)*", "\n", docstring, flags=re.M)
            running = re.sub(r"^\s*([\w`*, ]+: )", r"\n\n\1", running, flags=re.M)  # arguments
            yield from sentences(running)
    yield from sentences(_comments(text, "#"))


def of_cpp(text: str) -> Iterator[str]:
    """Yield the sentences of comments."""
    yield from sentences(_comments(text, "//"))


def _comments(text: str, mark: str) -> str:
    """Return all comments in `text`, with an empty line between separate comments."""
    lines = [line.strip() for line in text.splitlines()]
    return "\n".join(line[len(mark) :] if line.startswith(mark) else "" for line in lines)


def every() -> list[Sentence]:
    """Return the sentences of all pages, docstrings and comments."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *PATTERNS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    readers = {".md": of_page, ".py": of_python, ".h": of_cpp, ".cc": of_cpp}
    all_sentences: list[Sentence] = []
    for name in listed.stdout.splitlines():
        file = ROOT / name
        if file.suffix != ".md" and name.partition("/")[0] not in CODE:
            continue
        text = file.read_text(encoding="utf-8")
        all_sentences += [Sentence(each, name) for each in readers[file.suffix](text)]
    return all_sentences


def last_commit() -> str:
    """Return the hash of the last commit that changed any text."""
    command = ["git", "log", "-1", "--format=%H", "--", *PATTERNS]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> int:
    """Print the draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=150, help="default: %(default)s")
    parser.add_argument("--seed", help="default: the hash of the last commit that changed any text")
    options = parser.parse_args()
    seed = options.seed or last_commit()
    all_sentences = every()
    print(f"seed {seed}, {options.count} of {len(all_sentences)} sentences")
    drawn = random.Random(seed).sample(all_sentences, min(options.count, len(all_sentences)))
    for number, (text, file) in enumerate(drawn, 1):
        print(f"{number:4} {file}: {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
