# SPDX-License-Identifier: Apache-2.0
"""StreamSource over a topic in memory: batches, states, decisions, stops, refusals."""

from __future__ import annotations

import errno
import math
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec.common.stream.interrupt import Interruption
from mindspore_rec.common.stream.journal import Decision
from mindspore_rec.common.stream.memory import MemoryClient
from mindspore_rec.stream import (
    ArrowFormat,
    DeadLetters,
    Journal,
    MemoryTopic,
    Message,
    StopWhen,
    StreamLimits,
    StreamSource,
    TsvFormat,
    pack,
)

SCHEMA = pa.schema({"x": pa.int64(), "t": pa.float64()})


def message(begin: int, rows: int, time: float = 0.0) -> bytes:
    x = np.arange(begin, begin + rows)
    return pack(pa.table({"x": x, "t": np.full(rows, time)}, SCHEMA))


def fill(topic: MemoryTopic, messages: int, seed: int, partitions: int) -> None:
    rng = np.random.default_rng(seed)
    for i in range(messages):
        topic.append(message(1000 * i, int(rng.integers(0, 9))), int(rng.integers(partitions)))


def source(topic: MemoryTopic, batch: int, most: int = 3, **options: Any) -> StreamSource:
    options.setdefault("stop", StopWhen(idle_seconds=0.5))
    return StreamSource(topic.client(most), ArrowFormat(SCHEMA), batch, **options)


def values(batches: list[pa.RecordBatch]) -> list[list[int]]:
    return [batch["x"].to_pylist() for batch in batches]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_run_from_any_state_gets_the_same_batches(partitions: int) -> None:
    topic = MemoryTopic(partitions)
    fill(topic, 60, 1, partitions)
    whole = source(topic, 10, limits=StreamLimits(turn_messages=4))
    expected = values(list(whole))
    assert [len(batch) for batch in expected[:-1]] == [10] * (len(expected) - 1)
    states = [whole.state_dict(batches=i) for i in range(len(expected) + 1)]
    for i in range(0, len(expected), 3):
        with source(topic, 10, most=1 + i, limits=StreamLimits(turn_messages=4)) as again:
            again.load_state_dict(states[i])
            for j in range(i, min(i + 4, len(expected) - 1)):
                assert next(again)["x"].to_pylist() == expected[j]
                state = again.state_dict()
                assert {**state, "decisions": 0} == {**states[j + 1], "decisions": 0}


def test_every_row_once_and_counts_add_up() -> None:
    topic = MemoryTopic(1)
    fill(topic, 40, 2, 1)
    stream = source(topic, 7)
    rows = sum(values(list(stream)), [])
    assert len(rows) == len(set(rows)) == stream.state_dict()["rows"]
    assert stream.state_dict()["order"]["taken"] == 40
    assert stream.lag == 0 and stream.position == {0: 40}


def test_a_partition_without_messages_is_waited_for_or_left_out(tmp_path: Path) -> None:
    topic = MemoryTopic(3)
    for i in range(6):
        topic.append(message(100 * i, 2), partition=2 * (i % 2))
    waiting = source(topic, 2, stop=StopWhen(seconds=0.3))
    assert values(list(waiting)) == [[0, 1]]  # then it is partition 1's turn
    path = tmp_path / "journal"

    def late(stop: StopWhen) -> StreamSource:
        limits = StreamLimits(skip_idle_seconds=0.05)
        return source(topic, 3, limits=limits, journal=Journal(path), stop=stop)

    first = late(StopWhen(seconds=1.0))
    states, batches = [first.state_dict()], []
    timer = threading.Timer(0.3, lambda: topic.append(message(900, 5), partition=1))
    timer.start()
    for batch in first:
        batches.append(batch)
        states.append(first.state_dict())
    timer.join()
    expected = values(batches)
    flat = sum(expected, [])
    assert set(flat) <= {100 * i + j for i in range(6) for j in range(2)} | set(range(900, 905))
    assert len(flat) == 15 and set(range(900, 903)) <= set(flat)
    kinds = [Journal(path)[i].kind for i in range(len(Journal(path)))]
    assert "leave" in kinds and "join" in kinds
    # Now partition 1 has its messages from the start, and still the batches are the same.
    for i, state in enumerate(states[:-1]):
        again = late(StopWhen(batches=len(expected) - i))
        again.load_state_dict(state)
        assert values(list(again)) == expected[i:]


def test_a_batch_may_be_cut_short_and_is_cut_there_again(tmp_path: Path) -> None:
    topic = MemoryTopic()
    path = tmp_path / "journal"

    def cutting(stop: StopWhen) -> StreamSource:
        limits = StreamLimits(max_wait_seconds=0.05)
        return source(topic, 10, limits=limits, journal=Journal(path), stop=stop)

    first = cutting(StopWhen(batches=4))
    sizes = []
    for i in range(4):
        topic.append(message(100 * i, 3 + i))
        sizes.append(next(first).num_rows)
    assert sizes == [3, 4, 5, 6]
    again = cutting(StopWhen(batches=4))  # everything is there at once
    assert [batch.num_rows for batch in again] == sizes


def test_a_decision_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "journal"
    journal = Journal(path)
    journal.append(Decision(1, "cut", -1))
    sync = os.fsync

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no"):
        journal.append(Decision(2, "leave", 0))
    assert len(journal) == 1
    monkeypatch.setattr(os, "fsync", sync)
    journal.append(Decision(3, "cut", -1))
    again = Journal(path)
    assert [again[i].taken for i in range(len(again))] == [1, 3]


def test_decisions_of_a_torn_journal_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text('[3, "cut", -1]\n[7, "lea')
    assert len(Journal(path)) == 1 and path.read_text() == '[3, "cut", -1]\n'
    path.write_text('[3, "cut", -1]\nnothing\n')
    with pytest.raises(ValueError, match="line 2 is no decision"):
        Journal(path)


def test_bad_messages_go_to_the_dead_letters_once() -> None:
    topic, dead = MemoryTopic(), MemoryTopic(topic="dead")

    def stream() -> StreamSource:
        letters = DeadLetters(dead.producer(), "dead", dead.client())
        limits = StreamLimits(max_message_bytes=5000, max_future_seconds=60.0)
        return source(topic, 2, dead_letters=letters, limits=limits, event_time="t")

    now = time.time()
    good = [message(10 * i, 2, now) for i in range(10)]
    bad = {
        "empty": None,
        "format": good[0][:-30],
        "schema": pack(pa.table({"x": [1]})),
        "size": message(0, 5000, now),
        "time": message(0, 3, now + 3600),
    }
    for i, value in enumerate(good):
        topic.append(value)
        if i < 5:
            topic.append(list(bad.values())[i])
    first = stream()
    assert values([next(first) for _ in range(4)]) == [[0, 1], [10, 11], [20, 21], [30, 31]]
    state = first.state_dict()
    assert sum(state["dead"].values()) == 3  # the one after a full batch is the next batch's
    values(list(first))
    assert first.state_dict()["dead"] == dict.fromkeys(bad, 1)
    second = stream()  # crashed after its second letter: the third run still knows the others
    second.load_state_dict(state)
    next(second)
    state = second.state_dict()
    assert sum(state["dead"].values()) == 4
    second.close()
    third, anew = stream(), stream()
    third.load_state_dict(state)
    for again in (third, anew):  # and one that begins anew knows them all
        values(list(again))
        assert again.state_dict()["dead"] == dict.fromkeys(bad, 1)
    found = dead.messages()
    assert [dict(m.headers)["reason"].decode() for m in found] == list(bad)
    offsets = [i for i, m in enumerate(topic.messages()) if m.value in bad.values()]
    assert [(m.key or b"").decode() for m in found] == [f"memory/0/{o}" for o in offsets]
    assert [m.value for m in found][1] == bad["format"]


def test_an_interrupted_wait_loses_no_rows() -> None:
    topic = MemoryTopic(2)
    for i in range(7):
        topic.append(message(10 * i, 3), partition=i % 2)
    stream = source(topic, 4, stop=StopWhen(seconds=60.0))
    got = [next(stream)["x"].to_pylist() for _ in range(5)]
    state = stream.state_dict(batches=3)
    timer = threading.Timer(0.5, signal.raise_signal, (signal.SIGINT,))
    # MindSpore leaves a handler of its own behind that ends the process.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer.start()  # one row is there, three are missing
        with pytest.raises(KeyboardInterrupt):
            next(stream)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
    assert stream.state_dict(batches=3) == state
    assert stream.state_dict()["batches"] == 5
    topic.append(message(70, 3), partition=1)
    got += values([next(stream)])
    assert got[-1] == [62, 70, 71, 72]
    assert sum(got, []) == [10 * i + j for i in range(8) for j in range(3)]
    stream.close()


class _Interrupted(threading.Condition):
    """Condition with a Ctrl-C between the acquisition of its lock and the `with` block."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at  # acquisitions by the main thread

    def __enter__(self) -> bool:
        taken = super().__enter__()
        if threading.current_thread() is threading.main_thread():
            self.left -= 1
            if not self.left:
                signal.raise_signal(signal.SIGINT)
        return taken


@pytest.mark.parametrize("at", range(1, 5))
def test_ctrl_c_while_a_lock_is_taken_blocks_no_thread(at: int) -> None:
    topic = MemoryTopic()
    fill(topic, 4, 1, 1)
    expected = values(list(source(topic, 4)))
    stream = source(topic, 4, most=1)
    stream._changed = _Interrupted(at)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    got = []
    try:
        with pytest.raises(KeyboardInterrupt):
            got.extend(values([next(stream)]))
            got.extend(values([next(stream)]))
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
    got.extend(values(list(stream)))
    assert [row for batch in got for row in batch] == [row for batch in expected for row in batch]


def test_ctrl_c_says_what_is_finished_before(capfd: pytest.CaptureFixture[str]) -> None:
    with Interruption("this batch") as interruption:
        signal.raise_signal(signal.SIGINT)
        assert interruption.requested
    assert "finishing this batch; once more to abort" in capfd.readouterr().err


def test_without_dead_letters_a_bad_message_is_an_error() -> None:
    topic = MemoryTopic()
    topic.append(message(0, 2))
    topic.append(b"rubbish")
    with source(topic, 4) as stream, pytest.raises(ValueError, match="message 1 of partition 0"):
        next(stream)


def test_a_position_that_is_not_known_is_refused_with_those_that_are() -> None:
    topic = MemoryTopic()
    topic.append(message(0, 6))
    with source(topic, 2) as stream:
        for last in range(3):
            with pytest.raises(ValueError, match=rf"batches must be in \[0, {last}\], got 9"):
                stream.state_dict(batches=9)
            next(stream)


def test_stops() -> None:
    topic = MemoryTopic()
    for i in range(10):
        topic.append(message(i, 1, float(i)))
    for stop, count, reason in (
        (StopWhen(batches=3), 3, "3 batches"),
        (StopWhen(watermark=4.5), 6, "watermark 4.5"),
        (StopWhen(seconds=3.0), 10, "3.0 seconds"),
        (StopWhen(idle_seconds=0.1), 10, "idle for 0.1 seconds"),
    ):
        stream = source(topic, 1, event_time="t", stop=stop)
        assert (len(list(stream)), stream.stop_reason) == (count, reason)
        assert list(stream) == []


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        float("nan"),
        float("inf"),
        pytest.param(10**400, id="400"),
        pytest.param(10**5000, id="5000"),
    ],
)
@pytest.mark.parametrize("name", ["batches", "seconds", "idle_seconds"])
def test_a_stop_that_never_comes_is_refused(name: str, value: Any) -> None:
    kinds = TypeError if name == "batches" and isinstance(value, float) else ValueError
    with pytest.raises(kinds, match=f"^{name} must be"):
        StopWhen(**{name: value})


def test_a_stream_is_not_idle_before_it_was_looked_at() -> None:
    """As after a pause of the process, or of the thread that looks."""
    topic = MemoryTopic()
    topic.append(message(0, 2))

    class Late(MemoryClient):
        def poll(self, seconds: float, paused: Sequence[int]) -> dict[int, list[Message]]:
            time.sleep(0.3)
            return super().poll(seconds, paused)

    with StreamSource(
        Late(topic, 500), ArrowFormat(SCHEMA), 1, stop=StopWhen(idle_seconds=0.05)
    ) as stream:
        assert len(list(stream)) == 2
        assert stream.stop_reason == "idle for 0.05 seconds"


def test_messages_that_are_gone_or_never_were_are_an_error() -> None:
    topic = MemoryTopic()
    fill(topic, 5, 1, 1)
    with source(topic, 1, start={0: 6}) as stream:
        with pytest.raises(LookupError, match="ends at message 5, and message 6 is next"):
            next(stream)
    with source(topic, 1, start="latest") as stream:
        topic.append(message(500, 1))
        assert values(list(stream)) == [[500]]


@pytest.mark.parametrize("partitions", [1, 4])
def test_reading_ahead_is_bounded(partitions: int) -> None:
    topic = MemoryTopic(partitions)
    for i in range(200):
        topic.append(message(1000 * i, 100), i % partitions)
    size = len(message(0, 100)) + 100
    limits = StreamLimits(buffer_bytes=20 * size)
    with source(topic, 10, limits=limits, stop=StopWhen(seconds=30.0)) as stream:
        next(stream)
        time.sleep(0.5)
        blocks = sum(map(list, stream._order._blocks.values()), [])
        assert sum(len(block.offsets) for block in blocks) <= 20 + 2 * 3 * partitions
        assert len(list(next(stream) for _ in range(1900))) == 1900


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"partitions": [0, 0]}, "partitions must be distinct ones of"),
    ({"partitions": [7]}, "partitions must be distinct ones of"),
    ({"start": "middle"}, "start must be"),
    ({"start": {1: 0}}, "start must have an offset"),
    ({"start": {0: 1 << 63}}, "start must be in"),
    ({"event_time": "y"}, "event_time must be a column"),
    ({"limits": StreamLimits(max_future_seconds=1.0)}, "max_future_seconds needs event_time"),
    (
        {"limits": StreamLimits(value_ranges={"z": (0, 1)})},
        "value_ranges must be of columns of numbers",
    ),
    ({"stop": StopWhen(watermark=1.0)}, "event_time must be given"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED)
def test_refusals(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        source(MemoryTopic(), 1, **options)


@settings(max_examples=50, deadline=None)
@given(
    messages=st.lists(
        st.lists(st.tuples(st.integers(-3, 3), st.none() | st.floats(width=32)), min_size=1),
        min_size=1,
    ),
    least=st.integers(-3, 3),
    greatest=st.sampled_from([3, 5.5, math.inf]),
)
def test_values_out_of_range(
    messages: list[list[tuple[int, float | None]]], least: int, greatest: float
) -> None:
    """A message with one such value is bad as a whole; a missing value is the schema's matter."""
    schema = pa.schema({"x": pa.int64(), "y": pa.float32()})
    topic, letters = MemoryTopic(), MemoryTopic(topic="letters")
    messages = [*messages, [(3, None)]]  # the state after the last good row counts all before it
    for rows in messages:
        columns = [list(column) for column in zip(*rows, strict=True)]
        topic.append(pack(pa.table(columns, schema=schema)))
    good = [
        rows
        for rows in messages
        if all(least <= x and (y is None or -1.5 <= y <= greatest) for x, y in rows)
    ]
    stream = StreamSource(
        topic.client(), ArrowFormat(schema), 1,
        limits=StreamLimits(value_ranges={"x": (least, math.inf), "y": (-1.5, greatest)}),
        dead_letters=DeadLetters(letters.producer(), "letters", letters.client()),
        stop=StopWhen(batches=sum(map(len, good))),
    )  # fmt: skip
    found = [tuple(row.values()) for batch in stream for row in batch.to_pylist()]
    assert found == [row for rows in good for row in rows]
    bad = len(messages) - len(good)
    assert stream.state_dict()["dead"] == ({"value": bad} if bad else {})
    reasons = [dict(letter.headers)["reason"] for letter in letters.messages()]
    assert reasons == [b"value"] * bad


def test_a_journal_of_an_earlier_stream_is_refused_at_the_latest_messages() -> None:
    """Its decisions were made at messages that this stream does not read."""
    journal = Journal()
    journal.append(Decision(1, "cut", -1))
    with source(MemoryTopic(), 1, start="latest", journal=journal) as stream:
        with pytest.raises(ValueError, match="journal must be new where start is 'latest'"):
            next(stream)


def test_states_of_other_streams_are_refused() -> None:
    state = source(MemoryTopic(2), 1).state_dict()
    with pytest.raises(ValueError, match="it is of topic 'memory', partitions"):
        source(MemoryTopic(1), 1).load_state_dict(state)
    with pytest.raises(TypeError, match="what state_dict"):
        source(MemoryTopic(1), 1).load_state_dict({})
    with pytest.raises(ValueError, match="of version 1, got 99"):
        source(MemoryTopic(2), 1).load_state_dict({**state, "version": 99})


def test_lines_mixed_with_bad_ones_in_turns() -> None:
    topic, dead = MemoryTopic(2), MemoryTopic(topic="dead")
    for i in range(400):
        text = b"broken" if i % 7 == 3 else b"%d\t%d" % (i, i)
        topic.append(text, partition=i % 2)
    stream = StreamSource(
        topic.client(50), TsvFormat(SCHEMA), 7, limits=StreamLimits(turn_messages=8),
        dead_letters=DeadLetters(dead.producer(), "dead"), stop=StopWhen(batches=343 // 7),
    )  # fmt: skip
    rows = sum(values(list(stream)), [])
    good = [i for i in range(400) if i % 7 != 3]
    assert sorted(rows) == good and len(dead.messages()) == 400 - len(good)
    assert rows[:7] == [i for i in range(0, 16, 2) if i % 7 != 3]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_event_times_of_any_unit(unit: str) -> None:
    """pandas has nanoseconds; and a time beyond all is one in the future, not an error."""
    second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    schema = pa.schema({"t": pa.timestamp(unit)})
    topic = MemoryTopic()
    for t in (1_700_000_000 * second + (unit != "s"), (1 << 63) - 1, None):
        topic.append(pack(pa.table({"t": pa.array([t], pa.timestamp(unit))})))
    letters = MemoryTopic(topic="letters")
    stream = StreamSource(
        topic.client(), ArrowFormat(schema), 1, event_time="t",
        limits=StreamLimits(max_future_seconds=3600.0),
        dead_letters=DeadLetters(letters.producer(), "letters", letters.client()),
        stop=StopWhen(idle_seconds=0.5),
    )  # fmt: skip
    batches = list(stream)
    assert len(batches) == 2 and stream.state_dict()["dead"] == {"time": 1}
    assert stream.watermark == pytest.approx(1_700_000_000, abs=0.01)


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5])
def test_decisions_to_cut_fit_any_batch_size(batch: int, tmp_path: Path) -> None:
    topic = MemoryTopic()
    for i in range(6):
        topic.append(message(i, 1))
    Journal(tmp_path / "journal").append(Decision(4, "cut", -1))
    journal = Journal(tmp_path / "journal")
    with source(topic, batch, journal=journal, stop=StopWhen(idle_seconds=0.1)) as stream:
        found = values(list(stream))
    assert sum(found, []) == list(range(6))
    assert all(found)
    assert len(found) == -(-4 // batch) + -(-2 // batch)  # the cut ends a batch, of whatever size
