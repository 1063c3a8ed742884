# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for Tensors: objects that record each operation of a network's `construct`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Protocol

from mindspore import Tensor

__all__ = ["NothingToFuseError", "Recorder", "StandIn", "TraceError", "problems"]

# Methods that read or write a Tensor's elements.
_OF_CONTENT = (
    "asnumpy",
    "numpy",
    "item",
    "tolist",
    "set_data",
    "assign_value",
    "data_ptr",
    "move_to",
)


_thread = threading.local()


def problems() -> list[str]:
    """Return this thread's list of trace error messages; the caller may append messages.

    Because a `construct` may catch an error, the trace reads the messages after `construct` has
    ended.
    """
    if not hasattr(_thread, "problems"):
        _thread.problems = []
    return _thread.problems


class TraceError(Exception):
    """Raised if a network cannot be written as a list of steps; the message says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        problems().append(message)


class NothingToFuseError(TraceError):
    """Raised if a network has no step that an operator could compute."""


class Recorder(Protocol):
    """Protocol of objects that record the operations on stand-ins."""

    def record(self, kind: str, target: Any, args: Any, kwargs: dict[str, Any]) -> StandIn:
        """Record a step, and return the stand-in for the step's result."""

    def replace(self, number: int) -> None:
        """Record that a value may have been changed in place."""


class StandIn:
    """Stand-in for a Tensor of unknown shape, type and values.

    Args:
        recorder: the object that records each operation on the stand-in.
        number: index of the value that the stand-in represents.
    """

    number: int
    _recorder: Recorder

    def __init__(self, recorder: Recorder, number: int) -> None:
        object.__setattr__(self, "_recorder", recorder)
        object.__setattr__(self, "number", number)

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # isinstance(x, Tensor) is as for a Tensor
        return Tensor

    def __getattr__(self, name: str) -> Callable[..., StandIn]:
        if name == "_is_buffer":  # asked by `Cell.__setattr__`
            raise TraceError("it makes a Tensor an attribute of a cell")
        if name.startswith("_") or name.endswith("_") or name in _OF_CONTENT:
            raise TraceError(f"it asks for '{name}' of a Tensor")
        if not callable(getattr(Tensor, name, None)):
            raise TraceError(f"it asks for '{name}' of a Tensor, which depends on the batch")
        return lambda *args, **kwargs: self._recorder.record("method", name, (self, *args), kwargs)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise TraceError(f"it sets '{name}' of a Tensor")

    def __str__(self) -> NoReturn:
        raise TraceError("it makes text of a Tensor")

    def __format__(self, form: str) -> NoReturn:
        raise TraceError("it makes text of a Tensor")

    def __setitem__(self, place: Any, value: Any) -> NoReturn:
        raise TraceError("it sets elements of a Tensor")

    def __bool__(self) -> NoReturn:
        raise TraceError("it branches on the values of a Tensor")

    def __int__(self) -> NoReturn:
        raise TraceError("it makes a Python number of a Tensor")

    __float__ = __index__ = __complex__ = __int__

    def __len__(self) -> NoReturn:
        raise TraceError("it asks for the length of a Tensor")

    def __iter__(self) -> Iterator[Any]:
        raise TraceError("it unpacks a Tensor, or what a layer returns")

    def __contains__(self, value: Any) -> NoReturn:
        raise TraceError("it searches a Tensor")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TraceError("it makes an array of a Tensor")

    def __getitem__(self, place: Any) -> StandIn:
        return self._recorder.record("item", "", (self, place), {})

    def __neg__(self) -> StandIn:
        return self._recorder.record("method", "neg", (self,), {})

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"StandIn({self.number})"


def _operator(symbol: str, is_swapped: bool) -> Callable[[StandIn, Any], StandIn]:
    def operate(self: StandIn, other: Any) -> StandIn:
        operands = (other, self) if is_swapped else (self, other)
        return self._recorder.record("operator", symbol, operands, {})

    return operate


def _in_place(symbol: str) -> Callable[[StandIn, Any], StandIn]:
    def operate(self: StandIn, other: Any) -> StandIn:
        result = self._recorder.record("operator", symbol, (self, other), {})
        self._recorder.replace(self.number)
        return result

    return operate


_ARITHMETIC = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "matmul": "@",
}
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
for _name, _symbol in _ARITHMETIC.items():
    setattr(StandIn, f"__{_name}__", _operator(_symbol, False))
    setattr(StandIn, f"__r{_name}__", _operator(_symbol, True))
    setattr(StandIn, f"__i{_name}__", _in_place(_symbol))
for _name, _symbol in _COMPARISONS.items():
    setattr(StandIn, f"__{_name}__", _operator(_symbol, False))
