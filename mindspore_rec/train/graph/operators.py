# SPDX-License-Identifier: Apache-2.0
"""Access to the native core: table operators, exceptions, number of threads.

The shared object `_native` is a Python module and also the library with the operators that a graph
calls. Python code and graphs use the same tables.
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
from mindspore_rec.common.parallel.group import set_engine
from mindspore_rec.train.graph.engine import MindSporeEngine
from mindspore_rec.train.graph.exporting import is_exporting
from mindspore_rec.train.graph.operator_errors import operator_errors

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

set_engine(MindSporeEngine())

# MindSpore opens and closes the library for each shape inference. Opening and closing the library
# are cheap while another handle of the library is open.
_held = ctypes.CDLL(LIBRARY)


# Operators that take keys from users. A call waits until the operator has finished, so that the
# call raises the operator's errors.
_WITH_USERS_KEYS = frozenset(
    f"Msr{name}"
    for name in (
        *("LookupTrain", "LookupEval", "LookupSlots", "PoolTrain", "PoolEval"),
        *("GroupLookupTrain", "GroupLookupEval", "MapGet", "Find", "Put", "Erase", "Contains"),
    )
)


class TableOperator(ops.Custom):
    """Operator of the native library; a call outside a graph also accepts NumPy arrays.

    A call also initializes Tensors whose initialization was delayed; MindSpore itself initializes
    only the inputs of graphs. Keys and values may be NumPy arrays if `takes_arrays` was called.
    """

    raises_at_once = False  # whether a call outside a graph waits for its own errors
    table: str | None = None  # name of the table that the operator reads or changes
    _table: tuple[str, bool] | None = None

    def takes_arrays(self, table: str, int32_keys: bool) -> TableOperator:
        """Accept NumPy arrays for the first input (keys) and the second input (values).

        Args:
            table: name of the table, for error messages.
            int32_keys: whether the table's keys are int32. If True, int64 keys must be in the int32
                range.
        """
        self._table = table, int32_keys
        return self

    def tell_dtypes(self, dtypes: Any) -> None:
        """Set an attribute with the output dtypes, so that PyNative mode distinguishes operators.

        PyNative mode caches output dtypes; the cache key is the function and the attributes of an
        operator. Without the attribute `output_dtypes`, an operator might get the cached dtypes of
        another operator.

        Args:
            dtypes: dtype of the output, or a tuple of dtypes.
        """
        self.add_prim_attr("output_dtypes", str(dtypes))

    def __infer__(self, *args: Any) -> Any:
        """Infer the outputs when a graph is compiled; refuse a graph for `mindspore.export`.

        A file of `mindspore.export` would contain the id of the table, but no rows.

        Raises:
            RuntimeError: `mindspore.export` compiles a graph with an operator of a table.
        """
        if self.table is not None and is_exporting():
            raise RuntimeError(
                f"table '{self.table}': mindspore.export writes no rows of tables. To write a "
                "MindIR with the rows, call mindspore_rec.serving.mindir.export_mindir; the "
                "network must read its tables by lookups such as HashEmbeddingLookup"
            )
        return super().__infer__(*args)

    def __call__(self, *args: Any) -> Any:
        """Run the operator outside a graph."""
        ready = tuple(self._ready(i, each) for i, each in enumerate(args))
        with operator_errors():
            result = super().__call__(*ready)
            if self.raises_at_once and get_context("device_target") == "CPU":
                # Wait for the operator, so that its error is raised here. Without the wait,
                # PyNative mode raises the error at a later operation.
                _pynative_executor.sync()
            return result

    def _ready(self, i: int, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.init_data() if value.has_init else value
        if self._table is not None and isinstance(value, (np.ndarray, np.integer)):
            array = np.ascontiguousarray(np.atleast_1d(value) if value.ndim == 0 else value)
            return Tensor(_keys(array, *self._table) if i == 0 else _values(array, self._table[0]))
        if self.raises_at_once and isinstance(value, (int, float, list, tuple)):
            # For numbers, lists and tuples, MindSpore would infer a result shape that is smaller
            # than the data that the operator writes.
            raise TypeError(f"ids, keys and values must be Tensors, got {type(value).__name__}")
        return value


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
    table: str | None = None,
    shapes: tuple[tuple[int, ...], ...] | None = None,
    multi_output: bool = False,
) -> TableOperator:
    """Return an operator in `csrc/ops` for graph and PyNative mode, with dynamic shapes.

    Args:
        name: name of the C++ function; `<name>InferShape` must exist too, unless `shapes` is given.
        dtype: dtype of the output, or a tuple of dtypes.
        bprop: gradient function; see `ops.Custom`. Default: None.
        table: name of the table that the operator reads or changes; of several tables, the name of
            the first. `mindspore.export` refuses networks with such operators. Default: None.
        shapes: shapes of the outputs, if these shapes do not depend on the shapes of the inputs.
            Default: None.
        multi_output: whether the operator has more than one output. Default: False.
    """
    infer = None if shapes is None else lambda *_: shapes
    op = TableOperator(f"{LIBRARY}:{name}", infer, dtype, "aot", bprop=bprop)
    op.add_prim_attr("reg_op_name", name)
    op.tell_dtypes(dtype)
    op.table = table
    op.raises_at_once = name in _WITH_USERS_KEYS
    # With `side_effect_mem`, MindSpore keeps the order of calls, and neither removes nor merges
    # calls.
    op.add_prim_attr("side_effect_mem", True)
    if multi_output:
        op.add_prim_attr("multi_output", True)
    return op


def set_num_threads(num_threads: int) -> None:
    """Set the number of threads that each table operator uses, including the calling thread.

    The environment variable `MINDSPORE_REC_NUM_THREADS` sets the initial number. The variable's
    default is the number of CPUs on which the process may run. Results do not depend on the number
    of threads.

    Args:
        num_threads: number of threads, 1 to 1024.

    Raises:
        TypeError: `num_threads` is not an int.
        ValueError: `num_threads` is out of range.

    Warns:
        RuntimeWarning: the operating system does not let the process start `num_threads` threads;
            operators then use only the threads that were started.

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
    """Return the number of threads that each table operator uses."""
    return int(_native.get_num_threads())
