# SPDX-License-Identifier: Apache-2.0
"""No program text decides by the words of an error: exceptions have types for that.

`mindspore_rec/train/graph` is left out: MindSpore raises one type for many causes, and it is the
one room that reads its pages.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support.processes import ROOT

FOLDERS = ("mindspore_rec", "models", "datasets", "examples", "benchmarks")
ASKS = {"startswith", "endswith", "find", "search", "match", "fullmatch"}


def decisions(source: str) -> Iterator[int]:
    """Yield the lines that look for words in the text of a caught exception."""
    for handler in ast.walk(ast.parse(source)):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None:
            continue
        texts = {f"str({handler.name})", f"repr({handler.name})", f"{handler.name}.args[0]"}
        for node in ast.walk(handler):
            if isinstance(node, ast.Assign) and ast.unparse(node.value) in texts:
                texts |= {ast.unparse(target) for target in node.targets}
        for node in ast.walk(handler):
            if isinstance(node, ast.Compare) and any(
                isinstance(op, (ast.In, ast.NotIn)) and ast.unparse(text) in texts
                for op, text in zip(node.ops, node.comparators, strict=True)
            ):
                yield node.lineno
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ASKS
                and texts & {ast.unparse(each) for each in (node.func.value, *node.args)}
            ):
                yield node.lineno


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_decision_by_the_words_of_an_error(folder: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        if not file.is_relative_to(ROOT / "mindspore_rec" / "train" / "graph")
        for line in decisions(file.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "condition",
    [
        "'used' in str(error)",
        "'used' not in str(error)",
        "str(error).startswith('name')",
        "re.search('used', str(error))",
        "'used' in words",
    ],
)
def test_such_decisions_are_found(condition: str) -> None:
    source = f"""
try:
    make()
except ValueError as error:
    words = str(error)
    if {condition}:
        again()
"""
    assert list(decisions(source)) == [6]
