# SPDX-License-Identifier: Apache-2.0
"""Seconds that tests take on the code as it is, which limit them on a mutant, and lines they run.

They are kept in a file beside the digest of the test's text and, if it runs Python, of the rooms'
code: only tests that have changed, or are new, or run other code, run again.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutants.draw import ROOMS
from tests.mutants.lines_run import FOLDER
from tests.support.slow_tests import SLOW
from tools import quick

__all__ = ["CleanRuns", "TestRun"]

# So many files in one process: with 40 files, a process came to its limit of memory.
_FILES_AT_ONCE = 8
_MOST_SECONDS = 1800  # of the tests in these files, which take a few minutes


@dataclass(frozen=True)
class TestRun:
    """Duration and lines of a test in Python.

    Args:
        seconds: duration of the test.
        lines: numbers of the lines that the test runs, by file.
    """

    __test__ = False  # it is no test

    seconds: float
    lines: Mapping[str, Sequence[int]]

    def of(self, file: str) -> Sequence[int]:
        """Return the lines of a file that the test runs."""
        return self.lines.get(file, ())


class CleanRuns:
    """Runs of tests without a mutant.

    Args:
        root: a tree as it is, in which they run.
        kept: file with the times of earlier runs.
    """

    def __init__(self, root: Path, kept: Path) -> None:
        self._root = root
        self._kept = kept
        known = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
        self._known: dict[str, dict[str, Any]] = known

    def of_files(self, names: Iterable[str], jobs: int) -> dict[str, TestRun]:
        """Return the tests in files of Python; slow files and failing tests are left out.

        Args:
            names: of the files, in the tree.
            jobs: files that run side by side.
        """
        folders = (self._root / folder for room in ROOMS for folder in room.folders)
        code = sorted(path for folder in folders for path in folder.rglob("*.py"))
        keys = {name: self._key(name, [name, *code]) for name in names if name not in SLOW}
        unknown = [name for name, key in keys.items() if key not in self._known]
        for some in _pieces(unknown, _FILES_AT_ONCE * jobs):
            tests = _runs_of_files(self._root, some, jobs)
            of_file: dict[str, dict[str, Any]] = {keys[name]: {} for name in some}
            for test, run in tests.items():
                of_file[keys[test.partition("::")[0]]][test] = run
            self._keep(of_file)
        known = (self._known[key].items() for key in keys.values())
        return {test: TestRun(**run) for tests in known for test, run in tests}

    def of_native(self, program: Path, folder: str) -> dict[str, float]:
        """Return the seconds of each test in a folder of C++; failing ones are left out."""
        paths = (self._root / folder).rglob("*_test.cc")
        names = sorted(path.relative_to(self._root).as_posix() for path in paths)
        key = self._key(folder, names)
        if key not in self._known:
            wanted = quick.cpp_filter([Path(name) for name in names])
            self._keep({key: _seconds_of_native(self._root, program, wanted)})
        return self._known[key]

    def _key(self, name: str, files: Iterable[str | Path]) -> str:
        data = b"".join((self._root / file).read_bytes() for file in files)
        return f"{name} {hashlib.sha256(data).hexdigest()[:16]}"

    def _keep(self, runs: Mapping[str, dict[str, Any]]) -> None:
        names = {key.split()[0] for key in runs}
        others = {key: each for key, each in self._known.items() if key.split()[0] not in names}
        self._known = {**others, **runs}
        self._kept.parent.mkdir(parents=True, exist_ok=True)
        self._kept.write_text(json.dumps(self._known) + "\n", encoding="utf-8")


def _pieces(names: Sequence[str], size: int) -> list[Sequence[str]]:
    return [names[first : first + size] for first in range(0, len(names), size)]


def _runs_of_files(root: Path, files: Sequence[str], jobs: int) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="mutants.") as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"]
        command += ["-p", "tests.mutants.lines_run", "-n", str(jobs), "--dist", "loadfile", *files]
        env = {**os.environ, FOLDER: folder}
        done = subprocess.run(
            command, cwd=root, env=env, capture_output=True, text=True, timeout=_MOST_SECONDS
        )
        runs = {}
        for path in Path(folder).glob("*.json"):
            runs.update(json.loads(path.read_text(encoding="utf-8")))
        if not runs:
            raise RuntimeError(
                f"the tests of the tree as it is did not run:\n{done.stdout[-3000:]}"
            )
        return runs


def _seconds_of_native(root: Path, program: Path, wanted: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="mutants.") as folder:
        report = Path(folder) / "tests.json"
        command = [str(program), f"--gtest_filter={wanted}", f"--gtest_output=json:{report}"]
        subprocess.run([*command, "--gtest_brief=1"], cwd=root, capture_output=True)
        suites = json.loads(report.read_text(encoding="utf-8"))["testsuites"]
    return {
        f"{suite['name']}.{case['name']}": float(case["time"].rstrip("s"))
        for suite in suites
        for case in suite["testsuite"]
        if "failures" not in case
    }
