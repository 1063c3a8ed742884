# SPDX-License-Identifier: Apache-2.0
"""Whole numbers that are too large for int64, such as unsigned hashes of 64 bits."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["beyond_int64"]


def beyond_int64(column: pa.ChunkedArray) -> bool:
    """Return True for a column of float64 that may have been whole numbers of 2**63 and more.

    Arrow's readers of text infer float64 for such numbers, and then different numbers may be equal.

    Example:
        >>> [beyond_int64(pa.chunked_array([[each, 1.0]])) for each in (1.5, 2.0**63)]
        [False, True]
    """
    if not pa.types.is_float64(column.type):
        return False
    return bool(pc.any(pc.greater_equal(pc.abs(column), 2.0**63)).as_py())
