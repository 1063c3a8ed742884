# SPDX-License-Identifier: Apache-2.0
"""Record the offsets that kafka-python reads but does not return, and decode bad header names."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = ["NotedBatches"]


class NotedBatches:
    """Record of the offsets that a Kafka consumer skips because of transactions.

    A consumer silently skips the markers at the end of transactions. A consumer that reads only
    committed messages also skips the messages of aborted transactions. Offsets that are skipped
    because of transactions look like offsets of messages that compaction has removed. A consumer
    also cannot read a message with a header name that is not UTF-8, and would retry forever. This
    class makes the consumer decode a malformed header name with replacement characters.

    Args:
        consumer: consumer of kafka-python 3 that has not read a message yet.
    """

    def __init__(self, consumer: Any) -> None:
        self._noted: dict[int, deque[tuple[int, int]]] = {}
        consumer._fetcher.PartitionRecords = _noting(consumer._fetcher.PartitionRecords, self._note)

    def _note(self, partition: int, batch: Any) -> None:
        self._noted.setdefault(partition, deque()).append((batch.base_offset, batch.next_offset))

    def clear(self) -> None:
        """Drop all recorded offsets. Call this method before you seek to new offsets."""
        self._noted.clear()

    def between(self, partition: int, begin: int, end: int) -> int:
        """Return the number of recorded offsets in `[begin, end)`. Drop offsets before `end`."""
        noted = self._noted.get(partition)
        offsets: set[int] = set()
        while noted and noted[0][0] < end:
            first, after = noted.popleft()
            offsets.update(range(max(first, begin), min(after, end)))
        return len(offsets)


def _noting(base: Any, note: Callable[[int, Any], None]) -> type:
    """Return a subclass of the consumer's `PartitionRecords` that records skipped batches."""
    from kafka.record.default_records import DefaultRecordBatch

    class Batch(DefaultRecordBatch):
        """Batch that replaces malformed UTF-8 in header names by replacement characters."""

        __slots__ = ()

        def _read_msg(self, *more: Any) -> Any:
            try:
                return super()._read_msg(*more)
            except UnicodeDecodeError:
                batch: Any = self
                batch._buffer = _Replacing(batch._buffer)
                return super()._read_msg(*more)

    class Records:
        """Iterator over the batches of a fetch."""

        def __init__(self, partition: int, records: Any) -> None:
            self._partition, self._records = partition, records

        def next_batch(self) -> Any:
            batch = self._records.next_batch()
            if type(batch) is DefaultRecordBatch:  # older formats have neither
                batch.__class__ = Batch
                if batch.is_control_batch:
                    note(self._partition, batch)
            return batch

    class PartitionRecords(base):
        """Subclass of the consumer's `PartitionRecords` that records batches without messages."""

        def _unpack_records(self, place: Any, records: Any, *deserializers: Any) -> Any:
            return super()._unpack_records(place, Records(place.partition, records), *deserializers)

        def _is_batch_aborted(self, batch: Any) -> bool:
            aborted = bool(super()._is_batch_aborted(batch))
            if aborted:
                note(self.topic_partition.partition, batch)
            return aborted

    return PartitionRecords


class _Replacing(bytearray):
    """Byte array whose slices decode malformed UTF-8 with replacement characters."""

    def __getitem__(self, place: Any) -> Any:
        item = super().__getitem__(place)
        return _Part(item) if isinstance(item, bytearray) else item


class _Part(bytearray):
    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return super().decode(encoding, errors)
