# SPDX-License-Identifier: Apache-2.0
"""KeptBatches: batches with histories that are computed from the events in rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mindspore_rec.common.columns.histories import offsets_name, values_name
from mindspore_rec.common.columns.kept_events import (
    EventLog,
    EventState,
    KeptEvents,
    events_name,
    table_suffix,
)
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.rows.served_table import ServedTable
from mindspore_rec.common.rows.table_scope import own_scope
from mindspore_rec.common.stream.batches import Batch, BatchSource, BatchWrapper
from mindspore_rec.common.stream.read_watch import ReadLaterError

__all__ = ["KeptBatches", "logs_after"]

_Commit = Callable[[], None]


class KeptBatches(BatchWrapper):
    """Batches in which the event of each row (`KeptEvents`) is replaced by the user's history.

    In a stream, a row's history consists of the user's events in earlier rows. Training writes the
    events of a batch to the users' tables just before the batch's step. The tables in a checkpoint
    contain exactly the events of the trained batches, even if later batches were read ahead.

    Rows from files may be read in shuffled order. First, all rows are read once, and the rows'
    events are sorted by time. The history of each row is looked up in the sorted events and in the
    events of the tables. Before the first batch, training writes the events of all rows to the
    tables.

    An evaluation does not change the tables.

    Args:
        source: batches with the arrays of a schema.
        schema: the schema.
        tables: tables of the network, including the users' tables.
        rows: function that returns batches of all rows in order, if the rows are from files.
            Default: None, which means that the rows are from a stream.
        is_train: whether a training reads the batches. Default: True.
    """

    def __init__(
        self,
        source: BatchSource,
        schema: Schema,
        tables: Iterable[Any],
        rows: Callable[[], Iterable[Any]] | None = None,
        *,
        is_train: bool = True,
    ) -> None:
        super().__init__(source)
        self.schema = schema
        by_name = {each.name: each for each in tables}
        self._tables = [_table_of(each, by_name) for each in schema.pipeline.kept]
        self._states = self._new_states()
        self._rows = rows
        self._is_train = is_train
        self._logs: list[EventLog] | None = None

    def _new_states(self) -> list[EventState]:
        pairs = zip(self.schema.pipeline.kept, self._tables, strict=True)
        return [EventState(*each) for each in pairs]

    def for_evaluation(self) -> KeptBatches:
        """Return the batches for an evaluation; the tables do not change."""
        return KeptBatches(self.source, self.schema, self._tables, self._rows, is_train=False)

    @property
    def column_names(self) -> list[str]:
        """Names of the arrays."""
        return list(_replaced(self.source.column_names, self.schema.pipeline.kept))

    def split_by_worker(self, worker: int, workers: int) -> BatchSource | None:
        """Raise ValueError, because several workers would divide the events of one user."""
        names = [each.name for each in self.schema.pipeline.kept]
        raise ValueError(
            f"histories {names} are kept from rows by one process, got {workers} workers: train "
            "with one, or let the rows carry their histories (HistoryColumn)"
        )

    def read(self) -> Iterator[Batch]:
        """Return an iterator over one pass of batches."""
        if not self._is_train:
            yield from self._evaluated()
            return
        if self._rows is not None and self._logs is None:
            self._logs = _new_logs(self.schema, self._states, self._rows)
            for log, state in zip(self._logs, self._states, strict=True):
                log.write(state)
        try:
            yield from super().read()
        except ReadLaterError:
            raise  # another iteration is running, and its batches will be trained
        except BaseException:  # no step follows for the batches that were read ahead
            for state in self._states:
                state.forget()
            raise

    def _evaluated(self) -> Iterator[Batch]:
        if self._rows is not None:
            self._logs = _new_logs(self.schema, self._states, self._rows)
            yield from super().read()
            return
        with own_scope():
            tables = [_Scratch(each) for each in self._tables]
        pairs = zip(self.schema.pipeline.kept, tables, strict=True)
        self._states = [EventState(*each) for each in pairs]
        try:
            yield from super().read()
        finally:
            for table in tables:
                table.close()

    def change(self, batch: Batch) -> Batch:
        """Return the batch after replacing the events by the histories."""
        names = tuple(self.schema.arrays) if batch.names is None else batch.names
        if len(names) != len(batch.columns):
            return batch  # the arrays of a network, with histories
        arrays = dict(zip(names, batch.columns, strict=True))
        commits: list[_Commit] = []
        for place, kept in enumerate(self.schema.pipeline.kept):
            name = events_name(kept.name)
            if name not in arrays:
                continue  # the rows already contain this history
            events = np.ascontiguousarray(arrays[name], np.int64)
            if self._logs is not None:
                lists = self._logs[place].histories(events)
            else:
                lists, commit = self._states[place].next(events)
                commits.append(commit)
            made = {**kept.arrays(lists), offsets_name(kept.name): lists.offsets}
            arrays |= made
        if not self._is_train:
            for commit in commits:
                commit()
            commits = []
        names = tuple(_replaced(names, self.schema.pipeline.kept))
        columns = tuple(arrays[each] for each in names)
        return replace(
            batch, columns=columns, names=names, before_step=_together(commits, batch.before_step)
        )


def logs_after(
    schema: Schema, tables: Mapping[str, Any], rows: Callable[[], Iterable[Any]]
) -> dict[str, EventLog]:
    """Return a dict from table names to logs of the stored events, followed by the rows' events.

    Args:
        schema: the schema.
        tables: the tables by name.
        rows: function that returns batches of raw columns.
    """
    of_users = [_table_of(each, tables) for each in schema.pipeline.kept]
    pairs = zip(schema.pipeline.kept, of_users, strict=True)
    logs = _new_logs(schema, [EventState(*each) for each in pairs], rows)
    return {table.name: log for table, log in zip(of_users, logs, strict=True)}


def _new_logs(
    schema: Schema, states: Sequence[EventState], rows: Callable[[], Iterable[Any]]
) -> list[EventLog]:
    kept = schema.pipeline.kept
    names = [events_name(each.name) for each in kept]
    parts: list[list[np.ndarray]] = [[] for _ in kept]
    for batch in rows():
        made = schema.pipeline.apply(batch, names)
        for part, name in zip(parts, names, strict=True):
            part.append(made[name])
    return [
        EventLog(each, np.concatenate([np.zeros((0, each.width), np.int64), *part]), state)
        for each, part, state in zip(kept, parts, states, strict=True)
    ]


def _together(commits: Sequence[_Commit], other: _Commit | None) -> _Commit | None:
    every = [*commits] if other is None else [*commits, other]
    if not every:
        return None

    def call() -> None:
        for each in every:
            each()

    return call


def _replaced(names: Iterable[str], kept: Sequence[KeptEvents]) -> Iterator[str]:
    """Yield `names`, but replace each name of kept events by the names of a history's arrays."""
    of = {events_name(each.name): each for each in kept}
    for name in names:
        if name not in of:
            yield name
            continue
        yield from (values_name(str(each.column)) for each in of[name].history.members)
        yield offsets_name(of[name].name)


def _table_of(kept: KeptEvents, tables: Mapping[str, Any]) -> Any:
    suffix = table_suffix(kept.name)
    return next(each for name, each in tables.items() if name.endswith(suffix))


class _Scratch:
    """Temporary rows for users. A user's temporary row is read in place of the table's row.

    Args:
        table: the table.
    """

    def __init__(self, table: Any) -> None:
        self._below = table
        self._above = ServedTable({"name": table.name, "dim": table.dim}, "Int64")
        self.event_time = table.event_time

    def read_rows(self, users: np.ndarray) -> np.ndarray:
        """Return the rows of users."""
        rows: np.ndarray = self._below.read_rows(users)
        above = self._above.has_rows(users)
        rows[above] = self._above.read_rows(users[above])
        return rows

    def write_rows(self, users: np.ndarray, rows: np.ndarray) -> None:
        """Set the users' rows in this object; the rows in the table do not change."""
        self._above.write_rows(users, rows)

    def set_event_time(self, seconds: int) -> None:
        """Set the event time, unless the present event time is later."""
        self.event_time = max(seconds, self.event_time or 0)

    def evict_due(self) -> None:
        """Do nothing.

        A user whose row is due for eviction counts as a user without a history.
        """

    def close(self) -> None:
        """Free the rows."""
        self._above.close()
