# SPDX-License-Identifier: Apache-2.0
"""The native core as Python and MindSpore see it.

`_native` is both a Python module and the library that holds the operators a graph calls; keeping
one shared object is what lets both see the same tables.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from mindspore import Tensor, get_context, ops
from mindspore.graph.api import _pynative_executor

from mindspore_rec import _native
from mindspore_rec._native import (
    NameTakenError,
    NoOptimizerError,
    OutOfMemoryError,
    StaleHandleError,
    TableClosedError,
)
from mindspore_rec.graph.operator_errors import operator_errors

__all__ = [
    "NameTakenError",
    "NoOptimizerError",
    "OutOfMemoryError",
    "StaleHandleError",
    "TableClosedError",
    "TableOperator",
    "custom_op",
    "get_num_threads",
    "set_num_threads",
]

LIBRARY: str = _native.__file__

_malloc = os.environ.get("MINDSPORE_REC_MALLOC", "keep")
if _malloc not in ("keep", "system"):
    raise ValueError(f"MINDSPORE_REC_MALLOC must be 'keep' or 'system', got {_malloc!r}")
if _malloc == "keep":
    _native.keep_freed_memory()

# MindSpore opens and closes the library around each shape inference; holding it keeps that cheap.
_held = ctypes.CDLL(LIBRARY)


# What is wrong with keys is an error of the call that got them.
_WITH_USERS_KEYS = frozenset(
    f"Msr{name}"
    for name in (
        *("LookupTrain", "LookupEval", "LookupSlots", "PoolTrain", "PoolEval"),
        *("GroupLookupTrain", "GroupLookupEval", "MapGet", "Find", "Put", "Erase", "Contains"),
    )
)


class TableOperator(ops.Custom):
    """One of the library's operators, which outside a graph also takes NumPy arrays.

    A Tensor that is initialised lazily gets its data: MindSpore does that for a graph's inputs
    only. Keys and values may be NumPy arrays, where `takes_arrays` was called.
    """

    raises_at_once = False  # whether a call outside a graph waits for its own errors
    _table: tuple[str, bool] | None = None

    def takes_arrays(self, table: str, int32_keys: bool) -> TableOperator:
        """Let the first input, keys, and the second, values, be NumPy arrays.

        Args:
            table: the table's name, for messages.
            int32_keys: whether its keys are int32; keys of int64 must then be in that range.
        """
        self._table = table, int32_keys
        return self

    def __call__(self, *args: Any) -> Any:
        """Run it, outside a graph."""
        ready = tuple(self._ready(i, each) for i, each in enumerate(args))
        with operator_errors():
            result = super().__call__(*ready)
            if self.raises_at_once and get_context("device_target") == "CPU":
                # PyNative would raise the error at some later operation.
                _pynative_executor.sync()
            return result

    def _ready(self, i: int, given: Any) -> Any:
        if isinstance(given, Tensor):
            return given.init_data() if given.has_init else given
        if self._table is not None and isinstance(given, (np.ndarray, np.integer)):
            array = np.ascontiguousarray(np.atleast_1d(given) if given.ndim == 0 else given)
            return Tensor(_keys(array, *self._table) if i == 0 else _values(array, self._table[0]))
        return given


def _keys(array: np.ndarray, table: str, int32_keys: bool) -> np.ndarray:
    if array.dtype not in (np.int32, np.int64):
        raise TypeError(f"table '{table}': key must be int32 or int64, got {array.dtype}")
    if not int32_keys or array.dtype == np.int32:
        return array
    narrow = array.astype(np.int32)
    if not np.array_equal(narrow, array):
        raise ValueError(
            f"table '{table}': key must be in [-2**31, 2**31), the range of its key_dtype int32; "
            "for others make the table with key_dtype=ms.int64"
        )
    return narrow


def _values(array: np.ndarray, table: str) -> np.ndarray:
    if array.dtype != np.float32:
        raise TypeError(f"table '{table}': value must be float32, got {array.dtype}")
    return array


def custom_op(
    name: str,
    dtype: Any,
    bprop: Callable[..., Any] | None = None,
    *,
    multi_output: bool = False,
) -> TableOperator:
    """Return one of the operators in `csrc/ops`, for graph and PyNative mode and dynamic shapes.

    Args:
        name: the C++ function; `<name>InferShape` must exist beside it.
        dtype: the output's dtype, or a tuple of them.
        bprop: the gradient function, as `ops.Custom` takes it.
        multi_output: True where the operator has more than one output.
    """
    op = TableOperator(f"{LIBRARY}:{name}", None, dtype, "aot", bprop=bprop)
    op.add_prim_attr("reg_op_name", name)
    op.raises_at_once = name in _WITH_USERS_KEYS
    # Keeps calls in program order, keeps those whose result is unused, never merges two of them.
    op.add_prim_attr("side_effect_mem", True)
    if multi_output:
        op.add_prim_attr("multi_output", True)
    return op


def set_num_threads(num_threads: int) -> None:
    """Set how many threads one operator of the tables uses, the calling one included.

    The first value is the environment variable `MINDSPORE_REC_NUM_THREADS`, or the number of CPUs
    the process may run on. Results do not depend on it.

    Args:
        num_threads: 1 to 1024.

    Raises:
        ValueError: outside that range.

    Warns:
        RuntimeWarning: the system lets the process start fewer threads; those are used.

    Example:
        >>> import mindspore_rec
        >>> before = mindspore_rec.get_num_threads()
        >>> mindspore_rec.set_num_threads(1)
        >>> mindspore_rec.get_num_threads()
        1
        >>> mindspore_rec.set_num_threads(before)
    """
    _native.set_num_threads(num_threads)
    if (threads := get_num_threads()) < num_threads:
        warnings.warn(
            f"only {threads} of {num_threads} threads could be started: the limits of the system "
            "(ulimit -u, ulimit -v, the container's pids) or a forked child allow no more",
            RuntimeWarning,
            stacklevel=2,
        )


def get_num_threads() -> int:
    """Return how many threads one operator of the tables uses."""
    return int(_native.get_num_threads())
