# SPDX-License-Identifier: Apache-2.0
"""DeadLetters: the topic of bad messages, with the reason and the origin of each message."""

from __future__ import annotations

from collections.abc import Mapping

from mindspore_rec.common.stream.client import LogClient, LogProducer
from mindspore_rec.common.stream.interleave import BadEntry
from mindspore_rec.common.stream.kafka_writer import Unsent

__all__ = ["DeadLetters"]


class DeadLetters:
    """Writer of bad messages to a topic.

    The key of a dead letter is ``topic/partition/offset`` of the bad message. The headers are
    ``reason``, ``detail``, ``topic``, ``partition``, ``offset``, ``timestamp`` (milliseconds) and
    ``size`` (bytes) as text. A dead letter's value is the bad message's value, cut off if the value
    is long. A restarted stream reads some messages again. The stream looks up bad messages in the
    dead-letter topic, so that no bad message is sent twice.

    Args:
        producer: writer of the topic.
        topic: name of the topic.
        client: reader of the topic, used to look up messages that were already sent; None to look
            up no messages.
    """

    def __init__(self, producer: LogProducer, topic: str, client: LogClient | None = None) -> None:
        self.topic = topic
        self._producer = producer
        self._client = client
        self._there: set[bytes | None] = set()
        self._old_marks: dict[str, int] = {}
        self._new_marks: dict[str, int] = {}

    def send(self, topic: str, partition: int, entry: BadEntry) -> None:
        """Send one bad message, unless the dead-letter topic already has the message."""
        key = f"{topic}/{partition}/{entry.offset}".encode()
        if key in self._there:
            self._there.discard(key)
            return
        headers = {
            "reason": entry.error.reason,
            "detail": entry.error.detail,
            "topic": topic,
            "partition": partition,
            "offset": entry.offset,
            "timestamp": entry.timestamp,
            "size": entry.size,
        }
        encoded = [(name, str(value).encode("utf-8", "replace")) for name, value in headers.items()]
        self._producer.send(self.topic, None, entry.value, encoded, key)

    def flush(self) -> None:
        """Wait until all messages are in the topic."""
        self._producer.flush()

    def look_up(
        self, topic: str, offsets: Mapping[int, int], marks: Mapping[str, int] | None
    ) -> None:
        """Find which messages, from `offsets` on, are already in the dead-letter topic.

        Args:
            topic: the topic whose bad messages will be sent.
            offsets: for each partition, the offset of the next message to read.
            marks: value of the property `marks` in an earlier run. The dict contains, for each
                partition of the dead-letter topic, the offset of the first dead letter to read.
                If `marks` is None, all dead letters are read.
        """
        if self._client is None:
            return
        keys, self._old_marks, self._new_marks = self._read(self._client, marks or {})
        self._there = {key for key in keys if _is_due(key, topic, offsets)}

    def still_missing(self, messages: list[Unsent]) -> list[Unsent]:
        """Return the messages that are not in the dead-letter topic yet."""
        if self._client is None:
            return messages
        there, _, _ = self._read(self._client, self._new_marks)
        return [message for message in messages if message.key not in there]

    def _read(
        self, client: LogClient, marks: Mapping[str, int]
    ) -> tuple[set[bytes | None], dict[str, int], dict[str, int]]:
        """Return the keys of the dead letters, and the first and end offsets of all partitions."""
        bounds = client.bounds(client.partitions())
        begins = {p: max(first, marks.get(str(p), 0)) for p, (first, _) in bounds.items()}
        behind = {p for p, begin in begins.items() if begin < bounds[p][1]}
        client.seek({p: begins[p] for p in behind})
        keys: set[bytes | None] = set()
        while behind:
            for p, messages in client.poll(0.1, ()).items():
                keys.update(message.key for message in messages)
                if messages[-1].offset + 1 >= bounds[p][1]:
                    behind.discard(p)
        first_marks = {str(p): begin for p, begin in begins.items()}
        return keys, first_marks, {str(p): last for p, (_, last) in bounds.items()}

    @property
    def marks(self) -> dict[str, int]:
        """For each partition of the dead-letter topic, the offset from which a later run reads."""
        return self._old_marks if self._there else self._new_marks

    def close(self) -> None:
        """Flush, and release connections and threads."""
        self._producer.close()
        if self._client is not None:
            self._client.close()


def _is_due(key: bytes | None, topic: str, offsets: Mapping[int, int]) -> bool:
    """Return True if the stream will read a dead letter's message again."""
    try:
        name, partition, offset = (key or b"").decode().rsplit("/", 2)
        return name == topic and int(offset) >= offsets.get(int(partition), 1 << 62)
    except ValueError:
        return False  # someone else's letter
