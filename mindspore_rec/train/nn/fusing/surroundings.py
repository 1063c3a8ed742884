# SPDX-License-Identifier: Apache-2.0
"""Watches the global names, attributes and functions that a `construct` uses.

An operator is made once. So a trace records each number that `construct` reads, and later calls
compare these numbers. If the network calls a function that may act differently in the next step,
the trace ends with an error.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from mindspore import Tensor, nn, ops

from mindspore_rec.train.nn.fusing.stand_in import TraceError

__all__ = ["Surroundings", "constant_of", "is_object", "is_of_library"]

_NUMBERS = (bool, int, float, str, type(None))
_MODULES = ("time", "_datetime", "secrets", "logging", "_io")
_BUILTINS = ("print", "input", "open")
_OPAQUE = (nn.Cell, Tensor, ops.Primitive, type, FunctionType, MethodType, ModuleType)
_MOST_ENTRIES = 100
_DEPTH = 3


def is_of_library(module: str) -> bool:
    """Return whether a module belongs to MindSpore or to this package.

    Example:
        >>> is_of_library("mindspore.nn"), is_of_library("shop.net")
        (True, False)
    """
    return module.partition(".")[0] in ("mindspore", "mindspore_rec")


def constant_of(value: Any, depth: int = _DEPTH) -> Any:
    """Return the numbers and texts in a value, so that they can be compared later.

    The function searches lists, tuples, dicts, sets and objects of the user's classes, but not
    cells or Tensors. For any other value, the result is None.

    Example:
        >>> constant_of([1, "sum", nn.ReLU()])
        (1, 'sum', None)
    """
    if type(value) in _NUMBERS:
        return "nan" if value != value else value
    if depth == 0 or isinstance(value, _OPAQUE):
        return None
    if type(value) in (list, tuple, set, frozenset, dict):
        if len(value) > _MOST_ENTRIES:
            return len(value)
        if isinstance(value, (set, frozenset)):
            return frozenset(each for each in value if type(each) in _NUMBERS)
        entries = value.items() if isinstance(value, dict) else value
        return tuple(constant_of(each, depth - 1) for each in entries)
    return constant_of(dict(vars(value)), depth - 1) if is_object(value) else None


def is_object(value: Any) -> bool:
    """Return whether a value is an object of a user's class that has attributes.

    Example:
        >>> is_object(nn.ReLU()), is_object([1])
        (False, False)
    """
    if isinstance(value, _OPAQUE) or not hasattr(value, "__dict__"):
        return False
    return not is_of_library(type(value).__module__)


class Surroundings:
    """Global names that traced functions read, and calls that end the trace.

    Args:
        functions: a replacement for each function of MindSpore, by the function's `id`. The
            replacement records calls.

    Attributes:
        numbers: namespace, name and value of each global number or text.
        problem: reason why the trace is not valid for later steps, or ''.
    """

    def __init__(self, functions: Mapping[int, Callable[..., Any]]) -> None:
        self._functions = functions
        self._seen: set[CodeType] = set()
        self._replaced: list[tuple[dict[str, Any], str, Any]] = []
        self.numbers: list[tuple[dict[str, Any], str, Any]] = []
        self.problem = ""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the functions that this thread calls."""
        before, collects = sys.getprofile(), gc.isenabled()
        gc.disable()  # hooks of the garbage collector are no part of the network
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(before)
            if collects:
                gc.enable()
            for names, name, value in reversed(self._replaced):
                names[name] = value
            self._replaced.clear()

    def replace(self, names: dict[str, Any], wanted: Iterator[str]) -> None:
        """Replace functions of MindSpore in a namespace by functions that record their calls."""
        for name in wanted:
            value = names.get(name)
            noted = self._functions.get(id(value)) if callable(value) else None
            if noted is not None:
                self._replaced.append((names, name, value))
                names[name] = noted

    def restore(self, names: dict[str, Any]) -> None:
        """Restore the functions that `replace` has replaced in a namespace."""
        for _, name, value in [each for each in self._replaced if each[0] is names]:
            names[name] = value
        self._replaced = [each for each in self._replaced if each[0] is not names]

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        names = frame.f_globals
        if is_of_library(names.get("__name__", "")):
            return
        if event == "call":
            self._note_names(frame.f_code, names)
        elif event == "c_call" and not self.problem and _may_differ(argument):
            self.problem = f"it calls {getattr(argument, '__qualname__', 'a function')}"
            raise TraceError(self.problem)  # before the call

    def _note_names(self, code: CodeType, names: dict[str, Any]) -> None:
        module = names.get("__name__", "").partition(".")[0]
        if code in self._seen or module in sys.stdlib_module_names or module == "numpy":
            return
        self._seen.add(code)
        for name in code.co_names:
            if name in names and type(names[name]) in _NUMBERS:
                self.numbers.append((names, name, constant_of(names[name])))
        self.replace(names, iter(code.co_names))


def _may_differ(function: Any) -> bool:
    """Return whether a C function may act differently when it is called again."""
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None) or type(owner).__module__
    if module == "builtins":
        return isinstance(owner, ModuleType) and function.__name__ in _BUILTINS
    return (
        module in _MODULES or module.startswith("numpy.random") or isinstance(owner, random.Random)
    )
