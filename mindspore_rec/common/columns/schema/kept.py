# SPDX-License-Identifier: Apache-2.0
"""Replace each `KeptHistoryColumn` by the columns that a network reads."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore_rec.common.columns.kept_events import MOST_FLOATS, row_floats
from mindspore_rec.common.columns.schema.column import Column, HistoryColumn

__all__ = ["expanded", "kept_in"]

_USERS = ("category", "integer", "group", "ignored")
_VALUES = ("category", "integer", "time", "number")


def kept_in(columns: Sequence[Column]) -> list[Column]:
    """Return the columns of kind 'kept_history', whose histories the library collects."""
    return [each for each in columns if each.kind == "kept_history"]


def expanded(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns with each `KeptHistoryColumn` replaced by a history and its side columns.

    A history `recent` of the columns `item` and `ts` has the columns 'recent' and 'recent.ts'. The
    columns 'recent' and 'recent.ts' have the keys, the tables and the settings of `item` and `ts`.

    Raises:
        ValueError: a `KeptHistoryColumn` refers to a column that is missing or of another kind,
            there is no column of times, or a user's row is too long.
    """
    by_name = {each.name: each for each in columns}
    made: list[Column] = []
    for column in columns:
        made += _histories(column, by_name) if column.kind == "kept_history" else [column]
    return tuple(made)


def _histories(column: Column, by_name: dict[str, Column]) -> list[Column]:
    where = f"column {column.name!r}: "
    if not any(each.kind == "time" for each in by_name.values()):
        raise ValueError(f"{where}one column must be of kind 'time', the time of the events")
    _of_kind(where + "by", column.by or "", _USERS, by_name)
    if column.only is not None:
        label = _of_kind(where + "only", column.only, ("label",), by_name)
        if not label.binary:
            raise ValueError(f"{where}only must be a label with two values, got {column.only!r}")
    others = [_of_kind(where + "of", name, _VALUES, by_name) for name in column.of]
    floats = row_floats(column.most_values, sum(each.kind != "time" for each in others))
    if floats > MOST_FLOATS:
        raise ValueError(
            f"{where}length and of must fit a row of {MOST_FLOATS} floats, {column.most_values} "
            f"events of {len(others)} columns take {floats}"
        )
    made: list[Column] = []
    for place, other in enumerate(others):
        name = column.name if place == 0 else f"{column.name}.{other.name}"
        if place and name in by_name:
            raise ValueError(f"{where}another column must not have the name {name!r}")
        values = {"time": "int64", "number": "float32", "integer": "whole"}
        has_rows = other.kind in ("category", "integer")
        history = HistoryColumn(
            name,
            table=other.table if has_rows else None,
            embedding_dim=other.embedding_dim if has_rows else None,
            admission=other.admission if has_rows else None,
            eviction=other.eviction if has_rows else None,
            values=values.get(other.kind, other.values),
            length=column.most_values if place == 0 else None,
            side_of=None if place == 0 else column.name,
        )
        object.__setattr__(history, "salt", other.field)
        object.__setattr__(history, "kept", column)
        made.append(history)
    return made


def _of_kind(where: str, name: str, kinds: tuple[str, ...], by_name: dict[str, Column]) -> Column:
    column = by_name.get(name)
    if column is None or column.kind not in kinds:
        has = "there is none" if column is None else f"which is of kind {column.kind!r}"
        raise ValueError(
            f"{where} must be a column of kind {', '.join(kinds)}, got {name!r}, {has}"
        )
    return column
