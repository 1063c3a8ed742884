# SPDX-License-Identifier: Apache-2.0
"""Plugin of pytest: which lines of the rooms' Python each test runs, and how long it takes.

Not by a library: coverage would be one more package, for this one use. What a test runs in
processes that it starts is not seen.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, ClassVar

import pytest

from tests.mutants.draw import ROOMS

__all__ = ["FOLDER"]

FOLDER = "MINDSPORE_REC_LINES_RUN"  # variable that names the folder that gets the lines

_ROOT = f"{Path(__file__).parents[2]}/"
_FOLDERS = tuple(f"{folder}/" for room in ROOMS for folder in room.folders)

Line = tuple[str, int]


class _Tracer:
    """Records the rooms' lines that run; a thread records for the test that began the thread.

    Args:
        lines: set to which the lines are added.
    """

    _files: ClassVar[dict[CodeType, str | None]] = {}

    def __init__(self, lines: set[Line]) -> None:
        self._lines = lines

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        try:
            file = self._files[code]
        except KeyError:
            name = code.co_filename.removeprefix(_ROOT)
            file = self._files[code] = name if name.startswith(_FOLDERS) else None
        if file is None:
            return None
        self._lines.add((file, frame.f_lineno))
        return self


@contextmanager
def _traced(lines: set[Line]) -> Iterator[None]:
    before = sys.gettrace()
    tracer = _Tracer(lines)
    threading.settrace(tracer)
    sys.settrace(tracer)
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(before)


class _Lines:
    """Lines that were run by each test, and for all tests of a file, in their common fixtures."""

    def __init__(self) -> None:
        self.of_tests: dict[str, set[Line]] = defaultdict(set)
        self.of_files: dict[str, set[Line]] = defaultdict(set)
        self.seconds: dict[str, float] = defaultdict(float)
        self.bad: set[str] = set()

    def write(self, folder: Path) -> None:
        """Write everything to a file of this process."""
        tests = {}
        for test, lines in self.of_tests.items():
            if test not in self.bad:
                by_file: dict[str, list[int]] = defaultdict(list)
                shared = self.of_files[test.partition("::")[0]] | self.of_files[""]
                for file, line in sorted(lines | shared):
                    by_file[file].append(line)
                tests[test] = {"seconds": round(self.seconds[test], 3), "lines": by_file}
        (folder / f"{os.getpid()}.json").write_text(json.dumps(tests), encoding="utf-8")


_LINES = _Lines()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Trace a test, its fixtures included."""
    with _traced(_LINES.of_tests[item.nodeid]):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Record the lines that make a shared fixture as lines of every test of the file."""
    if fixturedef.scope == "function":
        return (yield)
    with _traced(_LINES.of_files[request.node.nodeid.partition("::")[0]]):
        return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count a test's seconds; failing ones, and ones that were skipped, say nothing of a mutant."""
    _LINES.seconds[report.nodeid] += report.duration
    if not report.passed:
        _LINES.bad.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write what this process has run."""
    _LINES.write(Path(os.environ[FOLDER]))
