# SPDX-License-Identifier: Apache-2.0
"""Histories: one list of any length per row, stored as the values and offsets of all lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.common.columns.arrow_columns import decoded, is_text, nulls_of_nan, to_column
from mindspore_rec.common.columns.categories import as_categories, whole_numbers
from mindspore_rec.common.columns.hashing import keys_of
from mindspore_rec.common.columns.labels import numbers_and_legal
from mindspore_rec.common.columns.lists import values_of_lists
from mindspore_rec.common.columns.times import seconds_of
from mindspore_rec.common.columns.transforms import Feature, Key, Number, own_keys

__all__ = [
    "ENDS",
    "MOST_EVENTS",
    "NUMBERS",
    "History",
    "HistoryValues",
    "kept_values",
    "offsets_name",
    "ragged",
    "ragged_places",
    "values_name",
    "whole_values",
]

ENDS = ("last", "first")
NUMBERS = ("float32", "int64")
"""Types of values that are numbers and have no rows in a table."""

MOST_EVENTS = 1 << 16
_DTYPES = {"float32": np.float32}
_VALUES, _OFFSETS = ".values", ".offsets"


def values_name(column: str) -> str:
    """Return the name of the array with the values of a history's column."""
    return column + _VALUES


def offsets_name(column: str) -> str:
    """Return the name of the array with the offsets of a history."""
    return column + _OFFSETS


def ragged_places(names: Sequence[str] | None) -> dict[int, list[int]]:
    """Return a dict from the index of an offsets array to the indexes of its value arrays.

    Args:
        names: names of a batch's arrays, in the order of a schema; None if the arrays have no
            names.

    Example:
        >>> ragged_places(["ids", "seen.values", "at.values", "seen.offsets", "label"])
        {3: [1, 2]}
    """
    made: dict[int, list[int]] = {}
    values: list[int] = []
    for place, name in enumerate(names or ()):
        if name.endswith(_VALUES):
            values.append(place)
            continue
        if name.endswith(_OFFSETS) and values:
            made[place] = values
        values = []
    return made


class HistoryValues(Feature):
    """Convert the values of lists to keys or numbers, and keep the lists' lengths.

    Args:
        column: lists of strings or numbers, or texts if there is a `separator`. A missing list is
            empty.
        values: the type to which values are converted. None, 'text', 'whole' and 'key' convert
            values to keys, see `Category`. 'float32' converts values to numbers; a missing number
            becomes 0. 'int64' converts values to whole numbers; timestamps and dates become whole
            seconds since 1970. Default: None.
        field: text that is the salt of the keys' hash. Default: the column's name.
        separator: text between the values in a column of texts. Default: None.

    Example:
        >>> seen = HistoryValues("seen", "key")
        >>> offsets, flat = seen.lists(pa.array([[7, 8], None, [9]]))
        >>> offsets.tolist(), seen.apply(flat, learn=False).tolist()
        ([0, 2, 2, 3], [7, 8, 9])
    """

    dtype = np.int64
    reads_lists = True

    def __init__(
        self,
        column: str | int,
        values: str | None = None,
        field: str | None = None,
        separator: str | None = None,
    ) -> None:
        super().__init__(column)
        self.values = (
            None
            if values is None
            else check_one_of("values", values, ("text", "whole", "key", *NUMBERS))
        )
        self.field = str(column) if field is None else field
        self.separator = separator

    @property
    def are_numbers(self) -> bool:
        """True if the values are converted to numbers, and not to keys of a table."""
        return self.values in NUMBERS

    def lists(self, values: pa.Array) -> tuple[np.ndarray, pa.Array]:
        """Return the offsets of the lists, int64 ``[B + 1]``, and the unconverted values."""
        values = nulls_of_nan(decoded(values))
        kind = values.type
        is_single = not (pa.types.is_nested(kind) or is_text(kind) or pa.types.is_null(kind))
        if self.separator is not None and is_single and self.are_numbers:
            # A reader of texts such as '7|8' infers numbers if every row has only one value, such
            # as '7'.
            there = values.is_valid().to_numpy(zero_copy_only=False)
            return np.concatenate([[0], np.cumsum(there, dtype=np.int64)]), values.drop_null()
        return values_of_lists(self.column, values, self.separator)

    def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
        """Return the keys or numbers of the values of all lists, ``[N]``.

        Raises:
            TypeError, ValueError: a value is of the wrong type, or a number is missing although
                `values` is 'int64' or 'key'.
        """
        where = f"column {self.column!r} must"
        if not len(values):
            return np.zeros(0, _DTYPES.get(str(self.values), np.int64))
        if self.values == "float32":
            return Number(self.column).apply(self._numbers(values), learn)
        if self.values == "int64":
            return self._whole(values)
        if self.values == "key" and not is_text(values.type):
            values = own_keys(self.column, values)
            if pa.types.is_integer(values.type):
                return Key(self.column).apply(values, learn)
        return keys_of(self.field, as_categories(values, self.values), where)

    def _numbers(self, values: pa.Array) -> pa.Array:
        """Return numbers, parsed from texts if needed.

        Texts such as 'n/a' become missing values.
        """
        values = decoded(values)
        if not is_text(values.type):
            return values
        numbers, legal = numbers_and_legal(values, ".")
        if not pc.all(legal).as_py():
            raise ValueError(
                f"column {self.column!r} must have lists of numbers, got "
                f"{values.filter(pc.invert(legal))[0].as_py()!r}"
            )
        return numbers

    def _whole(self, values: pa.Array) -> np.ndarray:
        made = whole_values(self.column, values)
        if made.null_count:
            place = int(np.flatnonzero(made.is_null().to_numpy(zero_copy_only=False))[0])
            raise ValueError(
                f"column {self.column!r} must have lists of whole numbers or times, none missing, "
                f"got {values[place].as_py()!r}"
            )
        return made.to_numpy()


def whole_values(column: str | int, values: pa.Array) -> pa.Array:
    """Convert whole numbers to int64, and times to whole seconds since 1970, int64.

    Values that are not whole numbers become missing.

    Raises:
        ValueError: the values are not integers, floats, texts or times.
    """
    values = decoded(values)
    kind = values.type
    if pa.types.is_null(kind):
        return values.cast(pa.int64())
    if pa.types.is_temporal(kind):
        return seconds_of(column, values).cast(pa.int64())
    if is_text(kind):
        return whole_numbers(values)
    if pa.types.is_floating(kind):
        numbers = values.cast(pa.float64())
        fits = pc.and_(pc.equal(pc.trunc(numbers), numbers), pc.less(pc.abs(numbers), 2.0**63))
        return pc.if_else(fits, numbers, None).cast(pa.int64())
    if not pa.types.is_integer(kind):
        raise ValueError(f"column {column!r} must have lists of whole numbers, it has {kind}")
    if kind == pa.uint64():
        fits = pc.less_equal(values, pa.scalar((1 << 63) - 1, pa.uint64()))
        values = pc.if_else(fits, values, None)
    return values.cast(pa.int64())


@dataclass(frozen=True)
class History:
    """Output of a `FeaturePipeline`: several columns of lists that describe the same events.

    Args:
        members: one transform per column. The history is named after the first transform's column.
        length: greatest number of events in a row's list, 1 to 65536.
        keep: 'last' or 'first', to keep the last or the first events of a longer list.
    """

    members: Sequence[HistoryValues]
    length: int
    keep: str = "last"

    def __post_init__(self) -> None:
        check_int("length", self.length, 1, MOST_EVENTS)
        check_one_of("keep", self.keep, ENDS)


def kept_values(
    offsets: np.ndarray, length: int, keep: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the offsets of shortened lists, and the indexes of the kept values.

    Args:
        offsets: int64 ``[B + 1]``, the index of each list's first value; the last offset is N.
        length: greatest length of a list.
        keep: 'last' or 'first', to keep the last or the first values of a longer list.

    Returns: The new offsets, and the indexes of the kept values, int64 ``[N]``; None if all are
        kept.

    Example:
        >>> [each.tolist() for each in kept_values(np.array([0, 3, 4]), 2, "last")]
        [[0, 2, 3], [1, 2, 3]]
    """
    counts = np.diff(offsets)
    if not len(counts) or counts.max() <= length:
        return offsets, None
    kept = np.minimum(counts, length)
    made = np.concatenate([[0], np.cumsum(kept)])
    first = offsets[1:] - kept if keep == "last" else offsets[:-1]
    return made, np.arange(made[-1]) + np.repeat(first - made[:-1], kept)


def ragged(values: Any, offsets: Any) -> pa.Array:
    """Make an Arrow array of lists of any length, to use as a column of a data frame or a dict.

    Args:
        values: NumPy or Arrow array ``[N]`` with the values of all lists, one list after another.
        offsets: whole numbers ``[B + 1]``: list i has the values from ``offsets[i]`` to
            ``offsets[i + 1] - 1``. The first offset is 0, and the last offset is N.

    Returns:
        Arrow array of B lists. Offsets of type int64 are not copied, and values that are numbers
        are not copied.

    Raises:
        TypeError: offsets are not whole numbers, or values are of a type that Arrow lacks.
        ValueError: offsets decrease, do not begin with 0, or do not end with N; or `values` is not
            one-dimensional.

    Example:
        >>> from mindspore_rec.feature import ragged
        >>> ragged(np.array([7, 8, 9]), np.array([0, 2, 2, 3])).to_pylist()
        [[7, 8], [], [9]]
    """
    starts = np.asarray(offsets)
    if starts.dtype.kind not in "iu":
        raise TypeError(f"offsets must be whole numbers, got {starts.dtype}")
    flat = to_column("values", values)
    if pa.types.is_nested(flat.type):
        raise ValueError(f"values must be one-dimensional, got {flat.type}")
    check_offsets("offsets", starts, len(flat))
    return pa.LargeListArray.from_arrays(pa.array(starts.astype(np.int64, copy=False)), flat)


def check_offsets(where: str, offsets: np.ndarray, values: int) -> None:
    """Check the offsets of lists.

    Args:
        where: name of the offsets, for error messages.
        offsets: whole numbers ``[B + 1]``.
        values: total number of values in all lists.

    Raises:
        ValueError: offsets decrease, do not begin with 0, or do not end with the number of values.
    """
    if offsets.ndim != 1 or not len(offsets):
        raise ValueError(f"{where} must be [rows + 1], got shape {list(offsets.shape)}")
    if offsets[0] != 0 or offsets[-1] != values or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(
            f"{where} must begin with 0, never fall, and end with the number of values, {values}"
        )
