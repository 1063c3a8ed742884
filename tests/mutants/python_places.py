# SPDX-License-Identifier: Apache-2.0
"""The places of a Python file that a mutant can change, by the nodes of its syntax tree.

Not by a library: cosmic-ray 8.7 changes each `int | None` of an annotation, which no test can
notice, knows nothing of logging and messages, and brings 27 packages, SQLAlchemy and aiohttp among
them; mutmut 3.8 takes whole functions apart and runs them by a runner of its own, which rebuilds no
C++ and draws no sample. Docstrings, annotations, messages of exceptions, logging and f-strings
stay: what they say is no behaviour.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from tests.mutants.mutant import Mutant

__all__ = ["python_places"]

# Operators by their pattern in the source; what takes their place.
_COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
}
_LOGGING = re.compile(r"_?log(ger|ging)?$|warnings$")


def python_places(file: str, text: str) -> list[Mutant]:
    """Return all mutants of a file, in its order."""
    visitor = _Places(file, text)
    visitor.visit(ast.parse(text))
    return sorted(set(visitor.mutants))


class _Places(ast.NodeVisitor):
    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._text = text
        self._lines = text.splitlines(keepends=True)
        self._begins = [0]
        for line in self._lines:
            self._begins.append(self._begins[-1] + len(line))
        self.mutants: list[Mutant] = []

    def _at(self, line: int, column: int) -> int:
        """Return the character at a node's line and column, which counts bytes."""
        before = self._lines[line - 1].encode()[:column].decode()
        return self._begins[line - 1] + len(before)

    def _begin(self, node: ast.expr | ast.stmt) -> int:
        return self._at(node.lineno, node.col_offset)

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._at(node.end_lineno, node.end_col_offset)

    def _add(self, start: int, end: int, new: str) -> None:
        self.mutants.append(Mutant(self._file, start, end, new))

    def _add_between(self, left: ast.expr, right: ast.expr, pattern: str, new: str) -> None:
        start = self._end(left)
        gap = self._text[start : self._begin(right)]
        gap = re.sub(r"#[^\n]*", lambda comment: " " * len(comment.group()), gap)
        operator = re.search(pattern, gap)
        assert operator is not None, (self._file, left.lineno, pattern)
        self._add(start + operator.start(), start + operator.end(), new)

    # ---- what is no behaviour

    def visit_Raise(self, node: ast.Raise) -> None: ...
    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...
    def visit_arg(self, node: ast.arg) -> None: ...

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for each in (*node.args.defaults, *node.args.kw_defaults, *node.body):
            if each is not None:
                self.visit(each)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for each in node.body:
            self.visit(each)

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    # ---- what is changed

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and not _logs(node.value):
            self._add(self._begin(node), self._end(node), "pass")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if not _logs(node):
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for (left, right), operator in zip(
            pairwise([node.left, *node.comparators]), node.ops, strict=True
        ):
            self._add_between(left, right, *_COMPARED[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        names = (r"\band\b", "or") if isinstance(node.op, ast.And) else (r"\bor\b", "and")
        for left, right in pairwise(node.values):
            self._add_between(left, right, *names)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _ARITHMETIC and not any(map(_is_text, ast.walk(node))):
            self._add_between(node.left, node.right, *_ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        new = {ast.Add: "-", ast.Sub: "+"}.get(type(node.op))
        if new is not None and not any(map(_is_text, ast.walk(node.value))):
            pattern = r"\+=" if new == "-" else "-="
            self._add_between(node.target, node.value, pattern, f"{new}=")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            begin = self._begin(node)
            word = re.match(r"not\s*", self._text[begin:])
            assert word is not None
            self._add(begin, begin + word.end(), "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(self._begin(node), self._end(node), str(not node.value))
        elif isinstance(node.value, int):
            self._add(self._begin(node), self._end(node), str(node.value + 1))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    )


def _logs(node: ast.Call) -> bool:
    called: Iterator[ast.AST] = ast.walk(node.func)
    return any(isinstance(each, ast.Name) and _LOGGING.match(each.id) for each in called)
