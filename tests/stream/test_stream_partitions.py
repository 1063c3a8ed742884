# SPDX-License-Identifier: Apache-2.0
"""Partitions that a topic gets later are read, and a topic made anew is refused."""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mindspore_rec.common.stream import topic_watch
from mindspore_rec.common.stream.read_watch import waiting
from mindspore_rec.stream import (
    ArrowFormat,
    DataReceiver,
    DataSender,
    FeatureWorker,
    Journal,
    MemoryTopic,
    StopWhen,
    StreamingDataset,
    StreamLimits,
    StreamSource,
    pack,
)
from tests.support.waiting import wait_until

SCHEMA = pa.schema({"x": pa.int64()})


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_watch, "LOOK_SECONDS", 0.02)


def append(topic: MemoryTopic, partition: int, *numbers: int) -> None:
    topic.append(pack(pa.table({"x": list(numbers)}, SCHEMA)), partition)


def stream(topic: MemoryTopic, batch: int = 2, **options: Any) -> StreamSource:
    options.setdefault("stop", StopWhen(idle_seconds=0.4))
    return StreamSource(topic.client(), ArrowFormat(SCHEMA), batch, **options)


def rows(source: StreamSource) -> list[list[int]]:
    with source:
        return [batch["x"].to_pylist() for batch in source]


def test_a_new_partition_is_read_while_the_stream_is(caplog: pytest.LogCaptureFixture) -> None:
    topic = MemoryTopic()
    append(topic, 0, 1, 2)
    source = stream(topic)
    with caplog.at_level(logging.WARNING, "mindspore_rec"):
        assert next(source)["x"].to_pylist() == [1, 2]
        topic.add_partitions(2)
        append(topic, 2, 5, 6)
        # No event is in partition 1, which must not keep the others waiting.
        deadline = time.monotonic() + 60.0
        while source.lag < 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        append(topic, 0, 3, 4)
        assert sorted(sum(rows(source), [])) == [3, 4, 5, 6]
    assert source.lag == 0 and source.partitions == [0, 2]
    assert [record.message for record in caplog.records if "partitions [1, 2]" in record.message]
    assert len(caplog.records) == 1


class _Repeats(logging.Handler):
    """Gives a partition turns, as a journal does, at the moment at which a stream finds it."""

    def __init__(self, source: StreamSource) -> None:
        super().__init__()
        self.source = source

    def emit(self, record: logging.LogRecord) -> None:
        if "has partitions [1" in record.getMessage():
            with self.source._changed:
                self.source._order.expect(1, 0)
                self.source._order.add(1)


@pytest.mark.parametrize("count", [1, 2])
def test_a_partition_that_takes_turns_already_is_not_new(count: int) -> None:
    """Nor does it keep from the stream one that is new."""
    topic = MemoryTopic()
    append(topic, 0, 1, 2)
    source = stream(topic)
    logger, repeats = logging.getLogger("mindspore_rec"), _Repeats(source)
    logger.addHandler(repeats)
    try:
        assert next(source)["x"].to_pylist() == [1, 2]
        topic.add_partitions(count)
        wait_until(lambda: source.partitions == [0, 1])
    finally:
        logger.removeHandler(repeats)
    append(topic, count, 3, 4)
    assert rows(source) == [[3, 4]]
    assert source.partitions == [0, 1, 2][: count + 1] and source.lag == 0


@pytest.mark.parametrize("chosen", [False, True])
def test_a_restart_reads_a_new_partition_from_its_beginning(chosen: bool) -> None:
    topic = MemoryTopic()
    append(topic, 0, 1, 2)
    source = stream(topic, partitions=[0] if chosen else None)
    assert rows(source) == [[1, 2]]
    topic.add_partitions()
    append(topic, 1, 3, 4)
    append(topic, 0, 5, 6)
    again = stream(topic, partitions=[0, 1] if chosen else None, start="latest")
    again.load_state_dict(source.state_dict())
    assert sorted(sum(rows(again), [])) == [3, 4, 5, 6]
    with pytest.raises(ValueError, match=r"partitions \[0\]"):
        stream(topic, partitions=[0]).load_state_dict(again.state_dict())


def test_partitions_of_others_stay_theirs(caplog: pytest.LogCaptureFixture) -> None:
    topic = MemoryTopic(2)
    append(topic, 0, 1, 2)
    source = stream(topic, partitions=[0])
    topic.add_partitions()
    append(topic, 2, 3, 4)
    append(topic, 1, 5, 6)
    assert rows(source) == [[1, 2]]
    assert source.lag == 0 and not caplog.records


@pytest.mark.parametrize("seed", range(6))
def test_a_journal_repeats_the_batches_with_partitions_added(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    topic = MemoryTopic(chance.randint(1, 2))
    path = tmp_path / "journal"
    limits = StreamLimits(turn_messages=chance.randint(1, 3))
    if chance.random() < 0.5:
        limits = replace(limits, skip_idle_seconds=0.03, max_wait_seconds=0.05)
    batch = chance.randint(1, 5)
    events = itertools.count()  # as many as the machine is fast

    def produce() -> None:
        partitions = len(topic.client().partitions())
        for _ in range(chance.randint(1, 8)):
            numbers = [next(events) for _ in range(chance.randint(1, 4))]
            append(topic, chance.randrange(partitions), *numbers)

    produce()
    seen: list[list[int]] = []
    states: list[dict[str, Any]] = []
    state = None
    for _ in range(5):  # lives, each from a state of the life before, maybe not its last
        source = stream(topic, batch, journal=Journal(path), limits=limits)
        if state is not None:
            source.load_state_dict(state)
        at = source.batches
        states[at:] = [source.state_dict()]
        until = time.monotonic() + 0.3
        source._patience.stop = StopWhen(seconds=0.5)
        grown = False
        for made in source:
            number = source.batches - 1
            found = made["x"].to_pylist()
            if number < len(seen):
                assert found == seen[number], f"batch {number}"
            else:
                seen.append(found)
            states[number + 1 :] = [source.state_dict()]
            if time.monotonic() < until and chance.random() < 0.5:
                produce()
            if not grown and chance.random() < 0.3:
                topic.add_partitions()
                grown = True
        source.close()
        produce()
        state = states[max(0, len(states) - 1 - chance.randrange(4))]
    limits, stop = replace(limits, skip_idle_seconds=0.03), StopWhen(idle_seconds=1.0)
    last = stream(topic, batch, journal=Journal(path), limits=limits, stop=stop)
    assert state is not None
    last.load_state_dict(state)
    begin = last.batches
    total = seen[:begin] + rows(last)
    assert total[: len(seen)] == seen
    assert sorted(sum(total, [])) == list(range(next(events)))


def test_a_feature_worker_that_is_killed_sends_what_it_sent(tmp_path: Path) -> None:
    raw, features = MemoryTopic(topic="raw"), MemoryTopic()

    def run(stop: StopWhen) -> None:
        sender = DataSender(features, sender_name="w", message_rows=2)
        # Batches end within messages of three rows each.
        dataset = StreamingDataset(stream(raw, 2, stop=stop))
        FeatureWorker(dataset, sender, tmp_path / "state", 0.0).run()

    for number in range(4):
        append(raw, 0, *range(3 * number, 3 * number + 3))
    run(StopWhen(batches=2))
    state = (tmp_path / "state").read_bytes()
    run(StopWhen(batches=4))
    (tmp_path / "state").write_bytes(state)  # as if it had been killed before it saved
    raw.add_partitions()
    append(raw, 1, 100, 101, 102)
    append(raw, 1, 103, 104, 105)
    run(StopWhen(idle_seconds=0.3))
    for number in range(4, 6):
        append(raw, 0, *range(3 * number, 3 * number + 3))
    run(StopWhen(idle_seconds=0.3))
    run(StopWhen(idle_seconds=0.3))
    with DataReceiver(features, batch_size=2, stop=StopWhen(idle_seconds=0.3)) as receiver:
        got: list[int] = sum((batch["x"].to_pylist() for batch in receiver), [])
    assert got[:12] == list(range(12))
    assert sorted(got) == [*range(18), *range(100, 106)]


@pytest.mark.parametrize("journal", [None, b'[1, "add", 1]\n'])
def test_a_feature_worker_goes_on_with_a_partition_added_by_its_state(
    tmp_path: Path, journal: bytes | None
) -> None:
    """Nothing is lost with its journal, or where a worker that was replaced wrote to that."""
    raw, features = MemoryTopic(topic="raw"), MemoryTopic()

    def run(batches: int) -> None:
        sender = DataSender(features, sender_name="w", message_rows=2)
        stop = StopWhen(batches=batches)  # by nothing that would need a journal
        dataset = StreamingDataset(stream(raw, 2, limits=StreamLimits(turn_messages=2), stop=stop))
        FeatureWorker(dataset, sender, tmp_path / "state", 0.0).run()

    append(raw, 0, 0, 1)
    run(1)
    raw.add_partitions()
    for number in range(2, 6):
        append(raw, number % 2, number)
    run(2)
    state = (tmp_path / "state").read_bytes()
    for number in range(6, 10):
        append(raw, number % 2, number)
    run(1)
    (tmp_path / "state").write_bytes(state)  # as if it had been killed before it saved
    (tmp_path / "state.journal").unlink()
    if journal is not None:
        (tmp_path / "state.journal").write_bytes(journal)
    run(2)
    with DataReceiver(features, batch_size=2, stop=StopWhen(idle_seconds=0.3)) as receiver:
        got: list[int] = sum((batch["x"].to_pylist() for batch in receiver), [])
    assert got == [0, 1, 2, 4, 3, 5, 6, 8, 7, 9]


def test_a_feature_worker_adds_no_partition_before_its_state_has_it(tmp_path: Path) -> None:
    """A killed worker begins again from its state, and loses no message that came meanwhile."""
    raw, features = MemoryTopic(topic="raw"), MemoryTopic()

    def worker(batches: int, save_seconds: float) -> FeatureWorker:
        sender = DataSender(features, sender_name="w", message_rows=2)
        stop = StopWhen(batches=batches, seconds=20.0)
        dataset = StreamingDataset(stream(raw, 2, limits=StreamLimits(turn_messages=2), stop=stop))
        return FeatureWorker(dataset, sender, tmp_path / "state", save_seconds)

    append(raw, 0, 0, 1)
    worker(1, 0.0).run()
    raw.add_partitions()
    append(raw, 0, 2, 3)
    append(raw, 1, 10, 11)
    append(raw, 1, 12, 13)
    killed = worker(9, 1e9)
    send, sent = killed._sender.send, list[Any]()

    def send_two(batch: Any) -> None:
        if len(sent) == 2:
            raise KeyboardInterrupt  # as if it had been killed before it saved
        send(batch)
        sent.append(batch)
        append(raw, 0, *range(2 + 2 * len(sent), 4 + 2 * len(sent)))

    killed._sender.send = send_two  # type: ignore[assignment, method-assign]
    with pytest.raises(KeyboardInterrupt):
        killed.run()
    (tmp_path / "state.journal").unlink(missing_ok=True)
    worker(5, 0.0).run()
    with DataReceiver(features, batch_size=2, stop=StopWhen(idle_seconds=0.3)) as receiver:
        got: list[int] = sum((batch["x"].to_pylist() for batch in receiver), [])
    assert sorted(got) == [*range(8), *range(10, 14)]


@pytest.mark.parametrize("before", [[], [1], [1, 2], [1, 2, 3]])
def test_a_feature_worker_reads_a_new_partition_while_the_others_are_silent(
    tmp_path: Path, before: list[int]
) -> None:
    """Whatever it has of a batch: a restart from the state that it saves makes the same ones."""
    raw, channel = MemoryTopic(), MemoryTopic()
    for number in before:
        append(raw, 0, number)
    after = [11, 12, 13, 14, 15]

    def grow() -> None:
        raw.add_partitions()
        for number in after:
            append(raw, 1, number)

    def work(topic: MemoryTopic, **options: Any) -> dict[int, int]:
        options.setdefault("stop", StopWhen(idle_seconds=0.4))
        sender = DataSender(channel, sender_name="w", message_rows=2)
        dataset = StreamingDataset(
            stream(topic, 2, limits=StreamLimits(skip_idle_seconds=0.05), **options)
        )
        FeatureWorker(dataset, sender, tmp_path / "state", 0.0).run()
        return dataset.source.position

    timer = threading.Timer(0.1, grow)
    timer.start()
    place = work(raw, stop=StopWhen(idle_seconds=1.0))
    timer.join()
    assert place == {0: len(before), 1: len(after)}
    with DataReceiver(channel, shard_id=None, batch_size=1, stop=StopWhen(idle_seconds=0.3)) as got:
        numbers = [batch.columns[0][0].as_py() for batch in got]
    assert sorted(numbers) == [*before, *after]
    assert work(raw) == place


def test_one_partition_that_is_silent_is_looked_at_now_and_then() -> None:
    """Nobody else could have its turn: `skip_idle_seconds` is of no use."""
    topic, looks = MemoryTopic(), list[float]()
    append(topic, 0, 1)
    limits = StreamLimits(skip_idle_seconds=0.01)
    source = stream(topic, 2, limits=limits, stop=StopWhen(idle_seconds=0.5))
    with source, waiting(lambda: looks.append(time.monotonic())):
        assert [batch.num_rows for batch in source] == [1]
    assert 0 < len(looks) < 20


def test_lag_counts_what_only_a_restart_reads(caplog: pytest.LogCaptureFixture) -> None:
    topic = MemoryTopic()
    append(topic, 0, 1, 2)
    source = stream(topic, stop=StopWhen(idle_seconds=0.4))
    source.read_alike(0)  # one of several workers that split the rows of each batch
    next(source)
    topic.add_partitions()
    append(topic, 1, 3, 4)
    append(topic, 1, 5, 6)
    wait_until(lambda: source.lag == 2, 60)
    assert [record for record in caplog.records if "a restart reads each" in record.message]
    again = stream(topic)
    again.load_state_dict(source.state_dict())
    again.read_alike(0)
    assert again.new_partitions() == [1]
    again.add_partitions([1])
    assert rows(again)[:1] == [[3, 4]]
    source.close()


def test_workers_divide_new_partitions() -> None:
    topic = MemoryTopic(2)
    append(topic, 0, 1)
    append(topic, 1, 2)
    first = [stream(topic).split_by_worker(worker, 2) for worker in range(2)]
    assert [next(each)["x"].to_pylist() for each in first] == [[1], [2]]
    topic.add_partitions(2)
    append(topic, 2, 3)
    append(topic, 3, 4)
    assert [rows(each) for each in first] == [[[3]], [[4]]]
    states = [each.state_dict() for each in first]
    assert [state["partitions"] for state in states] == [[0, 2], [1, 3]]
    topic.add_partitions(2)
    for partition in range(6):
        append(topic, partition, 10 + partition)
    joined = {"batches": 2, "workers": states}
    for workers in (1, 2, 3, 6):  # any number goes on, and one may have new partitions only
        got = []
        for worker in range(workers):
            again = stream(topic, 6)
            again.load_state_dict(joined)
            if workers > 1:
                again.split_by_worker(worker, workers)
            got += sum(rows(again), [])
        assert sorted(got) == list(range(10, 16)), workers


def test_a_topic_made_anew_is_refused() -> None:
    old = MemoryTopic(topic="clicks", topic_id="old")
    for number in range(3):
        append(old, 0, number, number)
    source = stream(old)
    assert len(rows(source)) == 3
    new = MemoryTopic(topic="clicks", topic_id="new")
    for number in range(9):
        append(new, 0, number, number)
    with pytest.raises(LookupError, match="'clicks' was deleted and made anew.*load_checkpoint"):
        stream(new).load_state_dict(source.state_dict())
    # One that no id is known of goes on, as do states without one.
    unknown = stream(MemoryTopic(topic="clicks"))
    unknown.load_state_dict({k: v for k, v in source.state_dict().items() if k != "topic_id"})


def test_a_topic_made_anew_while_it_is_read_is_noticed() -> None:
    topic = MemoryTopic(topic="clicks", topic_id="old")
    append(topic, 0, 1, 2)
    with stream(topic, stop=StopWhen(idle_seconds=5.0)) as source:
        next(source)
        topic._logs[0].clear()
        topic.topic_id = "new"
        with pytest.raises(LookupError, match="'clicks' was deleted and made anew"):
            next(source)
