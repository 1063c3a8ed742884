# SPDX-License-Identifier: Apache-2.0
"""Check that all numbers in a batch are finite. A ReLU may hide a NaN by turning it into 0."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["check_finite", "finite_fault"]

_FEW = 4096  # numbers: BLAS sums more on several threads
_FLOATS = ("Float16", "Float32", "Float64")  # of MindSpore's Tensors


def check_finite(what: str, column: Any) -> None:
    """Check that a column has no NaN and no infinity. A column without floats always passes.

    Args:
        what: name of the column, for the message.
        column: array or Tensor with one row per sample.

    Raises:
        ValueError: a number is not finite. The message names the first row with a NaN or an
            infinity.

    Example:
        >>> check_finite("column 'age'", np.array([[1.5], [np.nan]], np.float32))
        Traceback (most recent call last):
        ...
        ValueError: column 'age' must have finite numbers, got nan in row 1: fill it, or leave the \
row out
    """
    fault = finite_fault(column)
    if fault:
        raise ValueError(f"{what} {fault}")


def finite_fault(column: Any) -> str:
    """Return the error message without the column's name; '' if all numbers are finite.

    Example:
        >>> finite_fault(np.array([1.5, np.inf], np.float32))
        'must have finite numbers, got inf in row 1: fill it, or leave the row out'
    """
    if not isinstance(column, np.ndarray):
        if str(getattr(column, "dtype", "")) not in _FLOATS:
            return ""
        column = column.asnumpy()
    if column.dtype.kind != "f":
        return ""
    # If the sum is finite, all numbers are finite. Each number is checked only if the sum is not
    # finite.
    if column.size <= _FEW:
        flat = column.ravel()
        total = flat.dot(flat)  # BLAS warns of nothing: a request of 13 numbers takes 1 us, not 7
    else:
        with np.errstate(all="ignore"):
            total = column.sum()
    if math.isfinite(total):
        return ""
    bad = ~np.isfinite(column)
    if not bad.any():  # the sum was too large
        return ""
    place = np.argwhere(np.atleast_1d(bad))[0].tolist()
    row, inside = place[0], place[1:]
    where = f"row {row}"
    if len(place) > 1 and column[0].size > 1:
        where += f", number {int(np.ravel_multi_index(inside, column.shape[1:]))}"
    value = float(np.atleast_1d(column)[tuple(place)])
    return f"must have finite numbers, got {value} in {where}: fill it, or leave the row out"
