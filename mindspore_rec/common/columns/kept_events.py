# SPDX-License-Identifier: Apache-2.0
"""Make events from rows, and histories from each user's last events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec import _native
from mindspore_rec.common.columns.histories import History, values_name
from mindspore_rec.common.columns.joint import JointFeature, field_of
from mindspore_rec.common.columns.shared_keys import SharedKeys
from mindspore_rec.common.columns.transforms import Feature

__all__ = [
    "MOST_FLOATS",
    "EventLog",
    "EventState",
    "Events",
    "KeptEvents",
    "events_name",
    "row_floats",
    "table_suffix",
]

MOST_FLOATS = 8192
"""Greatest number of floats in a row of a table."""

_EVENTS = ".events"
_TIME, _IS_EVENT, _USER, _FIRST_VALUE = range(4)  # columns of the array of events
_UNKNOWN = -1  # in place of "is event": the user is missing
_SWEEPS = 16  # of the table in the time after which a user is evicted
_EARLIEST, _LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def events_name(column: str) -> str:
    """Return the name of the array with the events of a history."""
    return column + _EVENTS


def table_suffix(column: str) -> str:
    """Return the suffix for the name of a table that stores each user's last events."""
    return f".kept.{column}"


def row_floats(length: int, width: int) -> int:
    """Return the number of floats in a user's row.

    Args:
        length: greatest number of events of a history.
        width: number of values of an event, not counting the time.
    """
    return 1 + 2 * length * 3 * (1 + width)


@dataclass(frozen=True)
class Events:
    """Lists of events: list i has the events from ``offsets[i]`` to ``offsets[i + 1] - 1``.

    Args:
        offsets: int64 ``[B + 1]``, the index of each list's first event; the last offset is N.
        times: seconds since 1970 of all events, int64 ``[N]``.
        values: the values of each event, without its time, int64 ``[N, width]``.
    """

    offsets: np.ndarray
    times: np.ndarray
    values: np.ndarray

    def take(self, order: np.ndarray) -> Events:
        """Return the lists at the indexes in `order`."""
        counts = np.diff(self.offsets)[order]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][order] - offsets[:-1], counts)
        return Events(offsets, self.times[places], self.values[places])


class KeptEvents(JointFeature):
    """The user, the time and the values of each row, from which the library collects histories.

    The array is int64 ``[B, 3 + V]``, where V is the number of values other than the time. Each row
    contains the time in seconds, 1 if the row is an event or 0 if not, the user's key, and the
    values. A row without a user has -1 in place of 1 or 0: the row has no history and is not an
    event.

    Args:
        user: transform that converts the user to a key.
        time: transform that converts the time to seconds.
        values: a transform for each value of an event; None for a value that is the event's time.
        history: a `History`. `history.length` is the greatest length of a history. If rows to
            predict contain the history as lists, the transforms of `history` read these lists.
        only: transform of a label. A row is an event only if its label is 1. Default: None, which
            means that all rows are events.
        idle_seconds: seconds without an event, after which a user's history is empty. Default: 0,
            which means that no pause empties a history.
    """

    dtype = np.int64

    def __init__(
        self,
        user: Feature,
        time: Feature,
        values: Sequence[Feature | None],
        history: History,
        only: Feature | None = None,
        idle_seconds: int = 0,
    ) -> None:
        self.user = user
        self.time = time
        self.values = tuple(values)
        self.history = history
        self.only = only
        self.idle_seconds = idle_seconds
        self.stored = tuple(each for each in self.values if each is not None)
        more = () if only is None else (only,)
        super().__init__(each.column for each in (user, time, *self.stored, *more))
        self.width = _FIRST_VALUE + len(self.stored)

    @property
    def name(self) -> str:
        """Name of the history."""
        return str(self.history.members[0].column)

    @property
    def length(self) -> int:
        """Greatest number of events of a history."""
        return self.history.length

    @property
    def row_floats(self) -> int:
        """Number of floats in a user's row."""
        return row_floats(self.length, len(self.stored))

    def apply(
        self, values: pa.StructArray, learn: bool, keys: SharedKeys | None = None
    ) -> np.ndarray:
        """Return the events of rows, int64 ``[B, width]``."""
        shared = SharedKeys() if keys is None else keys

        def made(feature: Feature) -> np.ndarray:
            return shared.of(feature, field_of(values, feature.column), learn=False)

        users = field_of(values, self.user.column)
        columns = [made(self.time), *self._users(users, made(self.user))]
        if self.only is not None:
            columns[_IS_EVENT] = np.where(columns[_IS_EVENT] == 1, made(self.only) == 1, _UNKNOWN)
        columns += [_as_int64(made(each)) for each in self.stored]
        return np.stack([np.asarray(each, np.int64) for each in columns], axis=1)

    def asked(self, users: pa.Array, times: pa.Array | None) -> np.ndarray:
        """Return rows that request the histories of users; none of the rows is an event.

        Args:
            users: values of the user's column, ``[B]``.
            times: values of the column of times, ``[B]``; None stands for a time after all events.
        """
        made = np.zeros((len(users), self.width), np.int64)
        made[:, _TIME] = _LATEST if times is None else self.time.apply(times, learn=False)
        there, made[:, _USER] = self._users(users, self.user.apply(users, learn=False))
        made[:, _IS_EVENT] = np.where(there == 1, 0, _UNKNOWN)
        return made

    def _users(self, users: pa.Array, keys: np.ndarray) -> list[np.ndarray]:
        there = users.is_valid().to_numpy(zero_copy_only=False)
        return [np.where(there, 1, _UNKNOWN), keys]

    def arrays(self, lists: Events) -> dict[str, np.ndarray]:
        """Return the histories' values and offsets as a dict from names to arrays."""
        stored = iter(range(len(self.stored)))
        made: dict[str, np.ndarray] = {}
        for member, feature in zip(self.history.members, self.values, strict=True):
            array = lists.times if feature is None else lists.values[:, next(stored)]
            if member.values == "float32":
                array = array.astype(np.int32).view(np.float32)
            made[values_name(str(member.column))] = np.ascontiguousarray(array)
        return made


def _as_int64(values: np.ndarray) -> np.ndarray:
    """Return int64 keys unchanged, and the float32 bits of other numbers as int32."""
    return values if values.dtype == np.int64 else values.astype(np.float32).view(np.int32)


def _keep(
    feature: KeptEvents, rows: np.ndarray, index: np.ndarray, events: np.ndarray, clock: int
) -> tuple[Events, int]:
    """Return each row's history, and add the events to the users' rows of the table."""
    idle = 0 if (events[:, _TIME] == _LATEST).any() else feature.idle_seconds
    offsets, times, values, clock = _native.keep_events(
        rows,
        index,
        np.ascontiguousarray(events[:, _TIME]),
        events[:, _IS_EVENT] == 1,
        np.ascontiguousarray(events[:, _FIRST_VALUE:]),
        feature.length,
        idle,
        clock,
    )
    return Events(offsets, times, values), clock


def _users_in(events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted distinct users, and the index of each row's user: -1 if missing."""
    known = events[:, _IS_EVENT] != _UNKNOWN
    users, places = np.unique(events[known, _USER], return_inverse=True)
    index = np.full(len(events), -1, np.int64)
    index[known] = places
    return users, index


@dataclass(eq=False)
class _Ahead:
    users: np.ndarray  # ascending
    rows: np.ndarray
    clock: int


class EventState:
    """The last events of each user, in the rows of a table.

    Batches may be read ahead of the training. The histories of a batch contain events of all
    batches that were read before the batch. The events of a batch are written to the table when the
    network trains on the batch.

    Args:
        feature: the `KeptEvents`, with the length of the histories.
        table: the table that stores the events of each user in one row.
    """

    def __init__(self, feature: KeptEvents, table: Any) -> None:
        self.feature = feature
        self.table = table
        self._ahead: deque[_Ahead] = deque()  # batches that were read and not yet trained
        self._swept = 0  # clock at the last sweep of the table

    def next(
        self, events: np.ndarray, clock: int | None = None
    ) -> tuple[Events, Callable[[], None]]:
        """Return the histories of the next rows, and a function that writes the rows' events.

        Args:
            events: events of the rows; see `KeptEvents`.
            clock: latest event time of all earlier rows. Default: None, which means the latest time
                of all rows that were read.
        """
        users, index = _users_in(events)
        rows = self._rows(users)
        earlier = self.clock if clock is None else clock
        lists, clock = _keep(self.feature, rows, index, events, earlier)
        changed = np.zeros(len(users), bool)
        changed[index[events[:, _IS_EVENT] == 1]] = True
        ahead = _Ahead(users[changed], rows[changed], clock)
        self._ahead.append(ahead)
        return lists, lambda: self._write(ahead)

    @property
    def clock(self) -> int:
        """Latest time of all rows that were read.

        The table does not store times before 1970. The result is before 1970 only if the latest
        batches were read, but not yet trained.
        """
        if self._ahead:
            return self._ahead[-1].clock
        return int(self.table.event_time or _EARLIEST)

    def forget(self) -> None:
        """Discard the batches that were read but not trained; no network will train on them."""
        self._ahead.clear()

    def asked(self, events: np.ndarray) -> Events:
        """Look up the histories that `KeptEvents.asked` requests; the state does not change."""
        return asked_of(self.feature, self.table, events)

    def all_events(self, users: np.ndarray) -> np.ndarray:
        """Return all events that the table stores for `users`, as an array of events."""
        rows = self.table.read_rows(users)
        asked = np.zeros((len(users), self.feature.width), np.int64)
        asked[:, _TIME] = _LATEST
        offsets, times, values, _ = _native.keep_events(
            _in_full_length(rows, self.feature),
            np.arange(len(users)),
            asked[:, _TIME].copy(),
            np.zeros(len(users), bool),
            np.zeros((len(users), len(self.feature.stored)), np.int64),
            2 * self.feature.length,
            0,
            0,
        )
        made = np.ones((len(times), self.feature.width), np.int64)
        made[:, _TIME], made[:, _FIRST_VALUE:] = times, values
        made[:, _USER] = np.repeat(users, np.diff(offsets))
        return made

    def _rows(self, users: np.ndarray) -> np.ndarray:
        rows = self.table.read_rows(users)
        for ahead in self._ahead:
            if not len(ahead.users):
                continue
            places = np.minimum(np.searchsorted(ahead.users, users), len(ahead.users) - 1)
            is_ahead = ahead.users[places] == users
            rows[is_ahead] = ahead.rows[places[is_ahead]]
        return rows

    def _write(self, ahead: _Ahead) -> None:
        if ahead in self._ahead:
            self._ahead.remove(ahead)
        if ahead.clock > 0:
            self.table.set_event_time(ahead.clock)
        if len(ahead.users):
            self.table.write_rows(ahead.users, ahead.rows)
        # Lookups ignore rows that are due for eviction, so the time at which the rows are evicted
        # does not affect the histories.
        idle = self.feature.idle_seconds
        if idle and ahead.clock - self._swept > max(idle // _SWEEPS, 1):
            self._swept = ahead.clock
            self.table.evict_due()


def asked_of(feature: KeptEvents, table: Any, events: np.ndarray) -> Events:
    """Look up the histories that `KeptEvents.asked` requests; the table does not change."""
    order = np.argsort(events[:, _TIME], kind="stable")  # no row's answer depends on a later row
    users, index = _users_in(events[order])
    rows = table.read_rows(users)
    lists, _ = _keep(feature, rows, index, events[order], _EARLIEST)
    return lists.take(np.argsort(order))


def _in_full_length(rows: np.ndarray, feature: KeptEvents) -> np.ndarray:
    """Copy table rows into longer rows, which have room for twice as many events."""
    made = np.zeros((len(rows), row_floats(2 * feature.length, len(feature.stored))), np.float32)
    made[:, : rows.shape[1]] = rows
    return made


class EventLog:
    """All events of a file, for looking up the histories of the file's rows in any order.

    The log takes at most 48 bytes of memory per event, 8 bytes per value of an event, and 16 bytes
    per user. Making the log needs further memory for sorting.

    Args:
        feature: the `KeptEvents`, with the length of the histories.
        events: events of all rows, in the order of the rows; see `KeptEvents`.
        state: an `EventState` with the events of earlier data. An event of `state` and an event of
            `events` count as one event if user, time and values are equal. Default: None.
    """

    def __init__(
        self, feature: KeptEvents, events: np.ndarray, state: EventState | None = None
    ) -> None:
        self.feature = feature
        rows = events[events[:, _IS_EVENT] == 1]
        rows = rows[np.argsort(rows[:, _TIME], kind="stable")]
        if state is not None and len(events):
            known = events[events[:, _IS_EVENT] != _UNKNOWN]
            earlier = state.all_events(np.unique(known[:, _USER]))
            if len(earlier):
                every = np.concatenate([earlier, rows])
                _, numbers = np.unique(every, axis=0, return_inverse=True)
                numbers = numbers.reshape(-1)
                of_rows = numbers[len(earlier) :]
                is_row = np.isin(numbers[: len(earlier)], of_rows)
                rows = np.concatenate([earlier[~is_row], rows])
        rows = rows[np.lexsort((rows[:, _TIME], rows[:, _USER]))]
        self._events = rows
        self._users, self._starts = np.unique(rows[:, _USER], return_index=True)
        self._times = np.unique(rows[:, _TIME])
        place = np.searchsorted(self._users, rows[:, _USER])
        time = np.searchsorted(self._times, rows[:, _TIME])
        self._ranks = place * (len(self._times) + 1) + time
        # begins[i] is the index of the first event in the session of event i. A pause of more than
        # `idle_seconds` ends a session.
        begins = np.zeros(len(rows), np.int64)
        begins[self._starts] = self._starts
        if feature.idle_seconds and len(rows):
            pause = np.diff(rows[:, _TIME], prepend=rows[0, _TIME])
            idle = np.flatnonzero(pause > feature.idle_seconds)
            begins[idle] = idle
        self._begins = np.maximum.accumulate(begins)

    def write(self, state: EventState, rows_at_once: int = 8192) -> None:
        """For each user of this log, replace the user's events in `state` by the log's events.

        Writing the same log twice has the same effect as writing it once.
        """
        if len(self._users):
            state.table.erase_rows(self._users)
        events = self._events[np.argsort(self._events[:, _TIME], kind="stable")]
        clock = _EARLIEST  # not the state's, at which the users of old events would be evicted
        for first in range(0, len(events), rows_at_once):
            part = events[first : first + rows_at_once]
            state.next(part, clock)[1]()
            clock = int(part[-1, _TIME])

    def histories(self, events: np.ndarray) -> Events:
        """Return the history of each row: the events of the row's user before the row's time."""
        count = len(events)
        empty = np.zeros(count, np.int64)
        if not len(self._events):
            nothing = np.zeros((0, len(self.feature.stored)), np.int64)
            return Events(np.zeros(count + 1, np.int64), np.zeros(0, np.int64), nothing)
        place = np.minimum(np.searchsorted(self._users, events[:, _USER]), len(self._users) - 1)
        known = (self._users[place] == events[:, _USER]) & (events[:, _IS_EVENT] != _UNKNOWN)
        time = np.searchsorted(self._times, events[:, _TIME])
        end = np.searchsorted(self._ranks, place * (len(self._times) + 1) + time)
        known &= end > self._starts[place]
        last = np.where(known, end - 1, empty)
        if self.feature.idle_seconds:
            idle = events[:, _TIME] - self._events[last, _TIME]
            known &= (idle <= self.feature.idle_seconds) | (events[:, _TIME] == _LATEST)
        begin = np.maximum(self._begins[last], end - self.feature.length)
        counts = np.where(known, end - begin, 0)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(offsets[-1]) + np.repeat(begin - offsets[:-1], counts)
        events = self._events[places]
        return Events(offsets, events[:, _TIME], events[:, _FIRST_VALUE:])
