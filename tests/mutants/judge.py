# SPDX-License-Identifier: Apache-2.0
"""Whether the tests of its room find a mutant."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.defects.build import Tree
from tests.defects.entry import ROOT
from tests.defects.tools import Finding, GoogleTest, Pytest, run_tool
from tests.mutants.clean import TestRun
from tests.mutants.draw import room_of
from tests.mutants.equivalents import Equivalents
from tests.mutants.mutant import Mutant
from tests.mutants.nearest import nearest

__all__ = ["Judge", "Verdict"]

# What ran, and what came of it; the mutant is in the tree meanwhile.
_Runs = Generator[tuple[str, Finding], None, None]

# So long take, on the code as it is, the tests in Python that a mutant of Python meets, and those
# of them that it meets first: to wait for one that hangs must not take long.
_SECONDS = 60.0
_FIRST_SECONDS = 20.0
# So long take the long tests in C++ that a mutant of C++ meets.
_LONG_SECONDS = 20.0
# C++ tests that take longer than the others run after them.
_QUICK = 0.5
# A mutant's tests may take so many times as long, and MindSpore so long to be imported.
_TIMES = 8.0
_IMPORT = 60.0


@dataclass(frozen=True)
class Verdict:
    """Outcome of a mutant.

    Args:
        room: name of its room.
        file: that it changes.
        line: number of the first line that it changes.
        old: the lines as they are.
        new: the lines as the mutant has them.
        outcome: "killed", "survived", "equivalent" (it was not run), or "does not compile".
        said: what the test said that found it, or why it is equivalent.
        tests: that have run.
        seconds: that they took, and the compiler.
    """

    room: str
    file: str
    line: int
    old: str
    new: str
    outcome: str
    said: str = ""
    tests: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Judge:
    """Runs the tests of mutants' rooms.

    Args:
        native_times: seconds of tests in C++, by the name of the room.
        runs: tests in Python.
        equivalents: mutants that no test can find.
    """

    def __init__(
        self,
        native_times: Mapping[str, Mapping[str, float]],
        runs: Mapping[str, TestRun],
        equivalents: Equivalents,
    ) -> None:
        self._native_times = native_times
        self._tests = runs
        self._equivalents = equivalents

    def judge(self, mutant: Mutant, tree: Tree) -> Verdict:
        """Put a mutant into a tree, run tests until one fails, and take it out again."""
        room = room_of(mutant.file).name
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        lines = mutant.lines(text)
        why = self._equivalents.why(mutant.file, lines, text)
        if why is not None:
            return Verdict(room, mutant.file, *lines, "equivalent", why)
        begin = time.monotonic()
        tests = []
        outcome, said = "survived", ""
        runs = self._native_runs(mutant, tree) if mutant.is_native else self._runs(mutant, tree)
        try:
            for some, finding in runs:
                tests.append(some)
                if finding.outcome != "not found":
                    outcome, said = "killed", finding.said.replace(f"{tree.root}/", "")
                    break
        except subprocess.CalledProcessError as error:
            outcome, said = "does not compile", str(error.stderr)[-300:]
        finally:
            runs.close()  # takes the mutant out
        seconds = round(time.monotonic() - begin, 1)
        return Verdict(room, mutant.file, *lines, outcome, said, tests, seconds)

    def _runs(self, mutant: Mutant, tree: Tree) -> _Runs:
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        tests = nearest(mutant, text, self._tests, _SECONDS)
        first = _that_fit({each: self._tests[each].seconds for each in tests}, _FIRST_SECONDS)
        more = [each for each in tests if each not in first]
        with tree.with_edits([mutant], set()):
            yield self._pytest(list(first) or more, tree.root)
            if first and more:
                yield self._pytest(more, tree.root)

    def _native_runs(self, mutant: Mutant, tree: Tree) -> _Runs:
        times = self._native_times[room_of(mutant.file).name]
        short = {name: each for name, each in times.items() if each <= _QUICK}
        long = {name: times[name] for name in sorted(times.keys() - short.keys())}
        long = _that_fit(long, _LONG_SECONDS)
        with tree.with_edits([mutant], {"tests"}):
            tree.build([GoogleTest()])
            for some in filter(None, (short, long)):
                limit = 10 + _TIMES * sum(some.values())
                tool = GoogleTest(names=":".join(some), limit=limit)
                folders = ", ".join(room_of(mutant.file).native_tests)
                yield f"{len(some)} tests of {folders}", run_tool(tool, tree.root)
            outer = room_of(mutant.file).outer_tests
            with tree.with_module():
                yield self._pytest([t for t in self._tests if _file(t) in outer], tree.root)

    def _pytest(self, tests: Sequence[str], root: Path) -> tuple[str, Finding]:
        if not tests:
            raise ValueError("a mutant must meet tests, and none of its room's has passed without")
        limit = _IMPORT + _TIMES * sum(self._tests[each].seconds for each in tests)
        files = Counter(map(_file, tests))
        title = ", ".join(f"{count} of {file}" for file, count in files.items())
        # Tests of a file in a row, which may share what is made for them.
        names = sorted(tests, key=lambda test: list(files).index(_file(test)))
        return title, run_tool(Pytest(names=tuple(names), limit=limit), root)


def _file(test: str) -> str:
    return test.partition("::")[0]


def _that_fit(times: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Return the tests, in their order, that run in so many seconds together."""
    chosen: dict[str, float] = {}
    for name, each in times.items():
        if sum(chosen.values()) + each <= seconds:
            chosen[name] = each
    return chosen
