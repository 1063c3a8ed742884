# SPDX-License-Identifier: Apache-2.0
"""Transforms of columns with several values per row: lists of categories, and words of texts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.common.columns.arrow_columns import decoded, is_text, nulls_of_nan
from mindspore_rec.common.columns.categories import as_categories
from mindspore_rec.common.columns.hashing import keys_of
from mindspore_rec.common.columns.transforms import Feature

__all__ = ["PADDING_KEY", "Categories", "Words", "values_of_lists"]

PADDING_KEY = -(1 << 63)
"""Key that fills up a short list. A hashed value has this key with probability 2**-64."""

_MOST_VALUES = 4096
_BETWEEN_WORDS = r"[^\p{L}\p{N}]+"


class Categories(Feature):
    """Hash the values of lists to keys, like a `Category` that has several values per row.

    Args:
        column: lists of strings or integers. A missing list is empty.
        length: number of keys of a row, 1 to 4096. Only the first `length` values of a longer list
            are read; a shorter list is filled up with `PADDING_KEY`. Default: 20.
        field: text that is the salt of the hash. Default: the column's name.
        separator: text between the values, if the column consists of texts such as 'a|b|c'. An
            empty text is an empty list. Default: None, which means that the column consists of
            lists.
        values: 'text' or 'whole'; see `Category`. Default: None.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> tags = Categories("tags", length=2)
        >>> keys = tags.apply(pa.array([["new", "red", "big"], ["red"], None]), learn=False)
        >>> keys[0, 1] == keys[1, 0], (keys == PADDING_KEY).tolist()
        (True, [[False, False], [False, True], [True, True]])
    """

    dtype = np.int64
    reads_lists = True

    def __init__(
        self,
        column: str | int,
        length: int = 20,
        field: str | None = None,
        separator: str | None = None,
        values: str | None = None,
    ) -> None:
        super().__init__(column)
        self.length = self.width = check_int("length", length, 1, _MOST_VALUES)
        if field is None and isinstance(column, int):
            raise ValueError(f"field must be given where column is a place, got column={column}")
        self.field = str(column) if field is None else field
        if separator is not None and (not isinstance(separator, str) or not separator):
            raise ValueError(f"separator must be a text, got {separator!r}")
        self.separator = separator
        self.values = None if values is None else check_one_of("values", values, ("text", "whole"))

    def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
        """Return the keys, int64 ``[B, length]``."""
        offsets, flat = self._lists(values)
        where = f"column {self.column!r} must"
        first, counts = offsets[:-1], np.minimum(np.diff(offsets), self.length)
        keys = np.full((len(first), self.length), PADDING_KEY, np.int64)
        places = np.arange(self.length)
        there = places < counts[:, None]
        taken = (first[:, None] + places)[there]
        if len(taken):
            flat = flat.take(pa.array(taken)) if len(taken) < len(flat) else flat
            keys[there] = keys_of(self.field, as_categories(flat, self.values), where)
        return keys

    def _lists(self, values: pa.Array) -> tuple[np.ndarray, pa.Array]:
        """Return the offsets of the rows' values, int64 ``[B + 1]``, and all values."""
        return values_of_lists(self.column, values, self.separator)


class Words(Categories):
    """Hash the words of texts to keys. Words are runs of letters and digits, in lower case.

    Args:
        column: texts. A missing text has no words.
        length: number of keys of a row; see `Categories`. Default: 20.
        field: text that is the salt of the hash. Default: the column's name.

    Example:
        >>> words = Words("title", length=3)
        >>> keys = words.apply(pa.array(["Red sofa, new!", "SOFA"]), learn=False)
        >>> keys[0, 1] == keys[1, 0]
        True
    """

    def __init__(self, column: str | int, length: int = 20, field: str | None = None) -> None:
        super().__init__(column, length, field)

    def _lists(self, values: pa.Array) -> tuple[np.ndarray, pa.Array]:
        values = nulls_of_nan(decoded(values))
        if pa.types.is_null(values.type):
            values = values.cast(pa.string())
        if not is_text(values.type):
            raise ValueError(
                f"column {self.column!r} must be texts, it is {values.type}: a Category reads "
                "numbers, and Categories read lists"
            )
        words = pc.replace_substring_regex(pc.utf8_lower(values), _BETWEEN_WORDS, " ")
        return super()._lists(_split(pc.utf8_trim(words, " "), " "))


def values_of_lists(
    column: str | int, values: pa.Array, separator: str | None = None
) -> tuple[np.ndarray, pa.Array]:
    """Return the offsets of lists, int64 ``[B + 1]``, and the values of all lists.

    Args:
        column: name or place of the column, for error messages.
        values: lists ``[B]``, or texts if there is a separator. A missing list is empty.
        separator: text between the values in a column of texts. Default: None.

    Raises:
        ValueError: the values are not lists, or are lists of lists.

    Example:
        >>> offsets, flat = values_of_lists("tags", pa.array(["a|b", None, "c"]), "|")
        >>> offsets.tolist(), flat.to_pylist()
        ([0, 2, 2, 3], ['a', 'b', 'c'])
    """
    values = _split(values, separator)
    kind = values.type
    if pa.types.is_null(kind):
        return np.zeros(len(values) + 1, np.int64), pa.array([], pa.string())
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise ValueError(
            f"column {column!r} must be lists, it is {kind}: a text such as 'a|b' needs "
            "separator='|', and a Category reads single values"
        )
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    flat = values.flatten()  # without the values of missing lists
    if pa.types.is_nested(flat.type):
        raise ValueError(f"column {column!r} must be lists of values, it is {kind}")
    return offsets, flat


def _split(values: pa.Array, separator: str | None) -> pa.Array:
    values = nulls_of_nan(decoded(values))
    if pa.types.is_fixed_size_list(values.type):
        return values.cast(pa.list_(values.type.value_type))
    if separator is None or pa.types.is_null(values.type):
        return values
    if not is_text(values.type):
        return values if pa.types.is_nested(values.type) else _split(_texts(values), separator)
    return pc.if_else(pc.equal(values, ""), None, pc.split_pattern(values, separator))


def _texts(values: pa.Array) -> pa.Array:
    """Convert values to texts; a reader may infer numbers if each list has a single value."""
    return as_categories(values, "text")
