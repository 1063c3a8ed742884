# SPDX-License-Identifier: Apache-2.0
"""Mutants of the rooms, in an order that a text decides: of one commit it is the same each time."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.defects.entry import ROOT
from tests.mutants.cpp_places import cpp_places
from tests.mutants.mutant import Mutant
from tests.mutants.python_places import python_places

__all__ = ["ROOMS", "Room", "draw", "room_of", "survivors"]

# Headers are left out: a change of one is compiled in nearly all of the core, which takes minutes.
_ENDINGS = (".cc", ".inl", ".py")


@dataclass(frozen=True)
class Room:
    """A part of the library that is tested by itself.

    Args:
        name: as a report has it.
        folders: its files.
        native_tests: folders of its tests in C++.
        tests: folders of its tests in Python, and files of tests in other rooms' folders.
        outer_tests: tests in Python that a change of C++ meets if the tests in C++ have passed.
    """

    name: str
    folders: tuple[str, ...]
    native_tests: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    outer_tests: tuple[str, ...] = ()


_TABLES = (
    "tests/parameter/test_parameter_native_machine.py",
    "tests/parameter/test_parameter_policies.py",
    "tests/parameter/test_digest.py",
)
ROOMS = (
    Room(
        "rows",
        ("mindspore_rec/csrc/rows", "mindspore_rec/common/rows"),
        ("tests/csrc/rows", "tests/csrc/table", "tests/csrc/readers"),
        ("tests/parameter",),
        _TABLES,
    ),
    Room(
        "table",
        ("mindspore_rec/csrc/table",),
        ("tests/csrc/table", "tests/csrc/readers", "tests/csrc/workers", "tests/csrc/ops"),
        outer_tests=_TABLES,
    ),
    Room(
        "stream",
        ("mindspore_rec/common/stream",),
        tests=("tests/stream", "tests/online", "tests/serving/following"),
    ),
    Room(
        "checkpoint",
        ("mindspore_rec/common/run", "mindspore_rec/train/checkpoint"),
        tests=("tests/checkpoint", "tests/serving/following"),
    ),
)


def room_of(file: str) -> Room:
    """Return the room of a file."""
    return next(room for room in ROOMS if any(file.startswith(f"{f}/") for f in room.folders))


def draw(seed: str, count: int, native: bool, root: Path = ROOT) -> list[Iterator[Mutant]]:
    """Return `count` mutants of C++ or of Python; each comes with others that may take its place.

    Which mutants take the place of one, as it does not compile, does not depend on the others:
    the mutants of place i are number i, i + count, i + 2 count ... in the order that the seed
    decides.

    Args:
        seed: any text: the same one, of the same files, gives the same mutants.
        count: how many.
        native: whether they are of C++.
        root: folder of the repository.
    """
    places = _places(native, root)
    random.Random(f"{seed}, {'C++' if native else 'Python'}").shuffle(places)
    return [iter(places[first::count]) for first in range(min(count, len(places)))]


def survivors(report: Path, native: bool, root: Path = ROOT) -> list[Iterator[Mutant]]:
    """Return the mutants that survived by a report, if their lines' text is as it was."""
    entries = json.loads(report.read_text(encoding="utf-8"))["survivors"]
    mutants = []
    for entry in entries:
        if entry["file"].endswith(".py") != native:
            text = (root / entry["file"]).read_text(encoding="utf-8")
            places = cpp_places if native else python_places
            wanted = (entry["old"], entry["new"])
            same = [m for m in places(entry["file"], text) if m.lines(text)[1:] == wanted]
            same.sort(key=lambda m: abs(m.lines(text).number - entry["line"]))
            mutants += same[:1]  # of equal lines the nearest
    return [iter([each]) for each in mutants]


def _places(native: bool, root: Path) -> list[Mutant]:
    mutants: list[Mutant] = []
    for room in ROOMS:
        for folder in room.folders:
            for path in sorted((root / folder).rglob("*")):
                if path.suffix in _ENDINGS and (path.suffix != ".py") == native:
                    places = cpp_places if native else python_places
                    text = path.read_text(encoding="utf-8")
                    mutants += places(path.relative_to(root).as_posix(), text)
    return sorted(mutants)
