# SPDX-License-Identifier: Apache-2.0
"""Texts that mean a missing value in a column of numbers that are written as texts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["are_missing_texts"]

_MISSING = pa.array(
    ["", "na", "n/a", "#n/a", "nan", "nat", "null", "none", "nil", "?", "-", "--", ".", "\\n"]
)


def are_missing_texts(texts: pa.Array) -> pa.Array:
    """Return which texts mean a missing number, as bools; False for a missing text.

    Example:
        >>> are_missing_texts(pa.array(["7", " n/a", "?", "", None])).to_pylist()
        [False, True, True, True, False]
    """
    return pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), _MISSING)
