# SPDX-License-Identifier: Apache-2.0
"""Interleaver: take messages of several partitions in an order that does not depend on timing.

Partitions take turns. A turn has a fixed number of messages, and duplicates do not count. The
interleaver waits for messages of the partition that has the turn. The order of messages depends
only on the contents of the partitions, and not on the order of arrival. If a sender distributes
messages over the partitions in turn, the messages keep the sender's order, even if some messages
are sent twice. A caller may skip an idle partition, include the partition again, and add a new
partition of the topic. The caller must store its decisions about partitions in a journal
(`journal.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from mindspore_rec.common.stream.formats import BadMessageError

__all__ = ["BEGIN", "BadEntry", "Block", "Interleaver", "Sequence"]

BEGIN = -1
"""Number of a message without rows, with which an epoch of its producer begins."""


class Sequence(NamedTuple):
    """Producer, sequence number and epoch of a message.

    Args:
        producer: name of the producer.
        number: sequence number of the message, or `BEGIN`.
        epoch: epoch of the producer (default 0). If a message of a later epoch has been taken from
            a partition, messages of earlier epochs are ignored, because their producer was
            replaced.
    """

    producer: str
    number: int
    epoch: int = 0


class BadEntry(NamedTuple):
    """Message that could not be decoded.

    Args:
        offset: offset of the message in its partition.
        timestamp: time of the message, in milliseconds.
        error: the defect of the message.
        value: the bytes of the message, possibly only the first bytes.
        size: number of bytes of the message.
    """

    offset: int
    timestamp: int
    error: BadMessageError
    value: bytes
    size: int


class Block:
    """Consecutive decoded messages of one partition.

    Args:
        offsets: int64, offsets of the messages.
        counts: int64, number of rows of each message.
        rows: the rows of all messages.
        bad: the messages that could not be decoded to rows, indexed by their position in the block.
        sequences: producer and sequence number of each message; None if messages have no numbers. A
            message is a duplicate if its producer has already sent the same or a greater sequence
            number.
        size: number of bytes that the block adds to `waiting_bytes`.
        missing: for each message, the number of messages that the log removed directly before the
            message. Default: None, which means that no message was removed.
    """

    def __init__(
        self,
        offsets: np.ndarray,
        counts: np.ndarray,
        rows: pa.RecordBatch,
        bad: Mapping[int, BadEntry],
        sequences: list[Sequence | None] | None,
        size: int,
        missing: np.ndarray | None = None,
    ) -> None:
        self.offsets = offsets
        self.missing = missing
        self.ends = np.cumsum(counts)
        self.rows = rows
        self.bad = bad
        self.sequences = sequences
        self.size = size
        self.place = 0  # of the message that is next

    def begin(self, place: int) -> int:
        """Return the index of a message's first row in the block."""
        return int(self.ends[place - 1]) if place else 0


class Interleaver:
    """Queue of the partitions' blocks, from which rows are taken in a fixed order.

    Args:
        partitions: the partitions in ascending order.
        turn: number of messages of a turn, at least 1.

    Attributes:
        partitions: the partitions that take turns, in ascending order.
        offsets: for each partition, the offset of the next message.
        waiting: new partitions that take no turns before `add` is called, each with its first
            offset.
        row: number of rows already taken from the next message of the partition that has the turn.
        idle: partitions that take no turns.
        taken: number of messages that all runs of the stream have taken.
        last: for each partition and producer, the last taken sequence number.
        duplicates: number of messages that were skipped because they were repeated. A message
            counts as repeated if the partition already returned a message of the same producer with
            the same or a greater sequence number.
        epochs: for each partition and producer, the greatest epoch so far.
        outdated: number of messages that were skipped because their producer was replaced.
        missing: number of messages that were removed from the log before the stream could take
            them.
    """

    def __init__(self, partitions: list[int], turn: int) -> None:
        self.partitions = list(partitions)
        self.turn = turn
        self.offsets = dict.fromkeys(partitions, 0)
        self.waiting: dict[int, int] = {}
        self._begun: dict[int, int] = {}  # rows taken of a partition's next message, if any
        self.idle: set[int] = set()
        self.taken = 0
        self.duplicates = 0
        self.outdated = 0
        self.missing = 0
        self.last: dict[int, dict[str, int]] = {p: {} for p in partitions}
        self.epochs: dict[int, dict[str, int]] = {p: {} for p in partitions}
        self._at = 0  # the place of the partition that has the turn
        self._used = 0  # messages of its turn
        self._blocks: dict[int, deque[Block]] = {p: deque() for p in partitions}
        self.on_bad: Callable[[int, BadEntry], None] | None = None
        self.on_good: Callable[[int], None] = _nothing
        self.on_missing: Callable[[int, int, int], None] | None = None
        self.on_outdated: Callable[[int, Sequence], None] | None = None

    # ---- partitions that come later

    def expect(self, partition: int, offset: int) -> None:
        """Accept blocks of a new partition, whose first offset is `offset`.

        The partition takes no turns until `add` is called.
        """
        self.waiting[partition] = offset
        self._blocks[partition] = deque()

    def add(self, partition: int) -> None:
        """Let a waiting partition take turns from now on, beginning with the current turn.

        When `add` is called, the partition that has the turn must not have a partly taken message.
        """
        self.offsets[partition] = self.waiting.pop(partition)
        self.last[partition] = {}
        self.partitions = sorted([*self.partitions, partition])
        self._at, self._used = self.partitions.index(partition), 0

    # ---- blocks

    def push(self, partition: int, block: Block) -> None:
        """Append a block of messages to the blocks of a partition."""
        self._blocks[partition].append(block)

    def waiting_bytes(self, partition: int) -> int:
        """Return the total bytes of a partition's waiting blocks."""
        return sum(block.size for block in self._blocks[partition])

    def has(self, partition: int) -> bool:
        """Return True if a message of the partition is waiting."""
        return bool(self._blocks[partition])

    def next_offset(self, partition: int) -> int | None:
        """Return the offset of a partition's first waiting message; None if no message waits."""
        for block in self._blocks[partition]:
            return int(block.offsets[block.place])
        return None

    def clear(self) -> None:
        """Drop all blocks."""
        for blocks in self._blocks.values():
            blocks.clear()

    # ---- turns

    @property
    def row(self) -> int:
        """Number of rows already taken from the current partition's next message."""
        return self._begun.get(self.partitions[self._at], 0)

    @row.setter
    def row(self, rows: int) -> None:
        partition = self.partitions[self._at]
        self._begun.pop(partition, None)
        if rows:
            self._begun[partition] = rows

    @property
    def current(self) -> int | None:
        """Partition that has the turn; None if all partitions are idle."""
        partition = self.partitions[self._at]
        return None if partition in self.idle else partition

    def leave(self, partition: int) -> None:
        """Skip a partition until `join` is called.

        The partition must not have a partly taken message.
        """
        self.idle.add(partition)
        if self.partitions[self._at] == partition:
            self._pass_turn()

    def join(self, partition: int) -> None:
        """Let an idle partition take turns again."""
        if self.current is None:
            self._at, self._used = self.partitions.index(partition), 0
        self.idle.discard(partition)

    def set_turn(self, turn: int) -> None:
        """Set the number of messages of a turn, at least 1."""
        self.turn = turn
        self._end_turn()

    def _end_turn(self) -> None:
        """If all messages of the turn have been taken, pass the turn to the next partition."""
        if self._used >= self.turn or len(self.partitions) == 1:
            self._pass_turn()

    def _pass_turn(self) -> None:
        """Pass the turn to the next partition that is not idle, possibly the same partition."""
        self._used = 0
        for step in range(1, len(self.partitions) + 1):
            place = (self._at + step) % len(self.partitions)
            if self.partitions[place] not in self.idle:
                self._at = place
                return

    def take(self, most: int, stop: int | None = None) -> pa.RecordBatch | None:
        """Take the next rows in the stream's order.

        Args:
            most: maximum number of rows to take, at least 1.
            stop: value of the attribute `taken` at which to stop. Default: None, which means no
                limit.

        Returns: A slice of rows, which may be empty. The result is None if the partition that has
            the turn has no message yet, or if `stop` is reached.
        """
        partition = self.current
        if partition is None or not self._blocks[partition]:
            return None
        if stop is not None and self.taken >= stop:
            return None
        block = self._blocks[partition][0]
        if block.sequences is not None:
            got = self._take_one(partition, block, most)
        else:
            end = len(block.offsets)
            if len(self.partitions) > 1:
                end = min(end, block.place + self.turn - self._used)
            if stop is not None:
                end = min(end, block.place + stop - self.taken)
            got = self._take_several(partition, block, end, most)
        if block.place == len(block.offsets):
            self._blocks[partition].popleft()
        self._end_turn()
        return got

    def _take_several(self, partition: int, block: Block, stop: int, most: int) -> pa.RecordBatch:
        """Take up to `most` rows from the block's messages whose index is below `stop`.

        If a message has more rows than may still be taken, only the message's first rows are taken.
        """
        begin = block.begin(block.place) + self.row
        goal = begin + most
        whole = int(np.searchsorted(block.ends, goal))
        if whole < stop and block.ends[whole] == goal:
            whole += 1
        whole = min(whole, stop)
        end = block.begin(whole)
        self._finish(partition, block, whole)
        if whole < stop and end < goal:
            self.row = goal - end
            end = goal
        return block.rows.slice(begin, end - begin)

    def _take_one(self, partition: int, block: Block, most: int) -> pa.RecordBatch:
        """Take one message or a part of it; skip a message that is a duplicate or outdated."""
        place = block.place
        assert block.sequences is not None
        sequence = block.sequences[place]
        begin, end = block.begin(place) + self.row, block.begin(place + 1)
        if sequence is not None and self._is_left_out(partition, sequence):
            self._finish(partition, block, place + 1)
            self._used -= 1
            return block.rows.slice(end, 0)
        if end - begin > most:
            self.row += most
            return block.rows.slice(begin, most)
        self._finish(partition, block, place + 1)
        if sequence is not None:
            self.last[partition][sequence.producer] = sequence.number
        return block.rows.slice(begin, end - begin)

    def _is_left_out(self, partition: int, sequence: Sequence) -> bool:
        """Return True for a duplicate, a replaced producer's message, or the start of an epoch."""
        producer, number, epoch = sequence
        epochs = self.epochs[partition]
        if epoch < epochs.get(producer, 0):
            self.outdated += 1
            if self.on_outdated is not None:
                self.on_outdated(partition, sequence)
            return True
        if epoch:
            epochs[producer] = epoch
        if number == BEGIN:
            return True
        if number <= self.last[partition].get(producer, -1):
            self.duplicates += 1
            return True
        return False

    def _finish(self, partition: int, block: Block, place: int) -> None:
        """Count the messages of a block before index `place`, and mark these messages as taken."""
        if place == block.place:
            return
        if block.missing is not None:
            self._count_missing(partition, block, place)
        reported = block.place
        for i in range(block.place, place) if block.bad else ():
            if i in block.bad:
                self.on_good(i - reported)
                reported = i + 1
                if self.on_bad is not None:
                    self.on_bad(partition, block.bad[i])
        self.on_good(place - reported)
        self.taken += place - block.place
        self._used += place - block.place
        self.offsets[partition] = int(block.offsets[place - 1]) + 1
        self.row = 0
        block.place = place

    def _count_missing(self, partition: int, block: Block, place: int) -> None:
        assert block.missing is not None
        for i in block.place + np.flatnonzero(block.missing[block.place : place]):
            self.missing += int(block.missing[i])
            if self.on_missing is not None:
                self.on_missing(partition, int(block.offsets[i]), int(block.missing[i]))

    # ---- state

    def state_dict(self) -> dict[str, Any]:
        """Return the position as JSON values."""
        turn_of = self.partitions[self._at]
        # If the position was merged from several workers' positions, messages of several partitions
        # may be partly taken.
        others = {str(p): rows for p, rows in self._begun.items() if p != turn_of}
        epochs = {str(p): dict(each) for p, each in self.epochs.items() if each}
        return {
            "offsets": {str(p): offset for p, offset in self.offsets.items()},
            "turn_of": turn_of,
            "row": self.row,
            **({"rows": others} if others else {}),
            "idle": sorted(self.idle),
            "used": self._used,
            "taken": self.taken,
            "duplicates": self.duplicates,
            "missing": self.missing,
            **({"outdated": self.outdated} if self.outdated else {}),
            "sequences": {str(p): dict(last) for p, last in self.last.items() if last},
            **({"epochs": epochs} if epochs else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved position, and drop all blocks."""
        self.clear()
        self.offsets = {int(p): int(offset) for p, offset in state["offsets"].items()}
        self._begun = {int(p): int(rows) for p, rows in state.get("rows", {}).items()}
        self.idle = set(state["idle"])
        self._used = int(state["used"])
        self.taken = int(state["taken"])
        self.duplicates = int(state["duplicates"])
        self.missing = int(state.get("missing", 0))
        self.outdated = int(state.get("outdated", 0))
        self.last = {p: dict(state["sequences"].get(str(p), {})) for p in self.partitions}
        epochs = state.get("epochs", {})
        self.epochs = {p: dict(epochs.get(str(p), {})) for p in self.partitions}
        self._at = self.partitions.index(int(state["turn_of"]))
        self.row = int(state["row"])
        if self._used >= self.turn:  # turns were longer then
            self._pass_turn()


def _nothing(messages: int) -> None:
    """Do nothing; the default of `on_good`."""
