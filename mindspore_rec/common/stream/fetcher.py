# SPDX-License-Identifier: Apache-2.0
"""Fetcher: a thread that polls the log, decodes messages and queues the decoded blocks."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mindspore_rec.common.columns.columns import MAX_EVENT_TIME
from mindspore_rec.common.stream.client import LogClient, Message
from mindspore_rec.common.stream.formats import BadMessageError, Decoded, Format
from mindspore_rec.common.stream.interleave import BEGIN, BadEntry, Block, Interleaver, Sequence
from mindspore_rec.common.stream.limits import StreamLimits
from mindspore_rec.common.stream.topic_watch import TopicWatch

__all__ = ["Fetcher", "event_seconds"]

_KEPT_OF_BAD = 1 << 16
_NOTHING = Decoded(pa.RecordBatch.from_pylist([], pa.schema([])), np.zeros(0, np.int64), {})


class Fetcher:
    """Thread that fills an `Interleaver`, and pauses a partition that has enough waiting messages.

    Args:
        client: client of the log. While this thread runs, no other thread may use the client.
        format: the `Format` that decodes the messages.
        limits: limits beyond which messages are refused. A partition pauses if its waiting messages
            take more than the partition's share of `buffer_bytes`.
        event_time: name of the column that contains the events' times; None if there is no such
            column.
        interleaver: interleaver to which the thread adds blocks, under the lock of `changed`.
        changed: `threading.Condition` that is notified after each new block and after an error.
        sequence_of: function that takes a message and returns the producer and the sequence number;
            or None instead of a function, if messages have no sequence numbers.
        first_ends: for each partition, the end offset when reading begins.
        watch: object that detects new partitions. The thread also reads the new partitions.

    Attributes:
        error: exception that ended the thread, or None.
        ends: for each partition, the offset after the partition's last known message.
        behind: partitions that have not been read up to the offset in `first_ends` yet.
        paused: partitions that are not read now, because enough of their messages are waiting.
        looked: start time of the newest poll whose messages are in the interleaver.
    """

    def __init__(
        self,
        client: LogClient,
        format: Format,
        limits: StreamLimits,
        event_time: str | None,
        interleaver: Interleaver,
        changed: threading.Condition,
        sequence_of: Callable[[Message], Sequence | None] | None,
        first_ends: Mapping[int, int],
        watch: TopicWatch,
    ) -> None:
        self.error: BaseException | None = None
        self.ends: dict[int, int] = {}
        self.paused: set[int] = set()
        self.looked = -math.inf
        self._client = client
        self._format = format
        self._limits = limits
        self._event_time = event_time
        self._interleaver = interleaver
        self._changed = changed
        self._sequence_of = sequence_of
        self._next = {**interleaver.offsets, **interleaver.waiting}
        self._first_ends = first_ends
        self._watch = watch
        self.behind = {p for p, end in first_ends.items() if self._next[p] < end}
        self._undecoded: dict[int, list[Message]] = {}  # by partition; it is not read on meanwhile
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stream-fetcher", daemon=True)

    def start(self) -> None:
        """Start the thread, which reads from the client's current offsets."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end, and wait for its end."""
        self._stop.set()
        # Release the lock, in case Ctrl-C arrived between acquiring the lock and the `with` block.
        with contextlib.suppress(RuntimeError):  # not held by this thread
            while True:
                self._changed.release()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._expect_new()
                full = self._full()
                wait = 0.1 if self._undecoded.keys() <= full else 0.0
                began = time.monotonic()
                by_partition = self._client.poll(wait, sorted(full | self._undecoded.keys()))
                for p, messages in by_partition.items():
                    self._undecoded[p] = self._undecoded.get(p, []) + messages
                blocks = {p: self._next_block(p) for p in self._undecoded.keys() - full}
                with self._changed:
                    self.ends = self._client.ends()
                    for p, block in blocks.items():
                        self._interleaver.push(p, block)
                    self.looked = began
                    read = {p for p in self.behind if self._is_read(p)}
                    self.behind -= read
                    if blocks or read:
                        self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self.error = error
                self._changed.notify_all()

    def _expect_new(self) -> None:
        """Also read new partitions of the topic, and partitions that a journal names."""
        order = self._interleaver
        new = self._watch.new_partitions(self._next)
        with self._changed:
            for p in new:
                if p not in order.waiting and p not in order.offsets:
                    order.expect(p, 0)
            if len(order.offsets) + len(order.waiting) == len(self._next):
                return
            for p, offset in {**order.offsets, **order.waiting}.items():
                self._next.setdefault(p, offset)
        # Seek to the offset after the last polled message of each partition. After the seek, the
        # client again records which offsets after these messages it skips.
        behind = {p: messages[-1].offset + 1 for p, messages in self._undecoded.items()}
        self._client.seek({**self._next, **behind})

    def _is_read(self, partition: int) -> bool:
        """Return True if a partition has been read up to the partition's offset in `first_ends`."""
        if partition in self._undecoded:
            return False
        return self._client.position(partition) >= self._first_ends[partition]

    def _full(self) -> set[int]:
        """Return the partitions to pause.

        A paused partition resumes when half of its share of the buffer is free.
        """
        with self._changed:
            waiting = {p: self._interleaver.waiting_bytes(p) for p in self._next}
        share = max(1, self._limits.buffer_bytes // len(waiting))
        self.paused = {
            p for p, size in waiting.items() if size > (share // 2 if p in self.paused else share)
        }
        return self.paused

    def _next_block(self, partition: int) -> Block:
        """Return a block of the next messages, as many as fit in the allowed memory."""
        messages = self._undecoded.pop(partition)
        block = self._decode(messages)
        if len(block.offsets) < len(messages):
            self._undecoded[partition] = messages[len(block.offsets) :]
        block.missing = self._missing(partition, messages[: len(block.offsets)])
        return block

    def _missing(self, partition: int, messages: list[Message]) -> np.ndarray | None:
        """For each message, return the number of messages that were removed directly before it.

        Return None if no message was removed.
        """
        begin = self._next[partition]
        self._next[partition] = messages[-1].offset + 1
        if messages[-1].offset + 1 - begin == len(messages):
            return None
        offsets = np.fromiter((m.offset for m in messages), np.int64, len(messages))
        skipped = np.fromiter((m.skipped for m in messages), np.int64, len(messages))
        return np.diff(offsets, prepend=begin - 1) - 1 - skipped

    def _decode(self, messages: list[Message]) -> Block:
        most = self._limits.max_message_bytes
        values: list[bytes] = []
        places: list[int] = []
        bad: dict[int, BadMessageError] = {}
        sequences = None
        if self._sequence_of is not None:
            sequences = [self._sequence_of(message) for message in messages]
        for i, message in enumerate(messages):
            value = message.value
            sequence = None if sequences is None else sequences[i]
            if sequence is not None and sequence.number == BEGIN:
                continue
            if not value:
                bad[i] = BadMessageError("empty", "no bytes")
            elif len(value) > most:
                bad[i] = BadMessageError("size", f"{len(value)} bytes, at most {most} are taken")
            else:
                values.append(value)
                places.append(i)
        rows, row_counts, wrong = self._format.decode_some(values) if values else _NOTHING
        if len(row_counts) < len(values):  # the rest later
            messages = messages[: places[len(row_counts)]]
            sequences = None if sequences is None else sequences[: len(messages)]
            places = places[: len(row_counts)]
            bad = {i: error for i, error in bad.items() if i < len(messages)}
        rows, row_counts, refused = self._refuse(rows, row_counts, [messages[i] for i in places])
        bad.update({places[i]: error for i, error in {**wrong, **refused}.items()})
        counts = np.zeros(len(messages), np.int64)
        counts[places] = row_counts
        return Block(
            np.fromiter((m.offset for m in messages), np.int64, len(messages)),
            counts,
            rows,
            {i: _entry(messages[i], error) for i, error in bad.items()},
            sequences,
            max(sum(len(m.value or b"") + 100 for m in messages), rows.get_total_buffer_size()),
        )

    def _refuse(
        self, rows: pa.RecordBatch, counts: np.ndarray, messages: list[Message]
    ) -> tuple[pa.RecordBatch, np.ndarray, Mapping[int, BadMessageError]]:
        """Remove messages beyond the limits.

        Return the remaining rows, the number of rows per message, and the errors.
        """
        if not rows.num_rows:
            return rows, counts, {}
        owner = np.repeat(np.arange(len(messages)), counts)
        wrong = {**self._late(rows, owner, messages), **self._out_of_range(rows, owner)}
        if not wrong:
            return rows, counts, {}
        places = list(wrong)
        counts = counts.copy()
        counts[places] = 0
        return rows.filter(pa.array(~np.isin(owner, places))), counts, wrong

    def _late(
        self, rows: pa.RecordBatch, owner: np.ndarray, messages: list[Message]
    ) -> dict[int, BadMessageError]:
        """Return an error for each message whose event time is after 2106 or too far ahead."""
        column, most = self._event_time, self._limits.max_future_seconds
        if column is None:
            return {}
        times = event_seconds(rows.column(column))
        wrong = {
            int(i): BadMessageError(
                "time",
                f"an event is at {np.max(times[owner == i]):g} seconds since 1970, and "
                f"{MAX_EVENT_TIME} is the greatest (milliseconds?)",
            )
            for i in np.unique(owner[times > MAX_EVENT_TIME])
        }
        if most is None:
            return wrong
        stamps = np.fromiter((m.timestamp for m in messages), np.float64, len(messages)) / 1000
        stamps[stamps < 0] = np.inf
        for i in np.unique(owner[times > stamps[owner] + most]):
            ahead = np.max(times[owner == i]) - stamps[i]
            wrong[int(i)] = BadMessageError("time", f"an event is {ahead:.0f} s in the future")
        return wrong

    def _out_of_range(self, rows: pa.RecordBatch, owner: np.ndarray) -> dict[int, BadMessageError]:
        """Return an error for each message with a value outside its column's range."""
        errors = {}
        for name, (least, greatest) in self._limits.value_ranges.items():
            column = rows.column(name)
            # Use an unsafe cast, because Arrow's safe cast raises an error for an integer that
            # float64 cannot represent exactly.
            numbers = column.cast(pa.float64(), safe=False)
            legal = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, greatest))
            # Do not report missing values here, because the format checks them against the schema.
            wrong = np.flatnonzero(~pc.fill_null(legal, True).to_numpy(zero_copy_only=False))
            for i, row in zip(*np.unique(owner[wrong], return_index=True), strict=True):
                value = column[int(wrong[row])].as_py()
                errors[int(i)] = BadMessageError(
                    "value", f"column {name!r} is {value}, not in [{least:g}, {greatest:g}]"
                )
        return errors


def event_seconds(column: Any) -> np.ndarray:
    """Convert numbers or timestamps to float64 seconds since 1970; missing values are -inf."""
    second = 1.0
    if pa.types.is_timestamp(column.type):
        second = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[column.type.unit]
        column = column.cast(pa.int64())
    values = column.to_numpy(zero_copy_only=False).astype(np.float64) / second
    return np.nan_to_num(values, nan=-np.inf, posinf=np.inf, neginf=-np.inf)


def _entry(message: Message, error: BadMessageError) -> BadEntry:
    value = message.value or b""
    return BadEntry(message.offset, message.timestamp, error, value[:_KEPT_OF_BAD], len(value))
