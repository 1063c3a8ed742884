# SPDX-License-Identifier: Apache-2.0
"""Checks a hash table's initial keys and initial values: contents, dtypes and shapes."""

from __future__ import annotations

import math
import numbers
from typing import Any

import mindspore as ms  # noqa: F401  (in the examples)
from mindspore import Tensor

from mindspore_rec.common.checks import check_int
from mindspore_rec.train.parameter.table_config import MAX_DIM

__all__ = ["check_pair", "one_dtype", "shape_of_value"]


def check_pair(name: str, key_tensor: Tensor | None, value_tensor: Tensor | None) -> None:
    """Raise ValueError if a table's initial keys and values do not match; both may be None.

    Args:
        name: name of the table.
        key_tensor: initial keys of the table, `[n]`.
        value_tensor: values of the initial keys, `[n, *value_shape]`.

    Example:
        >>> check_pair("t", None, None)
    """
    if (key_tensor is None) != (value_tensor is None):
        raise ValueError(
            f"table '{name}': key_tensor and value_tensor must be given together or not at all"
        )
    if key_tensor is None or value_tensor is None:
        return
    if key_tensor.ndim != 1 or value_tensor.ndim < 2 or len(key_tensor) != len(value_tensor):
        raise ValueError(
            f"table '{name}': key_tensor must be [n] and value_tensor [n, *value_shape], "
            f"got {key_tensor.shape} and {value_tensor.shape}"
        )


def one_dtype(
    name: str, what: str, wanted: Any, tensor: Tensor | None, default: Any, legal: tuple[Any, ...]
) -> Any:
    """Return the dtype of keys or values: `wanted`, else the dtype of `tensor`, else `default`.

    Args:
        name: name of the table.
        what: 'key' or 'value'.
        wanted: the requested dtype, or None.
        tensor: initial keys or values of the table, or None.
        default: dtype to use if `wanted` and `tensor` are None.
        legal: the legal dtypes of the table.

    Raises:
        TypeError: the dtype is not a legal dtype.
        ValueError: `wanted` differs from the dtype of `tensor`.

    Example:
        >>> one_dtype("t", "key", None, None, ms.int64, (ms.int32, ms.int64))
        mindspore.int64
    """
    if wanted is not None and tensor is not None and wanted != tensor.dtype:
        raise ValueError(
            f"table '{name}': {what}_dtype and {what}_tensor.dtype must be the same, "
            f"got {wanted} and {tensor.dtype}"
        )
    chosen = wanted if wanted is not None else default if tensor is None else tensor.dtype
    if chosen not in legal:
        names = " or ".join(str(dtype) for dtype in legal)
        raise TypeError(f"table '{name}': {what}_dtype must be {names}, got {chosen}")
    return chosen


def shape_of_value(name: str, value_shape: Any, tensor: Tensor | None) -> tuple[int, ...]:
    """Return the shape of a table's values.

    Args:
        name: name of the table.
        value_shape: the requested shape: an int, a tuple or list of ints, or None.
        tensor: initial values of the table, `[n, *value_shape]`, or None.

    Raises:
        TypeError, ValueError: `value_shape` is not a shape, or differs from the shape of the values
            in `tensor`.

    Example:
        >>> shape_of_value("t", [2, 3], None)
        (2, 3)
    """
    if isinstance(value_shape, numbers.Integral):
        value_shape = (value_shape,)
    if value_shape is not None:
        where = f"table '{name}': value_shape"
        if not isinstance(value_shape, (tuple, list)):
            raise TypeError(
                f"{where} must be an int, or a tuple or list of ints, got {value_shape!r}"
            )
        value_shape = tuple(check_int(where, n, 1, MAX_DIM) for n in value_shape)
        if not value_shape:
            raise ValueError(f"{where} must have at least one dimension, got ()")
    if tensor is not None:
        if value_shape is not None and value_shape != tuple(tensor.shape[1:]):
            raise ValueError(
                f"table '{name}': value_shape and value_tensor.shape[1:] must be the same, "
                f"got {value_shape} and {tuple(tensor.shape[1:])}"
            )
        value_shape = tuple(tensor.shape[1:])
    shape: tuple[int, ...] = value_shape if value_shape is not None else (1,)
    if math.prod(shape) > MAX_DIM:
        raise ValueError(
            f"table '{name}': value_shape must have at most {MAX_DIM} elements, got {shape}"
        )
    return shape
