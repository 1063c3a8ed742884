# SPDX-License-Identifier: Apache-2.0
"""Infer the columns of a schema from a sample of rows, and explain each choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from mindspore_rec.common.columns.schema.column import (
    CategoryColumn,
    Column,
    GroupColumn,
    IgnoredColumn,
    LabelColumn,
    WeightColumn,
)
from mindspore_rec.common.columns.schema.column_names import (
    is_propensity_name,
    is_weight_name,
    nearest_name,
)
from mindspore_rec.common.columns.schema.feature_kinds import (
    Choice,
    feature_of,
    never_recurs_later,
    whole_values,
)
from mindspore_rec.common.columns.schema.label_column import label_column
from mindspore_rec.common.columns.schema.leaks import is_copy, leak_of
from mindspore_rec.common.columns.schema.profile import Profile, profile_of
from mindspore_rec.common.columns.schema.proposed_options import with_parts, with_statistics
from mindspore_rec.common.columns.schema.time_columns import likely_time, time_column, time_doubt

__all__ = ["Inferred", "InferredColumn", "infer_columns"]


@dataclass(frozen=True)
class InferredColumn:
    """One column of a proposed schema, and why the column has its kind.

    Args:
        column: the proposed `Column`.
        why: a sentence for the reader of the proposal.
        distinct: number of different values in the sample.
        missing_share: share of rows of the sample without a value.
    """

    column: Column
    why: str
    distinct: int
    missing_share: float


@dataclass(frozen=True)
class Inferred:
    """A proposed schema.

    Args:
        entries: the columns in the order of the data, each with an explanation of its kind.
        rows: number of rows of the sample.
        warnings: sentences about columns that a person should look at, for example columns that
            decide the label, have no name, or contain numbers with units.
    """

    entries: tuple[InferredColumn, ...]
    rows: int
    warnings: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns, for `Schema(inferred.columns)`."""
        return tuple(each.column for each in self.entries)

    def column(self, name: str) -> InferredColumn:
        """Return the column with this name, and the explanation of the column's kind."""
        return next(each for each in self.entries if each.column.name == name)


@dataclass
class _Draft:
    """State while a schema is inferred: profiles and choices by column, and warnings."""

    profiles: dict[str, Profile]
    total_rows: int
    choices: dict[str, Choice] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def left(self) -> list[Profile]:
        return [each for name, each in self.profiles.items() if name not in self.choices]


def infer_columns(
    table: pa.Table,
    *,
    label: str | Column | Sequence[str | Column],
    time: str | None = None,
    group: str | None = None,
    weight: str | None = None,
    ignore: Iterable[str] = (),
    total_rows: int | None = None,
    by_time: bool = True,
) -> Inferred:
    """Propose the columns of a schema for a sample of rows.

    Args:
        table: the sample, at least two rows. Draw the sample from all rows of the data.
        label: name of the label, or names of several labels. Use a `LabelColumn` to set the value
            that counts as 1 (`positive`), or to predict a number (`binary=False`).
        time: name of the column with the time of the event. Default: a column of timestamps, of
            texts that are times, or of numbers whose name and size suggest times; none if the
            sample has no such column.
        group: name of the column of groups, such as users, for the metric `gauc`. Default: none.
        weight: name of the column with the rows' weights. Default: none.
        ignore: names of columns that are not read.
        total_rows: number of rows of the data. Default: the sample contains all rows.
        by_time: True if the rows to predict are later than the training rows; ignored if there is
            no column of times. Default: True.

    Returns:
        The proposal. A column that decides the label is proposed as ignored, with a warning.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: a name is unknown or given twice, the sample is unsuitable for training, or no
            column is left to predict from. The message names the column and the remedy.

    Example:
        >>> rows = pa.table(
        ...     {
        ...         "user": ["ann", "bob", "ann", "cid"] * 25,
        ...         "price": [1.5, 9.25, 3.0, 2.5] * 25,
        ...         "clicked": [0, 1, 1, 0, 0] * 20,
        ...     }
        ... )
        >>> inferred = infer_columns(rows, label="clicked")
        >>> [(each.name, each.kind) for each in inferred.columns]
        [('user', 'category'), ('price', 'number'), ('clicked', 'label')]
        >>> inferred.column("user").why
        'Texts that recur.'
    """
    labels = _labels(label)
    ignored = [ignore] if isinstance(ignore, str) else list(ignore)
    _check_table(table)
    _check_roles(table.column_names, labels, time, group, weight, ignored)
    if table.num_rows == 1:
        raise ValueError(
            "the data must have rows with different labels, got one row: read more rows"
        )
    draft = _Draft(
        {name: profile_of(name, table.column(name)) for name in table.column_names if name},
        max(total_rows or 0, table.num_rows),
    )
    if "" in table.column_names:
        draft.warnings.append("a column without a name is not read: name it if it is a feature")
    for name in ignored:
        if name:
            _ignore(draft, name, "Not read, as asked for.")
    targets = _decide_labels(draft, labels)
    _decide_roles(draft, time, weight)
    _ignore_copies(draft, table)
    _ignore_leaks(draft, targets)
    _decide_features(draft, group)
    if not any(choice.column.is_read for choice in draft.choices.values()):
        raise ValueError(
            "no column is left to predict from: " + _first_reasons(draft) + "; name another label, "
            "or make columns that are known before the event"
        )
    with_statistics(draft.choices, draft.profiles, by_time)
    return _result(draft, table.num_rows)


def _labels(label: str | Column | Sequence[str | Column]) -> list[Column]:
    several = list(label) if isinstance(label, Sequence) and not isinstance(label, str) else [label]
    made = []
    for each in several:
        if not isinstance(each, (str, Column)):
            raise TypeError(f"label must be the name of a column, got {each!r:.80}")
        column = each if isinstance(each, Column) else LabelColumn(each)
        if column.kind != "label":
            raise ValueError(f"label must be a column of kind 'label', got {column!r}")
        made.append(column)
    if not made:
        raise ValueError("label must name at least one column")
    return made


def _check_table(table: pa.Table) -> None:
    if not isinstance(table, pa.Table):
        raise TypeError(f"table must be an Arrow table, got {type(table).__name__}")
    names = table.column_names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"the data have two columns named {twice[0]!r}: rename one of them")
    if not names:
        raise ValueError("the data have no columns: is it the right file?")
    if not table.num_rows:
        raise ValueError(
            f"the data have no rows, only the columns {', '.join(map(repr, names[:10]))}: is it "
            "the right file or filter?"
        )
    long = next((name for name in names if len(name) > 255), None)
    if long is not None:
        raise ValueError(
            f"the name of a column has over 255 characters, {long[:40]!r}...: is the "
            "separator of the file right?"
        )


def _check_roles(
    names: list[str],
    labels: list[Column],
    time: str | None,
    group: str | None,
    weight: str | None,
    ignored: list[str],
) -> None:
    roles = [("label", each.name) for each in labels]
    roles += [(r, n) for r, n in (("time", time), ("group", group), ("weight", weight)) if n]
    roles += [("ignore", name) for name in ignored]
    seen: dict[str, str] = {}
    for role, name in roles:
        if not isinstance(name, str):
            raise TypeError(f"{role} must be the name of a column, got {name!r:.80}")
        if name not in names:
            raise ValueError(f"{role} {name!r} is no column: {nearest_name(name, names)}")
        if name in seen:
            raise ValueError(f"column {name!r} is {seen[name]} and {role}: name it once")
        seen[name] = role


def _ignore(draft: _Draft, name: str, why: str) -> None:
    draft.choices[name] = Choice(IgnoredColumn(name), why)


def _decide_labels(draft: _Draft, labels: list[Column]) -> dict[str, np.ndarray]:
    targets = {}
    for each in labels:
        asked = each if each.positive is not None or not each.binary else None
        column, values, why = label_column(draft.profiles[each.name], asked)
        draft.choices[each.name] = Choice(column, f"The label: {why}.")
        targets[each.name] = values
    return targets


def _decide_roles(draft: _Draft, time: str | None, weight: str | None) -> None:
    if weight is not None:
        draft.choices[weight] = _weight(draft.profiles[weight])
    if time is None:
        time = likely_time(draft.left())
    if time is not None:
        column, why = time_column(draft.profiles[time])
        draft.choices[time] = with_parts(Choice(column, why), draft.profiles[time])
        if doubt := time_doubt(column, draft.profiles[time]):
            draft.warnings.append(doubt)
    for each in draft.left():
        if is_weight_name(each.name) and each.family == "number":
            why = f"By its name the weight of the row, no feature: weight={each.name!r} uses it."
            _ignore(draft, each.name, why)
        elif is_propensity_name(each.name) and each.family == "number":
            _ignore(draft, each.name, "By its name set by whoever chose the row, so not known.")


def _weight(weight: Profile) -> Choice:
    where = f"weight {weight.name!r}"
    if weight.family == "nothing":
        raise ValueError(f"{where} is missing in all rows: name another column")
    if weight.family != "number" or weight.lengths is not None:
        raise ValueError(f"{where} must be of numbers, it is {weight.type}: name another column")
    missing = int(weight.missing.sum())
    if missing:
        raise ValueError(f"{where} is missing in {missing:,} rows: fill it, or leave the rows out")
    numbers = weight.numbers if weight.numbers is not None else np.zeros(0)
    if not np.isfinite(numbers).all() or numbers.min() < 0:
        worst = numbers[~np.isfinite(numbers)] if numbers.min() >= 0 else [numbers.min()]
        raise ValueError(f"{where} must be 0 or more, got {worst[0]:g}: name another column")
    if not numbers.any():
        raise ValueError(f"{where} is 0 in all rows that were read: name another column")
    decimal = None if weight.form is None else weight.form.decimal
    why = f"The weight of the row, {numbers.min():g} to {numbers.max():g}."
    return Choice(WeightColumn(weight.name, decimal=decimal), why)


def _ignore_copies(draft: _Draft, table: pa.Table) -> None:
    """Ignore columns that are equal to an earlier column in every row."""
    first: dict[tuple[str, int, int], list[str]] = {}
    for each in draft.left():
        if each.distinct < 2 or each.lengths is not None:
            continue
        alike = first.setdefault((str(each.type), each.distinct, each.there), [])
        for other in alike:
            if table.column(other).equals(table.column(each.name)):
                why = f"In every row equal to column {other!r}."
                _ignore(draft, each.name, why)
                draft.warnings.append(
                    f"column {each.name!r} is in every row equal to {other!r}: it is ignored"
                )
                break
        else:
            alike.append(each.name)


def _ignore_leaks(draft: _Draft, targets: dict[str, np.ndarray]) -> None:
    for each in draft.left():
        for label, values in targets.items():
            how = None
            if each.distinct and is_copy(each, draft.profiles[label]):
                how = "it has one value for each label"
            elif each.family != "other":
                how = leak_of(each, values)
            if how is not None:
                why = f"Decides the label {label!r}: {how}. Is it known before the event?"
                _ignore(draft, each.name, why)
                draft.warnings.append(
                    f"column {each.name!r} decides the label {label!r}: {how}; it is ignored, "
                    "since it is probably not known before the event"
                )
                break


def _decide_features(draft: _Draft, group: str | None) -> None:
    time = next((n for n, each in draft.choices.items() if each.column.kind == "time"), None)
    for each in draft.left():
        choice = feature_of(each, draft.total_rows)
        if choice.warning:
            draft.warnings.append(choice.warning)
        if choice.column.kind in ("category", "integer") and time is not None:
            if never_recurs_later(each, draft.profiles[time].row_numbers()):
                why = "None of its values recurs later, so a later row has nothing to learn from."
                choice = Choice(IgnoredColumn(each.name), why)
        if each.name == group:
            choice = _grouped(each, choice)
        draft.choices[each.name] = choice
    if group is not None and not _is_group(draft.choices[group].column):
        # If the group is a copy of the label or leaks the label, the network does not read the
        # group, but metrics still use the group.
        draft.choices[group] = _grouped(draft.profiles[group], draft.choices[group])


def _is_group(column: Column) -> bool:
    return column.kind == "group" or column.group


def _grouped(profile: Profile, choice: Choice) -> Choice:
    if profile.family in ("other", "nothing", "time") or profile.lengths is not None:
        raise ValueError(
            f"group {profile.name!r} must be of texts or whole numbers, it is {profile.type}: name "
            "another column"
        )
    if isinstance(choice.column, CategoryColumn):
        grouped = replace(choice.column, group=True)
        return Choice(grouped, f"{choice.why} Metrics are also computed per value.")
    is_number = profile.family == "number"
    if is_number and not profile.is_whole and not profile.is_beyond_int64:
        raise ValueError(
            f"group {profile.name!r} must be of texts or whole numbers, it has fractions such as "
            f"{profile.example()}: name another column"
        )
    if choice.column.kind == "integer":
        column = CategoryColumn(profile.name, values=whole_values(profile), group=True)
        return Choice(column, "Metrics are also computed per value.")
    why = "Metrics are computed per value, and the network does not read it."
    values = whole_values(profile) if is_number or profile.family == "bool" else None
    return Choice(GroupColumn(profile.name, values=values), f"{choice.why} {why}")


def _first_reasons(draft: _Draft) -> str:
    reasons = [
        f"{name!r}: {choice.why.rstrip('.')}"
        for name, choice in draft.choices.items()
        if choice.column.kind == "ignored"
    ]
    return "; ".join(reasons[:3]) if reasons else "there is only the label"


def _result(draft: _Draft, rows: int) -> Inferred:
    entries = tuple(
        InferredColumn(
            draft.choices[name].column,
            draft.choices[name].why,
            profile.distinct,
            profile.missing_share,
        )
        for name, profile in draft.profiles.items()
    )
    return Inferred(entries, rows, tuple(draft.warnings))
