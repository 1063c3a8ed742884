# SPDX-License-Identifier: Apache-2.0
"""Feed: the batches of a training or an evaluation; `OwnFeed` is the feed of the only worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mindspore_rec.common.stream.batches import Batch
from mindspore_rec.common.stream.read_watch import ReadLaterError
from mindspore_rec.train.graph.tensors import row_count

__all__ = ["Feed", "OwnFeed", "Reader"]


def _no() -> bool:
    return False


@dataclass(frozen=True)
class Reader:
    """Training or evaluation that takes the batches of a feed.

    Args:
        wants_stop: function that returns whether it takes no further batch. Default: it takes all.
        interrupted: function that returns whether a signal has come. Default: none ever does.
        knows_ids: function that returns whether it knows which columns are ids. Default: it does
            not.
        has_batch: function that returns whether a batch can be trained while the source has no
            further one; on several workers the same on all. Default: none can.
        on_idle: function that is called while there is nothing to read, by all workers together.
            Default: none.
    """

    wants_stop: Callable[[], bool] = _no
    interrupted: Callable[[], bool] = _no
    knows_ids: Callable[[], bool] = _no
    has_batch: Callable[[], bool] = _no
    on_idle: Callable[[], None] = lambda: None


class Feed(Protocol):
    """Batches of this worker, of which all workers take the same number."""

    @property
    def stopped(self) -> bool:
        """Whether no further batch is trained."""

    @property
    def ids_known(self) -> bool:
        """Whether all workers know which columns are ids."""

    def start(self, read: Callable[[], Batch | None], reader: Reader) -> None:
        """Begin a pass.

        Args:
            read: function that returns the next batch, with Tensors as columns, None at the end,
                or, if the reader has a batch, `LATER` while there is none yet.
            reader: training or evaluation that takes the batches.
        """

    def next(self) -> Batch | None:
        """Return the next batch, None at the end, or `LATER`. `check` raises an error of the data.

        An error thus comes after the batches that were read before it.
        """

    def begin_step(self, step: int, batch: Batch, summed: bool = False) -> Sequence[int]:
        """Tell the tables and the optimizer how many rows each worker has in a step.

        Args:
            step: number of the step, from 1 on.
            batch: batch of the step.
            summed: whether the loss is a sum over the rows of a batch, not their mean.

        Returns:
            Number of rows of each worker.
        """

    def check(self) -> None:
        """Raise the error that ended the data, if there was one."""

    def on_wait(self) -> None:
        """Act while the source has no batch yet, several times per second.

        Raises:
            KeyboardInterrupt, ReadGivenUpError: no further batch is wanted.
            ReadLaterError: the reader has a batch to train meanwhile.
        """


class OwnFeed:
    """Batches of the only worker, as they are read.

    Example:
        >>> feed = OwnFeed()
        >>> feed.start(iter([Batch(()), None]).__next__, Reader())
        >>> feed.next(), feed.next(), feed.stopped
        (Batch(columns=(), names=None, event_time=None, number=None, place=None), None, False)
    """

    def __init__(self) -> None:
        self._read: Callable[[], Batch | None] = lambda: None
        self._reader = Reader()
        self._error: Exception | None = None

    @property
    def stopped(self) -> bool:
        """Whether no further batch is trained."""
        return self._reader.wants_stop()

    @property
    def ids_known(self) -> bool:
        """Whether it is known which columns are ids."""
        return self._reader.knows_ids()

    def start(self, read: Callable[[], Batch | None], reader: Reader) -> None:
        """Begin a pass."""
        self._read, self._reader, self._error = read, reader, None

    def next(self) -> Batch | None:
        """Return the next batch, None at the end, or `LATER`."""
        try:
            return self._read()
        except Exception as error:
            self._error = error
            return None

    def begin_step(self, step: int, batch: Batch, summed: bool = False) -> Sequence[int]:
        """Return the number of rows of each worker: of this one."""
        return (row_count(batch.columns),)

    def check(self) -> None:
        """Raise the error that ended the data, if there was one."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def on_wait(self) -> None:
        """Act while the source has no batch yet."""
        if self._reader.interrupted():
            raise KeyboardInterrupt
        if self._reader.has_batch():
            raise ReadLaterError
        self._reader.on_idle()
