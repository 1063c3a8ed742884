# SPDX-License-Identifier: Apache-2.0
"""DataSender, DataReceiver, columns: what goes in comes out, once, over any number of shards."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from examples.online_learning.kafka.broker import Broker
from mindspore_rec.stream import (
    DataReceiver,
    DataSender,
    MemoryTopic,
    StopWhen,
    to_arrays,
    to_record_batch,
)

IDLE = StopWhen(idle_seconds=0.5)


def rows(begin: int, count: int) -> dict[str, np.ndarray]:
    number = np.arange(begin, begin + count)
    return {
        "ids": np.stack([number, -number], axis=1),
        "label": (number % 2)[:, None].astype(np.float32),
    }


def numbers(stream: DataReceiver) -> list[int]:
    return [n for batch in stream for n in to_arrays(batch)["ids"][:, 0].tolist()]


@pytest.mark.parametrize("shards", [1, 3])
def test_what_was_sent_again_after_a_crash_is_dropped(shards: int) -> None:
    topic = MemoryTopic(shards)
    workers = [
        DataSender(topic, num_shards=shards, message_rows=4, sender_name=f"w{i}") for i in range(2)
    ]
    states = [worker.state_dict() for worker in workers]
    for step in range(5):
        for i, worker in enumerate(workers):
            if step == 2:
                states[i] = worker.state_dict()
            worker.send(rows(1000 * i + 10 * step, 10))
    for i in range(2):  # killed after step 4, restarted from the state before step 2
        again = DataSender(topic, num_shards=shards, message_rows=4, sender_name=f"w{i}")
        again.load_state_dict(states[i])
        for step in range(2, 7):
            again.send(rows(1000 * i + 10 * step, 10))
    receiver = DataReceiver(topic, shard_id=None, batch_size=16, stop=IDLE)
    expected = sorted([*range(70), *range(1000, 1070)])
    assert sorted(numbers(receiver)) == expected
    assert receiver.state_dict()["order"]["duplicates"] == 2 * 3 * 3
    # a trainer that was restarted after every batch drops the same ones
    got: list[int] = []
    state = None
    while len(got) < len(expected):
        stop = StopWhen(batches=1, idle_seconds=5.0)
        once = DataReceiver(topic, shard_id=None, batch_size=14, stop=stop)
        if state is not None:
            once.load_state_dict(state)
        got += numbers(once)
        state = once.state_dict()
    assert sorted(got) == expected


def test_receivers_of_shards_share_the_rows() -> None:
    topic = MemoryTopic(3)
    sender = DataSender(topic, num_shards=3, message_rows=5)
    for step in range(6):
        sender.send(rows(20 * step, 20))
    parts = [
        numbers(DataReceiver(topic, shard_id=s, batch_size=10, stop=IDLE)) for s in ([0, 2], 1)
    ]
    assert sorted(sum(parts, [])) == list(range(120)) and all(parts)


def test_full_batch_goes_to_every_shard() -> None:
    topic = MemoryTopic(2)
    DataSender(topic, num_shards=2, full_batch=True, message_rows=3).send(rows(0, 7))
    for shard in range(2):
        receiver = DataReceiver(topic, shard_id=shard, batch_size=7, stop=IDLE)
        assert to_arrays(receiver.recv())["ids"][:, 0].tolist() == list(range(7))
        with pytest.raises(EOFError, match="has ended: idle for"):
            receiver.recv()


@pytest.mark.kafka
def test_over_kafka(broker: Broker) -> None:
    names: dict[str, Any] = {"namespace": f"n{os.getpid()}", "dataset_name": "clicks"}
    with DataSender(broker.address, num_shards=2, message_rows=100, **names) as sender:
        sender.send(rows(0, 950))
        state = sender.state_dict()
        sender.send(rows(950, 50))
        sender.load_state_dict(state)
        sender.send(rows(950, 50))
    stop = StopWhen(batches=4, seconds=300.0)
    receiver = DataReceiver(broker.address, shard_id=None, batch_size=250, stop=stop, **names)
    assert receiver.num_shards == 2
    assert sorted(numbers(receiver)) == list(range(1000))
    with pytest.raises(ValueError, match="num_shards must be 2"):
        DataSender(broker.address, num_shards=3, **names)


def test_columns_come_back_as_they_were() -> None:
    given = {
        "ids": np.array([[1, -2], [3, 4]]),
        "dense": np.array([[0.5], [np.nan]], np.float32),
        "label": np.array([1, 0], np.int8),
    }
    back = to_arrays(to_record_batch(given))
    for name, array in given.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype
    part = to_arrays(to_record_batch(given).slice(1, 1))
    assert part["ids"].tolist() == [[3, 4]]
    frame = pd.DataFrame({"x": [1, 2], "s": ["a", None]})
    assert to_record_batch(frame).to_pylist() == [{"x": 1, "s": "a"}, {"x": 2, "s": None}]


def test_refusals() -> None:
    with pytest.raises(ValueError, match="same number of rows"):
        to_record_batch({"a": np.zeros(2), "b": np.zeros(3)})
    with pytest.raises(ValueError, match="1 or 2 dimensions"):
        to_record_batch({"a": np.zeros((2, 2, 2))})
    with pytest.raises(TypeError, match="must be an Arrow"):
        to_record_batch([1, 2])
    with pytest.raises(ValueError, match="not numbers"):
        to_arrays(pa.RecordBatch.from_pydict({"s": ["a"]}))
    with pytest.raises(ValueError, match="has missing values"):
        to_arrays(pa.RecordBatch.from_pydict({"s": [1, None]}))
    with pytest.raises(ValueError, match="namespace must be"):
        DataSender(MemoryTopic(), namespace="a.b")
    with pytest.raises(ValueError, match="num_shards must be 2"):
        DataSender(MemoryTopic(2), num_shards=1)
    sender = DataSender(MemoryTopic(), sender_name="a")
    with pytest.raises(ValueError, match="of sender 'a', got 'b'"):
        sender.load_state_dict({"sender_name": "b", "next": 0})


@pytest.mark.parametrize("count", [0, (1 << 24) + 1])
def test_rows_of_a_message_are_bounded(count: int) -> None:
    with pytest.raises(ValueError, match=f"message_rows must be .*16777216.*{count}"):
        DataSender(MemoryTopic(), message_rows=count)
