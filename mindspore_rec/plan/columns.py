# SPDX-License-Identifier: Apache-2.0
"""Convert columns of a log to keys and to event times."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from mindspore_rec.common.columns.arrow_columns import is_list
from mindspore_rec.common.columns.hashing import category_keys

__all__ = ["KEY_TYPES", "KeyColumn", "TimeColumn"]

KEY_TYPES = ("auto", "id", "category")
_MAX_TIME = float(1 << 32)  # a row keeps its time in 32 bits


class KeyColumn:
    """Convert one column to int64 keys.

    Args:
        name: name of the column; a category's hash depends on the category and on this name.
        key_type: 'id', 'category' or 'auto'. With 'id', the numbers are the keys. With 'category',
            `mindspore_rec.category_keys` hashes the values. With 'auto', the type is 'id' if the
            column's first values are numbers, and 'category' if the first values are text.
        from_text: True if the log is a text file. The numbers in a text file are read as strings of
            digits.

    Example:
        >>> keys, lengths = KeyColumn("user", "auto", False).convert(pa.array([[7, 9], []]))
        >>> keys, lengths
        (array([7, 9]), array([2, 0]))
    """

    def __init__(self, name: str, key_type: str, from_text: bool) -> None:
        self._name = name
        self._type = key_type
        self._from_text = from_text

    def convert(self, column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Return the keys in the log's order, and the number of keys in each row of the log.

        A missing value is a null or, in a text log, an empty field. In a column of categories, each
        missing value becomes the column's key for missing values; in a column of ids, missing
        values have no key.

        Raises:
            TypeError: the values are neither whole numbers nor text.
            ValueError: a number is not an int64, or the column has text after numbers.
        """
        rows = len(column)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        values, parents = column, None
        if is_list(column.type):
            parents = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
            values = column.flatten()
            if pa.types.is_dictionary(values.type):
                values = values.dictionary_decode()
        if values.null_count and not self._is_category(values):
            present = values.is_valid()
            mask = present.to_numpy(zero_copy_only=False)
            values = values.filter(present)
            parents = np.flatnonzero(mask) if parents is None else parents[mask]
        if parents is None:
            lengths = np.ones(rows, np.int64)
        else:
            lengths = np.bincount(parents, minlength=rows)
        return self._keys(values), lengths

    def _is_category(self, values: pa.Array) -> bool:
        """Return True if values are hashed; for 'auto', the first non-null values decide."""
        text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        if self._type == "auto" and values.null_count < len(values):
            spelled_out = self._from_text and _spells_ints(values)
            self._type = "category" if text and not spelled_out else "id"
        return self._type == "category"

    def _keys(self, values: pa.Array) -> np.ndarray:
        if not len(values):
            return np.empty(0, np.int64)
        kind = values.type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if not (text or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise TypeError(
                f"column {self._name!r} must hold whole numbers or text to be keys, got {kind}"
            )
        try:
            if self._is_category(values):
                return category_keys(self._name, values if text else values.cast(pa.int64()))
            return values.cast(pa.int64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid as error:
            raise ValueError(
                f"column {self._name!r} holds what is not an int64 ({error}); if its values are "
                "text, give --key-type category"
            ) from error


class TimeColumn:
    """Convert one column of times to seconds since 1970.

    Example:
        >>> TimeColumn("at").convert(pa.array(["1970-01-02", "1970-01-01T00:00:01Z"]))
        array([8.64e+04, 1.00e+00])
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def convert(self, column: pa.Array) -> np.ndarray:
        """Return the time of each row of the log, in seconds since 1970, as float64.

        Raises:
            TypeError: the values are neither numbers nor timestamps nor text.
            ValueError: a value is missing, not a time, or outside [0, 2^32) seconds.
        """
        if column.null_count:
            raise ValueError(f"time column {self._name!r} has missing values")
        seconds = self._seconds(column)
        outside = ~((seconds >= 0) & (seconds < _MAX_TIME))
        if outside.any():
            raise ValueError(
                f"time column {self._name!r} must be seconds since the epoch in [0, 2^32), got "
                f"{seconds[outside][0]:.0f}; are these milliseconds?"
            )
        return seconds

    def _seconds(self, column: pa.Array) -> np.ndarray:
        kind = column.type
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            micros = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
            return micros.to_numpy(zero_copy_only=False) / 1e6
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise TypeError(
                f"time column {self._name!r} must hold seconds, timestamps or text, got {kind}"
            )
        try:
            return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            pass
        try:
            times = pd.to_datetime(column.to_pandas(), format="ISO8601", utc=True)
        except ValueError as error:
            raise ValueError(
                f"time column {self._name!r} must be seconds since the epoch or ISO 8601: {error}"
            ) from error
        epoch = pd.Timestamp(0, tz="UTC")
        return ((times - epoch) / pd.Timedelta(seconds=1)).to_numpy(np.float64)


def _spells_ints(values: pa.Array) -> bool:
    try:
        values.cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    return True
