# SPDX-License-Identifier: Apache-2.0
"""Choose label statistics and parts of times for a proposed schema."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from mindspore_rec.common.columns.hashing import mix64
from mindspore_rec.common.columns.schema.column import Column
from mindspore_rec.common.columns.schema.feature_kinds import Choice
from mindspore_rec.common.columns.schema.profile import Profile
from mindspore_rec.common.columns.times import UNITS

__all__ = ["with_statistics", "with_parts"]

_MANY = 200  # values, beyond which a value has too few rows to learn its vector well
_DAY = 86_400
_FEWEST_DAYS, _FEWEST_WEEKS = 3, 3  # in which the hour and the weekday recur


def with_statistics(
    choices: dict[str, Choice], profiles: dict[str, Profile], by_time: bool
) -> None:
    """Add statistics to the categories with many values, in place.

    Statistics are of kind 'past' if there is a column of times and `by_time` is True.
    """
    columns = [choice.column for choice in choices.values()]
    by = "past" if by_time and any(each.kind == "time" for each in columns) else "folds"
    read = [each.name for each in columns if each.is_read and profiles[each.name].lengths is None]
    for name, choice in choices.items():
        column = choice.column
        if column.kind not in ("category", "integer") or profiles[name].distinct <= _MANY:
            continue
        others = [profiles[each] for each in read if each != name]
        if by == "folds" and not _have_folds(profiles[name], others):
            continue
        why = f"{choice.why} The mean labels of its many values are features too."
        changed: Column = replace(column, statistics=by)  # type: ignore[type-var]
        choices[name] = choice._replace(column=changed, why=why)


def _have_folds(column: Profile, others: list[Profile]) -> bool:
    """Return True if statistics by fold suit a column: most values have rows in several folds.

    A row's fold depends on the values of all columns. If a value determines the values of all other
    columns, all rows with the value are in one fold, and the other folds have no statistics of the
    value.
    """
    words = np.zeros(column.rows, np.uint64)
    for each in others:
        words = mix64(words ^ each.codes.view(np.uint64))
    rows = pd.DataFrame({"code": column.codes, "word": words})[~column.missing]
    different = rows.groupby("code").word.agg(["size", "nunique"])
    recurring = different[different["size"] > 1]
    alike = recurring["size"][recurring["nunique"] == 1].sum()
    return bool(2 * alike < recurring["size"].sum())


def with_parts(choice: Choice, time: Profile) -> Choice:
    """Return the choice for a column of times, with hour and weekday as features if they recur."""
    column = choice.column
    if column.format is not None and time.family != "time":
        return choice  # numbers of digits such as 20261127
    seconds = time.row_numbers() / (1 if time.family == "time" else UNITS[column.unit or "s"])
    days = float(seconds.max() - seconds.min()) / _DAY
    parts = []
    if days >= _FEWEST_DAYS and len(np.unique(seconds // 3600 % 24)) > 1:
        parts.append("hour")
    if days >= 7 * _FEWEST_WEEKS:
        parts.append("weekday")
    if not parts:
        return choice
    changed: Column = replace(column, parts=tuple(parts))  # type: ignore[type-var]
    return choice._replace(column=changed)
