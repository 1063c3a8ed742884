# SPDX-License-Identifier: Apache-2.0
"""The rule of docs/architecture.md on which room may import which, held against every import."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.arrows import reached
from tests.support.processes import ROOT

PACKAGE = ROOT / "mindspore_rec"
RULE = ROOT / "docs" / "architecture.md"
USERS = ("models", "examples", "benchmarks", "datasets")
TOP = "mindspore_rec"


class Room(NamedTuple):
    """One row of the table of rooms: its level, and what it may import besides level 0."""

    level: int
    may: frozenset[str]


class Import(NamedTuple):
    """One import: where it is, and the dotted name in the package, '' for the package itself."""

    file: Path
    line: int
    target: str

    def __str__(self) -> str:
        where = self.file.relative_to(ROOT) if self.file.is_relative_to(ROOT) else self.file
        return f"{where}:{self.line} imports {TOP}.{self.target}".rstrip(".")


# ---- the rule


def tables_of_page(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield header and rows of each Markdown table, a list of cells each."""
    for found in re.finditer(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [
            [cell.strip() for cell in line.strip()[1:-1].split("|")]
            for line in found.group().splitlines()
        ]
        yield rows[0], rows[2:]


def names_in(cell: str) -> frozenset[str]:
    """Return the names in backquotes."""
    return frozenset(re.findall(r"`([^`]+)`", cell))


def rows_under(header: list[str], text: str) -> list[list[str]]:
    """Return the rows of the only table with that header."""
    found = [rows for head, rows in tables_of_page(text) if head == header]
    assert len(found) == 1, f"{RULE} must have one table with the columns {header}"
    return found[0]


def rooms_of(text: str) -> dict[str, Room]:
    """Return the rule for the rooms of the package."""
    rows = rows_under(["level", "room", "what is in it", "may import"], text)
    return {
        name: Room(int(level), names_in(may))
        for level, names, _, may in rows
        for name in names_in(names)
    }


def folders_of(text: str) -> dict[str, frozenset[str]]:
    """Return the rule for the folders of csrc."""
    rows = rows_under(["folder of csrc", "what is in it", "may include"], text)
    return {name: names_in(may) for names, _, may in rows for name in names_in(names)}


def serving_folders_of(text: str) -> dict[str, frozenset[str]]:
    """Return the rule for the folders of serving."""
    rows = rows_under(["folder of serving", "what is in it", "may import"], text)
    return {name: names_in(may) for names, _, may in rows for name in names_in(names)}


def may_import(rooms: dict[str, Room], room: str, target: str) -> bool:
    """Return whether the rule has an arrow from a room to a dotted name in the package."""
    parts = target.split(".")
    there = parts[0]
    if there == room:
        return True
    if there not in rooms:
        return False
    if any(".".join(parts[:n]) in rooms[room].may for n in range(1, len(parts) + 1)):
        return True
    return rooms[there].level == 0 < rooms[room].level


# ---- the imports


def room_of(file: Path) -> str:
    """Return the room of a file of the package; '' for the package's `__init__.py`."""
    first = file.relative_to(PACKAGE).parts[0]
    name = first.removesuffix(".py").removesuffix(".pyi")
    return "" if name == "__init__" else name


def rooms_on_disk() -> set[str]:
    """Return the names of all rooms that there are."""
    files = [*PACKAGE.rglob("*.py"), *PACKAGE.glob("*.pyi")]
    return {room_of(file) for file in files} - {""}


def imports_of(file: Path, source: str) -> Iterator[Import]:
    """Yield every import of the package, in functions and under TYPE_CHECKING too."""
    package = file.parent.relative_to(ROOT).parts if file.is_relative_to(ROOT) else ()
    rooms = rooms_on_disk()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            # `from mindspore_rec import nn` names a room, `from mindspore_rec import MLP` does not.
            from_top = module == TOP
            names = [
                f"{TOP}.{alias.name}" if from_top and alias.name in rooms else module
                for alias in node.names
            ]
        else:
            continue
        for name in names:
            if name == TOP or name.startswith(TOP + "."):
                yield Import(file, node.lineno, name[len(TOP) + 1 :])


def all_imports() -> list[Import]:
    """Return every import of the package in the package, but those that make the public names."""
    files = [*PACKAGE.rglob("*.py"), *PACKAGE.glob("*.pyi")]
    return [each for file in files if room_of(file) for each in imports_of(file, file.read_text())]


def broken(rooms: dict[str, Room], imports: list[Import]) -> list[str]:
    """Return the imports that the rule does not have."""
    return [str(each) for each in imports if not may_import(rooms, room_of(each.file), each.target)]


def cycles(arrows: dict[str, set[str]]) -> list[str]:
    """Return the rooms from which arrows lead back to themselves."""
    return [room for room in sorted(arrows) if room in reached(arrows, room)]


def arrows_of(imports: list[Import]) -> dict[str, set[str]]:
    """Return which rooms each room imports."""
    arrows: dict[str, set[str]] = {}
    for each in imports:
        here, there = room_of(each.file), each.target.split(".")[0]
        if here != there:
            arrows.setdefault(here, set()).add(there)
    return arrows


# ---- the package


def test_the_rule_names_every_room_and_no_other() -> None:
    assert rooms_of(RULE.read_text()).keys() == rooms_on_disk()


def test_every_import_is_an_arrow_of_the_rule() -> None:
    assert broken(rooms_of(RULE.read_text()), all_imports()) == []


def test_the_rule_and_the_imports_have_no_cycle() -> None:
    rooms = rooms_of(RULE.read_text())
    rule = {
        here: {there for there in rooms if there != here and may_import(rooms, here, there)}
        for here in rooms
    }
    assert cycles(rule) == []
    assert cycles(arrows_of(all_imports())) == []


def test_arrows_lead_down() -> None:
    rooms = rooms_of(RULE.read_text())
    for here, room in rooms.items():
        for there in room.may:
            level = rooms[there.split(".")[0]].level
            assert level < room.level or level == room.level == 0, f"{here} may import {there}"


@pytest.mark.parametrize(
    "source",
    [
        "import mindspore_rec.train.loop.loop",
        "from mindspore_rec.train import RecModel",
        "from mindspore_rec import train",
        "from mindspore_rec import RecModel",
        "from ..train import RecModel",
        "def late():\n    from mindspore_rec.train import RecModel",
        "if TYPE_CHECKING:\n    import mindspore_rec.train as t",
    ],
)
def test_a_wrong_import_is_found(source: str) -> None:
    file = PACKAGE / "parameter" / "new.py"
    found = broken(rooms_of(RULE.read_text()), list(imports_of(file, source)))
    assert len(found) == 1 and found[0].startswith("mindspore_rec/parameter/new.py:")


def test_a_cycle_is_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c"]


def test_native_tables_stay_inside_their_rooms() -> None:
    reaching = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for folder in (TOP, *USERS)
        for file in sorted((ROOT / folder).rglob("*.py"))
        if not file.is_relative_to(PACKAGE) or room_of(file) not in ("parameter", "cache")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("_synchronised", "native")
        if not (isinstance(node.value, ast.Name) and node.value.id == TOP)
    ]
    assert reaching == []


# ---- serving


def test_every_import_between_folders_of_serving_is_an_arrow_of_the_rule() -> None:
    rule = serving_folders_of(RULE.read_text())
    serving = PACKAGE / "serving"
    assert rule.keys() == {file.parent.name for file in serving.glob("*/__init__.py")}
    wrong = []
    for file in sorted(serving.glob("*/*.py")):
        here = file.parent.name
        for each in imports_of(file, file.read_text()):
            room, _, rest = each.target.partition(".")
            if room == "serving" and rest.partition(".")[0] not in {here, *rule[here]}:
                wrong.append(str(each))
    assert wrong == []
    assert cycles({here: set(may) for here, may in rule.items()}) == []


# ---- those who use the package


def public_names(room: str) -> set[str]:
    """Return the `__all__` of the package ('') or of a room."""
    module = importlib.import_module(f"{TOP}.{room}".rstrip("."))
    return set(getattr(module, "__all__", ()))


def uses_of(file: Path, source: str) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name in the package of all that a file uses of it."""
    tree = ast.parse(source)
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == TOP or alias.name.startswith(TOP + "."):
                    yield node.lineno, alias.name[len(TOP) + 1 :]
                    aliases[alias.asname or TOP] = alias.name if alias.asname else TOP
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module == TOP or node.module.startswith(TOP + "."):
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    yield node.lineno, name[len(TOP) + 1 :]
                    aliases[alias.asname or alias.name] = name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            whole = aliases.get(node.value.id)
            if whole is not None and (whole == TOP or whole[len(TOP) + 1 :] in rooms_on_disk()):
                yield node.lineno, f"{whole}.{node.attr}"[len(TOP) + 1 :]


def is_public(name: str) -> bool:
    """Return whether a dotted name is in `__all__` of the package or of a room, or is a room."""
    if name == "" or name in public_names("") or name in rooms_on_disk() - {"_native"}:
        return True
    room, _, rest = name.partition(".")
    return room in rooms_on_disk() - {"_native"} and rest in public_names(room)


@pytest.mark.parametrize("folder", USERS)
def test_programs_use_public_names_only(folder: str) -> None:
    private = [
        f"{file.relative_to(ROOT)}:{line} uses {TOP}.{name}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for line, name in uses_of(file, file.read_text())
        if not is_public(name)
    ]
    assert private == []


@pytest.mark.parametrize(
    ("source", "public"),
    [
        ("import mindspore_rec as mr\nmr.RecModel", True),
        ("from mindspore_rec import stream\nstream.pack", True),
        ("from mindspore_rec.stream import pack", True),
        ("import mindspore_rec as mr\nmr.stream.pack", True),
        ("from mindspore_rec.train.nn.embedding import tables_of", False),
        ("import mindspore_rec.train.nn.embedding", False),
        ("from mindspore_rec import _native", False),
        ("import mindspore_rec as mr\nmr.nothing_of_this_name", False),
        ("from mindspore_rec.train import loop", False),
        ("from mindspore_rec import train\ntrain.loop", False),
    ],
)
def test_private_names_are_found(source: str, public: bool) -> None:
    assert all(is_public(name) for _, name in uses_of(ROOT / "x.py", source)) == public


def test_every_public_name_is_there() -> None:
    for room in ["", *sorted(rooms_on_disk() - {"_native"})]:
        module = importlib.import_module(f"{TOP}.{room}".rstrip("."))
        for name in public_names(room):
            assert hasattr(module, name), f"{module.__name__} has no {name}"


def test_the_top_has_what_most_programs_need() -> None:
    assert len(public_names("")) <= 60


def test_every_folder_says_what_is_in_it() -> None:
    for room in rooms_on_disk():
        if (PACKAGE / room).is_dir():
            module = importlib.import_module(f"{TOP}.{room}")
            assert module.__doc__ and module.__all__, f"{room} needs a docstring and __all__"


# ---- csrc


def includes_of(source: str) -> set[str]:
    """Return the folders, as paths below csrc, whose headers a file of csrc includes."""
    return set(re.findall(r'^\s*#\s*include\s+"([a-z_/]+)/', source, re.MULTILINE))


def native_files() -> Iterator[tuple[str, Path]]:
    """Yield folder, as a path below csrc, and path of every source of csrc."""
    csrc = PACKAGE / "csrc"
    for file in sorted(csrc.rglob("*")):
        if file.suffix in (".cc", ".h", ".inl"):
            yield file.relative_to(csrc).parent.as_posix(), file


def test_the_rule_names_every_folder_of_csrc_and_no_other() -> None:
    assert folders_of(RULE.read_text()).keys() == {folder for folder, _ in native_files()}


def test_every_include_is_an_arrow_of_the_rule() -> None:
    rule = folders_of(RULE.read_text())
    wrong = [
        f"{file.relative_to(ROOT)} includes {there}/"
        for here, file in native_files()
        for there in includes_of(file.read_text()) - {here}
        if there not in rule.get(here, ())
    ]
    assert wrong == []


def test_the_rule_of_csrc_has_no_cycle() -> None:
    rule = folders_of(RULE.read_text())
    assert cycles({here: set(may) for here, may in rule.items()}) == []


def test_only_bindings_know_python() -> None:
    knows = re.compile(r'^\s*#\s*include\s+[<"](Python\.h|pybind11/)', re.MULTILINE)
    found = {here for here, file in native_files() if knows.search(file.read_text())}
    assert found == {"bindings"}


def test_the_floor_of_csrc_knows_nothing_above_it() -> None:
    rule = folders_of(RULE.read_text())
    assert rule["util"] == frozenset()
    assert rule["tier"] == frozenset({"util"})
    assert not any("bindings" in may for may in rule.values())
