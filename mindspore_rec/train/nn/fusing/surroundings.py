# SPDX-License-Identifier: Apache-2.0
"""Watches the global names, attributes and functions that a `construct` uses.

The operator for a network is made only once, so a trace records each number that `construct` reads,
and later calls check that these numbers are unchanged. If the network calls a function whose result
may change from step to step, the trace ends with an error.
"""

from __future__ import annotations

import dis
import gc
import random
import sys
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.train.nn.fusing.contents import Contents, contents_of, is_object, is_of_library
from mindspore_rec.train.nn.fusing.stand_in import TraceError

__all__ = ["GlobalName", "Surroundings", "constant_of", "constants_of_class"]

_NUMBERS = (bool, int, float, str, type(None))
_MODULES = ("time", "_datetime", "secrets", "logging", "_io")
_BUILTINS = ("print", "input", "open")
_CONTAINERS = (list, tuple, set, frozenset, dict)
_READS = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")
_MOST_ENTRIES = 100
_DEPTH = 3


class GlobalName:
    """Value that a global name had at the time of a trace.

    A deep copy is the same object, because a copied network uses the same modules as the original
    network.
    """

    def __init__(self, names: dict[str, Any], name: str) -> None:
        self._names, self.name, self._value = names, name, names[name]
        self._before = constant_of(self._value)

    def is_changed(self) -> bool:
        """Return whether the global name's value has changed since the trace."""
        return constant_of(self._names.get(self.name)) != self._before

    def restore(self) -> None:
        """Restore the value that the global name had at the time of the trace."""
        self._names[self.name] = self._value

    def __deepcopy__(self, memo: dict[int, Any]) -> GlobalName:
        return self


class _Same:
    """Wrapper of a function or other object; `==` compares the wrapped objects by identity."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same):
            return False
        are_methods = isinstance(self.value, MethodType) and isinstance(other.value, MethodType)
        return self.value == other.value if are_methods else self.value is other.value

    __hash__ = None  # type: ignore[assignment]


def constant_of(value: Any, depth: int = _DEPTH) -> Any:
    """Return the numbers and strings inside a value, in a form that can be compared later.

    The function searches lists, tuples, dicts, sets and objects of the user's classes, but not
    cells or Tensors. Functions and primitives are compared by identity. Return `Ellipsis` for the
    value None, and None for a value that cannot be compared. Values nested deeper than 3 levels are
    not compared. For a container with more than 100 entries, only the length is compared.

    Example:
        >>> constant_of([1, "sum", nn.ReLU()])
        (1, 'sum', None)
    """
    if type(value) in _NUMBERS:
        return "nan" if value != value else ... if value is None else value
    if depth == 0 or isinstance(value, (nn.Cell, Tensor)):
        return None
    if isinstance(value, ms.Type):
        return str(value)
    if isinstance(value, np.ndarray):
        is_short = value.size <= _MOST_ENTRIES and not value.dtype.hasobject
        return (value.shape, value.tobytes()) if is_short else None
    if isinstance(value, _CONTAINERS):
        if len(value) > _MOST_ENTRIES:
            return len(value)
        if isinstance(value, (set, frozenset)):
            return frozenset(each for each in value if type(each) in _NUMBERS)
        entries = value.items() if isinstance(value, dict) else value
        return tuple(constant_of(each, depth - 1) for each in entries)
    inside = constant_of(dict(vars(value)), depth - 1) if is_object(value) else None
    return (_Same(value), inside) if callable(value) else inside


def constants_of_class(kind: type) -> dict[str, Any]:
    """Return a dict of a class's attributes that are numbers, strings, or containers of both.

    Example:
        >>> constants_of_class(type("Net", (), {"scale": 2.0}))
        {'scale': 2.0}
    """
    return {
        name: constant_of(value)
        for name, value in vars(kind).items()
        if not name.startswith("__") and type(value) in (*_NUMBERS, *_CONTAINERS)
    }


class Surroundings:
    """Records the global names that traced functions read, and calls that make the trace invalid.

    Args:
        functions: maps the `id` of each function of MindSpore to a replacement that records calls.

    Attributes:
        names: each global name whose value is a number, a text, a container or an object.
        contents: copies of the contents of all containers and objects in `names`. The copies are
            made before the network reads the values.
        words: all global names, attribute names and string constants that occur in the functions
            called by the network.
        problem: reason why the trace is not valid for later steps, or ''.
    """

    def __init__(self, functions: Mapping[int, Callable[..., Any]]) -> None:
        self._functions = functions
        self._seen: set[CodeType] = set()
        self._replaced: list[tuple[dict[str, Any], str, Any]] = []
        self.names: list[GlobalName] = []
        self.contents: list[Contents] = []
        self.words: set[str] = set()
        self.problem = ""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note the functions that this thread calls in the `with` block."""
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
        """Replace each MindSpore function named in `wanted` by a function that records calls."""
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
        self.words.update(code.co_names, _texts_in(code.co_consts))
        read = [each.argval for each in dis.get_instructions(code) if each.opname in _READS]
        spaces = [(names, read)]
        for name in read:
            if _is_of_user(names.get(name)):  # a module, such as the module of settings
                spaces.append((vars(names[name]), [*code.co_names]))
        for space, wanted in spaces:
            for name in dict.fromkeys(wanted):
                if name in space and _is_watched(space[name]):
                    self.names.append(GlobalName(space, name))
                    self.contents += contents_of(space[name])
        self.replace(names, iter(code.co_names))


def _texts_in(constants: Iterable[Any]) -> Iterator[str]:
    for each in constants:
        if type(each) is str:
            yield each
        elif isinstance(each, (tuple, frozenset)):
            yield from _texts_in(each)


def _is_of_user(value: Any) -> bool:
    """Return whether a value is a module of the user's code."""
    if not isinstance(value, ModuleType) or is_of_library(value.__name__):
        return False
    module = value.__name__.partition(".")[0]
    return module not in sys.stdlib_module_names and module != "numpy"


def _is_watched(value: Any) -> bool:
    """Return whether a global variable may be a setting or a state that changes."""
    if type(value) in _NUMBERS or isinstance(value, (*_CONTAINERS, deque, np.ndarray)):
        return True
    module = type(value).__module__.partition(".")[0]
    is_settings = isinstance(value, (Namespace, SimpleNamespace))
    return is_settings or (is_object(value) and module not in sys.stdlib_module_names)


def _may_differ(function: Any) -> bool:
    """Return whether a C function may give a different result in a later call."""
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None) or type(owner).__module__
    if module == "builtins":
        return isinstance(owner, ModuleType) and function.__name__ in _BUILTINS
    return (
        module in _MODULES or module.startswith("numpy.random") or isinstance(owner, random.Random)
    )
