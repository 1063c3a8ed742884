# SPDX-License-Identifier: Apache-2.0
"""A build of the core in place compiles only what changed, and keeps no object that is stale."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.missing import need_package
from tests.support.processes import ROOT

OBJECTS = Path("build") / "native"
UNITS = OBJECTS / OBJECTS / "units"
FILES = {
    "csrc/rows/sizes.h": "inline int size() { return 1; }\n",
    "csrc/rows/add.cc": '#include "rows/sizes.h"\nint add(int a) { return a + size(); }\n',
    "csrc/rows/kernels_base.cc": '#include "rows/sizes.h"\nint base() { return size(); }\n',
    "csrc/tier/path.cc": 'const char* path() { return "the tier"; }\n',
    "csrc/util/hash.cc": "int hash(int a) { return a * 7; }\n",
    "mpi_shim/shim.cc": "int shim() { return 0; }\n",
}
HEADER = "mindspore_rec/csrc/rows/sizes.h"
# Compiler that tests can kill after half of an object, give another version, or have edit a header.
COMPILER = f"""#!/bin/sh
case "$*" in
  *--version) if [ -e version ]; then exec cat version; fi ;;
  *rows_0.cc*)
    if [ -e kill ]; then echo half >"$HALF"; kill -9 $$; fi
    if [ -e edit ]; then gcc "$@" && echo "// A comment." >>{HEADER} && exec rm edit; fi ;;
esac
exec gcc "$@"
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small tree with the repository's setup.py, whose core is compiled in place."""
    need_package("pybind11", "pip install pybind11")
    tree = tmp_path_factory.mktemp("built") / "tree"
    (tree / "mindspore_rec" / "common").mkdir(parents=True)
    names = ("__init__", "version", "native_core", "common/__init__", "common/extras")
    for name in ("setup.py", "README.md", *(f"mindspore_rec/{each}.py" for each in names)):
        shutil.copy(ROOT / name, tree / name)
    for name, text in FILES.items():
        path = tree / "mindspore_rec" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tree / "compiler").write_text(COMPILER)
    (tree / "compiler").chmod(0o755)
    build(tree)
    return tree


@pytest.fixture
def tree(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "tree"))


def build(tree: Path, *options: str, code: int = 0, flags: str = "") -> None:
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-temp", str(OBJECTS)]
    environment = {
        **os.environ,
        "CC": "./compiler",
        "CXX": "./compiler",  # compiles too, of newer setuptools
        "HALF": str(UNITS / "rows_0.o"),
        "MINDSPORE_REC_CXXFLAGS": flags,
    }
    done = subprocess.run(
        [*command, *(options or ["--inplace"])],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr


def times(tree: Path) -> dict[str, int]:
    objects = (tree / OBJECTS).rglob("*.o")
    return {each.stem: each.stat().st_mtime_ns for each in objects}


def compiled(tree: Path, before: dict[str, int]) -> set[str]:
    return {name for name, time in times(tree).items() if before.get(name) != time}


def library(tree: Path) -> bytes:
    (made,) = (tree / "mindspore_rec").glob("_native.*.so")
    return made.read_bytes()


def test_a_changed_file_alone_is_compiled(tree: Path) -> None:
    before = times(tree)
    assert {"rows_0", "kernels_base", "tier_0", "util_0"} <= set(before)
    build(tree)
    assert not compiled(tree, before)
    source = tree / "mindspore_rec" / "csrc" / "util" / "hash.cc"
    source.write_text("// A comment.\n" + source.read_text())
    build(tree)
    assert compiled(tree, before) == {"util_0"}


def test_a_changed_header_compiles_what_includes_it_even_if_its_time_is_old(tree: Path) -> None:
    before = times(tree)
    header = tree / HEADER
    header.write_text(header.read_text().replace("1", "2"))
    os.utime(header, (0, 0))
    build(tree)
    assert compiled(tree, before) == {"rows_0", "kernels_base"}


def test_a_header_that_changes_while_it_is_compiled_compiles_what_includes_it(tree: Path) -> None:
    source = tree / "mindspore_rec" / "csrc" / "rows" / "add.cc"
    source.write_text("// A comment.\n" + source.read_text())
    (tree / "edit").touch()
    build(tree)
    assert not (tree / "edit").exists()
    before = times(tree)
    build(tree)
    assert {"rows_0", "kernels_base"} >= compiled(tree, before) >= {"rows_0"}


def test_the_object_of_a_removed_source_goes_and_the_core_is_linked_without_it(tree: Path) -> None:
    before = times(tree)
    assert b"the tier" in library(tree)
    (tree / "mindspore_rec" / "csrc" / "tier" / "path.cc").unlink()
    build(tree)
    assert set(before) - set(times(tree)) == {"tier_0"} and not compiled(tree, before)
    assert not list((tree / UNITS).glob("tier_0.*"))
    assert b"the tier" not in library(tree)


def test_other_flags_and_another_compiler_compile_everything(tree: Path) -> None:
    before = times(tree)
    build(tree, flags="-DOTHER")
    assert compiled(tree, before) == set(before)
    before = times(tree)
    (tree / "version").write_text("gcc of tomorrow\n")
    build(tree, flags="-DOTHER")
    assert compiled(tree, before) == set(before)


def test_half_an_object_is_compiled_again(tree: Path) -> None:
    before = times(tree)
    source = tree / "mindspore_rec" / "csrc" / "rows" / "add.cc"
    text = source.read_text()
    source.write_text("// A comment.\n" + text)
    (tree / "kill").touch()
    build(tree, code=1)
    assert (tree / UNITS / "rows_0.o").read_text() == "half\n"
    (tree / "kill").unlink()
    source.write_text(text)  # the inputs are what they were before
    build(tree)
    assert compiled(tree, before) == {"rows_0"}
    assert (tree / UNITS / "rows_0.o").read_bytes().startswith(b"\x7fELF")


def test_a_wheel_is_compiled_anew(tree: Path) -> None:
    before = times(tree)
    build(tree, "--build-lib", "build/lib-wheel")
    assert compiled(tree, before) == set(before)
