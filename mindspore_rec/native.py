# SPDX-License-Identifier: Apache-2.0
"""The native core as Python and MindSpore see it.

`_native` is both a Python module and the library that holds the operators a graph calls; keeping
one shared object is what lets both see the same tables.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from mindspore import ops

from mindspore_rec import _native
from mindspore_rec._native import (
    NoOptimizerError,
    OutOfMemoryError,
    StaleHandleError,
    TableClosedError,
)

__all__ = [
    "NoOptimizerError",
    "OutOfMemoryError",
    "StaleHandleError",
    "TableClosedError",
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


def custom_op(
    name: str,
    dtype: Any,
    bprop: Callable[..., Any] | None = None,
    *,
    multi_output: bool = False,
) -> ops.Custom:
    """One of the operators in `csrc/ops`, for graph and PyNative mode and for dynamic shapes.

    Args:
        name: the C++ function; `<name>InferShape` must exist beside it.
        dtype: the output's dtype, or a tuple of them.
        bprop: the gradient function, as `ops.Custom` takes it.
        multi_output: True where the operator has more than one output.
    """
    op = ops.Custom(f"{LIBRARY}:{name}", None, dtype, "aot", bprop=bprop)
    op.add_prim_attr("reg_op_name", name)
    # Keeps calls in program order, keeps those whose result is unused, never merges two of them.
    op.add_prim_attr("side_effect_mem", True)
    if multi_output:
        op.add_prim_attr("multi_output", True)
    return op


def set_num_threads(num_threads: int) -> None:
    """Sets how many threads one operator of the tables uses, the calling one included.

    The first value is the environment variable `MINDSPORE_REC_NUM_THREADS`, or the number of CPUs
    the process may run on. Results do not depend on it.

    Args:
        num_threads: 1 to 1024.

    Raises:
        ValueError: outside that range.

    Example:
        >>> import mindspore_rec
        >>> before = mindspore_rec.get_num_threads()
        >>> mindspore_rec.set_num_threads(1)
        >>> mindspore_rec.get_num_threads()
        1
        >>> mindspore_rec.set_num_threads(before)
    """
    _native.set_num_threads(num_threads)


def get_num_threads() -> int:
    """How many threads one operator of the tables uses."""
    return int(_native.get_num_threads())
