# SPDX-License-Identifier: Apache-2.0
"""A restarted stream makes the batches of the run before, also where that made no decision."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mindspore_rec.common.stream.client import Message
from mindspore_rec.common.stream.journal import Decision
from mindspore_rec.common.stream.memory import MemoryClient
from mindspore_rec.stream import (
    ArrowFormat,
    Journal,
    MemoryTopic,
    StopWhen,
    StreamLimits,
    StreamSource,
    pack,
)

IDLE = 0.05  # seconds
SKIPS = StreamLimits(skip_idle_seconds=IDLE)
SCHEMA = pa.schema({"x": pa.int64()})


def append(topic: MemoryTopic, number: int, partition: int) -> None:
    topic.append(pack(pa.table({"x": [number]}, SCHEMA)), partition)


def append_all(topic: MemoryTopic, *numbers: int) -> None:
    """Append to partition 0."""
    for number in numbers:
        append(topic, number, 0)


class Slow(MemoryClient):
    """Reader whose first answers about one partition come late."""

    def __init__(self, topic: MemoryTopic, partition: int) -> None:
        super().__init__(topic, 500)
        self._partition = partition
        self._until = time.monotonic() + 6 * IDLE

    def poll(self, seconds: float, paused: Sequence[int]) -> dict[int, list[Message]]:
        late = {self._partition} if time.monotonic() < self._until else set()
        return super().poll(min(seconds, IDLE / 2), sorted(late | set(paused)))


def rows(source: StreamSource) -> list[list[int]]:
    with source:
        return [batch["x"].to_pylist() for batch in source]


def stream(client: Any, path: Path, batches: int | None, **options: Any) -> StreamSource:
    stop = StopWhen(idle_seconds=1.0) if batches is None else StopWhen(batches=batches)
    return StreamSource(client, ArrowFormat(SCHEMA), 4, journal=Journal(path), stop=stop, **options)


@pytest.mark.parametrize(
    "limits", [SKIPS, StreamLimits(max_wait_seconds=IDLE)], ids=["skip_idle", "max_wait"]
)
@pytest.mark.parametrize("slow", [0, 1])
def test_a_partition_that_is_read_slowly_is_not_idle(
    slow: int, limits: StreamLimits, tmp_path: Path
) -> None:
    topic = MemoryTopic(2)
    for number in range(40):
        append(topic, number, number % 2)
    path = tmp_path / "journal"
    first = stream(topic.client(), path, 8, limits=limits)
    states = [first.state_dict()]
    expected = []
    for batch in first:
        expected.append(batch["x"].to_pylist())
        states.append(first.state_dict())
    assert expected == [list(range(4 * i, 4 * i + 4)) for i in range(8)]
    assert not path.exists()  # no decision
    for begin in (0, 3):
        again = stream(Slow(topic, slow), path, 8 - begin, limits=limits)
        again.load_state_dict(states[begin])
        assert rows(again) == expected[begin:]


def test_a_partition_that_was_away_comes_back_where_nothing_was_read_before(
    tmp_path: Path,
) -> None:
    topic = MemoryTopic(2)
    append_all(topic, *range(60))
    path = tmp_path / "journal"
    first = stream(topic.client(), path, 8, limits=SKIPS)
    states, expected = [], []
    for batch in first:
        expected.append(batch["x"].to_pylist())
        states.append(first.state_dict())
    assert [Journal(path)[i].kind for i in range(len(Journal(path)))] == ["leave"]
    for number in range(100, 110):  # which the first run has not seen
        append(topic, number, 1)
    again = stream(topic.client(), path, None, limits=SKIPS)
    again.load_state_dict(states[1])
    found = rows(again)
    assert found[:6] == expected[2:]
    assert sorted(sum(found, [])) == [*range(8, 60), *range(100, 110)]


def test_without_a_journal_it_comes_back_at_once(tmp_path: Path) -> None:
    topic = MemoryTopic(2)
    append_all(topic, *range(60))
    first = stream(topic.client(), tmp_path / "journal", 8, limits=SKIPS)
    next(first)
    state = first.state_dict()
    first.close()
    append(topic, 100, 1)
    again = StreamSource(
        topic.client(),
        ArrowFormat(SCHEMA),
        4,
        limits=SKIPS,
        stop=StopWhen(idle_seconds=0.5),
    )
    again.load_state_dict({**state, "decisions": 0})
    assert 100 in sum(rows(again)[:3], [])


@pytest.mark.parametrize("left", [0, 2])  # messages of partition 0 when the journal is lost
def test_a_lost_journal_begins_anew_and_is_repeated_from_there(left: int, tmp_path: Path) -> None:
    topic = MemoryTopic(2)
    append_all(topic, *range(12 + left))
    path = tmp_path / "journal"
    first = stream(topic.client(), path, 3, limits=SKIPS)
    list(first)
    state = first.state_dict()
    assert state["decisions"] == 1
    path.unlink()
    append(topic, 100, 1)
    append(topic, 101, 1)
    again = stream(topic.client(), path, 1, limits=SKIPS)
    again.load_state_dict(state)
    if not left:
        later = threading.Timer(4 * IDLE, lambda: append_all(topic, 12, 13))
        later.start()
    expected = rows(again)
    assert expected == ([[12, 13, 100, 101]] if left else [[100, 101, 12, 13]])
    append_all(topic, 14, 15, 16, 17)
    for _ in range(2):
        more = stream(topic.client(), path, 1, limits=SKIPS)
        more.load_state_dict(state)
        assert rows(more) == expected


def test_a_journal_of_another_stream_is_an_error_where_nothing_can_be_taken(
    tmp_path: Path,
) -> None:
    topic = MemoryTopic(2)
    append(topic, 0, 0)
    path = tmp_path / "journal"
    journal = Journal(path)
    for decision in (Decision(0, "leave", 0), Decision(0, "leave", 1), Decision(9, "join", 0)):
        journal.append(decision)
    with pytest.raises(ValueError, match="decision 3 is of message 9, and all partitions are idle"):
        rows(stream(topic.client(), path, None, limits=SKIPS))
