# SPDX-License-Identifier: Apache-2.0
"""bfloat16 numbers in NumPy: uint16 arrays whose elements are upper halves of float32 numbers.

With `ml_dtypes`, `bits.view(ml_dtypes.bfloat16)` is the bfloat16 array, without a copy.
"""

from __future__ import annotations

import numpy as np

__all__ = ["from_bfloat16", "to_bfloat16"]


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Round each number to the nearest bfloat16, ties to even. NaN stays NaN.

    Args:
        values: float32 of any shape.

    Returns:
        uint16 of the same shape.

    Raises:
        TypeError: `values` is of an unsupported type.

    Example:
        >>> to_bfloat16(np.array([1.0, -2.0, 1.00390625], np.float32))
        array([16256, 49152, 16256], dtype=uint16)
    """
    if values.dtype != np.float32:
        raise TypeError(f"values must be float32, got {values.dtype}")
    bits = np.ascontiguousarray(values).view(np.uint32).reshape(values.shape)
    # In the next line, the sum can overflow only if a value is NaN.
    rounded = (bits + (np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)))) >> np.uint32(16)
    quiet = bits >> np.uint32(16) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Convert bfloat16 numbers to float32, which represents every bfloat16 number exactly.

    Args:
        bits: uint16 of any shape.

    Raises:
        TypeError: `bits` is of an unsupported type.

    Example:
        >>> from_bfloat16(np.array([16256, 49152], np.uint16))
        array([ 1., -2.], dtype=float32)
    """
    if bits.dtype != np.uint16:
        raise TypeError(f"bits must be uint16, got {bits.dtype}")
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
