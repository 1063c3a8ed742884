# SPDX-License-Identifier: Apache-2.0
"""Agreement: messages that the workers of a training exchange before and after each step.

All workers take part in the same rounds of messages, in the same order. In a round, each worker
sends one `Word` of fixed size and receives the words of all workers.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Sequence
from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

from mindspore_rec.common.parallel.agreed_error import raise_on
from mindspore_rec.common.parallel.channel import Group

__all__ = ["Agreement", "Flag", "Loss", "State", "Word"]

_WORD = struct.Struct("<BBHIqqqII")
_LOSS = struct.Struct("<dq")


class State(IntEnum):
    """State of a worker's data; the worker reports this state in each round of messages."""

    BATCH = 0  # a batch of the data, maybe without rows
    ENDED = 1  # no more batches
    WAITING = 2  # no batch yet: the worker waits for its data
    NOTHING = 3  # no batch, because the worker did not read
    FAILED = 4  # reading the data raised an error


class Flag(IntFlag):
    """Facts that a worker sends about itself in each round, together with its `State`."""

    STOP = 1  # end the training before the next step
    NEEDS_BATCH = 2  # the worker never had a batch with rows
    IDS_KNOWN = 4  # the worker knows which columns are ids
    CONDITION = 8  # its data ended by a condition, which ends all workers' data
    CHECKED = 16  # `rows` and `fingerprint` must be the same on all workers


class Word(NamedTuple):
    """Message of one worker in one round.

    Args:
        purpose: character code of 't' (training) or 'e' (evaluation); the same on all workers.
        state: a `State`.
        flags: `Flag` values.
        number: index of the round; the same on all workers.
        samples: number of rows in the worker's batch.
        rows: number of rows in the whole batch, before its division among the workers.
        event_time: latest event time in the worker's batch; 0 without event times.
        fingerprint: digest of the whole batch, before its division among the workers.
        columns: digest of the dtype and the number of dimensions of each column.
    """

    purpose: int
    state: int
    flags: int
    number: int
    samples: int = 0
    rows: int = 0
    event_time: int = 0
    fingerprint: int = 0
    columns: int = 0


class Loss(NamedTuple):
    """Loss of one step, computed over all workers.

    Args:
        value: mean of the workers' losses, weighted by the workers' row counts, or the sum of the
            losses.
        bad: first worker whose loss is NaN or infinite; None if all losses are finite.
    """

    value: float
    bad: int | None


class Agreement:
    """Exchanges messages with the other workers, in rounds, during one training or evaluation.

    Args:
        group: the workers.
        purpose: one letter: 't' for training, 'e' for evaluation.

    Attributes:
        seconds: seconds that this worker has waited for other workers.
        rounds: number of rounds of messages so far.
    """

    def __init__(self, group: Group, purpose: str) -> None:
        self.group = group
        self.seconds = 0.0
        self.rounds = 0
        self._purpose = ord(purpose)

    def say(
        self,
        state: State,
        flags: int = 0,
        *,
        samples: int = 0,
        rows: int = 0,
        event_time: int = 0,
        fingerprint: int = 0,
        columns: int = 0,
    ) -> list[Word]:
        """Take part in a round of messages; return the `Word` of each worker.

        Raises:
            RuntimeError: workers are in different rounds, so their programs differ.
        """
        mine = Word(
            self._purpose,
            state,
            flags,
            self.rounds & 0xFFFFFFFF,
            samples,
            rows,
            event_time,
            fingerprint,
            columns,
        )
        self.rounds += 1
        words = [Word(*_WORD.unpack(data)) for data in self._gather(_WORD.pack(*mine), _WORD.size)]
        self._check_same_round(words)
        return words

    def loss(self, value: float, samples: int, summed: bool) -> Loss:
        """Return the loss over all workers; workers without rows are ignored.

        Args:
            value: this worker's loss.
            samples: number of rows of this worker.
            summed: True if each loss is a sum over rows, False if each loss is a mean.
        """
        data = self._gather(_LOSS.pack(value, samples), _LOSS.size)
        losses = [_LOSS.unpack(each) for each in data]
        return loss_of(losses, summed)

    def json(self, value: Any) -> list[Any]:
        """Send a JSON value, and return the values of all workers."""
        begin = time.perf_counter()
        values = self.group.all_gather_json(value)
        self.seconds += time.perf_counter() - begin
        return values

    def _gather(self, data: bytes, size: int) -> list[bytes]:
        begin = time.perf_counter()
        messages = self.group.all_gather(data)
        self.seconds += time.perf_counter() - begin
        for worker, each in enumerate(messages):
            if len(each) != size:
                self._apart(worker, "another part of its program")
        return messages

    def _check_same_round(self, words: Sequence[Word]) -> None:
        for worker, word in enumerate(words):
            if (word.purpose, word.number) != (words[0].purpose, words[0].number):
                self._apart(worker, _place(word), _place(words[0]))

    def _apart(self, worker: int, there: str, here: str = "a round of training") -> None:
        raise_on(
            self.group.rank,
            worker,
            RuntimeError(
                f"worker {worker} is in {there} while worker 0 is in {here}: all workers must call "
                "train, online_train and eval in the same order, with the same callbacks"
            ),
        )


def loss_of(losses: Sequence[tuple[float, int]], summed: bool) -> Loss:
    """Compute the loss over all workers from each worker's pair (loss, number of rows).

    Example:
        >>> loss_of([(1.0, 3), (2.0, 1), (math.nan, 0)], summed=False)
        Loss(value=1.25, bad=None)
    """
    having = [(worker, *each) for worker, each in enumerate(losses) if each[1]]
    bad = next((worker for worker, value, _ in having if not math.isfinite(value)), None)
    if summed:
        return Loss(sum((value for _, value, _ in having), 0.0) if having else math.nan, bad)
    rows = sum(samples for _, _, samples in having)
    total = sum(value * samples for _, value, samples in having)
    return Loss(total / rows if rows else math.nan, bad)


def _place(word: Word) -> str:
    kind = {ord("t"): "training", ord("e"): "an evaluation"}.get(word.purpose, "something else")
    return f"{kind}, round {word.number}"
