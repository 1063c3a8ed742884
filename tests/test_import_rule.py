# SPDX-License-Identifier: Apache-2.0
"""The rules of docs/architecture.md, held against every import: storeys, rooms, faces."""

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
STOREYS = ("common", "train", "serve")
FACE_IN_STOREY = ("train", "__init__.py")
ALL_MAY = ("common", "_native", "version")
USES_MINDSPORE = ("train", "compat")


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


def rooms_of(text: str) -> dict[str, frozenset[str]]:
    """Return the rooms of the package in the order of the page, each with those it may import."""
    rows = rows_under(["room", "what is in it", "may import"], text)
    return {name: names_in(may) for names, _, may in rows for name in names_in(names)}


def folders_of(text: str) -> dict[str, frozenset[str]]:
    """Return the rule for the folders of csrc."""
    rows = rows_under(["folder of csrc", "what is in it", "may include"], text)
    return {name: names_in(may) for names, _, may in rows for name in names_in(names)}


def may_import(rooms: dict[str, frozenset[str]], room: str, target: str) -> bool:
    """Return whether the rule has an arrow from a room to a dotted name in the package."""
    there = room_of_name(target)
    return there == room or there in ALL_MAY or there in rooms.get(room, ())


# ---- the imports


def room_of_name(target: str) -> str:
    """Return the room of a dotted name in the package; for a face its name.

    Example:
        >>> [room_of_name(name) for name in ("common.run.chain.Entry", "common.lazy", "stream")]
        ['common.run', 'common', 'stream']
    """
    storey, *rest = target.split(".")
    if rest and (PACKAGE / storey / rest[0] / "__init__.py").is_file() and storey in STOREYS:
        return f"{storey}.{rest[0]}"
    return storey


def room_of(file: Path) -> str:
    """Return the room of a file of the package, or the name of a face; '' for the package's own."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    if parts == ("train", "__init__"):  # a face and a storey
        return "train"
    return room_of_name(".".join(parts)).removesuffix("__init__")


def rooms_on_disk() -> set[str]:
    """Return the names of all rooms that there are."""
    rooms = {
        ".".join(path.parent.relative_to(PACKAGE).parts)
        for storey in STOREYS
        for path in PACKAGE.glob(f"{storey}/*/__init__.py")
    }
    return rooms | {"common", "compat", "serve", "plan", "command"}


def faces() -> set[str]:
    """Return the names of the faces; with a dot a module in one."""
    files = [*PACKAGE.glob("*.py"), *PACKAGE.glob("*/__init__.py"), PACKAGE / "nn" / "fused.py"]
    found = (file for file in files if "= lazily(__name__" in file.read_text())
    names = (".".join(file.relative_to(PACKAGE).with_suffix("").parts) for file in found)
    return {name.removesuffix(".__init__") for name in names} - {"__init__"}


def is_of_a_face(file: Path) -> bool:
    """Return whether a file is one that users import from, or run."""
    parts = file.relative_to(PACKAGE).parts
    return len(parts) == 1 or parts[0] in ("nn", "serving", "checkpoint") or parts == FACE_IN_STOREY


def imports_of(file: Path, source: str) -> Iterator[Import]:
    """Yield every import of the package, in functions and under TYPE_CHECKING too."""
    package = file.parent.relative_to(ROOT).parts if file.is_relative_to(ROOT) else ()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            # `from mindspore_rec import nn` names a module, `from mindspore_rec import MLP` not.
            names = [
                f"{module}.{alias.name}" if is_module(f"{module}.{alias.name}") else module
                for alias in node.names
            ]
        else:
            continue
        for name in names:
            if name == TOP or name.startswith(TOP + "."):
                yield Import(file, node.lineno, name[len(TOP) + 1 :])


def is_module(name: str) -> bool:
    """Return whether a dotted name is a module of the package, or its native core."""
    path = ROOT / name.replace(".", "/")
    ends = (path.with_suffix(".py"), path.with_suffix(".pyi"), path / "__init__.py")
    return name.startswith(TOP) and any(each.is_file() for each in ends)


def all_imports() -> list[Import]:
    """Return every import of the package in its storeys."""
    files = (file for file in PACKAGE.rglob("*.py") if not is_of_a_face(file))
    return [each for file in files for each in imports_of(file, file.read_text())]


def broken(rooms: dict[str, frozenset[str]], imports: list[Import]) -> list[str]:
    """Return the imports that the rule does not have."""
    return [str(each) for each in imports if not may_import(rooms, room_of(each.file), each.target)]


def foreign(file: Path, source: str) -> Iterator[str]:
    """Yield each place of a file where MindSpore is imported."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        else:
            continue
        if any(name.partition(".")[0] == "mindspore" for name in names):
            yield f"{file}:{node.lineno}"


# ---- the package


def test_the_rule_names_every_room_and_no_other() -> None:
    assert rooms_of(RULE.read_text()).keys() == rooms_on_disk()


def test_every_import_is_an_arrow_of_the_rule() -> None:
    assert broken(rooms_of(RULE.read_text()), all_imports()) == []


def test_every_arrow_of_the_rule_is_needed() -> None:
    needed: dict[str, set[str]] = {}
    for each in all_imports():
        needed.setdefault(room_of(each.file), set()).add(room_of_name(each.target))
    for room, may in rooms_of(RULE.read_text()).items():
        assert may <= needed.get(room, set()), room


def test_arrows_lead_to_rooms_above_in_the_table() -> None:
    above: list[str] = []
    for room, may in rooms_of(RULE.read_text()).items():
        assert may <= set(above), f"{room} may import {sorted(may - set(above))}"
        above.append(room)


def test_arrows_stay_in_a_storey_or_lead_down() -> None:
    below = {"common": {"common"}, "plan": {"common"}, "serve": {"common", "serve"}}
    below |= {"train": {"common", "train"}, "compat": {"common", "train"}}
    below["command"] = {"common", "plan", "train", "serve"}
    for room, may in rooms_of(RULE.read_text()).items():
        storey = room.partition(".")[0]
        assert {each.partition(".")[0] for each in may} <= below[storey], room


def test_mindspore_is_imported_in_training_and_compat_only() -> None:
    where = {
        place
        for file in PACKAGE.rglob("*.py")
        if file.relative_to(PACKAGE).parts[0] not in USES_MINDSPORE
        for place in foreign(file, file.read_text())
    }
    assert where == set()
    assert list(foreign(Path("x.py"), "def f():\n    from mindspore.nn import Cell")) == ["x.py:2"]


def test_a_face_has_nothing_but_names() -> None:
    assert {"stream", "train", "nn.fused"} <= faces()
    for name in sorted(faces()):
        path = PACKAGE / name.replace(".", "/")
        package = path / "__init__.py"
        file = package if package.is_file() else path.with_suffix(".py")
        kinds = {type(node).__name__ for node in ast.parse(file.read_text()).body}
        assert kinds <= {"Expr", "ImportFrom", "If"}, name  # docstring, imports, TYPE_CHECKING


@pytest.mark.parametrize(
    "source",
    [
        "import mindspore_rec.train.loop.loop",
        "from mindspore_rec.train import RecModel",
        "from mindspore_rec import train",
        "from mindspore_rec import RecModel",
        "from ...train import RecModel",
        "def late():\n    from mindspore_rec.train import RecModel",
        "if TYPE_CHECKING:\n    import mindspore_rec.train as t",
    ],
)
def test_a_wrong_import_is_found(source: str) -> None:
    file = PACKAGE / "common" / "rows" / "new.py"
    found = broken(rooms_of(RULE.read_text()), list(imports_of(file, source)))
    assert len(found) == 1 and found[0].startswith("mindspore_rec/common/rows/new.py:")


def test_native_tables_stay_inside_their_rooms() -> None:
    reaching = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for folder in (TOP, *USERS)
        for file in sorted((ROOT / folder).rglob("*.py"))
        if not file.is_relative_to(PACKAGE)
        or room_of(file) not in ("common.rows", "train.parameter")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("_synchronised", "native")
        if not (isinstance(node.value, ast.Name) and node.value.id == TOP)
    ]
    assert reaching == []


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
            if whole is not None and (whole == TOP or whole[len(TOP) + 1 :] in public_modules()):
                yield node.lineno, f"{whole}.{node.attr}"[len(TOP) + 1 :]


def public_modules() -> set[str]:
    """Return the modules with public names."""
    return {*faces(), *("plan", "common.checks", "common.extras", "common.yaml_text")}


def is_public(name: str) -> bool:
    """Return whether a dotted name is in `__all__` of the package or a face, or is a face."""
    if name == "" or name in public_names("") or name in public_modules():
        return True
    face, _, rest = name.rpartition(".")
    return face in public_modules() and rest in public_names(face)


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
        ("from mindspore_rec.train.nn.tables import tables_of", False),
        ("import mindspore_rec.train.nn.tables", False),
        ("from mindspore_rec import _native", False),
        ("import mindspore_rec as mr\nmr.nothing_of_this_name", False),
        ("from mindspore_rec.train import loop", False),
        ("from mindspore_rec import train\ntrain.loop", False),
    ],
)
def test_private_names_are_found(source: str, public: bool) -> None:
    assert all(is_public(name) for _, name in uses_of(ROOT / "x.py", source)) == public


def test_every_public_name_is_there() -> None:
    for room in ["", *sorted(public_modules())]:
        module = importlib.import_module(f"{TOP}.{room}".rstrip("."))
        for name in public_names(room):
            assert hasattr(module, name), f"{module.__name__} has no {name}"


def test_the_top_has_what_most_programs_need() -> None:
    assert len(public_names("")) <= 60


def test_every_folder_says_what_is_in_it() -> None:
    for room in rooms_on_disk():
        assert importlib.import_module(f"{TOP}.{room}").__doc__, f"{room} needs a docstring"


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
    assert [here for here in rule if here in reached(rule, here)] == []


def test_only_bindings_know_python() -> None:
    knows = re.compile(r'^\s*#\s*include\s+[<"](Python\.h|pybind11/)', re.MULTILINE)
    found = {here for here, file in native_files() if knows.search(file.read_text())}
    assert found == {"bindings"}


def test_the_floor_of_csrc_knows_nothing_above_it() -> None:
    rule = folders_of(RULE.read_text())
    assert rule["util"] == frozenset()
    assert rule["tier"] == frozenset({"util"})
    assert not any("bindings" in may for may in rule.values())
