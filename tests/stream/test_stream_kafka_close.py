# SPDX-License-Identifier: Apache-2.0
"""A reader of a topic that is closed has no connection to the broker any more."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.online_learning.kafka.broker import Broker
from mindspore_rec.common.stream.kafka_client import KafkaClient
from mindspore_rec.stream import ArrowFormat, StreamSource
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
