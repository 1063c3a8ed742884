# SPDX-License-Identifier: Apache-2.0
"""Which tests in Python a mutant of Python meets: tests that run the changed statement.

If no test runs it, tests are taken that run its function, then tests that run its file, then files
of tests that are nearest by imports: what tests run in processes of their own is not known. So do
mutants outside functions, which change what is made when the file is imported.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.mutants.clean import TestRun
from tests.mutants.draw import room_of
from tests.mutants.mutant import Mutant
from tools import quick

__all__ = ["nearest"]


def nearest(mutant: Mutant, text: str, runs: Mapping[str, TestRun], seconds: float) -> list[str]:
    """Return tests that take at most so many seconds together, in the order in which to try them.

    Args:
        mutant: of a file in Python.
        text: the file's.
        runs: what is known of the tests.
        seconds: that they may take. One case of each test comes before others, the shortest first.
    """
    for lines in _wider_and_wider(mutant, text):
        chosen = [t for t, run in runs.items() if not lines.isdisjoint(run.of(mutant.file))]
        if chosen:
            return _that_fit(_many_kinds_first(chosen, runs), runs, seconds)
    folders = tuple(f"{each}/" for each in room_of(mutant.file).tests)
    names = [path.as_posix() for path in quick.nearest_tests([Path(mutant.file)])]
    places = {name: place for place, name in enumerate(names) if name.startswith(folders)}
    near = [test for test in runs if _file(test) in places]
    return _that_fit(sorted(near, key=lambda test: places[_file(test)]), runs, seconds)


def _file(test: str) -> str:
    return test.partition("::")[0]


def _many_kinds_first(tests: Iterable[str], runs: Mapping[str, TestRun]) -> list[str]:
    """Return the shortest case of each test, the shortest first, then the second cases ..."""
    cases: Counter[str] = Counter()
    places = {}
    for test in sorted(tests, key=lambda test: runs[test].seconds):
        name = test.partition("[")[0]
        places[test] = (cases[name], runs[test].seconds)
        cases[name] += 1
    return sorted(places, key=places.__getitem__)


def _that_fit(tests: Iterable[str], runs: Mapping[str, TestRun], seconds: float) -> list[str]:
    chosen: list[str] = []
    for test in tests:
        seconds -= runs[test].seconds
        if seconds < 0 and chosen:
            break
        chosen.append(test)
    return chosen


def _wider_and_wider(mutant: Mutant, text: str) -> list[set[int]]:
    """Return the lines of the mutant's statement, of its function, and of all functions."""
    first, _, _ = mutant.lines(text)
    last = first + text.count("\n", mutant.start, mutant.end)
    tree = ast.parse(text)
    functions = [
        n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    bodies = [set(range(each.body[0].lineno, _end(each) + 1)) for each in functions]
    every: set[int] = set().union(*bodies)
    around = [body for body in bodies if first in body]
    if around:
        innermost = min(around, key=len)
        statements = (_lines(n) for n in ast.walk(tree) if isinstance(n, ast.stmt))
        own = [lines for lines in statements if first in lines and last in lines]
        return [min(own, key=len, default=innermost), innermost, every]
    # The default of an argument changes what its function does.
    headed = [
        body
        for each, body in zip(functions, bodies, strict=True)
        if each.lineno <= first < each.body[0].lineno
    ]
    return [*headed[:1], every]


def _lines(node: ast.stmt) -> set[int]:
    """Return a statement's lines, without the statements in it."""
    body = getattr(node, "body", None)
    end = max(node.lineno, body[0].lineno - 1) if body else _end(node)
    return set(range(node.lineno, end + 1))


def _end(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno
