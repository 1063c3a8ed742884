# SPDX-License-Identifier: Apache-2.0
"""The order of several partitions is a function of their contents: against a plain model."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import given, strategies as st

from mindspore_rec.common.stream.formats import BadMessageError
from mindspore_rec.common.stream.interleave import BadEntry, Block, Interleaver, Sequence


class Plain(NamedTuple):
    """A message: its offset, number of rows, sequence."""

    offset: int
    rows: int
    sequence: Sequence | None


Topic = list[list[Plain]]


@st.composite
def topics(draw: st.DrawFn, numbered: bool = False) -> Topic:
    topic = []
    for _ in range(draw(st.integers(1, 4))):
        offset, log = 0, []
        for _ in range(draw(st.integers(0, 12))):
            offset += draw(st.sampled_from([1, 1, 1, 1, 2, 9]))
            sequence = None
            if numbered:
                sequence = Sequence(draw(st.sampled_from("ab")), draw(st.integers(0, 9)))
            log.append(Plain(offset - 1, draw(st.sampled_from([0, 1, 1, 2, 7])), sequence))
        topic.append(log)
    return topic


def name(partition: int, offset: int, row: int) -> int:
    return partition * 1_000_000 + offset * 1000 + row


def model(topic: Topic, turn: int) -> list[int]:
    """All rows that come before the stream must wait, one message at a time."""
    next_of = [0] * len(topic)
    taken: list[int] = []
    last: dict[tuple[int, str], int] = {}
    at = used = 0
    while next_of[at] < len(topic[at]):
        message = topic[at][next_of[at]]
        next_of[at] += 1
        if message.sequence is not None:
            key = (at, message.sequence.producer)
            if message.sequence.number <= last.get(key, -1):
                continue
            last[key] = message.sequence.number
        taken += [name(at, message.offset, i) for i in range(message.rows)]
        used += 1
        if used == turn:
            at, used = (at + 1) % len(topic), 0
    return taken


def block(partition: int, messages: list[Plain], numbered: bool) -> Block:
    counts = np.array([m.rows for m in messages], np.int64)
    rows = [name(partition, m.offset, i) for m in messages for i in range(m.rows)]
    bad = {
        i: BadEntry(m.offset, 0, BadMessageError("empty", ""), b"", 0)
        for i, m in enumerate(messages)
        if m.rows == 0
    }
    return Block(
        np.array([m.offset for m in messages], np.int64),
        counts,
        pa.RecordBatch.from_pydict({"x": pa.array(rows, pa.int64())}),
        bad,
        [m.sequence for m in messages] if numbered else None,
        1,
    )


class Arrivals:
    """Hands a topic's messages over in blocks, in an order that the test draws."""

    def __init__(self, topic: Topic, data: Any, numbered: bool) -> None:
        self._topic, self._data, self._numbered = topic, data, numbered

    def seek(self, order: Interleaver) -> None:
        self._left = {
            p: [m for m in self._topic[p] if m.offset >= order.offsets[p]] for p in order.partitions
        }

    def push_some(self, order: Interleaver) -> bool:
        ready = [p for p, left in self._left.items() if left]
        if not ready:
            return False
        p = self._data.draw(st.sampled_from(ready))
        count = self._data.draw(st.integers(1, len(self._left[p])))
        order.push(p, block(p, self._left[p][:count], self._numbered))
        self._left[p] = self._left[p][count:]
        return True


@given(topics(), st.integers(1, 5), st.integers(1, 6), st.data())
def test_rows_and_states_do_not_depend_on_arrival_or_restarts(topic, turn, most, data):
    check(topic, turn, most, data, numbered=False)


@given(topics(numbered=True), st.integers(1, 5), st.integers(1, 6), st.data())
def test_duplicates_are_dropped_the_same_way_after_restarts(topic, turn, most, data):
    check(topic, turn, most, data, numbered=True)


def check(topic: Topic, turn: int, most: int, data: Any, numbered: bool) -> None:
    expected = model(topic, turn)
    arrivals = Arrivals(topic, data, numbered)
    order = Interleaver(list(range(len(topic))), turn)
    arrivals.seek(order)
    taken: list[int] = []
    dead: list[tuple[int, int]] = []
    order.on_bad = lambda p, entry: dead.append((p, entry.offset))
    while True:
        rows = order.take(most)
        if rows is None:
            if not arrivals.push_some(order):
                break
            continue
        assert rows.num_rows <= most
        taken += rows["x"].to_pylist()
        if data.draw(st.integers(0, 9)) == 0:
            state, order = order.state_dict(), Interleaver(order.partitions, turn)
            order.on_bad = lambda p, entry: dead.append((p, entry.offset))
            order.load_state_dict(state)
            arrivals.seek(order)
    assert taken == expected
    assert len(set(dead)) == len(dead)
    consumed = sum(m.offset < order.offsets[p] for p, log in enumerate(topic) for m in log)
    assert order.taken == consumed
    zero = {(p, m.offset) for p, log in enumerate(topic) for m in log if m.rows == 0}
    assert set(dead) <= zero
    if not numbered:
        assert set(dead) == {(p, offset) for p, offset in zero if offset < order.offsets[p]}


def names(order: Interleaver) -> list[int]:
    rows = order.take(10)
    return [] if rows is None else rows["x"].to_pylist()


def test_an_idle_partition_leaves_and_joins_where_it_was_told() -> None:
    order = Interleaver([0, 1], 1)
    order.push(0, block(0, [Plain(i, 1, None) for i in range(4)], False))
    assert names(order) == [name(0, 0, 0)]
    assert order.take(10) is None  # partition 1 has the turn
    order.leave(1)
    assert names(order) == [name(0, 1, 0)]
    assert names(order) == [name(0, 2, 0)]
    order.push(1, block(1, [Plain(0, 1, None)], False))
    order.join(1)
    assert names(order) == [name(0, 3, 0)]
    assert names(order) == [name(1, 0, 0)]
    assert order.take(10) is None
    turns = [order.current]
    for change, partition in ((order.leave, 0), (order.leave, 1), (order.join, 1)):
        change(partition)
        turns.append(order.current)
    assert turns == [0, 1, None, 1]
