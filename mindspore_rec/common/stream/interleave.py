# SPDX-License-Identifier: Apache-2.0
"""Interleaver: takes the messages of several partitions by counting, never by time.

Partitions take turns, each of so many messages, duplicates not counted; the partition that has the
turn is waited for. So the order is a function of what the partitions contain, whatever came first
over the network. What one sender dealt out to the partitions in turn comes in its order, also if it
sent some of it twice. If a partition may be idle for long, the caller may let it leave and join,
and add a partition that the topic has got meanwhile; the caller has to remember when it did
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
    """The producer of a message, and the message's number among that producer's.

    Args:
        producer: name of the producer.
        number: number of the message, or `BEGIN`.
        epoch: epoch of the producer; messages of an earlier epoch than one that was seen in their
            partition are of a producer that has been replaced, and ignored (default 0).
    """

    producer: str
    number: int
    epoch: int = 0


class BadEntry(NamedTuple):
    """Bad message of a block.

    Args:
        offset: in its partition.
        timestamp: of the message, in milliseconds.
        error: what is wrong.
        value: its bytes, or the first of them.
        size: how many bytes it has.
    """

    offset: int
    timestamp: int
    error: BadMessageError
    value: bytes
    size: int


class Block:
    """Consecutive decoded messages of one partition.

    Args:
        offsets: int64, of the messages.
        counts: int64, number of rows of each message.
        rows: the rows of all messages.
        bad: the messages that could not be decoded to rows, by their place.
        sequences: sequence of each message; None if it does not matter. A message whose number is
            not above the last number of its producer is a duplicate.
        size: bytes that the block counts for in `waiting_bytes`.
        missing: messages that the log had before each and has removed. Default: none.
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
        """Return the first row of a message."""
        return int(self.ends[place - 1]) if place else 0


class Interleaver:
    """Queue of the partitions' blocks, from which rows are taken in a fixed order.

    Args:
        partitions: ascending.
        turn: messages of a turn, at least 1.

    Attributes:
        partitions: the partitions that take turns, ascending.
        offsets: by partition, the message that is next.
        waiting: partitions that take no turns yet, with the message at which each begins.
        row: rows already taken of the message that is next in the partition that has the turn.
        idle: partitions that the turn leaves out.
        taken: messages taken in the stream's life.
        last: by partition and producer, the last sequence number taken.
        duplicates: messages left out because their sequence number had been taken.
        epochs: by partition and producer, the greatest epoch seen, if any.
        outdated: messages left out because their producer had been replaced.
        missing: messages that the log had removed before they could be taken.
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
        """Take blocks of a further partition, from an offset on, which has no turn until `add`."""
        self.waiting[partition] = offset
        self._blocks[partition] = deque()

    def add(self, partition: int) -> None:
        """Give a waiting partition turns from now on, the first one at once.

        No message of the partition that has the turn may be taken in part.
        """
        self.offsets[partition] = self.waiting.pop(partition)
        self.last[partition] = {}
        self.partitions = sorted([*self.partitions, partition])
        self._at, self._used = self.partitions.index(partition), 0

    # ---- blocks

    def push(self, partition: int, block: Block) -> None:
        """Add messages after the last ones of their partition."""
        self._blocks[partition].append(block)

    def waiting_bytes(self, partition: int) -> int:
        """Return the bytes of the blocks of a partition that still have messages."""
        return sum(block.size for block in self._blocks[partition])

    def has(self, partition: int) -> bool:
        """Return whether a message of the partition is waiting."""
        return bool(self._blocks[partition])

    def next_offset(self, partition: int) -> int | None:
        """Return the offset of a partition's first waiting message; None if there is none."""
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
        """Number of rows already taken of the next message of the partition that has the turn."""
        return self._begun.get(self.partitions[self._at], 0)

    @row.setter
    def row(self, rows: int) -> None:
        partition = self.partitions[self._at]
        self._begun.pop(partition, None)
        if rows:
            self._begun[partition] = rows

    @property
    def current(self) -> int | None:
        """Partition whose turn it is; None if all are idle."""
        partition = self.partitions[self._at]
        return None if partition in self.idle else partition

    def leave(self, partition: int) -> None:
        """Leave a partition out of the turns, unless a message of it is partly taken."""
        self.idle.add(partition)
        if self.partitions[self._at] == partition:
            self._pass_turn()

    def join(self, partition: int) -> None:
        """Include a partition in the turns again."""
        if self.current is None:
            self._at, self._used = self.partitions.index(partition), 0
        self.idle.discard(partition)

    def set_turn(self, turn: int) -> None:
        """Change how many messages a turn has, at least 1."""
        self.turn = turn
        self._end_turn()

    def _end_turn(self) -> None:
        """Pass the turn if it had as many messages as it may have, or more."""
        if self._used >= self.turn or len(self.partitions) == 1:
            self._pass_turn()

    def _pass_turn(self) -> None:
        """Pass the turn to the next partition that is not idle, maybe the same one."""
        self._used = 0
        for step in range(1, len(self.partitions) + 1):
            place = (self._at + step) % len(self.partitions)
            if self.partitions[place] not in self.idle:
                self._at = place
                return

    def take(self, most: int, stop: int | None = None) -> pa.RecordBatch | None:
        """Take some rows in the stream's order.

        Args:
            most: most rows to take, at least 1.
            stop: value of `taken` at which to stop. Default: None, no limit.

        Returns:
            A slice, maybe without rows; None if the partition whose turn it is has no message yet,
            or `stop` is reached.
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
        """Take messages before `stop` until there are `most` rows, the last one maybe in part."""
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
        """Take one message, or a part of it, unless its rows are not to be taken."""
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
        """Return whether a message has no rows to take: it was taken before, is of a producer that
        has been replaced, or only begins an epoch."""
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
        """Count the messages before a place as taken."""
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
        # Other partitions have begun messages if workers took turns of their own before.
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
    """Do nothing: the default if good messages are not counted."""
