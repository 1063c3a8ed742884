# SPDX-License-Identifier: Apache-2.0
"""Choose the kind of a feature by its values and its name."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mindspore_rec.common.columns.schema.column import (
    CategoryColumn,
    Column,
    IgnoredColumn,
    IntegerColumn,
    ListColumn,
    NumberColumn,
    TextColumn,
)
from mindspore_rec.common.columns.schema.column_names import is_id_name, is_row_number_name
from mindspore_rec.common.columns.schema.profile import Profile
from mindspore_rec.common.columns.schema.text_forms import (
    ListForm,
    are_bracketed,
    have_units,
    list_form,
)

__all__ = ["Choice", "feature_of", "never_recurs_later", "whole_values"]

FEW_ROWS = 50
"""In fewer rows, values that never recur prove nothing."""

_ENOUGH_ROWS = 10_000
"""In so many rows, floats of which some are fractions would have shown one."""

_MANY_VALUES = 1000
_MANY_TEXTS = 100
_LONGEST_LIST = 128
_USUAL_LENGTH = 20  # the default of Column.length
_TRIED_TEXTS = 20_000
_WORD = r"[\p{L}\p{N}]+"


class Choice(NamedTuple):
    """A column, the reason for its kind as a sentence, and a warning ('' if there is none)."""

    column: Column
    why: str
    warning: str = ""


def feature_of(profile: Profile, total_rows: int) -> Choice:
    """Return the column of a feature, and say why the column has its kind.

    Args:
        profile: the `Profile` of the column in a sample.
        total_rows: number of rows of the data.

    Example:
        >>> from mindspore_rec.common.columns.schema.profile import profile_of
        >>> user = profile_of("user_id", pa.array([7.0, 8.0, None, 7.0]))
        >>> feature_of(user, 4).column
        CategoryColumn('user_id', values='whole')
    """
    if profile.family == "nothing":
        return _ignored(profile, "Missing in all rows that were read.")
    if profile.family == "other":
        remedy = "floats" if pa.types.is_decimal(profile.type) else "numbers, texts or lists"
        return _ignored(profile, f"{_type(profile)} is not read: convert the column to {remedy}.")
    if profile.is_beyond_int64 and profile.lengths is None:
        column = CategoryColumn(profile.name, values="text")
        return Choice(column, "Whole numbers of 2^63 and more, such as hashes.")
    if profile.lengths is not None:
        return _list(profile)
    if profile.distinct == 1 and not profile.missing.any():
        return _ignored(profile, "The same value in all rows that were read.")
    if profile.family == "time":
        return _ignored(profile, "Another time: make a number of it, such as its age, to use it.")
    if profile.family == "bool":
        return Choice(CategoryColumn(profile.name, values="whole"), "False and true.")
    if profile.family == "number":
        return _whole(profile, total_rows) if profile.is_whole else _number(profile)
    return _text(profile, total_rows)


def _ignored(profile: Profile, why: str) -> Choice:
    return Choice(IgnoredColumn(profile.name), why)


def _type(profile: Profile) -> str:
    return f"A list of {profile.type}" if profile.lengths is not None else f"Type {profile.type}"


def _list(profile: Profile) -> Choice:
    assert profile.lengths is not None
    if profile.family == "list" and not pa.types.is_floating(profile.type):
        if pa.types.is_integer(profile.type) or pa.types.is_boolean(profile.type):
            values: str | None = "whole"
        elif pa.types.is_string(profile.type) or pa.types.is_large_string(profile.type):
            values = _values_of(profile.values)
        else:
            return _ignored(profile, f"Lists of {profile.type}, which no column reads.")
        longest = int(profile.lengths.max())
        usual = int(np.ceil(np.quantile(profile.lengths[profile.lengths >= 0], 0.99)))
        column = ListColumn(profile.name, values=values, length=_length(longest, usual))
        return Choice(column, f"Lists of up to {longest} values.")
    if pa.types.is_floating(profile.type):
        return _ignored(profile, "Lists of floats: make a column of each place to use them.")
    return _ignored(profile, f"Lists of {profile.type}, which no column reads.")


def _number(profile: Profile) -> Choice:
    if profile.form is not None and profile.form.decimal == ",":
        column = NumberColumn(profile.name, decimal=",")
        return Choice(column, "Numbers with a decimal comma, as texts.")
    if profile.form is not None:
        number = NumberColumn(profile.name, decimal=".")
        if profile.form.is_doubtful:
            return Choice(number, "Numbers with commas between thousands.", _doubt(profile))
        return Choice(number, "Numbers, as texts.")
    if np.isinf(profile.numbers if profile.numbers is not None else 0).any():
        return Choice(NumberColumn(profile.name), "Numbers, some of them infinite.")
    return Choice(NumberColumn(profile.name), "Numbers with fractions.")


def _doubt(profile: Profile) -> str:
    text = profile.values.filter(pc.match_substring(profile.values, ","))[0].as_py()
    return (
        f"column {profile.name!r} has numbers such as {text!r}, whose comma is read as a separator "
        "of thousands: if it is a decimal point, say decimal: ','"
    )


def _whole(profile: Profile, total_rows: int) -> Choice:
    """Return the column for whole numbers, of kind category, integer, number or ignored."""
    assert profile.numbers is not None
    how = _written(profile)
    decimal = None if profile.form is None else profile.form.decimal
    category = CategoryColumn(profile.name, values=whole_values(profile))
    unique = _never_recurs(profile, total_rows)
    is_id = is_id_name(profile.name)
    if unique and (is_row_number_name(profile.name) or _counts_rows(profile)):
        return _ignored(profile, "The number of the row.")
    if unique and (is_id or _is_spread_like_ids(profile.numbers)):
        return _ignored(profile, "A different value in each row, which never recurs.")
    if is_id:
        return Choice(category, f"Whole numbers{how} that are names, by the name of the column.")
    if profile.distinct <= 2:
        return Choice(category, f"Two whole numbers{how}.")
    if _is_spread_like_ids(profile.numbers):
        why = f"Whole numbers{how} that are spread evenly like ids, not like quantities."
        return Choice(category, why)
    if profile.there >= 4 * FEW_ROWS and profile.distinct > profile.there / 4:
        number = NumberColumn(profile.name, decimal=decimal)
        return Choice(number, f"Whole numbers{how} that seldom recur, so a quantity only.")
    if pa.types.is_floating(profile.type) and profile.rows < min(total_rows, _ENOUGH_ROWS):
        why = "Whole numbers as floats; in rows that were not read there may be fractions."
        return Choice(NumberColumn(profile.name), why)
    column = IntegerColumn(profile.name, decimal=decimal)
    return Choice(column, f"Whole numbers{how}: a quantity, whose single values may tell more.")


def whole_values(profile: Profile) -> str:
    """Return the type of categories that are whole numbers.

    The type is 'text' if a number exceeds int64, or if a text such as '?' means a missing value. In
    all other cases, the type is 'whole'.
    """
    has_marks = profile.form is not None and profile.form.has_marks
    return "text" if has_marks or profile.is_beyond_int64 else "whole"


def _written(profile: Profile) -> str:
    if profile.form is not None:
        return " as texts"
    return " as floats" if pa.types.is_floating(profile.type) else ""


def _never_recurs(profile: Profile, total_rows: int) -> bool:
    """Return True if a sample shows that no value occurs twice in the data.

    If each value were in two of N rows, a sample of n rows would have about n * n / (2 * N) pairs.
    """
    if profile.there < FEW_ROWS or profile.distinct < profile.there:
        return False
    return profile.there >= total_rows or profile.there**2 / (2 * total_rows) >= 5


def never_recurs_later(profile: Profile, times: np.ndarray) -> bool:
    """Return True if values recur, but hardly any value of the last rows occurred before.

    Invoice numbers and session ids, for example, recur only in neighbouring rows.

    Args:
        profile: the column's `Profile`.
        times: time of each row, in any unit, float64 ``[rows]``.

    Example:
        >>> from mindspore_rec.common.columns.schema.profile import profile_of
        >>> session = profile_of("session", pa.array(np.arange(1000) // 5))
        >>> never_recurs_later(session, np.arange(1000.0))
        True
    """
    if profile.there < 4 * FEW_ROWS or profile.distinct < FEW_ROWS:
        return False
    if profile.lengths is not None or profile.there < 1.5 * profile.distinct:
        return False
    last = times > np.quantile(times, 0.8)
    later = profile.codes[last & ~profile.missing]
    earlier = np.zeros(profile.distinct, bool)
    earlier[profile.codes[~last & ~profile.missing]] = True
    return len(later) >= FEW_ROWS and float(earlier[later].mean()) < 0.02


def _counts_rows(profile: Profile) -> bool:
    """Return True for numbers that grow by 1 from row to row."""
    numbers = profile.row_numbers()
    return bool((np.diff(numbers) == 1).all())


def _is_spread_like_ids(numbers: np.ndarray) -> bool:
    """Return True if many different numbers fill their range evenly, as hashes and ids do.

    Quantities, unlike ids, are mostly small numbers. The different values are compared with a
    uniform distribution by the Kolmogorov-Smirnov distance.
    """
    if len(numbers) <= _MANY_VALUES:
        return False
    ordered = np.sort(numbers)
    span = ordered[-1] - ordered[0]
    places = (ordered - ordered[0]) / span
    return bool(np.abs(places - np.linspace(0, 1, len(places))).max() < 0.1)


def _text(profile: Profile, total_rows: int) -> Choice:
    texts = profile.values[:_TRIED_TEXTS]
    form = list_form(texts)
    if form is not None:
        return _text_list(profile, form)
    many = profile.distinct > _MANY_TEXTS or (
        profile.there >= FEW_ROWS and profile.distinct > profile.there / 2
    )
    if many and (_words(texts, r"\S+") >= 2.5 or are_bracketed(texts)):
        return _free_text(profile, texts)
    if _never_recurs(profile, total_rows):
        if _words(texts, _WORD) >= 3 and _words_recur(texts):
            return _free_text(profile, texts)  # addresses of pages, for example
        return _ignored(profile, "A different text in each row, which never recurs.")
    if profile.form is not None and profile.form.has_leading_zeros:
        column = CategoryColumn(profile.name, values="text")
        return Choice(column, "Digits with leading zeros, so names and not numbers.")
    column = CategoryColumn(profile.name, values=_values_of(profile.values))
    if not have_units(texts):
        return Choice(column, "Texts that recur.")
    why = f"Numbers with a unit, such as {texts[0].as_py()!r}, which are not read as numbers."
    warning = f"column {profile.name!r} has numbers with a unit, such as {texts[0].as_py()!r}"
    return Choice(column, why, f"{warning}: they are categories unless you make numbers of them")


def _values_of(texts: pa.Array) -> str | None:
    """Return 'text' if a text has only digits, since another file may store numbers; else None."""
    digits = pc.any(pc.match_substring_regex(texts, r"^\s*[+-]?[0-9]+(\.0*)?\s*$")).as_py()
    return "text" if digits else None


def _words(texts: pa.Array, pattern: str) -> float:
    """Return the mean number of words per text."""
    return float(pc.mean(pc.count_substring_regex(texts, pattern)).as_py() or 0.0)


def _words_recur(texts: pa.Array) -> bool:
    """Return True if the words of the texts occur at least twice on average."""
    spaced = pc.replace_substring_regex(texts, r"[^\p{L}\p{N}]+", " ")
    words = pc.split_pattern(pc.utf8_trim(spaced, " "), " ").flatten()
    return len(words.unique()) * 2 <= len(words)


def _free_text(profile: Profile, texts: pa.Array) -> Choice:
    counts = pc.count_substring_regex(texts, _WORD).to_numpy(zero_copy_only=False)
    longest, usual = int(counts.max()), int(np.ceil(np.quantile(counts, 0.99)))
    column = TextColumn(profile.name, length=_length(longest, usual))
    return Choice(column, f"Texts of up to {longest} words.")


def _text_list(profile: Profile, form: ListForm) -> Choice:
    column = ListColumn(
        profile.name,
        separator=form.separator,
        length=_length(form.longest, form.usual),
    )
    why = f"Texts that are lists of {form.distinct:,} different values between {form.separator!r}."
    return Choice(column, why)


def _length(longest: int, usual: int) -> int | None:
    """Return the `length` of a list column; None for the default."""
    if longest <= 10:
        return max(1, longest)
    if usual <= _USUAL_LENGTH:
        return None
    return min(_LONGEST_LIST, usual)
