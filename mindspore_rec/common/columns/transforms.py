# SPDX-License-Identifier: Apache-2.0
"""Transforms of one column: from raw values to int64 keys or float32 numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mindspore_rec.common.checks import check_int, check_number, check_one_of
from mindspore_rec.common.columns.arrow_columns import decoded, is_text
from mindspore_rec.common.columns.categories import as_categories, check_values
from mindspore_rec.common.columns.hashing import category_keys, keys_of, whole_floats
from mindspore_rec.common.columns.times import check_times, seconds_of

__all__ = [
    "GREATEST",
    "PARTS",
    "Category",
    "Feature",
    "Key",
    "Number",
    "TimeCycle",
    "TimePart",
    "own_keys",
    "time_parts",
]

_PARTS = {"minute": 60, "hour": 24, "weekday": 7, "day": 31, "month": 12}
PARTS = tuple(_PARTS)
GREATEST = float(np.finfo(np.float32).max)
_YEAR_1, _YEAR_10000 = -62_135_596_800.0, 253_402_300_800.0  # in seconds since 1970


class Feature(ABC):
    """Base class of transforms, which convert one column to values that a model reads.

    A `FeaturePipeline` takes a transform directly, or inside a `FeatureSpec` that names the table
    of the keys.

    Args:
        column: the column's name, or its place from 0 to 255 if batches are tuples.
    """

    dtype: ClassVar[type]
    """Type of the values: np.int64 for keys, np.float32 for numbers."""

    width = 1
    """Number of values per row."""

    reads_lists: ClassVar[bool] = False
    """True if the column has a list in each row."""

    def __init__(self, column: str | int) -> None:
        if isinstance(column, int) and not isinstance(column, bool):
            check_int("column", column, 0, 255)
        elif not isinstance(column, str) or not column:
            raise TypeError(f"column must be a name or a place, got {column!r}")
        self.column = column

    @property
    def columns(self) -> tuple[str | int, ...]:
        """All columns that `apply` reads."""
        return (self.column,)

    @abstractmethod
    def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
        """Return the values as an array ``[B]`` or ``[B, width]``.

        Args:
            values: the column, ``[B]``.
            learn: if True, the statistics learn from the values before the values are transformed.
        """

    def fit(self, values: Any) -> Any:
        """Learn from all values in one call.

        Whether a second call adds to the learned statistics depends on the transform.

        Args:
            values: the column, an Arrow array ``[N]``.

        Returns:
            This object.
        """
        self.apply(values, learn=True)
        return self

    def state_dict(self) -> Any:
        """Return the learned state as JSON values; None if the transform learns nothing."""
        return None

    def load_state_dict(self, state: Any) -> None:
        """Load a state that `state_dict` returned.

        Raises:
            ValueError: `state` is the state of a different transform.
        """
        if state is not None:
            raise ValueError(f"state of column {self.column!r} must be None, got {state!r}")


class Category(Feature):
    """Hash strings or integers to keys, by `mindspore_rec.category_keys`.

    Args:
        column: strings or integers. Missing values have a separate key.
        field: text that is the salt of the hash. If columns have the same field, equal values have
            the same key. Default: the column's name.
        values: 'text' or 'whole', to convert all values to texts or to whole numbers, so that '7',
            7 and 7.0 have the same key; or 'key', for whole numbers that are their own keys, as in
            a `FeatureSpec` without a transform. With 'key', no number may be missing, and texts are
            hashed. Default: None, which means that '7' and 7 are different values.

    Example:
        >>> Category("C1").apply(pa.array(["68fd1e64", None]), learn=False)
        array([-7456674149910260318,  7144392874354540487])
        >>> Category("C1", values="key").apply(pa.array([7, 8]), learn=False)
        array([7, 8])
    """

    dtype = np.int64

    def __init__(
        self, column: str | int, field: str | None = None, values: str | None = None
    ) -> None:
        super().__init__(column)
        if field is None and isinstance(column, int):
            raise ValueError(f"field must be given where column is a place, got column={column}")
        self.field = str(column) if field is None else field
        self.values = check_values(values)

    def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
        """Return the keys, int64 ``[B]``."""
        where = f"column {self.column!r} must"
        if self.values == "key" and not is_text(values.type):
            values = own_keys(self.column, values)
            if pa.types.is_integer(values.type):
                return Key(self.column).apply(values, learn)
        return keys_of(self.field, as_categories(values, self.values), where)


def own_keys(column: str | int, values: pa.Array) -> pa.Array:
    """Return values as keys without hashing; whole floats are converted to integers.

    Args:
        column: name or place of the column, for error messages.
        values: values ``[B]`` of any type except text.

    Raises:
        TypeError: a float is not whole.

    Example:
        >>> own_keys("user", pa.array([7.0, None])).to_pylist()
        [7, None]
    """
    values = decoded(values)
    if pa.types.is_floating(values.type):
        return whole_floats(f"column {column!r} must", values)
    return values


class Key(Feature):
    """Use integers unchanged as int64 keys.

    Args:
        column: integers without missing values.

    Example:
        >>> Key("user").apply(pa.array([7, -1]), learn=False)
        array([ 7, -1])
    """

    dtype = np.int64

    def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
        """Return the keys, int64 ``[B]``."""
        if not pa.types.is_integer(values.type) or values.null_count:
            raise ValueError(
                f"column {self.column!r} must be integers without missing values, it is "
                f"{values.type} with {values.null_count} missing: a Category hashes it, missing "
                "values too"
            )
        return values.cast(pa.int64()).to_numpy()


class Number(Feature):
    """Use numbers unchanged, as float32. False and True become 0 and 1.

    Args:
        column: numbers or bools.
        missing: result for a missing value, NaN, or a number beyond the range of float32 (default
            0).

    Example:
        >>> Number("price", missing=-1).apply(pa.array([0.5, None]), learn=False)
        array([ 0.5, -1. ], dtype=float32)
    """

    dtype: ClassVar[type] = np.float32

    def __init__(self, column: str | int, missing: float = 0.0) -> None:
        super().__init__(column)
        self.missing = check_number("missing", missing)

    def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
        """Return the numbers, float32 ``[B]``."""
        numbers = self._numbers(values)
        there = np.abs(numbers) <= GREATEST
        numbers[~there] = 0.0  # one absurd value must not spoil the statistics for good
        made = self._scaled(numbers, there, learn)
        if not there.all():
            made[~there] = self.missing
        return made.astype(np.float32)

    def _numbers(self, values: pa.Array) -> np.ndarray:
        """Return a float64 copy; missing values become NaN."""
        if pa.types.is_null(values.type):  # nothing but missing values
            values = values.cast(pa.float64())
        values = decoded(values)
        if pa.types.is_boolean(values.type):
            values = values.cast(pa.uint8())
        if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
            raise ValueError(
                f"column {self.column!r} must be numbers, it is {_shown_type(values)}: "
                f"{_number_remedy(values.type)}"
            )
        return np.array(values.to_numpy(zero_copy_only=False), np.float64)

    def _scaled(self, numbers: np.ndarray, there: np.ndarray, learn: bool) -> np.ndarray:
        return numbers


class _PartOfTimes(Feature):
    """Base class of transforms of one part of times."""

    def __init__(
        self,
        column: str | int,
        part: str,
        unit: str | None = None,
        format: str | None = None,
    ) -> None:
        super().__init__(column)
        self.part = check_one_of("part", part, PARTS)
        check_times(unit, format)
        self.unit = unit
        self.format = format

    def _parts(self, values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Return the int64 parts (0 for a missing time), and a mask of the valid times."""
        return time_parts(seconds_of(self.column, values, self.unit, self.format), self.part)


class TimePart(_PartOfTimes):
    """Transform times to keys of a part of the time, such as the hour or the weekday.

    Args:
        column: times in UTC: numbers, Arrow timestamps or dates, or texts. Missing times,
            unreadable texts and times outside the years 1 to 9999 have one separate key.
        part: "minute", "hour", "weekday" (Monday is 0), "day" (of the month, from 0) or "month"
            (from 0).
        unit: unit of times that are numbers: "s", "ms", "us" or "ns" since 1970. Default: "s".
        format: format of texts in the notation of `strptime`, or "iso". Default: None, which means
            that texts are in ISO 8601.

    Example:
        >>> friday_noon = pa.array([1_700_222_400, None])
        >>> keys = TimePart("time", "weekday").apply(friday_noon, learn=False)
        >>> keys.tolist() == category_keys("time.weekday", [4, None]).tolist()
        True
    """

    dtype = np.int64

    def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
        """Return the keys, int64 ``[B]``."""
        parts, there = self._parts(values)
        return category_keys(f"{self.column}.{self.part}", pa.array(parts, mask=~there))


class TimeCycle(_PartOfTimes):
    """Transform a part of times, such as the hour, to sine and cosine: 23:59 is next to 0:00.

    Args:
        column: times; see `TimePart`. Sine and cosine are 0 if the time is missing.
        part, unit, format: see `TimePart`.

    Example:
        >>> TimeCycle("time", "hour").apply(pa.array([6 * 3600]), learn=False).round(3)
        array([[1., 0.]], dtype=float32)
    """

    dtype = np.float32
    width = 2

    def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
        """Return sine and cosine, float32 ``[B, 2]``."""
        parts, there = self._parts(values)
        angle = parts * (2 * np.pi / _PARTS[self.part])
        return (np.stack([np.sin(angle), np.cos(angle)], axis=1) * there[:, None]).astype(
            np.float32
        )


def time_parts(seconds: pa.Array, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Return int64 parts of times (0 for a missing time), and a mask of the valid times."""
    about = seconds.cast(pa.float64(), safe=False)
    real = pc.and_(pc.greater_equal(about, _YEAR_1), pc.less(about, _YEAR_10000))
    times = pc.if_else(real, seconds, None).cast(pa.int64()).cast(pa.timestamp("s"))
    extracted = {
        "minute": pc.minute,
        "hour": pc.hour,
        "weekday": pc.day_of_week,
        "day": pc.day,
        "month": pc.month,
    }[part](times)
    there = extracted.is_valid().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(extracted, 0).to_numpy(zero_copy_only=False)
    from_one = there if part in ("day", "month") else 0
    return numbers - from_one, there


def _shown_type(values: pa.Array) -> str:
    texts = values.drop_null()[:1].to_pylist() if is_text(values.type) else []
    return f"texts such as {texts[0]!r:.80}" if texts else str(values.type)


def _number_remedy(kind: pa.DataType) -> str:
    if pa.types.is_temporal(kind):
        return "a TimePart or TimeCycle reads times"
    if pa.types.is_nested(kind):
        return "pandas.DataFrame(column.tolist()) makes a column of each place"
    if pa.types.is_decimal(kind):
        return "convert it, .astype(float)"
    return (
        "convert it to numbers, which JSON writes without quotes, and missing values to null, or "
        "let a Category or TimePart read it"
    )
