# SPDX-License-Identifier: Apache-2.0
"""Find the value that a conversion of a column fails on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["first_bad"]


def first_bad(values: Any, wanted: pa.DataType) -> tuple[int, Any]:
    """Return row and value of the first value that a cast to a type refuses.

    Args:
        values: array or chunked array that the cast refuses.
        wanted: the type.

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
