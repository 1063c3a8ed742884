# SPDX-License-Identifier: Apache-2.0
"""The events of a run: sent at a steady rate, and read back at the end."""

from __future__ import annotations

import threading
import time

import numpy as np
import pyarrow as pa

from mindspore_rec.stream import pack
from mindspore_rec.stream.formats import ArrowFormat
from mindspore_rec.stream.kafka_client import KafkaClient, KafkaWriter
from tests.history.network import KEYS, SCHEMA

__all__ = ["Producer", "events_of"]

_OF_A_MESSAGE = 5


class Producer(threading.Thread):
    """Sends events of keys by chance.

    Args:
        brokers: of Kafka.
        topic: it has one partition.
        count: number of events.
        rate: events a second, but for times when there is no broker.
        seed: of the keys.
        first: number of events that are sent at once; the others when `go_on` is set.
    """

    def __init__(
        self, brokers: str, topic: str, count: int, rate: float, seed: int, first: int
    ) -> None:
        super().__init__(daemon=True)
        self._brokers, self._topic, self._rate, self._first = brokers, topic, rate, first
        self.go_on = threading.Event()
        self._keys = np.random.default_rng(seed).integers(0, KEYS, count)
        self.sent = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Send all events."""
        try:
            self._send()
        except BaseException as error:
            self.failure = error

    def _send(self) -> None:
        writer = KafkaWriter(self._brokers)
        begin = time.monotonic()
        for at in range(0, len(self._keys), _OF_A_MESSAGE):
            if at == self._first:
                self.go_on.wait()
                begin = time.monotonic() - at / self._rate
            keys = self._keys[at : at + _OF_A_MESSAGE]
            columns = {"key": keys, "number": np.arange(at, at + len(keys))}
            writer.send(self._topic, 0, pack(pa.table(columns, SCHEMA)))
            if at >= self._first:
                time.sleep(max(0.0, begin + at / self._rate - time.monotonic()))
        writer.close()  # has been told that all are there
        self.sent = len(self._keys)


def events_of(brokers: str, topic: str) -> tuple[list[int], int]:
    """Return the keys of all events of a topic in their order, and how many numbers they have."""
    client = KafkaClient(brokers, topic)
    end = client.bounds([0])[0][1]
    client.seek({0: 0})
    values: list[bytes] = []
    last = -1
    while last < end - 1:
        for message in client.poll(0.5, ()).get(0, []):
            assert message.value is not None
            values.append(message.value)
            last = message.offset
    client.close()
    rows = ArrowFormat(SCHEMA).decode(values).rows
    keys: list[int] = rows["key"].to_pylist()
    return keys, len(set(rows["number"].to_pylist()))
