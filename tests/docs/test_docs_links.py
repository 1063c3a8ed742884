# SPDX-License-Identifier: Apache-2.0
"""Links of pages lead to files that are there, and to headings that these have."""

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
