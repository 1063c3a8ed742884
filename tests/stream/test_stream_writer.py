# SPDX-License-Identifier: Apache-2.0
"""Senders over a broker that is killed, frozen or gone: in order, nothing lost or doubled."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from examples.online_learning.kafka.broker import Broker
from mindspore_rec.common.stream.kafka_writer import KafkaWriter, Unsent
from mindspore_rec.stream import (
    DataReceiver,
    DataSender,
    DeadLetterPolicy,
    KafkaSource,
    StopWhen,
    pack,
)
from tests.stream.test_stream_kafka import read_all, write
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore:read_text is deprecated"),
    pytest.mark.filterwarnings("ignore:open_text is deprecated"),
]


def impatient(sender: DataSender, stall: float, give_up: float = 120.0) -> KafkaWriter:
    """The sender's writer, with another idea of what is long."""
    writer = sender._producer
    assert isinstance(writer, KafkaWriter)
    writer._stall, writer._give_up = stall, give_up
    return writer


class Sending:
    """Sends numbered rows in a thread for as long as the context lasts, and flushes at its end."""

    def __init__(self, sender: DataSender) -> None:
        self.sent = 0
        self.error: BaseException | None = None
        self._sender = sender
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._sender.send({"x": np.arange(self.sent, self.sent + 10)})
                self.sent += 10
                if self.sent % 2000 == 0:
                    self._sender.flush()
                time.sleep(0.002)
            self._sender.flush()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Sending:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(240)
        assert not self._thread.is_alive(), "a sender is stuck"


def received(brokers: str, name: str, rows: int) -> tuple[list[int], int]:
    stop = StopWhen(batches=rows // 10, seconds=240.0)
    receiver = DataReceiver(brokers, dataset_name=name, shard_id=None, batch_size=10, stop=stop)
    got = [x for batch in receiver for x in batch["x"].to_pylist()]
    return got, receiver.state_dict()["order"]["duplicates"]


def test_a_broker_that_dies_and_comes_back(broker: Broker) -> None:
    """Soon, while the client lives on; and later, where it is replaced."""
    sender = DataSender(broker.address, num_shards=2, dataset_name="killed", message_rows=2)
    writer = impatient(sender, 2.0)
    with Sending(sender) as sending:
        for pause in (0.0, 3.0):
            time.sleep(0.5)
            broker.kill()
            time.sleep(pause)
            broker.start()
        time.sleep(0.5)
    assert sending.error is None
    assert writer.replaced >= 1
    assert received(broker.address, "killed", sending.sent)[0] == list(range(sending.sent))
    sender.close()


def test_a_broker_that_answers_late(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """What the first client sent gets in too, when the broker wakes up."""
    sender = DataSender(broker.address, num_shards=2, dataset_name="frozen", message_rows=2)
    writer = impatient(sender, 0.5)
    with Sending(sender) as sending:
        wait_until(lambda: sending.error or sending.sent > 2000)  # the broker has the first 2000
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGSTOP)
        time.sleep(3.0)
        os.kill(broker.pid, signal.SIGCONT)
        time.sleep(1.0)
    assert sending.error is None
    rows, duplicates = received(broker.address, "frozen", sending.sent)
    assert rows == list(range(sending.sent))
    assert writer.replaced >= 1 and duplicates > 0
    assert ": nothing was confirmed for 0.5 s" in caplog.text
    sender.close()


def test_letters_are_not_doubled_by_a_new_producer(
    broker: Broker, topic: Callable[..., str]
) -> None:
    name, dead = topic(), topic()
    write(broker.address, name, [pack(pa.table({"x": [1]})), *([b"bad"] * 50)] * 40)
    source = KafkaSource(
        broker.address, name, pa.schema({"x": pa.int64()}), batch_size=1,
        dead_letters=DeadLetterPolicy(dead, max_dead_share=1), stop=StopWhen(batches=40),
    )  # fmt: skip
    assert source._bad._letters is not None
    writer = source._bad._letters._producer
    assert isinstance(writer, KafkaWriter)
    for number, _ in enumerate(source):
        if number == 20:
            writer.flush()
            last = read_all(broker.address, dead)[-30:]
            # As if their confirmations had been lost.
            writer._waiting.extend(Unsent(dead, None, m.value, m.headers, m.key) for m in last)
            writer._replace(writer._producer)
    keys = [message.key for message in read_all(broker.address, dead)]
    assert writer.replaced == 1
    assert len(keys) == len(set(keys)) == 39 * 50


def test_a_broker_that_stays_away_is_an_error_in_time(broker: Broker) -> None:
    sender = DataSender(broker.address, dataset_name="gone")
    impatient(sender, 0.5, 2.0)
    sender.send({"x": np.arange(5)})
    sender.flush()
    broker.kill()
    sender.send({"x": np.arange(5)})
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="not get into Kafka: nothing was confirmed for 2 s"):
        sender.flush()
    assert time.monotonic() - begin < 60
    with pytest.raises(RuntimeError, match="did not get into Kafka"):
        sender.send({"x": np.arange(5)})
    with pytest.raises(RuntimeError, match="did not get into Kafka"):
        sender.close()
    broker.start()


def test_a_message_that_is_refused_is_an_error(broker: Broker, topic: Callable[..., str]) -> None:
    writer = KafkaWriter(broker.address, {"max_request_size": 1000})
    name = topic()
    writer.send(name, 0, b"good")
    with pytest.raises(RuntimeError, match="larger than the maximum request size"):
        writer.send(name, 0, b"x" * 2000)
    with pytest.raises(RuntimeError, match="larger than the maximum request size"):
        writer.flush()
    with pytest.raises(RuntimeError, match="larger than the maximum request size"):
        writer.close()
