# SPDX-License-Identifier: Apache-2.0
"""Closed sources, writers and workers leave no connection to the broker, and no thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from examples.online_learning.kafka.broker import Broker
from mindspore_rec.common.stream import kafka_base, kafka_client, kafka_writer
from mindspore_rec.common.stream.kafka_base import ensure_topic
from mindspore_rec.common.stream.kafka_client import KafkaClient
from mindspore_rec.common.stream.kafka_writer import KafkaWriter
from mindspore_rec.stream import (
    AnnouncementReader,
    Announcer,
    ArrowFormat,
    DataReceiver,
    DataSender,
    KafkaSource,
    StopWhen,
    StreamSource,
    pack,
)
from tests.stream.test_stream_kafka import write
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


def connections(port: int) -> int:
    """Return the number of this process's connections to a port of this machine."""
    sockets = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            sockets.add(os.readlink(descriptor))
        except OSError:
            pass  # closed meanwhile
    lines = [
        line.split()
        for kind in ("tcp", "tcp6")
        for line in Path("/proc/self/net", kind).read_text().splitlines()[1:]
    ]
    to_port = (line for line in lines if line[2].endswith(f":{port:04X}"))
    return sum(f"socket:[{line[9]}]" in sockets for line in to_port)


def test_a_closed_client_has_no_connection(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic()
    before = connections(broker.port)
    client = KafkaClient(broker.address, name)
    assert client.partitions() == [0]
    assert connections(broker.port) > before
    client.close()
    wait_until(lambda: connections(broker.port) <= before, seconds=60)


def test_a_closed_stream_has_no_connection(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic()
    before = connections(broker.port)
    stream = StreamSource(KafkaClient(broker.address, name), ArrowFormat(), 1)
    assert stream.partitions == [0]
    assert connections(broker.port) > before
    stream.close()
    wait_until(lambda: connections(broker.port) <= before, seconds=60)


@pytest.mark.parametrize("use", [KafkaClient, ensure_topic, DataSender])
def test_a_client_without_a_broker_leaves_no_thread(use: Any, monkeypatch: Any) -> None:
    threads = set(threading.enumerate())
    for module in (kafka_base, kafka_client, kafka_writer):
        monkeypatch.setattr(module, "PATIENCE", 0.5)
    with pytest.raises(ConnectionError, match="no Kafka broker answers at 127.0.0.1:1"):
        use("127.0.0.1:1", "x")
    wait_until(lambda: set(threading.enumerate()) <= threads, seconds=20)


# ---- whatever was opened, and however it ended


def send_and_take_over(address: str, name: str) -> Iterator[Any]:
    with DataSender(address, dataset_name=name, sender_name="w") as sender:
        state = sender.state_dict()
        sender.take_over()
        sender.send({"x": np.arange(3)})
        sender.flush()
        assert sender.last_after(state) == 0
        yield sender


def send_what_is_refused(address: str, name: str) -> Iterator[Any]:
    sender = DataSender(address, dataset_name=name, sender_name="w")
    writer = sender._producer
    assert isinstance(writer, KafkaWriter)
    sender.take_over()
    with pytest.raises(RuntimeError, match="larger than the maximum request size"):
        writer.send(sender.topic, 0, bytes(33 << 20))
    yield sender
    with pytest.raises(RuntimeError, match="larger than the maximum request size"):
        sender.close()


def send_to_other_shards(address: str, name: str) -> Iterator[Any]:
    with DataSender(address, dataset_name=name, num_shards=2) as sender:
        yield sender
    with pytest.raises(ValueError, match="num_shards must be 2"):
        DataSender(address, dataset_name=name, num_shards=3)


def read_to_the_end(address: str, name: str) -> Iterator[Any]:
    write(address, name, [pack(pa.table({"x": [1]})), b"bad", pack(pa.table({"x": [2]}))])
    source = KafkaSource(
        address, name, batch_size=1, dead_letters=f"{name}-dead", stop=StopWhen(batches=2)
    )
    assert next(source).num_rows == 1
    yield source
    assert [batch.num_rows for batch in source] == [1]  # its end closes it


def read_a_bad_message(address: str, name: str) -> Iterator[Any]:
    write(address, name, [b"bad"])
    with KafkaSource(address, name, batch_size=1) as source:
        with pytest.raises(ValueError, match="bad"):
            next(source)
        yield source


def read_by_wrong_arguments(address: str, name: str) -> Iterator[Any]:
    with KafkaSource(address, name, batch_size=1) as source:
        yield source
    with pytest.raises(ValueError, match="batch_size must be"):
        KafkaSource(address, name, batch_size=0, dead_letters=f"{name}-dead")


def receive(address: str, name: str) -> Iterator[Any]:
    with DataSender(address, dataset_name=name) as sender:
        sender.send({"x": np.arange(3)})
    with DataReceiver(address, dataset_name=name, batch_size=2) as receiver:
        assert next(receiver).num_rows == 2
        yield receiver


def announce(address: str, name: str) -> Iterator[Any]:
    announcements: list[Any] = []
    reader = AnnouncementReader(address, name, announcements.append)
    assert reader.listening.wait(60)
    announcer = Announcer(address, name)
    announcer({"step": 1})
    wait_until(lambda: announcements == [{"step": 1}], seconds=60)
    yield announcer, reader
    announcer.close()
    reader.close()


@pytest.mark.parametrize(
    "use",
    [
        send_and_take_over,
        send_what_is_refused,
        send_to_other_shards,
        read_to_the_end,
        read_a_bad_message,
        read_by_wrong_arguments,
        receive,
        announce,
    ],
)
def test_what_is_closed_leaves_no_connection_and_no_thread(
    use: Callable[[str, str], Iterator[Any]], broker: Broker, topic: Callable[..., str]
) -> None:
    """Also if the end is an error, and what only helps has a connection of its own."""
    name = topic()
    before, threads = connections(broker.port), set(threading.enumerate())
    opened = []  # closed, and not only collected
    for each in use(broker.address, name):
        opened.append(each)
        wait_until(lambda: connections(broker.port) > before, seconds=20)
    wait_until(lambda: connections(broker.port) <= before, seconds=20)
    wait_until(lambda: set(threading.enumerate()) <= threads, seconds=20)
