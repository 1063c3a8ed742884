# SPDX-License-Identifier: Apache-2.0
"""Find the value for which a column's conversion fails."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["first_bad"]


def first_bad(values: Any, wanted: pa.DataType) -> tuple[int, Any]:
    """Find the first value that cannot be cast to a type; return its row index and the value.

    Args:
        values: array or chunked array that cannot be cast.
        wanted: the type to cast to.

    Example:
        >>> first_bad(pa.array(["1", "x", "y"]), pa.int64())
        (1, 'x')
    """
    first, last = 0, len(values)
    while last - first > 1:
        middle = (first + last) // 2
        try:
            values.slice(first, middle - first).cast(wanted)
            first = middle
        except pa.ArrowInvalid:
            last = middle
    return first, values[first].as_py()
