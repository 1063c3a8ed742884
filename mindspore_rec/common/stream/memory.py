# SPDX-License-Identifier: Apache-2.0
"""MemoryTopic: a topic in the memory of this process, for trying a pipeline without a broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.stream.client import Headers, Message

__all__ = ["MemoryTopic"]


class MemoryTopic:
    """Topic in memory: a list of messages per partition. Any thread may append.

    Args:
        partitions: number of partitions, at least 1 (default 1).
        topic: name of the topic (default "memory").
        topic_id: id of the topic, as in Kafka (default: None, no id). A new topic of the same name
            needs a different id.

    Raises:
        TypeError, ValueError: `partitions` is not an int, or is out of range.

    Example:
        >>> topic = MemoryTopic()
        >>> topic.append(b"first")
        0
        >>> reader = topic.client()
        >>> reader.seek({0: 0})
        >>> [message.value for message in reader.poll(0.0, ())[0]]
        [b'first']
    """

    def __init__(
        self, partitions: int = 1, topic: str = "memory", topic_id: str | None = None
    ) -> None:
        count = check_int("partitions", partitions, 1, 1 << 20)
        self.topic = topic
        self.topic_id = topic_id
        self._logs: list[list[Message]] = [[] for _ in range(count)]
        self._beside: dict[str, MemoryTopic] = {}
        self._changed = threading.Condition()

    def add_partitions(self, count: int = 1) -> None:
        """Add `count` partitions, at least 1. Readers detect new partitions after a few seconds."""
        number = check_int("count", count, 1, 1 << 20)
        with self._changed:
            self._logs.extend([] for _ in range(number))

    def append(
        self,
        value: bytes | None,
        partition: int = 0,
        headers: Headers = (),
        key: bytes | None = None,
        timestamp: int | None = None,
    ) -> int:
        """Add a message and return its offset. `timestamp` is in milliseconds (default: now)."""
        with self._changed:
            log = self._logs[partition]
            stamp = int(time.time() * 1000) if timestamp is None else timestamp
            log.append(Message(len(log), stamp, value, headers, key))
            self._changed.notify_all()
            return len(log) - 1

    def messages(self, partition: int = 0) -> list[Message]:
        """Return all messages that a partition contains now."""
        with self._changed:
            return list(self._logs[partition])

    def beside(self, topic: str) -> MemoryTopic:
        """Return another topic, named `topic`; the first call with a name makes the topic."""
        with self._changed:
            return self._beside.setdefault(topic, MemoryTopic(topic=topic))

    def client(self, most: int = 500) -> MemoryClient:
        """Return a reader. A poll returns at most `most` messages of a partition (default 500)."""
        return MemoryClient(self, most)

    def producer(self) -> MemoryProducer:
        """Return a writer to this topic."""
        return MemoryProducer(self)


class MemoryClient:
    """`LogClient` that reads a `MemoryTopic`."""

    def __init__(self, log: MemoryTopic, most: int) -> None:
        self.topic = log.topic
        self._log = log
        self._most = most
        self._next: dict[int, int] = {}

    def partitions(self) -> list[int]:
        """Return the topic's partitions."""
        return list(range(len(self._log._logs)))

    def topic_id(self) -> str | None:
        """Return the topic's `topic_id`."""
        return self._log.topic_id

    def bounds(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return {partition: (first offset, offset after the last message)}."""
        return {p: (0, len(self._log._logs[p])) for p in partitions}

    def seek(self, offsets: Mapping[int, int]) -> None:
        """Read the partitions in `offsets` from their offsets on."""
        self._next = dict(offsets)

    def poll(self, seconds: float, paused: Sequence[int]) -> dict[int, list[Message]]:
        """Return {partition: new messages}. Wait up to `seconds` if there are no messages."""
        with self._log._changed:
            by_partition = self._take(paused)
            if not by_partition and seconds > 0:
                self._log._changed.wait(seconds)
                by_partition = self._take(paused)
            return by_partition

    def position(self, partition: int) -> int:
        """Return the offset at which the next poll continues to read the partition."""
        return self._next[partition]

    def ends(self) -> dict[int, int]:
        """Return a dict from partition to the offset after the partition's last message."""
        return {p: len(self._log._logs[p]) for p in self._next}

    def close(self) -> None:
        """Do nothing."""

    def _take(self, paused: Sequence[int]) -> dict[int, list[Message]]:
        by_partition = {}
        for p, start in self._next.items():
            messages = self._log._logs[p][start : start + self._most]
            if messages and p not in paused:
                by_partition[p] = messages
                self._next[p] = messages[-1].offset + 1
        return by_partition


class MemoryProducer:
    """`LogProducer` that writes to one `MemoryTopic`, and ignores the topic's name."""

    def __init__(self, log: MemoryTopic) -> None:
        self._log = log

    def send(
        self,
        topic: str,
        partition: int | None,
        value: bytes,
        headers: Headers = (),
        key: bytes | None = None,
    ) -> None:
        """Append the message."""
        self._log.append(value, partition or 0, headers, key)

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
