# SPDX-License-Identifier: Apache-2.0
"""The walks of docs/architecture.md name files that are there, each once, and no room twice."""

from __future__ import annotations

import re

import pytest

from tests.support.processes import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
INSIDE = (ROOT / "docs" / "inside.md").read_text(encoding="utf-8")
FILE = re.compile(r"`([\w/]+\.(?:py|cc|h|inl))`")
Stop = tuple[str, list[str]]


def walks() -> dict[str, list[Stop]]:
    """Return the walks by their headings: of each stop its room and the files named in it."""
    section = PAGE.partition("\n## Walks\n")[2].partition("\n## ")[0]
    headings = section.split("\n### ")[1:]
    return {text.partition("\n")[0]: stops_of(text) for text in headings}


def stops_of(walk: str) -> list[Stop]:
    """Return the stops of a walk, items that begin with the name of a room."""
    return [
        (stop.partition("`")[0], FILE.findall(stop))
        for stop in re.split(r"^\* `", walk, flags=re.M)
    ][1:]


WALKS = walks()


def test_there_are_four_walks() -> None:
    assert len(WALKS) == 4
    id_walk = [room for room, _ in WALKS["An id, from Kafka to SSD and back to an answer"]]
    assert id_walk[0] == "common.stream" and "csrc/tier" in id_walk
    assert id_walk[-1] == "common.rows"


@pytest.mark.parametrize("walk", WALKS)
def test_each_file_of_a_walk_is_in_its_room(walk: str) -> None:
    for room, files in WALKS[walk]:
        folder = ROOT / "mindspore_rec" / room.replace(".", "/")
        assert files, room
        assert [file for file in files if not (folder / file).is_file()] == [], room


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_comes_to_each_room_and_file_once(walk: str) -> None:
    rooms = [room for room, _ in WALKS[walk]]
    assert [room for room in rooms if rooms.count(room) > 1] == []
    for room, files in WALKS[walk]:
        assert [file for file in files if files.count(file) > 1] == [], room


def test_files_named_outside_the_walks_are_there() -> None:
    names = {path.name for path in (ROOT / "mindspore_rec").rglob("*.*")}
    names |= {path.name for path in (ROOT / "tests").rglob("*.*")}
    names |= {"setup.py", "Python.h", "mpi.h"}
    missing = {
        page: [file for file in FILE.findall(text) if file.rpartition("/")[2] not in names]
        for page, text in {"architecture": PAGE, "inside": INSIDE}.items()
    }
    assert missing == {"architecture": [], "inside": []}


def changes() -> list[list[str]]:
    """Return the cells of the table `Where to change what`, row by row."""
    section = PAGE.partition("\n## Where to change what\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


PATH = re.compile(r"`([\w./]+)`")


@pytest.mark.parametrize("row", changes(), ids=lambda row: row[0])
def test_paths_of_the_table_of_changes_are_there(row: list[str]) -> None:
    package = folder = ROOT / "mindspore_rec"
    for name in PATH.findall(" ".join(row[1:])):
        if "/" not in name and not re.search(r"\.(py|pyi|cc|h|inl)$", name):
            continue  # a name in code
        homes = (package, ROOT) if "/" in name else (folder, package, ROOT)
        paths = [home / name for home in homes if (home / name).exists()]
        assert paths, name
        folder = paths[0] if paths[0].is_dir() else paths[0].parent


def test_cells_of_the_table_of_changes_are_short() -> None:
    cells = [cell for row in changes() for cell in row]
    assert len(cells) >= 30
    assert [cell for cell in cells if len(cell) > 340] == []


def test_the_page_is_short() -> None:
    assert len(PAGE.splitlines()) <= 200
