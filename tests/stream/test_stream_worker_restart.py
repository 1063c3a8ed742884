# SPDX-License-Identifier: Apache-2.0
"""A feature worker that is started again, with other settings, without its journal, or beside one
that comes back, loses and doubles no row, or says why it cannot go on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from mindspore_rec.common.stream.kafka_client import KafkaClient
from mindspore_rec.stream import (
    ArrowFormat,
    DataReceiver,
    DataSender,
    FeatureWorker,
    Journal,
    MemoryTopic,
    ReplacedError,
    StopWhen,
    StreamingDataset,
    StreamLimits,
    StreamSource,
    pack,
)
from tests.support.nightly import examples
from tests.support.topics import topic_of_messages

ROWS = 80


class Killed(BaseException):
    """Ends a worker as a kill would: it saves nothing."""


def raw_topic(partitions: int = 1) -> MemoryTopic:
    messages = (pack(pa.table({"n": [at, at + 1]})) for at in range(0, ROWS, 2))
    return topic_of_messages(messages, partitions, "raw")


def make(
    raw: MemoryTopic,
    channel: Any,
    state: Path,
    batch: int,
    *,
    message_rows: int = 3,
    save_seconds: float = 1e9,
    **options: Any,
) -> FeatureWorker:
    options.setdefault("stop", StopWhen(idle_seconds=0.1))
    source = StreamSource(raw.client(), ArrowFormat(), batch, **options)
    shards = channel.client().partitions() if isinstance(channel, MemoryTopic) else [0]
    sender = DataSender(channel, num_shards=len(shards), sender_name="w", message_rows=message_rows)
    return FeatureWorker(StreamingDataset(source), sender, state, save_seconds)


def run_until(worker: FeatureWorker, batches: int) -> None:
    """Lets a worker send so many batches, and kills it."""
    sender, left = worker._sender, batches
    send = sender.send

    def send_or_die(rows: Any) -> None:
        nonlocal left
        if left:
            send(rows)
            left -= 1
        if not left:
            raise Killed

    sender.send = send_or_die  # type: ignore[assignment, method-assign]
    with contextlib.suppress(Killed):
        worker.run()
    worker.close()


def received(channel: Any, **options: Any) -> list[int]:
    stop = StopWhen(idle_seconds=options.pop("idle", 0.2))
    with DataReceiver(channel, shard_id=None, batch_size=1, stop=stop, **options) as receiver:
        return [n for batch in receiver for n in batch["n"].to_pylist()]


@examples(10, 200)
@given(st.data())
def test_lives_with_settings_of_their_own(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    partitions, shards = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    raw, channel = raw_topic(partitions), MemoryTopic(shards)
    state = tmp_path_factory.mktemp("worker") / "state"
    for _ in range(data.draw(st.integers(1, 3))):
        worker = make(
            raw, channel, state, data.draw(st.integers(1, 12)),
            limits=StreamLimits(turn_messages=data.draw(st.integers(1, 3))),
            message_rows=data.draw(st.integers(1, 6)),
            save_seconds=data.draw(st.sampled_from([0.0, 1e9])),
            stop=StopWhen(idle_seconds=0.05),
        )  # fmt: skip
        run_until(worker, data.draw(st.integers(0, 4)))
    # The others may end too early on a busy machine, this one and the receiver must not. After
    # turns of different lengths a partition may have ended before the others.
    limits = StreamLimits(skip_idle_seconds=0.1)
    make(raw, channel, state, 1, limits=limits, stop=StopWhen(idle_seconds=0.5)).run()
    got = received(channel, idle=0.5)
    assert sorted(got) == list(range(ROWS))
    if partitions == 1:
        assert got == sorted(got)


@pytest.mark.parametrize("journal", ["none", "own", "in memory"])
def test_decisions_by_the_time_are_kept(tmp_path: Path, journal: str) -> None:
    raw, channel = raw_topic(), MemoryTopic()
    own = {"none": None, "own": Journal(tmp_path / "decisions"), "in memory": Journal()}[journal]

    def worker(wait: float | None) -> FeatureWorker:
        limits = StreamLimits(max_wait_seconds=wait)
        return make(raw, channel, tmp_path / "state", 7, journal=own, message_rows=2, limits=limits)

    run_until(worker(0.01), 12)  # the last batch is cut short
    for at in range(ROWS, ROWS + 6):
        raw.append(pack(pa.table({"n": [at]})))
    worker(None).run()
    assert received(channel) == list(range(ROWS + 6))


def test_a_journal_that_is_gone_is_missed(tmp_path: Path) -> None:
    raw, channel, state = raw_topic(), MemoryTopic(), tmp_path / "state"
    run_until(make(raw, channel, state, 7, limits=StreamLimits(max_wait_seconds=0.01)), 12)
    kept = (tmp_path / "state.journal").rename(tmp_path / "elsewhere")
    saved = state.read_bytes()
    for wait in (0.01, None):
        with pytest.raises(ValueError, match=r"journal must have the decisions .*state\.journal"):
            make(raw, channel, state, 7, limits=StreamLimits(max_wait_seconds=wait))
        (tmp_path / "state.journal").unlink(missing_ok=True)
    assert state.read_bytes() == saved
    kept.rename(tmp_path / "state.journal")
    make(raw, channel, state, 7).run()
    (tmp_path / "state.journal").unlink()  # after an ordered end nothing depends on it
    raw.append(pack(pa.table({"n": [ROWS]})))
    make(raw, channel, state, 7).run()
    assert received(channel) == list(range(ROWS + 1))


def test_a_setting_that_cannot_be_repeated_is_named(tmp_path: Path) -> None:
    raw, channel, state = raw_topic(), MemoryTopic(), tmp_path / "state"
    schema = pa.schema({"n": pa.int64()})

    def worker(least: float) -> FeatureWorker:
        source = StreamSource(
            raw.client(), ArrowFormat(schema), 7, stop=StopWhen(idle_seconds=0.1),
            limits=StreamLimits(value_ranges={"n": (least, 1e9)}),
        )  # fmt: skip
        sender = DataSender(channel, sender_name="w", message_rows=3)
        return FeatureWorker(StreamingDataset(source), sender, state, 1e9)

    run_until(worker(0.0), 4)
    text = r"value_ranges must be \{'n': \[0\.0, .*got \{'n': \[-1\.0, .*messages 0 to 11 were sent"
    with pytest.raises(ValueError, match=text):
        worker(-1.0)
    worker(0.0).run()
    worker(-1.0).run()
    assert received(channel) == list(range(ROWS))


def test_a_sender_alone_refuses_what_it_cannot_repeat() -> None:
    channel = MemoryTopic()
    sender = DataSender(channel, sender_name="w", message_rows=2)
    sender.send({"n": np.arange(4)})
    state = sender.state_dict()
    other = DataSender(channel, sender_name="w", message_rows=3)
    other.load_state_dict(state)  # nothing was sent since
    assert other.last == 1
    oldest = DataSender(channel, sender_name="w", message_rows=2)
    oldest.load_state_dict({"sender_name": "w", "next": 2})  # of version 0.1, without "ends"
    assert oldest.last == -1
    sender.send({"n": np.arange(4, 8)})
    with pytest.raises(ValueError, match="message_rows must be 2, .* got 3: messages 2 to 3"):
        other.load_state_dict(state)


def test_a_kill_after_settings_changed_repeats_what_was_sent_by_the_new_ones(
    tmp_path: Path,
) -> None:
    raw, channel, state = raw_topic(), MemoryTopic(), tmp_path / "state"
    make(raw, channel, state, 7, stop=StopWhen(batches=4)).run()  # an ordered end
    run_until(make(raw, channel, state, 5, message_rows=2), 4)
    make(raw, channel, state, 5, message_rows=2).run()
    assert received(channel) == list(range(ROWS))


def test_a_state_that_is_gone_is_missed(tmp_path: Path) -> None:
    raw, channel, state = raw_topic(), MemoryTopic(), tmp_path / "state"
    run_until(make(raw, channel, state, 7), 4)
    state.unlink()
    with pytest.raises(ValueError, match="state_path must be the state of the worker .* 'w'"):
        make(raw, channel, state, 7)


def test_a_state_has_one_worker(tmp_path: Path) -> None:
    raw, channel, state = raw_topic(), MemoryTopic(), tmp_path / "state"
    with make(raw, channel, state, 7), pytest.raises(RuntimeError, match="another feature worker"):
        make(raw, channel, state, 7)
    worker = make(raw, channel, state, 7)
    worker.run()
    for again in (worker.run, worker.save):
        with pytest.raises(RuntimeError, match="has ended: make a new one"):
            again()
    assert received(channel) == list(range(ROWS))


def comes_back(raw: MemoryTopic, channel: Any, state: Path) -> None:
    """A worker is held up, another one takes over, and the first goes on where it was."""
    first = make(raw, channel, state, 5, save_seconds=0.0)
    send, sent = first._sender.send, 0

    def held_up(rows: Any) -> None:
        nonlocal sent
        sent += 1
        if sent == 6:
            first.close()  # as a file system that loses locks does
            second = make(
                raw, channel, state, 7, limits=StreamLimits(max_wait_seconds=0.01), save_seconds=0.0
            )
            run_until(second, 3)
        send(rows)

    first._sender.send = held_up  # type: ignore[assignment, method-assign]
    first._check_lock = lambda: None  # type: ignore[method-assign]
    with pytest.raises(ReplacedError, match=r"another feature worker \(process .*'w'"):
        first.run()
    assert sent == 6
    before = state.read_bytes()
    with pytest.raises(ReplacedError):
        first.save()
    assert state.read_bytes() == before
    make(raw, channel, state, 4).run()


def test_one_that_comes_back_is_ignored_and_told(tmp_path: Path) -> None:
    raw, channel = raw_topic(), MemoryTopic()
    comes_back(raw, channel, tmp_path / "state")
    assert received(channel) == list(range(ROWS))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"state", "state.journal", ".state.lock"}


def test_one_that_waits_for_messages_is_told_too(tmp_path: Path) -> None:
    """Before it is idle for long enough to end, or to save its state."""
    raw, channel, stop = MemoryTopic(topic="raw"), MemoryTopic(), StopWhen(idle_seconds=30.0)
    first = make(raw, channel, tmp_path / "state", 5, stop=stop)
    (tmp_path / "copy").write_bytes((tmp_path / "state").read_bytes())  # as if on another host
    with make(raw, channel, tmp_path / "copy", 5):
        with pytest.raises(ReplacedError, match=r"another feature worker \(process .*'w'"):
            first.run()
    assert first._dataset.source.stop_reason == ""  # it did not wait until it was idle


@pytest.mark.kafka
def test_one_that_comes_back_over_kafka(broker: Any, tmp_path: Path) -> None:
    comes_back(raw_topic(), broker.address, tmp_path / "state")
    assert received(broker.address, idle=1.0) == list(range(ROWS))


def test_messages_of_version_0_1_are_read(tmp_path: Path) -> None:
    """Those without epochs, and states without settings: the worker goes on from them."""
    raw, channel, state = raw_topic(), MemoryTopic(), tmp_path / "state"
    run_until(make(raw, channel, state, 6, save_seconds=0.0), 4)
    saved = json.loads(state.read_text())
    old = {
        "sender": {name: saved["sender"][name] for name in ("sender_name", "next")},
        "dataset": saved["dataset"],
    }
    for each in ("outdated", "epochs"):
        old["dataset"]["source"]["order"].pop(each, None)
    state.write_text(json.dumps(old))
    before = MemoryTopic()
    for message in channel.messages():
        if message.value:
            headers = [each for each in message.headers if each[0] != "epoch"]
            before.append(message.value, 0, headers)
    make(raw, before, state, 6).run()
    assert received(before) == list(range(ROWS))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_in_order(tmp_path: Path, number: signal.Signals) -> None:
    raw, channel, state = raw_topic(), MemoryTopic(), tmp_path / "state"
    worker = make(raw, channel, state, 7, stop=None)  # waits for ever for the last rows
    before = worker.interrupted

    def interrupt() -> None:
        while not any(message.value for message in channel.messages()):
            threading.Event().wait(0.01)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    worker.run()
    thread.join()
    assert (before, worker.interrupted) == (False, True)
    make(raw, channel, state, 3, message_rows=2).run()
    assert received(channel) == list(range(ROWS))
    messages = [m for m in channel.messages() if m.value]
    numbers = [dict(m.headers)["sequence"] for m in messages]
    assert len(numbers) == len(set(numbers))  # the state was saved


@pytest.mark.kafka
def test_kafka_tells_what_was_sent(broker: Any) -> None:
    sender = DataSender(broker.address, dataset_name="last", sender_name="w", message_rows=2)
    state = sender.state_dict()
    sender.send({"n": np.arange(5)})
    sender.flush()
    assert sender.last_after(state) == 2
    assert sender.last_after(sender.state_dict()) == 2
    client = KafkaClient(broker.address, "default.last")
    assert client.bounds([0])[0][1] == sender.state_dict()["ends"]["0"]
    client.close()
    sender.close()
