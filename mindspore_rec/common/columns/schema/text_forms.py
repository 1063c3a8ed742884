# SPDX-License-Identifier: Apache-2.0
"""Forms of texts: numbers, times, lists, words and names."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mindspore_rec.common.columns.labels import numbers_of_texts
from mindspore_rec.common.columns.missing_texts import are_missing_texts
from mindspore_rec.common.columns.times import seconds_of

__all__ = [
    "ListForm",
    "TextForm",
    "are_bracketed",
    "digit_format",
    "form_of_texts",
    "have_units",
    "list_form",
    "reads_times",
    "time_format",
]

_WHOLE = r"^[+-]?[0-9]{1,18}(\.0*)?$"
_TOO_LONG = r"^[+-]?[0-9]{19,}$"
_UNIT = r"€|\$|£|¥|%|USD|EUR|GBP|JPY|CNY|kg|g|km|m|cm|mm|l|ml"
_WITH_UNIT = rf"^((€|\$|£|¥) ?[+-]?[0-9][0-9.,]*|[+-]?[0-9][0-9.,]* ?({_UNIT}))$"
_BRACKETED = r"^\s*[\[({].*[\])}]\s*$"
_LEADING_ZERO = r"^[+-]?0[0-9]"
_ISO = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?)?"
    r" ?(Z|UTC|[+-][0-9]{2}:?([0-9]{2})?)?$"
)
_DATES = ("%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y")
_NAMED = ("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d/%b/%Y")
_CLOCKS = ("", " %H:%M:%S", " %H:%M", " %I:%M:%S %p", " %I:%M %p")
_FORMATS = (
    *(date + clock for date in (*_DATES, *_NAMED) for clock in _CLOCKS),
    "%d/%b/%Y:%H:%M:%S %z",  # logs of Apache and nginx
    "%a, %d %b %Y %H:%M:%S %z",  # RFC 2822
    "%a %b %d %H:%M:%S %Y",  # C's ctime
    "%a %b %d %H:%M:%S %z %Y",
)
_DIGITS = {14: ("%Y%m%d%H%M%S",), 12: ("%Y%m%d%H%M", "%y%m%d%H%M%S"), 10: ("%Y%m%d%H",)}
_DIGITS[8] = ("%Y%m%d", "%y%m%d%H")
_TRIED = 200
"""Number of values that a format must read before all values are tried."""

_SEPARATORS = ("|", ";", "\x01", "\x02", "\t", "^", ", ", ",", " ")
_MOST_LIST_VALUES = 4096


@dataclass(frozen=True, eq=False)
class TextForm:
    """Form of the texts of one column.

    Args:
        family: 'number', 'time' or 'text'.
        is_missing: for each different text, True if the text means a missing value, bool
            ``[texts]``.
        numbers: the texts as float64 if they are numbers or times, else None.
        decimal: for numbers, the decimal point: '.' or ','.
        is_doubtful: for times, True if day and month could be swapped, as in 01/02/2026. For
            numbers, True if the commas, which separate thousands, could be decimal points.
        has_marks: for numbers, True if some texts, such as '?', mean a missing value.
        is_whole: for numbers, True if all numbers are whole and have at most 18 digits.
        has_leading_zeros: True if some texts have leading zeros, as in '007': the texts are then
            names, not numbers.
        format: for times, a format of `strptime`, or 'iso'.
    """

    family: str
    is_missing: np.ndarray
    numbers: np.ndarray | None = None
    decimal: str | None = None
    is_doubtful: bool = False
    is_whole: bool = False
    has_marks: bool = False
    has_leading_zeros: bool = False
    format: str | None = None


def form_of_texts(texts: pa.Array) -> TextForm:
    """Find the form of texts: numbers, times in some format, or other texts.

    Args:
        texts: different texts of one column, none of them missing.

    Example:
        >>> form_of_texts(pa.array(["1.299,50", "3,2", "n/a"])).numbers.tolist()
        [1299.5, 3.2, nan]
        >>> form_of_texts(pa.array(["24.12.2025 18:00"])).format
        '%d.%m.%Y %H:%M'
        >>> form_of_texts(pa.array(["01067", "10115"])).has_leading_zeros
        True
    """
    trimmed = pc.utf8_trim_whitespace(texts)
    empty = pc.equal(trimmed, "").to_numpy(zero_copy_only=False)
    is_mark = are_missing_texts(texts).to_numpy(zero_copy_only=False)
    marks = np.flatnonzero(~is_mark)
    real = trimmed.take(pa.array(marks))
    if not len(real):
        return TextForm("text", is_mark if is_mark.all() else empty)
    number = _number_form(real)
    if number is not None:
        decimal, values = number
        zeros = _any_matches(real, _LEADING_ZERO)
        zeros = zeros and _all_match(real, r"^[0-9]+$")
        if not zeros:
            is_whole = bool(decimal == "." and _all_match(real, _WHOLE))
            numbers = _spread(values, marks, len(texts))
            marked = bool((is_mark & ~empty).any())
            doubtful = decimal == "." and _any_matches(real, ",") and _are_numbers(real, ",")
            return TextForm("number", is_mark, numbers, decimal, doubtful, is_whole, marked)
        return TextForm("text", empty, has_leading_zeros=True)
    exact = texts.take(pa.array(marks))
    times = time_format(exact)
    if times is not None:
        seconds = seconds_of("", exact, format=times[0]).cast(pa.float64())
        numbers = _spread(seconds.to_numpy(zero_copy_only=False), marks, len(texts))
        return TextForm("time", is_mark, numbers, format=times[0], is_doubtful=times[1])
    return TextForm("text", empty)


def _number_form(texts: pa.Array) -> tuple[str, np.ndarray] | None:
    """Return the decimal point and the numbers, or None if the texts are not numbers."""
    if _any_matches(texts, _TOO_LONG):
        return None  # ids: neither a float nor int64 has so many digits
    if _any_matches(texts, ",$"):
        return None  # more probably a list
    for decimal in (".", ","):
        numbers = numbers_of_texts(texts, decimal)
        if not numbers.null_count:
            return decimal, numbers.to_numpy(zero_copy_only=False)
    return None


def _are_numbers(texts: pa.Array, decimal: str) -> bool:
    return bool(numbers_of_texts(texts, decimal).null_count == 0)


def time_format(texts: pa.Array) -> tuple[str, bool] | None:
    """Return the format of times, and whether day and month could be swapped.

    Args:
        texts: different texts, none of them missing.

    Returns:
        A pair of the format ('iso' or a format of `strptime`) and a bool, which is True if day and
        month could be swapped. None if the texts are no times. If two formats read all texts, the
        format with the shorter span of times is chosen, because the times of one log are probably
        near each other.

    Example:
        >>> time_format(pa.array(["2026-01-02T03:04:05.678Z", "2026-01-02"]))
        ('iso', False)
        >>> time_format(pa.array(["01/02/2026", "01/03/2026", "01/04/2026"]))
        ('%m/%d/%Y', True)
    """
    if not len(texts):
        return None
    if _all_match(texts, _ISO):
        return ("iso", False) if seconds_of("", texts, format="iso").null_count == 0 else None
    head = texts[:_TRIED]
    if not bool(pc.all(pc.match_substring_regex(head, r"[0-9]")).as_py()):
        return None
    legal = [each for each in _FORMATS if reads_times(head, each) and reads_times(texts, each)]
    if not legal:
        return None
    spans = [_span(texts, each) for each in legal]
    best = int(np.argmin(spans))
    others = [span for place, span in enumerate(spans) if place != best]
    return legal[best], bool(others)


def digit_format(numbers: np.ndarray) -> str | None:
    """Return the format of times that are written as whole numbers, such as 20260102.

    Example:
        >>> digit_format(np.array([20260102, 20251231]))
        '%Y%m%d'
        >>> digit_format(np.array([14102100, 14102101]))
        '%y%m%d%H'
    """
    if not len(numbers) or not 0 <= numbers.min() <= numbers.max() < 1e15:
        return None
    texts = pa.array(numbers.astype(np.int64)).cast(pa.string())
    lengths = set(pc.utf8_length(texts).unique().to_pylist())
    if len(lengths) != 1:
        return None
    for each in _DIGITS.get(lengths.pop(), ()):
        if reads_times(texts, each) and _recent(seconds_of("", texts, format=each)):
            return each
    return None


def _recent(seconds: pa.Array) -> bool:
    least, most = pc.min(seconds).as_py(), pc.max(seconds).as_py()
    return bool(least >= 315_532_800 and most < 4_102_444_800)  # 1980 to 2100


def reads_times(texts: pa.Array, format: str) -> bool:
    """Return True if all texts are times in the format `format`."""
    return bool(seconds_of("", texts, format=format).null_count == 0)


def _span(texts: pa.Array, format: str) -> int:
    seconds = seconds_of("", texts, format=format)
    return int(pc.max(seconds).as_py() - pc.min(seconds).as_py())


@dataclass(frozen=True)
class ListForm:
    """Form of the texts in which a column stores lists.

    Args:
        separator: text between the values.
        distinct: number of different values.
        longest: number of values of the longest list.
        usual: 99th percentile of the lengths of the distinct lists.
    """

    separator: str
    distinct: int
    longest: int
    usual: int


def list_form(texts: pa.Array) -> ListForm | None:
    """Return the `ListForm` of texts such as 'Action|Comedy'; None if the texts are no lists.

    Texts are lists if a separator divides the texts into short values, if the number of values
    differs from text to text, and if values recur in several texts. A space is a separator only if
    nearly all values contain a digit.

    Args:
        texts: different texts, none of them missing.

    Example:
        >>> genres = ["Action|Comedy", "Comedy", "Drama|Action|Comedy"]
        >>> list_form(pa.array(genres))
        ListForm(separator='|', distinct=3, longest=3, usual=3)
        >>> list_form(pa.array(["United Kingdom", "France", "Saudi Arabia"])) is None
        True
    """
    if are_bracketed(texts) or have_units(texts):
        return None
    for separator in _SEPARATORS:
        has = pc.match_substring(texts, separator)
        if pc.sum(has).as_py() < max(2, 0.05 * len(texts)):
            continue
        parts = pc.split_pattern(texts, separator)
        lengths = pc.list_value_length(parts).to_numpy(zero_copy_only=False)
        values = parts.flatten()
        if lengths.max() > _MOST_LIST_VALUES or not _are_values(separator, values, lengths):
            continue
        distinct = len(values.unique())
        if distinct <= 0.7 * len(values):
            usual = int(np.ceil(np.quantile(lengths, 0.99)))
            return ListForm(separator, distinct, int(lengths.max()), usual)
    return None


def _are_values(separator: str, values: pa.Array, lengths: np.ndarray) -> bool:
    if len(np.unique(lengths)) < 2:
        return False  # always as many parts: a code, a city with its country
    words = pc.add(pc.count_substring(pc.utf8_trim_whitespace(values), " "), 1)
    if separator == " ":
        has_digit = pc.match_substring_regex(values, r"^[^\s.,;:!?()]*[0-9][^\s,;:!?()]*$")
        return _share(has_digit) >= 0.95
    if separator in (",", ", "):
        # In prose, commas divide the text into parts of many words.
        few_words = pc.less_equal(words, 2)
        return _share(few_words) >= 0.95 and lengths.mean() >= 1.5
    return _share(pc.less_equal(words, 6)) >= 0.95


def are_bracketed(texts: pa.Array) -> bool:
    """Return True for texts such as '[1, 2]' and '{"a": 1}'.

    Example:
        >>> are_bracketed(pa.array(["[1, 2]", "[]"])), are_bracketed(pa.array(["[1, 2]", "a"]))
        (True, False)
    """
    return _all_match(texts, _BRACKETED)


def have_units(texts: pa.Array) -> bool:
    """Return True if all texts are numbers with a unit.

    Example:
        >>> have_units(pa.array(["$1,299", "3.50 €"])), have_units(pa.array(["1,299"]))
        (True, False)
    """
    return _all_match(texts, _WITH_UNIT)


def _any_matches(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def _share(flags: pa.Array) -> float:
    return float(pc.mean(flags.cast(pa.int8())).as_py() or 0.0)


def _all_match(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern)).as_py())


def _spread(values: np.ndarray, places: np.ndarray, size: int) -> np.ndarray:
    made = np.full(size, np.nan)
    made[places] = values
    return made
