# SPDX-License-Identifier: Apache-2.0
"""docs/maturity.md has every public name once, and calls proven what killed programs use."""

from __future__ import annotations

import re

import mindspore_rec
from tests.support.processes import ROOT

PAGE = (ROOT / "docs" / "maturity.md").read_text(encoding="utf-8")
KILLED = [
    "tests/online/trainer_script.py",
    "tests/online/combined_trainer.py",
    "tests/online/workers_trainer.py",
    "tests/cache/dying_trainer.py",
]
WORDS = {"proven", "tested", "new"}


def rows(heading: str) -> list[list[str]]:
    """Cells of the table below a heading, without its head."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_public_name_is_in_one_row() -> None:
    names = [name for row in rows("Public names") for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(names) == sorted(set(vars(mindspore_rec)["__all__"]) - {"__version__"})


def test_every_row_has_one_of_the_words_that_are_explained() -> None:
    assert set(re.findall(r"^\* \*\*(\w+)\*\*:", PAGE, re.MULTILINE)) == WORDS
    for heading in ("Public names", "Modules beside it"):
        found = rows(heading)
        assert len(found) > 5
        assert all(row[1].split()[0] in WORDS and row[2] for row in found)


def test_what_is_proven_is_used_by_programs_that_are_killed() -> None:
    programs = "\n".join((ROOT / file).read_text(encoding="utf-8") for file in KILLED)
    for row in rows("Public names"):
        for name in re.findall(r"`(\w+)`", row[0]) if row[1] == "proven" else []:
            assert re.search(rf"\b{name}\(", programs), name


def test_files_that_are_named_are_there() -> None:
    files = re.findall(r"\b(?:tests|benchmarks)(?:/\w+)+(?:\.py|\.cc|\.json)?", PAGE)
    assert [file for file in files if not (ROOT / file).exists()] == []
