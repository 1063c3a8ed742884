# SPDX-License-Identifier: Apache-2.0
"""Find which value of a label counts as 1, and refuse columns that cannot be labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from mindspore_rec.common.columns.labels import positive_rows
from mindspore_rec.common.columns.schema.column import (
    Column,
    LabelColumn,
)
from mindspore_rec.common.columns.schema.profile import Profile

__all__ = ["MOST_CLASSES", "label_column"]

MOST_CLASSES = 20
"""A label of numbers with more different values than this limit is a number to predict."""

_POSITIVE = frozenset(
    "1 true t yes y on positive pos click clicked like liked buy bought purchase purchased "
    "converted conversion churn churned fraud spam default".split()
)


def label_column(label: Profile, asked: Column | None = None) -> tuple[Column, np.ndarray, str]:
    """Return the label's column, the values to learn, and a sentence that explains the choice.

    Args:
        label: the `Profile` of the label.
        asked: a column of kind 'label' in which the user has set `positive` or `binary`. Default:
            None, which means that `positive` and `binary` are inferred. If one of a label's two
            values is a word such as 'yes', this value counts as 1; otherwise, the greater number or
            the rarer text counts as 1.

    Returns:
        The label's column, the labels as float64 ``[rows]``, and a sentence that explains the
        choice.

    Raises:
        ValueError: a label is missing, infinite, or of a type that cannot be a label; all labels
            are equal; no label is `positive`; or the label has more than two different texts or 3
            to 20 different numbers, and neither `positive` nor `binary` is set.

    Example:
        >>> import pyarrow as pa
        >>> from mindspore_rec.common.columns.schema.profile import profile_of
        >>> bought = profile_of("bought", pa.array(["no", "yes", "no"]))
        >>> label_column(bought)[:2]
        (LabelColumn('bought', positive='yes'), array([0., 1., 0.]))
    """
    where = f"label {label.name!r}"
    _check_there(where, label)
    if asked is not None and not asked.binary:
        return _number(where, label, asked, "a number to predict, as asked for")
    if asked is not None and asked.positive is not None:
        return _with_positive(where, label, asked)
    if label.distinct == 1:
        raise ValueError(
            f"{where} must have two values, all {label.rows:,} rows that were read have "
            f"{_shown(label.example())}: name another label, or read more rows, rows="
        )
    if label.distinct == 2:
        return _of_two(label)
    if label.numbers is not None and label.family == "number" and label.distinct > MOST_CLASSES:
        low, high = label.numbers.min(), label.numbers.max()
        reason = f"a number to predict, {label.distinct:,} values from {low:g} to {high:g}"
        return _number(where, label, LabelColumn(label.name, binary=False), reason)
    some = ", ".join(_shown(each.as_py()) for each in label.values[:5])
    more = ", ..." if label.distinct > 5 else ""
    number = ", or binary=False to predict a number" if label.family == "number" else ""
    raise ValueError(
        f"{where} must have two values, it has {label.distinct:,}: {some}{more}; name the value "
        f"that counts as 1, label=LabelColumn({label.name!r}, positive="
        f"{_shown(label.values[int(label.counts.argmin())].as_py())}){number}"
    )


def _check_there(where: str, label: Profile) -> None:
    if label.lengths is not None or label.family in ("time", "other"):
        raise ValueError(
            f"{where} must be of numbers, bools or texts, it is {label.type}"
            + (" in lists" if label.lengths is not None else "")
            + (": times are no labels" if label.family == "time" else "")
            + ": name another label"
        )
    missing = int(label.missing.sum())
    if missing == label.rows:
        raise ValueError(f"{where} is missing in all {label.rows:,} rows: name another label")
    if missing:
        row = int(np.flatnonzero(label.missing)[0])
        raise ValueError(
            f"{where} is missing in {missing:,} of {label.rows:,} rows that were read, first in "
            f"row {row:,} of them: fill it, or leave these rows out"
        )


def _of_two(label: Profile) -> tuple[Column, np.ndarray, str]:
    if label.family == "bool":
        place = label.values.to_pylist().index(True)
        column = LabelColumn(label.name, positive=True)
        return column, _is(label, place), _share_of(label, place)
    if label.numbers is not None and label.family == "number":
        place = int(np.argmax(label.numbers))
        comma = label.form is not None and label.form.decimal == ","
        if sorted(label.numbers.tolist()) == [0.0, 1.0] and not comma:
            return LabelColumn(label.name), _is(label, place), _share_of(label, place)
        positive = _plain(label.values[place].as_py())
    else:
        place = _positive_text(label)
        positive = label.values[place].as_py()
    column = LabelColumn(label.name, positive=positive)
    return column, _is(label, place), _share_of(label, place)


def _positive_text(label: Profile) -> int:
    """Return the index of the text that counts as label 1."""
    texts = label.values.to_pylist()
    words = [str(text).strip().lower() in _POSITIVE for text in texts]
    if words[0] != words[1]:
        return words.index(True)
    return int(np.argmin(label.counts))


def _with_positive(where: str, label: Profile, asked: Column) -> tuple[Column, np.ndarray, str]:
    is_one = positive_rows(label.name, label.values, asked.positive).fill_null(False)
    places = np.flatnonzero(is_one.to_numpy(zero_copy_only=False)).tolist()
    if not places:
        some = ", ".join(_shown(each.as_py()) for each in label.values[:5])
        raise ValueError(
            f"{where} never is {asked.positive!r}, the positive value, in the {label.rows:,} rows "
            f"that were read: its values are {some}"
        )
    if label.distinct == 1:
        raise ValueError(
            f"{where} is {asked.positive!r} in all {label.rows:,} rows that were read: name "
            "another label, or read more rows, rows="
        )
    return asked, _is(label, *places), _share_of(label, *places)


def _number(
    where: str, label: Profile, column: Column, reason: str
) -> tuple[Column, np.ndarray, str]:
    if label.family not in ("number", "bool"):
        raise ValueError(f"{where} must be of numbers if binary is False, it is {label.type}")
    if label.form is not None and label.form.decimal is not None and column.decimal is None:
        column = LabelColumn(label.name, binary=False, decimal=label.form.decimal)
    if label.family == "bool":
        return column, (label.codes == label.values.to_pylist().index(True)) * 1.0, reason
    if not np.isfinite(label.numbers if label.numbers is not None else 0.0).all():
        raise ValueError(f"{where} must be finite, some are infinite: leave these rows out")
    return column, label.row_numbers(), reason


def _is(label: Profile, *places: int) -> np.ndarray:
    return np.isin(label.codes, places).astype(np.float64)


def _share_of(label: Profile, *places: int) -> str:
    share = label.counts[list(places)].sum() / label.rows
    return f"{_shown(label.values[places[0]].as_py())} counts as 1, in {share:.2%} of the rows"


def _plain(value: Any) -> Any:
    """Return a whole float as an int, and a Decimal as a float."""
    if isinstance(value, (str, bool, int)):
        return value
    number = float(value)
    return int(number) if number.is_integer() else number


def _shown(value: Any) -> str:
    text = repr(_plain(value)) if isinstance(value, (str, int, float)) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
