# SPDX-License-Identifier: Apache-2.0
"""Transforms for labels, for times, and for numbers that are written as texts."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.common.columns.arrow_columns import decoded, is_text, one_array, values_array
from mindspore_rec.common.columns.categories import as_categories
from mindspore_rec.common.columns.hashing import keys_of
from mindspore_rec.common.columns.missing_texts import are_missing_texts
from mindspore_rec.common.columns.times import check_times, seconds_of
from mindspore_rec.common.columns.transforms import GREATEST, Feature, Number

__all__ = [
    "Label",
    "NumbersOfTexts",
    "RequiredNumber",
    "Times",
    "as_group_keys",
    "bool_of",
    "numbers_and_legal",
    "numbers_of_texts",
    "positive_rows",
]


class Label(Feature):
    """Transform a label with two values to 0 and 1.

    Args:
        column: numbers 0 and 1, bools, or any texts or numbers if there is a `positive` value.
        positive: the value that becomes 1; every other value becomes 0. For a column of bools,
            `positive` is True or False, or a text such as 'true'. If `positive` is True or False,
            the labels must be bools, numbers 0 and 1, or texts such as 'true' and '0'. Texts may
            equal `positive` as texts or as numbers: '4.0' equals 4, and 'True' equals 1. Default:
            None, which means that the labels are already 0 and 1.

    Calling `apply` raises a ValueError if a label is missing or NaN, if a label means neither 0 nor
    1 and `positive` is None, True or False, if labels are bools and `positive` means neither True
    nor False, or if labels are numbers and `positive` is a text that is not a number.

    Example:
        >>> Label("income", positive="50000+").apply(pa.array(["50000+", "less"]), learn=False)
        array([1., 0.], dtype=float32)
    """

    dtype = np.float32

    def __init__(self, column: str | int, positive: str | int | float | None = None) -> None:
        super().__init__(column)
        self.positive = positive.item() if isinstance(positive, np.generic) else positive

    def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
        """Return labels that are 0 or 1, float32 ``[B]``.

        Raises:
            ValueError: a label is missing or NaN, or a label and `positive` do not fit; see the
                class.
        """
        made = positive_rows(self.column, values, self.positive)
        if made.null_count:
            row = int(np.flatnonzero(made.is_null().to_numpy(zero_copy_only=False))[0])
            value = values[row].as_py()
            raise ValueError(
                f"label {self.column!r} must be 0 or 1, row {row} is {value!r}: "
                + (
                    "leave the row out"
                    if value is None or value != value
                    else "name the value that is 1, positive="
                )
            )
        return made.to_numpy(zero_copy_only=False).astype(np.float32)


def positive_rows(column: str | int, values: pa.Array, positive: Any) -> pa.Array:
    """Return a bool array, True for positive labels; illegal labels become missing.

    Args:
        column: name or place of the column, for error messages.
        values: the labels ``[B]``.
        positive: as for `Label`.

    Raises:
        ValueError: the labels' type cannot be compared with `positive`, for example numbers with
            the text 'yes'.

    Example:
        >>> positive_rows("bought", pa.array([True, False]), "false").to_pylist()
        [False, True]
    """
    values = decoded(one_array(values) if isinstance(values, pa.ChunkedArray) else values)
    if pa.types.is_boolean(values.type):
        return values if positive is None or bool_of(column, positive) else pc.invert(values)
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), None, values)
    if positive is None or isinstance(positive, bool):
        numbers = _as_numbers(column, _numbers_of_labels(values))
        is_one, is_zero = pc.equal(numbers, 1.0), pc.equal(numbers, 0.0)
        is_positive = is_zero if positive is False else is_one
        return pc.if_else(pc.or_(is_one, is_zero), is_positive, None)
    if is_text(values.type):
        return _are_equal_texts(values, positive)
    if isinstance(positive, str):
        positive = _number_of(column, positive)
    return _are_equal(column, values, positive)


def _are_equal(column: str | int, values: pa.Array, number: float) -> pa.Array:
    """Convert `number` to the type of the values; return True for each equal value."""
    kind = values.type
    try:
        if pa.types.is_integer(kind) and number == number // 1:
            return pc.equal(values, pa.scalar(int(number), kind))  # exact above 2^53, too
        if pa.types.is_floating(kind):
            number = float(kind.to_pandas_dtype()(number))  # 0.1 is another number in float32
    except (pa.ArrowInvalid, OverflowError):  # the type has no such number
        number = math.inf
    return pc.equal(_as_numbers(column, values), float(number))


def _are_equal_texts(values: pa.Array, positive: str | float) -> pa.Array:
    """Return a bool array, True for texts that equal `positive` as texts or as numbers."""
    if isinstance(positive, float) and positive.is_integer():
        positive = int(positive)
    equal = pc.equal(values, str(positive))
    number = _numbers_of_labels(pa.array([str(positive)]), _PLAIN)[0].as_py()
    if number is None or abs(number) >= _EXACT:
        return equal
    return pc.or_(equal, pc.equal(_numbers_of_labels(values, _PLAIN), number).fill_null(False))


def _numbers_of_labels(values: pa.Array, pattern: str = "") -> pa.Array:
    """Return texts as float64, 'true' as 1, 'false' as 0; other texts become missing.

    Values that are no texts are returned unchanged.

    Args:
        values: the labels ``[B]``.
        pattern: regular expression; texts that do not match become missing. Default: any text.
    """
    if not is_text(values.type):
        return values
    each = pc.dictionary_encode(values)
    lower = pc.utf8_lower(each.dictionary)
    numbers = numbers_of_texts(lower, ".")
    if pattern:
        numbers = pc.if_else(pc.match_substring_regex(lower, pattern), numbers, None)
    numbers = pc.if_else(pc.equal(lower, "true"), 1.0, numbers)
    return pc.if_else(pc.equal(lower, "false"), 0.0, numbers).take(each.indices)


def _number_of(column: str | int, positive: str) -> float:
    """Convert the option `positive` of a column of numbers from text to a number."""
    if re.match(_NUMBER, positive) is None:
        raise ValueError(
            f"label {column!r} has numbers, so positive must be a number, got {positive!r}"
        )
    try:
        return int(positive)
    except ValueError:
        return float(positive)


def bool_of(column: str | int, positive: Any) -> bool:
    """Convert the option `positive` of a column of bools to a bool.

    Raises:
        ValueError: the value does not mean True or False.

    Example:
        >>> bool_of("bought", "True"), bool_of("bought", 0)
        (True, False)
    """
    text = positive.lower() if isinstance(positive, str) else positive
    for value in (True, False):
        if text in (str(value).lower(), str(int(value)), value):
            return value
    raise ValueError(
        f"label {column!r} has bools, so positive must be true or false, got {positive!r}"
    )


def as_group_keys(column: str, values: pa.Array, kind: str | None = None) -> np.ndarray:
    """Return the keys of rows' groups, int64 ``[B]``. All rows without a group form one group.

    Args:
        column: name of the column.
        values: texts or whole numbers ``[B]``.
        kind: 'text' or 'whole'; see `Category`. Default: None.
    """
    where = f"column {column!r} must"
    return keys_of(column, as_categories(values_array(where, values), kind), where)


def _as_numbers(column: str | int, values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.uint8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
        raise ValueError(f"label {column!r} must be 0 and 1, or bools, it is {kind}")
    return values.cast(pa.float64(), safe=False)


class RequiredNumber(Number):
    """Use labels or weights that are numbers unchanged, as float32.

    Args:
        column: numbers or bools.
        least: smallest legal number. Default: the smallest number of float32.

    Calling `apply` raises a ValueError if a number is missing, NaN, infinite, below `least`, or
    beyond the range of float32.

    Example:
        >>> RequiredNumber("weight", least=0).apply(pa.array([0.5, None]), learn=False)
        Traceback (most recent call last):
        ...
        ValueError: column 'weight' must be finite numbers of at least 0, row 1 is None: leave the
        row out
    """

    def __init__(self, column: str | int, least: float = -GREATEST) -> None:
        super().__init__(column)
        self.least = least

    def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
        """Return the numbers, float32 ``[B]``.

        Raises:
            ValueError: a number is missing or out of range; see the class.
        """
        numbers = self._numbers(values)
        wrong = ~((numbers >= self.least) & (numbers <= GREATEST))
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            least = "" if self.least == -GREATEST else f" of at least {self.least:g}"
            raise ValueError(
                f"column {self.column!r} must be finite numbers{least}, row {row} is "
                f"{values[row].as_py()!r}: leave the row out"
            )
        return numbers.astype(np.float32)


class NumbersOfTexts(Feature):
    """Parse numbers that are written as texts, and transform the numbers.

    Args:
        transform: transform of the numbers, such as a `QuantileScale`. The numbers are read from
            the transform's column.
        decimal: decimal point, '.' or ','. The other of both may separate thousands, see
            `numbers_of_texts`. Default: '.'.

    Raises:
        TypeError: `transform` is not a transform of numbers.
        ValueError: `decimal` is neither '.' nor ','.

    Example:
        >>> price = NumbersOfTexts(Number("price", missing=-1), decimal=",")
        >>> price.apply(pa.array(["1.299,50", "?"]), learn=False).tolist()
        [1299.5, -1.0]
    """

    def __init__(self, transform: Number, decimal: str = ".") -> None:
        if not isinstance(transform, Number):
            raise TypeError(f"transform must read numbers, got {transform!r}")
        super().__init__(transform.column)
        self.transform = transform
        self.decimal = check_one_of("decimal", decimal, (".", ","))
        self.dtype = transform.dtype  # type: ignore[misc]
        self.width = transform.width

    def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
        """Return the values of the transform; a text that is not a number counts as missing."""
        return self.transform.apply(numbers_of_texts(values, self.decimal), learn)

    def fit(self, values: Any) -> NumbersOfTexts:
        """Fit the transform to the numbers that the texts contain."""
        self.transform.fit(numbers_of_texts(values, self.decimal))
        return self

    def state_dict(self) -> Any:
        """Return the learned state of the transform."""
        return self.transform.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Load a state that `state_dict` returned."""
        self.transform.load_state_dict(state)


_EXACT = 1 << 53
"""From this integer on, different integers may be the same float64."""

_PLAIN = r"^-?(0|[1-9][0-9]*)(\.[0-9]*)?$"
"""Numbers without superfluous zeros in front, which are often parts of codes such as '007'."""

_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?$"

_WITH_THOUSANDS = {
    ".": r"^[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]*)?$",
    ",": r"^[+-]?[1-9][0-9]{0,2}(\.[0-9]{3})+(,[0-9]*)?$",
}
"""Numbers with separators of thousands, by decimal point."""


def numbers_of_texts(values: pa.Array, decimal: str) -> pa.Array:
    """Return texts as float64; a text that is not a number becomes missing. Numbers stay numbers.

    Args:
        values: texts or numbers ``[B]``.
        decimal: decimal point, '.' or ','. The other of both may separate thousands: groups of
            exactly three digits before the decimal point. At any other place, it would be a decimal
            point of another notation, so the text is not a number.

    Example:
        >>> numbers_of_texts(pa.array([" 1.5", "-2e3", "", "n/a"]), ".").to_pylist()
        [1.5, -2000.0, None, None]
        >>> numbers_of_texts(pa.array(["1.410,16", "2,50", "2.50", "1,410.16"]), ",").to_pylist()
        [1410.16, 2.5, None, None]
    """
    values = decoded(values)
    if not is_text(values.type):
        return values
    texts = pc.utf8_trim_whitespace(values)
    grouped = pc.match_substring_regex(texts, _WITH_THOUSANDS[decimal])
    plain = pc.replace_substring(texts, "," if decimal == "." else ".", "")
    texts = pc.if_else(grouped, plain, texts)
    if decimal == ",":
        has_point = pc.match_substring(texts, ".")
        texts = pc.if_else(has_point, None, pc.replace_substring(texts, ",", "."))
    return pc.if_else(pc.match_substring_regex(texts, _NUMBER), texts, None).cast(pa.float64())


def numbers_and_legal(texts: pa.Array, decimal: str) -> tuple[pa.Array, pa.Array]:
    """Convert texts to float64; also return which texts are numbers or missing values.

    Example:
        >>> numbers, legal = numbers_and_legal(pa.array(["1.5", "n/a", "x", None]), ".")
        >>> legal.to_pylist()
        [True, True, False, True]
    """
    numbers = numbers_of_texts(texts, decimal)
    missing = pc.or_(texts.is_null(), are_missing_texts(texts))
    return numbers, pc.or_(missing, numbers.is_valid())


class Times(Feature):
    """Convert times to seconds since 1970: the event time of each row.

    Args:
        column: numbers, timestamps, dates or texts.
        unit: unit of times that are numbers: 's', 'ms', 'us' or 'ns'. Default: 's'.
        format: format of texts, in the notation of `strptime`, or 'iso'. Default: None, which means
            ISO 8601.

    Example:
        >>> Times("ts", unit="ms").apply(pa.array([1_700_000_000_500]), learn=False)
        array([1700000000])
    """

    dtype = np.int64

    def __init__(self, column: str | int, unit: str | None = None, format: str | None = None):
        super().__init__(column)
        check_times(unit, format)
        self.unit = unit
        self.format = format

    def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
        """Return seconds since 1970, int64 ``[B]``.

        Raises:
            ValueError: a time is missing or cannot be read.
        """
        seconds = seconds_of(self.column, values, self.unit, self.format)
        there = seconds.is_valid().to_numpy(zero_copy_only=False)
        numbers = seconds.to_numpy(zero_copy_only=False)
        legal = there & np.isfinite(numbers.astype(np.float64))
        if not legal.all():
            row = int(np.flatnonzero(~legal)[0])
            raise ValueError(
                f"column {self.column!r} must have a time in each row, row {row} is "
                f"{values[row].as_py()!r}"
            )
        return numbers.astype(np.int64)
