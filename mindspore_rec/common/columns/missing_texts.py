# SPDX-License-Identifier: Apache-2.0
"""Texts, such as 'n/a', that mean a missing number in a column of numbers written as texts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["are_missing_texts"]

_MISSING = pa.array(
    ["", "na", "n/a", "#n/a", "nan", "nat", "null", "none", "nil", "?", "-", "--", ".", "\\n"]
)


def are_missing_texts(texts: pa.Array) -> pa.Array:
    """Return a bool per text: True for texts such as 'n/a' that mean a missing number, False for
    None.

    Example:
        >>> are_missing_texts(pa.array(["7", " n/a", "?", "", None])).to_pylist()
        [False, True, True, True, False]
    """
    return pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), _MISSING)
