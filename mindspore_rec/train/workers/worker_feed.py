# SPDX-License-Identifier: Apache-2.0
"""WorkerFeed: batches of one worker; all workers read the same number of batches."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mindspore import Tensor

from mindspore_rec.common.parallel.agreed_error import raise_on
from mindspore_rec.common.parallel.array_message import pack_arrays, unpack_arrays
from mindspore_rec.common.parallel.channel import Group
from mindspore_rec.common.stream.batches import LATER, Batch, BatchSource, PassPlace
from mindspore_rec.common.stream.read_watch import ReadGivenUpError, ReadLaterError
from mindspore_rec.train.data.worker_split import WorkerSplit
from mindspore_rec.train.graph.tensors import as_tensors, row_count
from mindspore_rec.train.workers.agreement import Agreement, Flag, State, Word
from mindspore_rec.train.workers.feed import Feed, OwnFeed, Reader

__all__ = ["WorkerBatch", "WorkerFeed", "evaluation_feed"]

_HEARTBEAT = 1.0  # seconds of waiting for data after which the other workers are told


@dataclass(frozen=True)
class WorkerBatch(Batch):
    """One worker's batch for one step of a training on several workers.

    Args:
        samples: number of rows in the batch of each worker; 0 for an idle worker.
        worker: index of this worker.

    An idle worker repeats the columns of the last batch that the worker has read. If an idle worker
    has never read a batch, the worker uses the columns of another worker's batch. Rows of idle
    workers are not counted.
    """

    samples: tuple[int, ...] = (0,)
    worker: int = 0

    @property
    def own_samples(self) -> int:
        """Number of rows in this worker's batch."""
        return self.samples[self.worker]

    @property
    def idle(self) -> bool:
        """True if this worker has no rows."""
        return self.own_samples == 0


class WorkerFeed:
    """Yields this worker's batches; all workers exchange messages before each batch.

    After the end of its data, a worker repeats its last batch, without counting the repeated rows.
    The workers continue until the data of all workers have ended.

    Args:
        agreement: the `Agreement`, which exchanges messages with the other workers.
        source: this worker's share of the data.
        argument: name of the data in error messages.

    Attributes:
        stopped: True after a worker has asked to stop; then no worker does a further step.
        ids_known: whether, in the last round, all workers knew which columns are ids.
        condition: True if the data ended because a condition of `StopWhen` was met on some worker.
    """

    def __init__(self, agreement: Agreement, source: BatchSource, argument: str) -> None:
        self.agreement = agreement
        self.stopped = False
        self.ids_known = False
        self.condition = False
        self._reader = Reader()
        self._source = source
        self._argument = argument
        self._split = source if isinstance(source, WorkerSplit) else None
        self._read: Callable[[], Batch | None] = lambda: None
        self._ended = True
        self._error: Exception | None = None
        self._failed: int | None = None
        self._last: tuple[Any, ...] | None = None  # columns of the last batch with rows
        self._last_number: int | None = None
        self._last_place: PassPlace | None = None
        self._said = 0.0
        self._kept: tuple[State, Batch | None] | None = None  # of an open round

    def start(self, read: Callable[[], Batch | None], reader: Reader) -> None:
        """Begin a pass.

        Args:
            read: function that returns the next batch of this worker, with Tensors as columns, or
                None at the end.
            reader: the training or evaluation that reads the batches on this worker.
        """
        self._read, self._reader = read, reader
        self._ended = False
        self._error, self._failed = None, None
        self._kept = None

    # ---- rounds

    def next(self) -> WorkerBatch | None:
        """Return the next batch; None if all workers' data have ended or a worker asks to stop.

        If the reader already has a batch, but some worker has no data yet, the method returns
        `LATER`. If reading this worker's data fails, the error is stored, and `check` raises the
        error.
        """
        if self.stopped:
            return None
        state, batch = self._own() if self._kept is None else self._kept
        self._kept = None
        if batch is LATER:
            return LATER  # type: ignore[return-value]
        words = self._round(state, batch)
        while any(word.state == State.WAITING for word in words):
            if self._reader.has_batch():
                self._kept = state, batch
                return LATER  # type: ignore[return-value]
            self._reader.on_idle()
            words = self._round(state, batch)
        if not words:
            return None
        failed = [worker for worker, word in enumerate(words) if word.state == State.FAILED]
        if failed:
            self._failed, self._ended = failed[0], True
            return None
        self.condition = self.condition or any(word.flags & Flag.CONDITION for word in words)
        if not self.condition:
            self._check_alike(words, batch)
        if self.condition or all(word.state == State.ENDED for word in words):
            self._ended = True
            return None
        return self._agreed(batch, words)

    def begin_step(self, step: int, batch: Batch, summed: bool = False) -> Sequence[int]:
        """Tell the tables and the optimizer the number of rows of each worker in a step."""
        assert isinstance(batch, WorkerBatch)
        self.agreement.group.begin_step(step, list(batch.samples), summed)
        return batch.samples

    def agree_stop(self) -> bool:
        """Exchange one round of messages without a batch; return True if a worker asks to stop."""
        if not self.stopped:
            self._round(State.NOTHING, None)
        return self.stopped

    def check(self) -> None:
        """If an error has ended the data, raise the error.

        Raises:
            Exception: reading this worker's data raised the exception.
            RuntimeError: another worker could not read its data, although the job still runs.
        """
        if self._failed is None:
            return
        rank = self.agreement.group.rank
        if self._error is not None:
            raise_on(rank, self._failed, self._error)
        raise_on(rank, self._failed, RuntimeError(f"worker {self._failed} could not read its data"))

    def _own(self) -> tuple[State, Batch | None]:
        """Return the state of this worker's data, and the next batch or None."""
        self._said = time.monotonic()
        if self._reader.wants_stop():
            return State.NOTHING, None
        if self._ended:
            return State.ENDED, None
        try:
            batch = self._read()
        except ReadGivenUpError:
            return State.NOTHING, None  # `stopped` is set
        except Exception as error:
            self._error, self._ended = error, True
            return State.FAILED, None
        if batch is None:
            if self._reader.wants_stop():  # Ctrl-C while it waited
                return State.NOTHING, None
            self._ended = True
            return State.ENDED, None
        return State.BATCH, batch

    def on_wait(self) -> None:
        """Report to the other workers, about once per second, that this worker waits for data.

        Raises:
            ReadGivenUpError: a worker asks to stop.
            ReadLaterError: while this worker waits for data, all workers have a batch for the next
                step.
        """
        later = self._reader.has_batch()
        if time.monotonic() < self._said + _HEARTBEAT and not later:
            return
        if self._round(State.WAITING, None):
            if later:
                raise ReadLaterError
            self._reader.on_idle()
            if self._reader.wants_stop():  # a signal came meanwhile
                self._round(State.WAITING, None)
        self._said = time.monotonic()
        if self.stopped:
            raise ReadGivenUpError

    def _round(self, state: State, batch: Batch | None) -> list[Word]:
        """Exchange messages; return each worker's `Word`, or [] if a worker has asked to stop."""
        if self.stopped:
            return []
        flags = Flag.STOP if self._reader.wants_stop() else Flag(0)
        flags |= Flag.IDS_KNOWN if self._reader.knows_ids() else Flag(0)
        rows = row_count(batch.columns) if batch is not None else 0
        if not rows and self._last is None:
            flags |= Flag.NEEDS_BATCH
        if state == State.ENDED and self._source.stop_reason:
            flags |= Flag.CONDITION
        whole, fingerprint = 0, 0
        if self._split is not None and self._split.by == "rows":
            flags |= Flag.CHECKED
            if batch is not None and self._split.fingerprint is not None:
                whole, fingerprint = self._split.fingerprint
        words = self.agreement.say(
            state,
            flags,
            samples=rows,
            rows=whole,
            event_time=(batch.event_time or 0) if batch is not None else 0,
            fingerprint=fingerprint,
            columns=_columns_digest(batch),
        )
        self.stopped = any(word.flags & Flag.STOP for word in words)
        self.ids_known = all(word.flags & Flag.IDS_KNOWN for word in words)
        return [] if self.stopped else words

    # ---- checks

    def _check_alike(self, words: Sequence[Word], batch: Batch | None) -> None:
        having = [worker for worker, word in enumerate(words) if word.state == State.BATCH]
        if not having:
            return
        first = words[having[0]]
        odd = [worker for worker in having if words[worker].columns != first.columns]
        if odd:
            self._raise_columns(having[0], odd[0], batch)
        if not all(word.flags & Flag.CHECKED for word in words):
            return
        if len(having) < len(words):
            other = next(worker for worker in range(len(words)) if worker not in having)
            self._raise_differs(
                other, f"worker {other} has no more batches, and worker {having[0]} has one"
            )
        for worker in having:
            word = words[worker]
            if (word.rows, word.fingerprint) != (first.rows, first.fingerprint):
                self._raise_differs(
                    worker,
                    f"a batch of {word.rows} rows on worker {worker} is not that of {first.rows} "
                    f"rows on worker {having[0]}",
                )

    def _raise_columns(self, one: int, other: int, batch: Batch | None) -> None:
        described = self.agreement.json(_columns_text(batch))
        raise_on(
            self.agreement.group.rank,
            other,
            ValueError(
                f"{self._argument} must have the same columns on all workers: worker {other} has "
                f"{described[other]}, and worker {one} has {described[one]}"
            ),
        )

    def _raise_differs(self, worker: int, what: str) -> None:
        raise_on(
            self.agreement.group.rank,
            worker,
            ValueError(
                f"{self._argument} must be the same on all workers, each of which takes its rows "
                f"of every batch, but {what}: shuffle with one seed on all, for a Dataset by "
                "mindspore.dataset.config.set_seed. If each worker has data of its own, give "
                "split_by_worker(data, by='worker'), or a Dataset with num_shards and shard_id"
            ),
        )

    # ---- the batch

    def _agreed(self, batch: Batch | None, words: Sequence[Word]) -> WorkerBatch:
        group = self.agreement.group
        samples = tuple(word.samples for word in words)
        if not any(samples):
            raise_on(
                group.rank,
                0,
                ValueError(f"{self._argument} has a batch without rows on any worker"),
            )
        mine = samples[group.rank]
        if mine and batch is not None:
            self._last = batch.columns
        if any(word.flags & Flag.NEEDS_BATCH for word in words):
            self._borrow(samples)
        if batch is not None:
            self._last_number, self._last_place = batch.number, batch.place
        else:
            batch = Batch((), number=self._last_number, place=self._last_place)
        if not mine:
            assert self._last is not None
            batch = replace(batch, columns=self._last)
        latest = max(word.event_time for word in words)
        return WorkerBatch(
            batch.columns,
            batch.names,
            latest or None,
            batch.number,
            batch.place,
            samples=samples,
            worker=group.rank,
        )

    def _borrow(self, samples: Sequence[int]) -> None:
        """If this worker has never read a batch, copy a batch of another worker."""
        group = self.agreement.group
        root = next(worker for worker, rows in enumerate(samples) if rows)
        sent = None
        if group.rank == root:
            assert self._last is not None
            arrays = {str(i): column.asnumpy() for i, column in enumerate(self._last)}
            sent = pack_arrays(arrays)
        received = group.broadcast(sent, root)
        if self._last is None:
            columns = unpack_arrays(received)
            self._last = as_tensors(tuple(columns[str(i)] for i in range(len(columns))))


def evaluation_feed(group: Group, source: BatchSource, argument: str) -> Feed:
    """Return the feed that supplies this worker with the batches of an evaluation.

    Args:
        group: the workers.
        source: this worker's share of the data.
        argument: name of the data in error messages.
    """
    if group.size == 1:
        return OwnFeed()
    return WorkerFeed(Agreement(group, "e"), source, argument)


def _columns_digest(batch: Batch | None) -> int:
    return 0 if batch is None else zlib.crc32(_columns_text(batch).encode())


def _columns_text(batch: Batch | None) -> str:
    if batch is None:
        return "none"
    kinds = [f"{_dtype(each)} of {len(each.shape)} dimensions" for each in batch.columns]
    return f"{len(kinds)} columns ({', '.join(kinds)})"


def _dtype(column: Any) -> str:
    if isinstance(column, Tensor):
        return str(column.dtype).lower()
    return str(np.asarray(column).dtype)
