# SPDX-License-Identifier: Apache-2.0
"""A copy of the tree in which one defect at a time is put back and built.

Of the core only the files that an edit concerns are compiled; their objects are put aside, and are
back when the edit is taken out. Objects that the tree has (`bash build.sh prepare`) are copied.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.defects.entry import ROOT, Change
from tests.defects.tools import GoogleTest, Tool

__all__ = ["Tree"]

_CSRC = Path("mindspore_rec") / "csrc"
_OBJECTS = Path("build") / "native"
_PROGRAM = Path("build") / "csrc-defects" / "msrec_tests"
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
# main.cc of the tests calls functions of these.
_ALWAYS = ["TableBits", "HashSeed"]


class Tree:
    """Copy of the repository's files in a folder.

    Args:
        place: the folder; made where it is not there, or used as an earlier run left it.
        jobs: files that are compiled at a time.
        linked: folder in which CMake has built the C++ tests of the repository, whose objects are
            linked with the core of this tree; None: those that are needed are compiled in it.
    """

    def __init__(self, place: Path, jobs: int, linked: Path | None = None) -> None:
        self.root = place.resolve()
        self._jobs = jobs
        self._linked = linked
        # The compiler takes most of the time of many edits; bits stay the same.
        self._faster = [] if linked is None else ["-O1", "-g0"]
        self._configured: dict[str, str] = {}
        _copy(self.root)
        self._flags = _setup_flags()

    @contextmanager
    def with_edits(self, edits: Iterable[Change], needs: set[str]) -> Iterator[None]:
        """Have edits in the tree, compiled where something that is `needs`-ed links the core.

        Raises:
            ValueError: an edit does not apply.
            subprocess.CalledProcessError: it does not compile.
        """
        before: dict[Path, str] = {}
        aside: dict[Path, bytes] = {}
        try:
            for edit in edits:
                path = self.root / edit.file
                text = edit.applied(self.root)
                before.setdefault(path, path.read_text(encoding="utf-8"))
                path.write_text(text, encoding="utf-8")
            if needs & {"tests", "module"}:
                self._compile({path.relative_to(self.root) for path in before}, aside, needs)
            yield
        finally:
            for path, text in before.items():
                path.write_text(text, encoding="utf-8")
            for path, data in aside.items():
                path.write_bytes(data)

    @contextmanager
    def with_module(self) -> Iterator[None]:
        """Have the module linked of the objects as they are, which an edit has changed."""
        before = self._module().read_bytes()
        try:
            self._link_module(self._sources())
            yield
        finally:
            self._module().write_bytes(before)

    def _sources(self) -> list[Path]:
        units = self._flags["translation_units"](self.root / _OBJECTS / "units")
        return sorted(self.root / unit for unit in units)

    @property
    def program(self) -> Path:
        """The program of the C++ tests, once it was built."""
        return self.root / _PROGRAM

    def build(self, tools: Iterable[Tool]) -> None:
        """Build the programs of tools."""
        tools = list(tools)
        tests = [tool for tool in tools if isinstance(tool, GoogleTest)]
        if tests and self._linked is not None:
            self._link_tests(self._linked)
        elif tests:
            suites = {name.split(".")[0].strip("*") for each in tests for name in _names(each)}
            suites = {name.split("/")[-1] for name in suites}
            core = f"-DCORE_OBJECTS={self.root / _OBJECTS}"
            self._ninja("csrc-defects", "msrec_tests", [core], [*suites, *_ALWAYS])
        if any(tool.needs == "fuzz" for tool in tools):
            self._ninja("csrc-defects-asan", "msrec_fuzz", ["-DSANITIZE=address,undefined"], ["x"])

    def _link_tests(self, built: Path) -> None:
        """Link the repository's objects of tests as it does, but with the core of this tree."""
        commands = ["ninja", "-C", str(built), "-t", "commands", "msrec_tests"]
        said = subprocess.run(commands, check=True, capture_output=True, text=True).stdout
        link = said.rstrip().rpartition("\n")[2]
        self.program.parent.mkdir(parents=True, exist_ok=True)
        link = link.replace(f"{ROOT / _OBJECTS}/", f"{self.root / _OBJECTS}/")
        link = link.replace(" -o msrec_tests ", f" -o {shlex.quote(str(self.program))} ")
        _run(["sh", "-c", link], built)

    def _ninja(self, folder: str, target: str, settings: list[str], only: list[str]) -> None:
        build = self.root / "build" / folder
        # Suites that were built for another defect stay: to leave one out compiles nothing anew.
        known = self._configured.get(folder, "").split("|")
        wanted = "|".join(sorted({*only, *known} - {""}))
        if self._configured.get(folder) != wanted:
            source = str(self.root / "tests" / "csrc")
            given = ["-G", "Ninja", *settings, f"-DONLY={wanted}"]
            _run(["cmake", "-S", source, "-B", str(build), *given], self.root)
            self._configured[folder] = wanted
        _run(["ninja", "-C", str(build), "-j", str(self._jobs), "--quiet", target], self.root)

    def _compile(self, changed: set[Path], aside: dict[Path, bytes], needs: set[str]) -> None:
        sources = self._sources()
        wanted = {_object_of(path, self.root) for path in sources}
        for stale in set((self.root / _OBJECTS).rglob("*.o")) - wanted:
            if "mpi_shim" not in str(stale):
                stale.unlink()  # of files that were moved: the tests link all that are there
        if not all(path.exists() for path in wanted):
            setup = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
            _run([*setup, "--build-temp", str(_OBJECTS)], self.root)
            return
        anew = [path for path in sources if _includes(path, self.root) & changed]
        for path in anew:
            made = _object_of(path, self.root)
            aside[made] = made.read_bytes()
        with ThreadPoolExecutor(self._jobs) as pool:
            list(pool.map(self._compile_one, anew))
        if "module" in needs and anew:
            module = self._module()
            aside[module] = module.read_bytes()
            self._link_module(sources)

    def _module(self) -> Path:
        return next((self.root / "mindspore_rec").glob("_native.*.so"))

    def _link_module(self, sources: Iterable[Path]) -> None:
        made_of = [str(_object_of(path, self.root)) for path in sources]
        made_of = [each for each in made_of if Path(each).exists()]
        _run([*_compiler(), "-shared", "-pthread", *made_of, "-o", str(self._module())], self.root)

    def _compile_one(self, path: Path) -> None:
        source = path.relative_to(self.root)
        own = self._flags["FILE_FLAGS"].get(path.name, self._flags["baseline_flags"]())
        include = [f"-I{_CSRC}", f"-I{_pybind11()}", f"-I{sysconfig.get_path('include')}"]
        flags = ["-fPIC", "-DNDEBUG", *include, *self._flags["COMPILE_FLAGS"], *self._faster, *own]
        command = [*_compiler(), *flags, "-c", str(source), "-o", str(_object_of(path, self.root))]
        _run(command, self.root)


def _copy(place: Path) -> None:
    shutil.copytree(ROOT, place, ignore=_left_out, copy_function=_copy_changed, dirs_exist_ok=True)
    if (ROOT / ".venv").exists() and not (place / ".venv").exists():
        (place / ".venv").symlink_to((ROOT / ".venv").resolve())


def _copy_changed(source: str, to: str) -> None:
    """Copy a file unless it is there already, so that nothing is built again for it."""
    if not Path(to).exists() or Path(source).read_bytes() != Path(to).read_bytes():
        shutil.copy(source, to)  # with a new time, so that what depends on it is built again


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Return what is not copied: of what was built, only the core's objects and its module are."""
    if Path(folder) == ROOT / "build":
        return set(names) - {"native"}
    hidden = {name for name in names if name.startswith(".") and Path(folder) == ROOT}
    return (hidden | {"__pycache__", "output"}) & set(names)


def _object_of(path: Path, root: Path) -> Path:
    return (root / _OBJECTS / path.relative_to(root)).with_suffix(".o")


def _includes(path: Path, root: Path, seen: set[Path] | None = None) -> set[Path]:
    """Return a file and all files of the core that it includes, by their paths in the tree."""
    seen = set() if seen is None else seen
    name = path.relative_to(root)
    if name in seen:
        return seen
    seen.add(name)
    for included in _INCLUDE.findall(path.read_text(encoding="utf-8")):
        other = root / _CSRC / included
        if other.exists():
            _includes(other, root, seen)
    return seen


def _names(test: GoogleTest) -> list[str]:
    return test.names.split(":")


def _compiler() -> list[str]:
    given = os.environ.get("CXX")
    if given:
        return shlex.split(given)
    return ["ccache", "g++"] if shutil.which("ccache") else ["g++"]


def _pybind11() -> str:
    from pybind11 import get_include

    return str(get_include())


def _setup_flags() -> dict[str, Any]:
    """Return the names that setup.py defines before it calls setup()."""
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    scope: dict[str, Any] = {"__file__": str(ROOT / "setup.py"), "__name__": "setup_flags"}
    exec(text[: text.index("\nsetup(\n")], scope)
    return scope


def _run(command: list[str], root: Path) -> None:
    environment = {**os.environ, "CXX": shlex.join(_compiler())}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    done.check_returncode()
