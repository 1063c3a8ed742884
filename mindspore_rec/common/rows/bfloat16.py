# SPDX-License-Identifier: Apache-2.0
"""bfloat16 in NumPy, which lacks the type: as uint16, the upper half of a float32.

With `ml_dtypes` a bfloat16 array is `bits.view(ml_dtypes.bfloat16)`, without a copy either way.
"""

from __future__ import annotations

import numpy as np

__all__ = ["from_bfloat16", "to_bfloat16"]


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Return the nearest bfloat16 of each number, of two the even one; NaN stays NaN.

    Args:
        values: float32 of any shape.

    Returns:
        uint16 of that shape.

    Raises:
        TypeError: `values` is of another type.

    Example:
        >>> to_bfloat16(np.array([1.0, -2.0, 1.00390625], np.float32))
        array([16256, 49152, 16256], dtype=uint16)
    """
    if values.dtype != np.float32:
        raise TypeError(f"values must be float32, got {values.dtype}")
    bits = np.ascontiguousarray(values).view(np.uint32).reshape(values.shape)
    # Of what is no NaN the sum does not overflow.
    rounded = (bits + (np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)))) >> np.uint32(16)
    quiet = bits >> np.uint32(16) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Return the numbers of bfloat16 as float32, which has all of them.

    Args:
        bits: uint16 of any shape.

    Raises:
        TypeError: `bits` is of another type.

    Example:
        >>> from_bfloat16(np.array([16256, 49152], np.uint16))
        array([ 1., -2.], dtype=float32)
    """
    if bits.dtype != np.uint16:
        raise TypeError(f"bits must be uint16, got {bits.dtype}")
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
