# SPDX-License-Identifier: Apache-2.0
"""Events kept per user: the native operation, the state in a table and the log of a file, against
a plain model of lists."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec import _native
from mindspore_rec.common.columns.histories import History, HistoryValues
from mindspore_rec.common.columns.kept_events import (
    EventLog,
    Events,
    EventState,
    KeptEvents,
    asked_of,
    row_floats,
)
from mindspore_rec.common.columns.labels import Times
from mindspore_rec.common.columns.transforms import Category
from mindspore_rec.common.rows.served_table import ServedTable
from mindspore_rec.common.rows.table_scope import own_scope

WIDTH = 2
Row = tuple[int, int, int, int, int]  # time, 1 for an event and -1 without user, user, two values

HARD = [0, 1, -1, 2**63 - 1, -(2**63), 2**62 + 12345, 0x7FC00000, 1 << 42, (1 << 21) - 1]


class Model:
    """Lists of all events, from which the histories are cut."""

    def __init__(self, length: int, idle: int) -> None:
        self.length, self.idle = length, idle
        self.clock = 0
        self.events: dict[int, list[tuple[int, int, int]]] = defaultdict(list)

    def next(self, row: Row) -> list[tuple[int, int, int]]:
        time, kind, user, *values = row
        self.clock = max(self.clock, time)
        if kind == -1:
            return []
        mine = self.events[user]
        if self.idle and mine and self.clock - mine[-1][0] > self.idle:
            mine.clear()
        made = [each for each in mine if each[0] < time][-self.length :]
        if kind == 1:
            mine.append((time, values[0], values[1]))
            mine.sort(key=lambda each: each[0])  # stable
            newest = [each for each in mine if each[0] == mine[-1][0]]
            older = mine[: len(mine) - len(newest)]
            mine[:] = older[-self.length :] + newest[-self.length :]
        return made


def feature_of(length: int, idle: int = 0) -> KeptEvents:
    members = [HistoryValues("recent", "key"), HistoryValues("recent.b", "key")]
    values = [Category("a"), Category("b")]
    history = History(members, length)
    return KeptEvents(Category("user"), Times("ts"), values, history, idle_seconds=idle)


class Table(ServedTable):
    """A table with the methods that `EventState` calls."""

    @property
    def event_time(self) -> int:
        return self._table.event_time

    def set_event_time(self, seconds: int) -> None:
        self._table.set_event_time(seconds)

    def evict_due(self) -> None:
        self._table.evict_due()


def table_of(feature: KeptEvents) -> Table:
    idle = {"max_idle_seconds": feature.idle_seconds} if feature.idle_seconds else {}
    with own_scope():
        return Table({"name": "kept", "dim": feature.row_floats, **idle}, "Int64")


def lists_of(events: Events) -> list[list[tuple[int, ...]]]:
    ends = list(zip(events.offsets, events.offsets[1:], strict=False))
    flat = [
        (time, *row)
        for time, row in zip(events.times.tolist(), events.values.tolist(), strict=True)
    ]
    return [flat[a:b] for a, b in ends]


rows_of_users = st.lists(
    st.tuples(
        st.integers(1, 30),
        st.sampled_from([1, 1, 1, 0, -1]),
        st.integers(-2, 2),
        st.sampled_from(HARD),
        st.integers(-(2**63), 2**63 - 1),
    ),
    max_size=60,
)


def array_of(rows: list[Row]) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, 3 + WIDTH)


@settings(max_examples=150, deadline=None)
@given(
    rows_of_users,
    st.integers(1, 4),
    st.sampled_from([0, 0, 5]),
    st.lists(st.integers(1, 20), min_size=1, max_size=5),
    st.integers(0, 3),
)
def test_a_state_equals_the_plain_model_whatever_the_batches(
    rows: list[Row], length: int, idle: int, sizes: list[int], ahead: int
) -> None:
    feature = feature_of(length, idle)
    model, table = Model(length, idle), table_of(feature)
    state = EventState(feature, table)
    waiting: list[Any] = []
    first = 0
    while first < len(rows):
        some = rows[first : first + sizes[first % len(sizes)]]
        first += len(some)
        lists, write = state.next(array_of(some))
        waiting.append(write)
        assert lists_of(lists) == [model.next(row) for row in some]
        if len(waiting) > ahead:
            waiting.pop(0)()
    for write in waiting:
        write()
    users = np.unique(array_of(rows)[:, 2])
    if len(users):
        asked = np.zeros((len(users), 3 + WIDTH), np.int64)
        asked[:, 0], asked[:, 2] = max(model.clock, 1), users
        expected = [model.next((int(asked[0, 0]), 0, int(u), 0, 0)) for u in users]
        assert lists_of(asked_of(feature, table, asked)) == expected
    table.close()


@settings(max_examples=150, deadline=None)
@given(rows_of_users, st.integers(1, 4), st.sampled_from([0, 0, 5]), st.integers(0, 60))
def test_a_log_of_rows_in_order_of_time_has_the_histories_of_a_stream(
    rows: list[Row], length: int, idle: int, cut: int
) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    feature, model = feature_of(length, idle), Model(length, idle)
    table = table_of(feature)
    state = EventState(feature, table)
    earlier, later = rows[:cut], rows[cut:]
    if earlier:
        state.next(array_of(earlier))[1]()
    for row in earlier:
        model.next(row)
    if idle == 0 or not earlier:
        log = EventLog(feature, array_of(later), state)
        expected = [model.next(row) for row in later]
        order = np.random.default_rng(0).permutation(len(later))
        found = lists_of(log.histories(array_of(later)[order]))
        # An event of the later rows that equals an event of the state counts once.
        same = {tuple(row) for row in earlier} & {tuple(row) for row in later}
        if not same:
            assert found == [expected[place] for place in order]
    again = EventLog(feature, array_of(rows), None)
    whole = Model(length, idle)
    assert lists_of(again.histories(array_of(rows))) == [whole.next(row) for row in rows]
    table.close()


@settings(max_examples=100, deadline=None)
@given(rows_of_users, st.integers(1, 4))
def test_a_log_knows_the_events_that_its_state_has_already(rows: list[Row], length: int) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    feature = feature_of(length)
    table = table_of(feature)
    state = EventState(feature, table)
    log = EventLog(feature, array_of(rows), state)
    log.write(state, 7)
    before = table.digest()
    one = table_of(feature)
    EventState(feature, one).next(array_of(rows))[1]()
    assert one.digest() == before
    one.close()
    again = EventLog(feature, array_of(rows), state)
    again.write(state, 11)
    assert table.digest() == before
    assert lists_of(again.histories(array_of(rows))) == lists_of(log.histories(array_of(rows)))
    table.close()


@pytest.mark.parametrize("first", [-1000, 1000])
def test_a_log_written_again_keeps_the_old_events_of_a_user_who_is_not_idle(first: int) -> None:
    feature = feature_of(4, idle=10)
    table = table_of(feature)
    events = array_of([(first + 6 * k, 1, 7, k, 0) for k in range(4)])  # no pause is too long
    asked = array_of([(first + 24, 0, 7, 0, 0)])
    for _ in range(2):
        state = EventState(feature, table)
        EventLog(feature, events, state).write(state, 2)
        lists = lists_of(asked_of(feature, table, asked))
        assert lists == [[(first + 6 * k, k, 0) for k in range(4)]]
    table.close()


def test_rows_of_foreign_bits_are_lists_of_some_events() -> None:
    feature = feature_of(3)
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, (50, feature.row_floats), np.uint32)
    rows = bits.view(np.float32).copy()
    rows[:10, 0] = [np.nan, np.inf, -np.inf, -1, 1e30, 6, 7, 2.5, 1e-40, 4e6]
    none = np.zeros((50, WIDTH), np.int64)
    offsets, times, values, _ = _native.keep_events(
        rows, np.arange(50), np.full(50, 2**63 - 1), np.zeros(50, bool), none, 3, 7, 0
    )
    assert offsets[-1] == len(times) == len(values) and np.diff(offsets).max() <= 3
    assert np.isfinite(rows).all() and (rows == np.floor(rows)).all() and rows.max() < 2**22


def test_wrong_arguments_are_refused() -> None:
    one = np.zeros(1, np.int64)
    good: dict[str, Any] = {
        "rows": np.zeros((1, row_floats(3, 1)), np.float32),
        "users": one,
        "times": one,
        "are_events": np.zeros(1, bool),
        "values": np.zeros((1, 1), np.int64),
        "length": 3,
        "idle_seconds": 0,
        "clock": 0,
    }
    assert _native.keep_events(**good)[0].tolist() == [0, 0]
    for changed in (
        {"users": one + 1},
        {"users": one - 2},
        {"times": np.zeros(2, np.int64)},
        {"values": np.zeros((2, 1), np.int64)},
        {"rows": np.zeros((1, 5), np.float32)},
    ):
        with pytest.raises(ValueError, match="must"):
            _native.keep_events(**(good | changed))
    with pytest.raises(TypeError):
        _native.keep_events(**(good | {"rows": np.zeros((1, row_floats(3, 1)))}))
