# SPDX-License-Identifier: Apache-2.0
"""KafkaClient: reader of a Kafka topic through kafka-python."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from mindspore_rec.common.stream.client import Message
from mindspore_rec.common.stream.kafka_base import PATIENCE, connected, ensure_topic, kafka_module
from mindspore_rec.common.stream.kafka_batches import NotedBatches
from mindspore_rec.common.stream.kafka_writer import KafkaWriter

__all__ = ["KafkaClient", "KafkaWriter", "ensure_topic"]


_METADATA_SECONDS = 30


class KafkaClient:
    """Reads a topic's partitions from chosen offsets, without a consumer group or commits.

    Args:
        brokers: "host:port", or several addresses.
        topic: name of an existing topic.
        options: further settings of `kafka.KafkaConsumer`, for example for security.

    Raises:
        ImportError: kafka-python or crc32c is missing.
        ConnectionError: no broker answers within a minute.
    """

    def __init__(
        self, brokers: str | Sequence[str], topic: str, options: Mapping[str, Any] | None = None
    ) -> None:
        kafka = kafka_module()
        self.topic = topic
        self._kafka = kafka
        settings: dict[str, Any] = {
            "max_partition_fetch_bytes": 4 << 20,
            "reconnect_backoff_max_ms": 1000,
            "max_poll_records": 5000,
            "metrics_enabled": False,
            "bootstrap_timeout_ms": int(PATIENCE * 1000),
            "metadata_max_age_ms": _METADATA_SECONDS * 1000,  # in which new partitions are noticed
            **(options or {}),
            "bootstrap_servers": brokers,
            "group_id": None,
            "enable_auto_commit": False,
            "allow_auto_create_topics": False,
            "auto_offset_reset": "none",  # deleted messages must not be skipped in silence
        }
        self._consumer = connected(kafka.KafkaConsumer, **settings)
        self._noted = NotedBatches(self._consumer)
        self._paused: set[int] = set()
        self._assigned: list[int] = []
        self._next: dict[int, int] = {}

    def partitions(self) -> list[int]:
        """Return the topic's partitions in ascending order.

        Raises:
            ValueError: the topic does not exist.
        """
        began = time.monotonic()
        deadline = began + 3
        while True:
            try:
                partitions = self._consumer.partitions_for_topic(self.topic)
            except self._kafka.errors.KafkaError as error:
                # A broker that has just started may return an empty list of brokers.
                if not error.retriable or time.monotonic() > began + PATIENCE:
                    raise
                time.sleep(0.1)
                deadline = time.monotonic() + 3
                continue
            if partitions:
                return sorted(partitions)
            if time.monotonic() > deadline:
                raise ValueError(f"topic must exist, and the brokers have no {self.topic!r}")
            time.sleep(0.1)

    def topic_id(self) -> str | None:
        """Return the topic's id from Kafka's newest metadata; None if Kafka is older than 2.8."""
        known = self._consumer._cluster.topic_id(self.topic)
        return None if known is None or known.int == 0 else str(known)

    def bounds(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return {partition: (first offset, offset after the last message)}."""
        places = [self._place(p) for p in partitions]
        first = self._consumer.beginning_offsets(places)
        last = self._consumer.end_offsets(places)
        return {p: (first[place], last[place]) for p, place in zip(partitions, places, strict=True)}

    def seek(self, offsets: Mapping[int, int]) -> None:
        """Read each partition in `offsets` from the given offset on."""
        self._consumer.resume(*map(self._place, self._paused))  # or they stay paused
        self._assigned = sorted(offsets)
        self._paused = set()
        self._next = dict(offsets)
        self._noted.clear()
        self._consumer.assign([self._place(p) for p in self._assigned])
        for partition, offset in offsets.items():
            self._consumer.seek(self._place(partition), offset)

    def poll(self, seconds: float, paused: Sequence[int]) -> dict[int, list[Message]]:
        """Return {partition: new messages}. Wait up to `seconds` if there are no messages."""
        wanted = set(paused)
        if wanted != self._paused:
            self._consumer.resume(*map(self._place, self._paused - wanted))
            self._consumer.pause(*map(self._place, wanted - self._paused))
            self._paused = wanted
        try:
            by_partition = self._consumer.poll(timeout_ms=int(seconds * 1000))
        except self._kafka.errors.OffsetOutOfRangeError as error:
            raise LookupError(
                f"topic {self.topic!r} no longer has messages that are to be read next: {error}"
            ) from error
        except self._kafka.errors.KafkaError as error:
            if not error.retriable:
                raise
            time.sleep(seconds)
            return {}
        return {
            place.partition: [self._message(place.partition, r) for r in records]
            for place, records in by_partition.items()
        }

    def _message(self, partition: int, record: Any) -> Message:
        offset, expected = record.offset, self._next.get(partition, record.offset)
        self._next[partition] = offset + 1
        skipped = self._noted.between(partition, expected, offset) if offset > expected else 0
        return Message(offset, record.timestamp, record.value, record.headers, record.key, skipped)

    def position(self, partition: int) -> int:
        """Return the offset at which the next poll continues; 0 while the offset is unknown."""
        try:
            return self._consumer.position(self._place(partition), timeout_ms=0) or 0
        except self._kafka.errors.KafkaError as error:
            if not error.retriable:
                raise
            return 0

    def ends(self) -> dict[int, int]:
        """Return the last known end offset of each partition, without a request to the broker."""
        known = {p: self._consumer.highwater(self._place(p)) for p in self._assigned}
        return {p: end for p, end in known.items() if end is not None}

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def _place(self, partition: int) -> Any:
        return self._kafka.TopicPartition(self.topic, partition)
