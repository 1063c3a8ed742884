# SPDX-License-Identifier: Apache-2.0
"""Errors for arguments of wrong types: they name the table and the argument, and say what is legal.

The native core refuses an argument of a wrong type before a call does anything. Only then are the
arguments compared with the annotations of the method, so legal calls pay for no checks.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from mindspore_rec.common.checks import check_int, check_number

__all__ = ["names_wrong_arguments"]

_REFUSALS = ("incompatible function arguments", "Unable to cast Python instance")
_DTYPES = {
    "keys": ("int64", "int32"),
    "ids": ("int64", "int32"),
    "handles": ("int64",),
    "gradients": ("float32",),
    "values": ("float32",),
    "states": ("float32",),
    "counts": ("uint32",),
    "last_steps": ("uint32",),
    "last_times": ("uint32",),
    "codes": ("uint8",),
}
_RANGES = {
    "padding_key": (-(1 << 63), (1 << 63) - 1),
    "parts": (1, 1 << 16),
    "part": (0, (1 << 16) - 1),
    "rows": (1, (1 << 63) - 1),
    "step": (0, (1 << 32) - 1),
    "event_time": (0, (1 << 32) - 1),
}

Class = TypeVar("Class", bound=type)


def names_wrong_arguments(cls: Class) -> Class:
    """Make the public methods of a class of tables name an argument that the native core refuses.

    Raises:
        TypeError, ValueError: from a method, if the native core refuses the types of the arguments.
    """
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(cls, name, _named(method, _explain))
    return cls


def _named(method: Any, explain: Callable[..., None]) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except (TypeError, RuntimeError) as error:
            explain(error, method, self, args, kwargs)
            raise

    # Doctest runs only the examples of functions with the globals of the examined module.
    named = types.FunctionType(
        call.__code__, method.__globals__, method.__name__, None, call.__closure__
    )
    return functools.wraps(method)(named)


def _explain(error: Exception, method: Any, table: Any, args: Any, kwargs: Any) -> None:
    """Raise an error that names the wrong argument, if the native core refused an argument."""
    trace = error.__traceback__
    trace = trace and trace.tb_next  # the method
    raised_by_callback = trace is None or trace.tb_next is not None
    if raised_by_callback or not any(refusal in str(error) for refusal in _REFUSALS):
        return
    where = f"table '{table._table_name}'"
    hints = typing.get_type_hints(method)
    signature = inspect.signature(method)
    bound = signature.bind(table, *args, **kwargs)
    arguments = {**dict(zip(signature.parameters, bound.args, strict=False)), **bound.kwargs}
    del arguments["self"]
    for name, value in arguments.items():
        if name in hints:
            _check(f"{where}: {name}", name, value, hints[name])
    shown = ", ".join(f"{name}={type(value).__name__}" for name, value in arguments.items())
    raise TypeError(
        f"{where}: {method.__name__} got an argument of a name or type that it does not take: "
        f"{shown}; help(table.{method.__name__}) describes the arguments"
    ) from error


def _check(where: str, name: str, value: Any, hint: Any) -> None:
    legal = [each for each in typing.get_args(hint) or (hint,) if isinstance(each, type)]
    if value is None and types.NoneType in legal:
        return
    if np.ndarray in legal:
        _check_array(where, name, value)
    elif int in legal:
        check_int(where, value, *_RANGES.get(name, (0, (1 << 63) - 1)))
    elif float in legal:
        check_number(where, value)
    elif bool in legal and not isinstance(value, bool | np.bool_):
        raise TypeError(f"{where} must be True or False, got {type(value).__name__}")
    elif (str in legal or bytes in legal) and not isinstance(value, tuple(legal)):
        raise TypeError(f"{where} must be {legal[0].__name__}, got {type(value).__name__}")
    elif typing.get_origin(hint) is Callable and not callable(value):
        raise TypeError(f"{where} must be a function, got {type(value).__name__}")


def _check_array(where: str, name: str, value: Any) -> None:
    dtypes = _DTYPES[name]
    is_array = isinstance(value, np.ndarray)
    if is_array and str(value.dtype) in dtypes and value.flags.c_contiguous:
        return
    kind = f"array of {value.dtype}" if is_array else type(value).__name__
    remedy = "asnumpy() makes one of a Tensor"
    if not hasattr(value, "asnumpy"):
        remedy = f"numpy.array({name}, numpy.{dtypes[0]}) makes one of a list"
    raise TypeError(
        f"{where} must be a contiguous NumPy array of {' or '.join(dtypes)}, got {kind}; {remedy}"
    )
