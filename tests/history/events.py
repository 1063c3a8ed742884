# SPDX-License-Identifier: Apache-2.0
"""The events of a run: sent at a steady rate, but for pauses, and read back."""

from __future__ import annotations

import threading
import time

import numpy as np
import pyarrow as pa

from mindspore_rec.common.stream.formats import ArrowFormat
from mindspore_rec.common.stream.kafka_client import KafkaClient, KafkaWriter
from mindspore_rec.stream import pack
from tests.history.network import BATCH, KEYS_OF, SCHEMA
from tests.history.raw_topic import RawTopic

__all__ = ["Producer", "events_of"]

_OF_A_MESSAGE = 5


class Producer(threading.Thread):
    """Sends events of keys by chance, each message to one of the topic's partitions by chance.

    After a pause, the producer is late, and sends all overdue events at once.

    Args:
        topic: gets the events.
        count: number of events, a multiple of `BATCH`.
        rate: events a second, but for times when there is no broker.
        seed: of keys and partitions.
        first: number of events that are sent at once; the others when `go_on` is set.

    Attributes:
        sent: number of events that the topic has.
        failure: what ended it, if anything did.
    """

    def __init__(self, topic: RawTopic, count: int, rate: float, seed: int, first: int) -> None:
        super().__init__(daemon=True)
        self._topic, self._count, self._rate, self._first = topic, count, rate, first
        self._random = np.random.default_rng(seed)
        self.go_on = threading.Event()
        self._may_send, self._silent = threading.Event(), threading.Event()
        self._may_send.set()
        self.sent = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Send all events."""
        try:
            self._send_all()
        except BaseException as error:
            self.failure = error
        self._silent.set()

    def pause(self, seconds: float) -> None:
        """Send nothing until `resume`; return when all that was sent is in the topic.

        Raises:
            TimeoutError: that took longer than this.
        """
        self._silent.clear()
        self._may_send.clear()
        if self.is_alive() and not self._silent.wait(seconds):
            raise TimeoutError(f"the topic did not get all events in {seconds:g} s")

    def resume(self) -> None:
        """Go on."""
        self._may_send.set()

    def _send_all(self) -> None:
        at = 0
        while at < self._count:
            at = self._send(at)
            self.sent = at
            if at == self._first:
                self.go_on.wait()
                self._begin = time.monotonic() - at / self._rate
            if not self._may_send.is_set():
                self._silent.set()
                self._may_send.wait()

    def _send(self, at: int) -> int:
        """Send the events from one on, until it is to pause or the topic has changed; return which
        is next, when all before it are in the topic."""
        partitions = self._topic.partitions
        writer = KafkaWriter(self._topic.brokers)
        while at < self._count:
            partition = int(self._random.integers(partitions))
            keys = self._random.choice(KEYS_OF[partition], _OF_A_MESSAGE)
            columns = {"key": keys, "number": np.arange(at, at + _OF_A_MESSAGE)}
            writer.send(self._topic.name, partition, pack(pa.table(columns, SCHEMA)))
            at += _OF_A_MESSAGE
            changed = self._topic.partitions != partitions or not self._may_send.is_set()
            if at == self._first or (changed and at % BATCH == 0):
                break
            if at > self._first:
                time.sleep(max(0.0, self._begin + at / self._rate - time.monotonic()))
        writer.close()  # has been told that all are there
        return at


def events_of(brokers: str, topic: str) -> tuple[list[list[int]], int]:
    """Return the keys of all events of a topic, for each partition in their order, and how many
    different numbers the events have."""
    client = KafkaClient(brokers, topic)
    partitions = client.partitions()
    ends = {p: end for p, (_, end) in client.bounds(partitions).items()}
    client.seek(dict.fromkeys(partitions, 0))
    values: dict[int, list[bytes]] = {p: [] for p in partitions}
    unread = {p for p, end in ends.items() if end}
    while unread:
        for partition, messages in client.poll(0.5, ()).items():
            values[partition] += [m.value for m in messages if m.value is not None]
            if messages[-1].offset >= ends[partition] - 1:
                unread.discard(partition)
    client.close()
    keys: list[list[int]] = []
    numbers: set[int] = set()
    for partition in partitions:
        rows = ArrowFormat(SCHEMA).decode(values[partition]).rows if values[partition] else None
        keys.append([] if rows is None else rows["key"].to_pylist())
        numbers |= set() if rows is None else set(rows["number"].to_pylist())
    return keys, len(numbers)
