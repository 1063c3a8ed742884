# SPDX-License-Identifier: Apache-2.0
"""The record of public names has them all, and a comparison finds what was lost or changed."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import mindspore_rec
from tests.support.processes import ROOT
from tools import public_names
from tools.public_names import command, differences

BEFORE = """
__all__ = ["Table", "lookup", "rows"]

class Table:
    def read(self, keys: int) -> int:
        return keys
    def _own(self) -> None: ...
    @property
    def dim(self) -> int:
        return 1

def lookup(keys: int, seed: int = 0) -> int:
    return keys

rows = 3
"""
AFTER = """
import warnings

__all__ = ["Table", "found", "rows"]

class Table:
    def read(self, keys: int, missing: int = 0) -> int:
        return keys
    @property
    def width(self) -> int:
        return 1

def found(keys: int) -> int:
    return keys

def __getattr__(name: str) -> int:
    if name != "rows":
        raise AttributeError(name)
    warnings.warn("rows is old: use found()", DeprecationWarning)
    return 3
"""
HELP = "nargs=0 default===SUPPRESS=="
COMMAND = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("path")
parts = parser.add_subparsers().add_parser("ls")
parts.add_argument("-n", "--rows", type=int, default=7, help="number of rows")
parser.parse_args()
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package that has the text of `BEFORE`, and whose file may be written again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(public_names, "PACKAGE", "made_up")
    (tmp_path / "made_up").mkdir()
    (tmp_path / "made_up" / "__init__.py").write_text(BEFORE)
    (tmp_path / "made_up" / "__main__.py").write_text(COMMAND)
    yield importlib.import_module("made_up")
    del sys.modules["made_up"]


def test_lost_added_and_changed_names_are_told_apart(module: ModuleType) -> None:
    before = public_names.public_names(["made_up"])
    assert before["made_up.lookup"] == {
        "kind": "function",
        "from": "made_up",
        "signature": "(keys: int, seed: int = 0) -> int",
        "warnings": [],
    }
    assert differences(before, before) == ([], True)
    Path(str(module.__file__)).write_text(AFTER)
    del sys.modules["made_up"]
    importlib.invalidate_caches()
    now = public_names.public_names(["made_up"])
    assert differences(before, now) == (
        [
            "lost: made_up.lookup",
            "added: made_up.found",
            "changed: made_up.Table: .dim was 'property', is 'lost'",
            "changed: made_up.Table: .read was '(self, keys: int) -> int', "
            "is '(self, keys: int, missing: int = 0) -> int'",
            "added: made_up.Table: .width property",
            "warns: made_up.rows: rows is old: use found()",
        ],
        False,
    )


def test_names_of_a_module_that_is_gone_are_lost(module: ModuleType) -> None:
    before = public_names.public_names(["made_up"])
    assert public_names.public_names(["made_up", "made_up.gone"]) == before


def test_a_name_that_only_moved_or_warns_is_no_loss() -> None:
    before = {"a.f": {"kind": "function", "from": "a.old", "signature": "()", "warnings": []}}
    now = {"a.f": {**before["a.f"], "from": "a.new", "warnings": ["use g"]}}
    lines = ["moved: a.f: from a.old to a.new", "warns: a.f: use g"]
    assert differences(before, now) == (lines, True)


def test_options_of_a_command_and_its_subcommands(module: ModuleType) -> None:
    assert command("made_up") == {
        "python -m made_up path": "required=True",
        "python -m made_up ls -n, --rows": "default=7",
        **{f"python -m made_up{part} -h, --help": HELP for part in ("", " ls")},
    }


def test_a_command_without_a_parser_is_an_error(module: ModuleType) -> None:
    Path(str(module.__file__)).with_name("__main__.py").write_text("")
    with pytest.raises(ValueError, match="python -m made_up reads no command line by argparse"):
        command("made_up")


def test_faces_and_commands_are_those_of_the_package() -> None:
    folder = ROOT / "mindspore_rec"
    faces = {(path.parent if path.stem == "__init__" else path).stem
             for path in [*folder.glob("*.py"), *folder.glob("*/__init__.py")]
             if "__all__" in path.read_text(encoding="utf-8")}  # fmt: skip
    faces -= {"mindspore_rec", "native_core"}
    assert set(public_names.FACES) == faces
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    said = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    commands = re.findall(r"python -m mindspore_rec\.(\w+(?:\.\w+)*)", said)
    assert set(public_names.COMMANDS) == set(commands)


def test_the_record_has_every_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "names.json"
    assert public_names.main(["--json", str(out)]) == 0
    found = json.loads(out.read_text())
    names = {name.rpartition(".")[2] for name in found["names"] if name.count(".") == 1}
    assert names == set(vars(mindspore_rec)["__all__"])
    assert found["names"]["mindspore_rec.RecModel"]["members"]["online_train"].startswith("(self,")
    assert "python -m mindspore_rec.checkpoint verify --live" in str(sorted(found["commands"]))
    capsys.readouterr()
    assert public_names.main(["--compare", str(out)]) == 0
    assert "no difference" in capsys.readouterr().out
