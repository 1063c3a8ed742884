# SPDX-License-Identifier: Apache-2.0
"""Make the arrays of rows to predict; read the histories from the rows or look them up by user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.common.columns.arrow_columns import values_array
from mindspore_rec.common.columns.batch_rows import BatchRows
from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.columns.histories import offsets_name
from mindspore_rec.common.columns.kept_events import (
    EventLog,
    Events,
    KeptEvents,
    asked_of,
    table_suffix,
)

__all__ = ["asked_arrays", "asked_columns", "tables_of_users"]


def asked_columns(features: FeaturePipeline) -> list[str]:
    """Return the columns that are needed to look up histories: the user and the time."""
    return [str(each.column) for kept in features.kept for each in (kept.user, kept.time)]


def tables_of_users(features: FeaturePipeline | None, tables: Iterable[str]) -> set[str]:
    """Return the names of the tables with the last events of each user."""
    ends = tuple(table_suffix(each.name) for each in features.kept) if features else ()
    return {name for name in tables if name.endswith(ends)} if ends else set()


def asked_arrays(
    features: FeaturePipeline,
    rows: Any,
    tables: Mapping[str, Any],
    names: Sequence[str],
) -> dict[str, Any]:
    """Return the arrays of rows to predict, without learning from the rows or storing their events.

    The library collects the history of a `KeptHistoryColumn` from earlier rows. If the rows to
    predict have a column with the name of the `KeptHistoryColumn`, the history is read from this
    column. Without this column, the history is looked up by the row's user, and has the events
    before the row's time. If the rows have no column of times, the library returns all stored
    events of the user.

    Args:
        features: the pipeline of the network.
        rows: a batch.
        tables: tables by name, including the tables of users' events. In place of the table of a
            history's events, an `EventLog` is legal too. If the table of a history is missing, and
            the rows do not contain the history, the history is empty.
        names: names of the arrays to return.

    Raises:
        TypeError, ValueError: a column is missing or unreadable.
    """
    pipeline = features.with_lists()
    view = rows if isinstance(rows, BatchRows) else BatchRows(rows)
    looked_up: dict[str, Any] = {}
    for kept in features.kept:
        if view.name_of(kept.name) is None and offsets_name(kept.name) in names:
            lists = _looked_up(kept, view, tables)
            looked_up |= {**kept.arrays(lists), offsets_name(kept.name): lists.offsets}
    made = pipeline.apply(view, [each for each in names if each not in looked_up])
    return {name: looked_up[name] if name in looked_up else made[name] for name in names}


def _looked_up(kept: KeptEvents, view: BatchRows, tables: Mapping[str, Any]) -> Events:
    users = _column(kept.user.column, view)
    if users is None:
        raise ValueError(
            f"rows must have a column {kept.name!r} with their histories, or {kept.user.column!r}, "
            f"by which they are looked up; they have {view.names}"
        )
    asked = kept.asked(users, _column(kept.time.column, view))
    suffix = table_suffix(kept.name)
    table = next((each for name, each in tables.items() if name.endswith(suffix)), None)
    if table is None:
        empty = np.zeros((0, len(kept.stored)), np.int64)
        return Events(np.zeros(len(asked) + 1, np.int64), np.zeros(0, np.int64), empty)
    if isinstance(table, EventLog):
        return table.histories(asked)
    return asked_of(kept, table, asked)


def _column(column: str | int, view: BatchRows) -> pa.Array | None:
    name = view.name_of(column)
    if name is None:
        return None
    return values_array(f"column {column!r} must", view.arrow(name))
