# SPDX-License-Identifier: Apache-2.0
"""Traces the forward pass of a network: its `construct`, called with stand-ins for Tensors.

MindSpore's graph compiler is not used: `construct` runs as Python. A layer with a fused form, or a
cell that cannot be traced, is a single step. If a user's cell contains layers with a fused form or
returns several results, the calls inside the cell are separate steps. A user's cell that contains
no layers with a fused form and returns one result is a single step.
"""

from __future__ import annotations

import gc
import inspect
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from mindspore import Tensor, mint, nn, ops

from mindspore_rec.train.graph.lock import graph_lock
from mindspore_rec.train.nn.fusing.contents import contents_of, is_of_library
from mindspore_rec.train.nn.fusing.layers import is_layer
from mindspore_rec.train.nn.fusing.stand_in import StandIn, TraceError, problems
from mindspore_rec.train.nn.fusing.surroundings import GlobalName, Surroundings

__all__ = [
    "BY_LAYERS",
    "Step",
    "Trace",
    "classes_of",
    "is_of_user",
    "may_enter",
    "trace",
    "values_in",
]

BY_LAYERS = "construct_by_layers"
"""Name of the method that a fused cell has in the place of its class's `construct`."""

_SET_LATER = ("_func_graph_flags", "sequence_modified")  # MindSpore's attributes of some cells
_MODULES: dict[str, ModuleType] = {
    "ops": ops,
    "mint": mint,
    "mint.nn.functional": mint.nn.functional,
}


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a forward pass.

    Args:
        kind: kind of the step, 'cell', 'primitive', 'function', 'method', 'operator' or 'item'.
        target: the cell, the primitive, the operator, or the name of the function or method, such
            as 'ops.concat'.
        args: positional arguments; each value of the forward pass is a `StandIn`.
        kwargs: dict of the keyword arguments.
        value: index of the value that the step returns.
    """

    kind: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: int

    @property
    def reads(self) -> tuple[int, ...]:
        """Indexes of the values that the step reads."""
        return values_in((self.args, self.kwargs))


@dataclass
class Trace:
    """Steps of a forward pass.

    Attributes:
        inputs: number of arguments of `construct`. The arguments are the values with the indexes 0
            to `inputs - 1`.
        steps: steps of the forward pass, in order.
        result: index of the returned value, or a tuple of indexes.
        entered: the cells whose `construct` is a part of the trace.
        names: global names that `construct` reads.
        words: names and strings that occur in the functions called by `construct`.
    """

    inputs: int
    steps: list[Step] = field(default_factory=list)
    result: int | tuple[int, ...] = 0
    entered: list[nn.Cell] = field(default_factory=list)
    names: list[GlobalName] = field(default_factory=list)
    words: set[str] = field(default_factory=set)


def values_in(thing: Any) -> tuple[int, ...]:
    """Return the indexes of all values in (nested) arguments, from left to right."""
    if _is_stand_in(thing):
        return (thing.number,)
    if isinstance(thing, dict):
        thing = tuple(thing.values())
    if isinstance(thing, (tuple, list)):
        return tuple(number for each in thing for number in values_in(each))
    if isinstance(thing, slice):
        return values_in((thing.start, thing.stop, thing.step))
    return ()


def trace(network: nn.Cell, arguments: tuple[bool, ...], training: bool) -> Trace:
    """Trace a network: return the steps of the network's forward pass.

    Tracing does not change the network or its modes.

    Args:
        network: the network.
        arguments: for each argument of `construct`, True to pass a stand-in for a Tensor, or False
            to pass None.
        training: whether to trace the network in training mode.

    Raises:
        TraceError: the network cannot be written as a list of steps.
    """
    cells = [cell for _, cell in network.cells_and_names()]
    attributes = [dict(vars(cell)) for cell in cells]
    of_classes = {kind: dict(vars(kind)) for kind in classes_of(cells)}
    values = [value for of in attributes for name, value in of.items() if is_of_user(name)]
    values += [
        value
        for of in of_classes.values()
        for name, value in of.items()
        if not name.startswith("__")
    ]
    contents = [each for value in values for each in contents_of(value)]
    problems().clear()
    tracer = _Tracer(network, len(arguments))
    stand_ins = tuple(tracer.stand_in(k) if each else None for k, each in enumerate(arguments))
    with graph_lock, _recording(tracer):
        try:
            for cell in cells:
                vars(cell)["training"] = training
            with tracer.surroundings.watched():
                returned = tracer.enter(network, stand_ins, {})
            for each in contents:
                if each.are_changed():
                    raise TraceError(f"it changes {each.kind} of a cell in construct")
            for each in tracer.surroundings.contents:
                if each.are_changed():
                    if values_in(each.container):
                        raise TraceError("it keeps a Tensor after its forward pass")
                    raise TraceError(f"it changes {each.kind} of its module in construct")
            for name in tracer.surroundings.names:
                if name.is_changed():
                    raise TraceError(f"it changes '{name.name}' of its module in construct")
            for kind, of in of_classes.items():
                if changed := _give_back_to_class(kind, of):
                    raise TraceError(f"{kind.__name__} sets its '{changed}' in construct")
            traced = tracer.finish(returned)
        except TraceError:
            raise
        except Exception as error:
            raise TraceError(_words_of(error)) from error
        finally:
            for cell, before in zip(cells, attributes, strict=True):
                _give_back(cell, before)
            for kind, of in of_classes.items():
                _give_back_to_class(kind, of)
            for each in [*contents, *tracer.surroundings.contents]:
                each.restore()
            for name in tracer.surroundings.names:
                name.restore()
    del stand_ins, returned
    if tracer.is_kept():
        raise TraceError("it keeps a Tensor after its forward pass")
    return traced


class _Tracer:
    def __init__(self, network: nn.Cell, inputs: int) -> None:
        self.thread = threading.get_ident()
        self.trace = Trace(inputs)
        self._known = {id(cell) for _, cell in network.cells_and_names()}
        self._next = inputs
        self._replaced: set[int] = set()
        self._made: list[weakref.ref[StandIn]] = []
        self.surroundings = Surroundings(
            {id(each): _recorded(self, each, text) for _, _, each, text in _functions()}
        )

    def stand_in(self, number: int) -> StandIn:
        """Return a new stand-in for the value with index `number`."""
        made = StandIn(self, number)
        self._made.append(weakref.ref(made))
        return made

    def is_kept(self) -> bool:
        """Return whether an object outside the trace refers to a stand-in."""
        if any(each() is not None for each in self._made):
            gc.collect()
        return any(each() is not None for each in self._made)

    def replace(self, number: int) -> None:
        """Record that an operator such as `+=` may have changed a value in place."""
        self._replaced.add(number)

    def _check_alive(self, numbers: tuple[int, ...]) -> None:
        if not self._replaced.isdisjoint(numbers):
            raise TraceError("it reads a Tensor after += or the like, which may have changed it")

    def record(self, kind: str, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Add a step to the trace, and return the stand-in for the step's result."""
        step = Step(kind, target, self._copied(tuple(args)), self._copied(kwargs), self._next)
        self._check_alive(step.reads)
        self._next += 1
        self.trace.steps.append(step)
        return self.stand_in(step.value)

    def _copied(self, thing: Any) -> Any:
        """Return a copy of a step's arguments in which each stand-in is a new object."""
        if _is_stand_in(thing):
            return StandIn(self, thing.number)
        if type(thing) is dict:
            return {name: self._copied(each) for name, each in thing.items()}
        if type(thing) in (tuple, list):
            return type(thing)(self._copied(each) for each in thing)
        if type(thing) is slice:
            return slice(*map(self._copied, (thing.start, thing.stop, thing.step)))
        return thing

    def call(self, cell: nn.Cell, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a cell's call, as one step or as the cell's inner steps; return the result."""
        if id(cell) not in self._known:
            raise TraceError(f"it calls a {type(cell).__name__} that is no child of a cell")
        if is_layer(cell) and not all(map(_is_stand_in, (*args, *kwargs.values()))):
            raise TraceError(f"it calls a {type(cell).__name__} with something else than Tensors")
        if not is_layer(cell) and may_enter(cell):
            steps, entered = len(self.trace.steps), len(self.trace.entered)
            errors = len(problems())
            try:
                returned = self.enter(cell, args, kwargs)
            except Exception:  # the cell is one step, whatever is in it
                if self.surroundings.problem:
                    raise
                del problems()[errors:]
                has_steps = False
            else:
                # If the cell contains layers or returns several results, keep the steps inside the
                # cell; otherwise record the cell as one step.
                has_steps = isinstance(returned, tuple) or _has_layers(cell)
            if has_steps:
                return returned
            del self.trace.steps[steps:], self.trace.entered[entered:]
        return self.record("cell", cell, args, kwargs)

    def enter(self, cell: nn.Cell, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Trace the steps inside a cell, and return the result of the cell's `construct`."""
        if not _is_plain(cell):
            raise TraceError("its construct is compiled, or it has a bprop or a __call__")
        self.trace.entered.append(cell)
        self.surroundings.replace(vars(cell), iter([*vars(cell)]))
        before = dict(vars(cell))
        returned = getattr(cell, BY_LAYERS, cell.construct)(*args, **kwargs)
        changed = _give_back(cell, before)
        self.surroundings.restore(vars(cell))
        if changed:
            raise TraceError(f"{type(cell).__name__} sets its '{changed}' in construct")
        return returned

    def finish(self, returned: Any) -> Trace:
        """Finish the trace with the network's result `returned`, and return the trace."""
        if self.surroundings.problem:
            raise TraceError(self.surroundings.problem)
        if problems():
            raise TraceError(problems()[0])  # which the network has caught
        self.trace.names, self.trace.words = self.surroundings.names, self.surroundings.words
        several = type(returned) is tuple
        results = returned if several else (returned,)
        if not results or not all(_is_stand_in(each) for each in results):
            raise TraceError("it returns something else than Tensors")
        numbers = tuple(each.number for each in results)
        self._check_alive(numbers)
        self.trace.result = numbers if several else numbers[0]
        return self.trace


def _is_stand_in(thing: Any) -> bool:
    return type(thing) is StandIn


def may_enter(cell: nn.Cell) -> bool:
    """Return whether a cell can be traced: a cell of a user's class, or an `nn.SequentialCell`.

    Example:
        >>> may_enter(nn.SequentialCell()), may_enter(nn.Dense(2, 1))
        (True, False)
    """
    is_open = isinstance(cell, nn.SequentialCell) or not is_of_library(type(cell).__module__)
    return is_open and _is_plain(cell)


def _is_plain(cell: nn.Cell) -> bool:
    """Return whether calling a cell does nothing but run the cell's Python `construct`."""
    kind = type(cell)
    construct = inspect.getattr_static(kind, BY_LAYERS, inspect.getattr_static(kind, "construct"))
    is_plain = isinstance(construct, FunctionType) and not hasattr(construct, "__wrapped__")
    return is_plain and not cell.has_bprop and kind.__call__ is nn.Cell.__call__


def _has_layers(cell: nn.Cell) -> bool:
    return any(is_layer(each) for _, each in cell.cells_and_names())


def _give_back(cell: nn.Cell, before: dict[str, Any]) -> str:
    """Restore a cell's attributes; return the name of an attribute that had changed, or ''."""
    now = vars(cell)
    changed = ""
    for name in [*now]:
        if name not in before and is_of_user(name):
            changed = name
            del now[name]
        elif name in before and now[name] is not before[name]:
            if is_of_user(name):
                changed = name
            now[name] = before[name]
    return changed


def classes_of(cells: Iterable[nn.Cell]) -> list[type]:
    """Return the classes of `cells`, including base classes, that the user's code defines.

    Example:
        >>> classes_of([nn.ReLU(), nn.SequentialCell()])
        []
    """
    kinds = {kind: None for cell in cells for kind in type(cell).__mro__}
    return [
        kind
        for kind in kinds
        if kind not in nn.Cell.__mro__
        and not is_of_library(kind.__module__)
        and kind.__module__.partition(".")[0] not in sys.stdlib_module_names
    ]


def _give_back_to_class(kind: type, before: dict[str, Any]) -> str:
    """Restore a class's attributes; return the name of an attribute that had changed, or ''."""
    changed = ""
    for name, value in [*vars(kind).items()]:
        if name.startswith("__") or before.get(name, kind) is value:
            continue
        changed = name
        if name in before:
            setattr(kind, name, before[name])
        else:
            delattr(kind, name)
    return changed


@cache
def _of_every_cell() -> frozenset[str]:
    return frozenset(vars(nn.Cell()))


def is_of_user(name: str) -> bool:
    """Return whether an attribute's name comes from the user's code and not from MindSpore.

    Example:
        >>> is_of_user("scale"), is_of_user("training")
        (True, False)
    """
    return name not in _of_every_cell() and name not in _SET_LATER


def _words_of(error: Exception) -> str:
    """Return a message for an error that `construct` raised."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if "StandIn" in str(error)]
    names = ("mindspore", "mindspore_rec")
    frames = [each for each in frames if names[0] not in Path(each.filename).parts]
    frames = [each for each in frames if names[1] not in Path(each.filename).parts]
    if frames:
        place = f"line {frames[-1].lineno} of {Path(frames[-1].filename).name}"
        return f"it gives a Tensor to a function that cannot be followed, in {place}"
    return f"it raises {type(error).__name__}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return lines[0].rstrip(".")


# ---- replacements during a trace


@cache
def _functions() -> list[tuple[ModuleType, str, Callable[..., Any], str]]:
    """Return (module, name, function, source text) for each public function in `_MODULES`."""
    functions = []
    for text, module in _MODULES.items():
        for name, function in vars(module).items():
            if callable(function) and not isinstance(function, type) and name[0] != "_":
                functions.append((module, name, function, f"{text}.{name}"))
    return functions


@cache
def _primitives() -> list[tuple[type, Callable[..., Any]]]:
    """Return (class, `__call__`) for each primitive of `mindspore.ops` that defines `__call__`."""
    return [
        (kind, vars(kind)["__call__"])
        for kind in {id(each): each for each in vars(ops).values()}.values()
        if isinstance(kind, type)
        and issubclass(kind, ops.Primitive)
        and isinstance(vars(kind).get("__call__"), FunctionType)
    ]


@contextmanager
def _recording(tracer: _Tracer) -> Iterator[None]:
    """Record this thread's calls of cells and of MindSpore's functions as steps."""
    with ExitStack() as stack:
        call = nn.Cell.__call__
        stack.callback(setattr, nn.Cell, "__call__", call)

        def called(cell: nn.Cell, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != tracer.thread:
                return call(cell, *args, **kwargs)
            return tracer.call(cell, args, kwargs)

        nn.Cell.__call__ = called
        getattr_ = nn.Cell.__getattr__
        stack.callback(setattr, nn.Cell, "__getattr__", getattr_)

        def looked_up(cell: nn.Cell, name: str) -> Any:
            value = getattr_(cell, name)
            if isinstance(value, Tensor) and threading.get_ident() == tracer.thread:
                if not is_of_library(sys._getframe(1).f_globals.get("__name__", "")):
                    raise TraceError(f"it reads the Parameter '{name}'")
            return value

        nn.Cell.__getattr__ = looked_up
        for kind, method in _primitives():
            stack.callback(setattr, kind, "__call__", method)
            setattr(kind, "__call__", _recorded_primitive(tracer, method))  # noqa: B010
        for module, name, function, text in _functions():
            stack.callback(setattr, module, name, function)
            setattr(module, name, _recorded(tracer, function, text))
        yield


def _recorded_primitive(tracer: _Tracer, method: Callable[..., Any]) -> Callable[..., Any]:
    def called(primitive: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != tracer.thread:
            return method(primitive, *args, **kwargs)
        _check_reads(type(primitive).__name__, args, kwargs)
        return tracer.record("primitive", primitive, args, kwargs)

    return called


def _check_reads(text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Check that an operator reads a traced value.

    An operator without a traced input would run once, during the trace, and not in later steps.

    Raises:
        TraceError: the operator reads no traced value. An operator without a traced input may
            change a Parameter, draw random numbers or make a constant.
    """
    if not values_in((args, kwargs)):
        raise TraceError(f"it calls {text} on something else than its inputs")


def _recorded(tracer: _Tracer, function: Callable[..., Any], text: str) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != tracer.thread:
            return function(*args, **kwargs)
        _check_reads(text, args, kwargs)
        if text.endswith("_"):
            raise TraceError(f"it calls {text}, which changes a Tensor")
        return tracer.record("function", text, args, kwargs)

    return called
