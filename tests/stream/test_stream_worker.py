# SPDX-License-Identifier: Apache-2.0
"""A feature worker that is killed again and again sends what one that is not sends."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from examples.online_learning.kafka.broker import Broker
from mindspore_rec.common.stream.kafka_client import KafkaClient
from mindspore_rec.stream import DataReceiver, DataSender, StopWhen, to_arrays
from tests.stream.test_stream_kafka import read_all, write
from tests.support.processes import start_python

pytestmark = pytest.mark.kafka

SCRIPT = Path(__file__).with_name("worker_script.py")
ROWS = 20_000  # whole turns of both partitions, whole batches of 50 and of 60 good rows
GOOD = ROWS - ROWS // 100


def kill_when_it_has_sent(worker: subprocess.Popen[str], channel: KafkaClient, more: int) -> None:
    """Kills the worker when so many messages have come into the channel, or it is done."""
    goal = sum(end for _, end in channel.bounds([0, 1]).values()) + more
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and worker.poll() is None:
        if sum(end for _, end in channel.bounds([0, 1]).values()) >= goal:
            break
        time.sleep(0.005)
    worker.kill()
    worker.wait()


def received(broker: Broker, channel: str) -> tuple[list[list[np.ndarray]], int]:
    """Every batch, and how many messages were dropped as duplicates."""
    receiver = DataReceiver(
        broker.address, shard_id=None, dataset_name=channel, batch_size=60,
        stop=StopWhen(batches=GOOD // 60, seconds=300.0),
    )  # fmt: skip
    batches = [list(to_arrays(batch).values()) for batch in receiver]
    return batches, receiver.state_dict()["order"]["duplicates"]


def test_kills_lose_and_double_nothing(
    broker: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(2)
    rng = np.random.default_rng(7)
    price = rng.exponential(size=ROWS).cumsum()  # the scale of each batch is its own
    lines = [
        b"broken" if i % 100 == 50 else b"u%d\t%f\t%d" % (rng.integers(100), price[i], i)
        for i in range(ROWS)
    ]
    write(broker.address, name, lines, 2)
    whole, killed = f"{name}-whole", f"{name}-killed"
    assert start_python(SCRIPT, broker.address, name, whole, str(tmp_path / "whole")).wait(300) == 0
    state = tmp_path / "killed"
    DataSender(broker.address, num_shards=2, dataset_name=killed).close()  # makes the channel
    channel = KafkaClient(broker.address, f"default.{killed}")
    for _ in range(2):
        worker = start_python(SCRIPT, broker.address, name, killed, str(state))
        kill_when_it_has_sent(worker, channel, int(rng.integers(10, 150)))
    channel.close()
    assert start_python(SCRIPT, broker.address, name, killed, str(state)).wait(300) == 0
    expected, none = received(broker, whole)
    got, dropped = received(broker, killed)
    assert (none, dropped > 0) == (0, True)
    assert len(got) == len(expected) == GOOD // 60
    for one, other in zip(got, expected, strict=True):
        for column, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(column, same)
    keys = [message.key for message in read_all(broker.address, f"{name}.dead")]
    assert len(keys) == len(set(keys)) == ROWS // 100
