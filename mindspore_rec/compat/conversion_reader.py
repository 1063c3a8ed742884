# SPDX-License-Identifier: Apache-2.0
"""Find the Parameters that a cell's code reads from its child cells."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable
from typing import Any

from mindspore import Parameter, nn

__all__ = ["read_in_construct"]

_ITERATORS = ("enumerate", "list", "reversed", "tuple", "zip")


def read_in_construct(cell: nn.Cell) -> list[tuple[Parameter, str]]:
    """Return child cells' parameters that the parent cell's code reads as attributes.

    An output projection may read `self.embedding.embedding_table`, for example, although only the
    embedding registers this Parameter. The search starts at `construct` and follows attributes,
    indices, plain assignments, loops and method calls. The search does not enter code of MindSpore.
    """
    parameters: list[tuple[Parameter, str]] = []
    todo, done = [(cell, "construct")], set()
    while todo:
        owner, method = todo.pop()
        for function in _definitions(owner, method):
            if (id(owner), function) in done:
                continue
            done.add((id(owner), function))
            reader = _Reader(owner, function)
            parameters += reader.parameters
            todo += reader.calls
    return parameters


def _definitions(cell: nn.Cell, method: str) -> list[Any]:
    definitions = []
    for base in type(cell).__mro__:
        function = vars(base).get(method)
        if inspect.isfunction(function):
            if not function.__module__.startswith("mindspore."):
                definitions.append(function)
            code = getattr(inspect.unwrap(function), "__code__", None)
            if code is None or "super" not in code.co_names:
                break
    return definitions


class _Reader(ast.NodeVisitor):
    """Visitor of a method's code that tracks the objects to which each name may refer."""

    def __init__(self, cell: nn.Cell, function: Any) -> None:
        self.parameters: list[tuple[Parameter, str]] = []
        self.calls: list[tuple[nn.Cell, str]] = []
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        except (OSError, SyntaxError):  # no source: then the graph compiler has none either
            return
        if not isinstance(tree, ast.FunctionDef) or not tree.args.args:
            return
        self.names: dict[str, list[Any]] = {tree.args.args[0].arg: [cell]}
        for statement in tree.body:
            self.visit(statement)

    def visit_Assign(self, node: ast.Assign) -> None:  # noqa: N802
        """Record an alias such as `table = self.embedding.embedding_table`."""
        self.generic_visit(node)
        for name in node.targets:
            if isinstance(name, ast.Name):
                self._may_be(name.id, self.objects(node.value))

    def visit_For(self, node: ast.For) -> None:  # noqa: N802
        """Record that a loop's variable may be any member of the object in the loop's header."""
        self._bind(node)
        self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp) -> None:  # noqa: N802
        """Record that each variable of a comprehension may be any member of the iterated object."""
        for loop in node.generators:
            self._bind(loop)
        self.generic_visit(node)

    def _bind(self, loop: ast.For | ast.comprehension) -> None:
        members = [m for o in self.objects(loop.iter) for m in _members(o)]
        for name in ast.walk(loop.target):
            if isinstance(name, ast.Name):
                self._may_be(name.id, members)

    def _may_be(self, name: str, values: list[Any]) -> None:
        known = self.names.setdefault(name, [])
        for value in values:
            if all(value is not other for other in known):
                known.append(value)

    def visit_Attribute(self, node: ast.Attribute) -> None:  # noqa: N802
        """Record each read of a Parameter and each use of a cell's method."""
        for value in self.objects(node):
            if isinstance(value, Parameter):
                self.parameters.append((value, ast.unparse(node)))
        for owner in self.objects(node.value):
            if isinstance(owner, nn.Cell) and inspect.isfunction(
                getattr(type(owner), node.attr, None)
            ):
                self.calls.append((owner, node.attr))
        self.generic_visit(node)

    def objects(self, node: ast.expr) -> list[Any]:
        """Return the cells, attributes or containers that an expression may refer to."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, [])
        if isinstance(node, ast.Attribute):
            owners = [o for o in self.objects(node.value) if isinstance(o, nn.Cell)]
            return [v for o in owners for v in _attribute(o, node.attr)]
        if isinstance(node, ast.Subscript):
            return [m for o in self.objects(node.value) for m in _members(o)]
        if isinstance(node, ast.Call):
            return [o for source in _handed_on(node) for o in self.objects(source)]
        return []


def _handed_on(call: ast.Call) -> list[ast.expr]:
    """Return the arguments whose members a call such as `enumerate(self.cells)` yields."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in ("items", "values", "cells"):
        return [function.value]
    if isinstance(function, ast.Name) and function.id in _ITERATORS:
        return list(call.args)
    return []


def _attribute(cell: nn.Cell, name: str) -> list[Any]:
    for place in (vars(cell), cell._params, cell._cells):
        if name in place:
            return [place[name]]
    return []


def _members(value: Any) -> Iterable[Any]:
    if isinstance(value, nn.Cell):
        return [cell for cell in value._cells.values() if cell is not None]
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, (list, tuple)) else []
