# SPDX-License-Identifier: Apache-2.0
"""Feed: a source of training or evaluation batches; `OwnFeed` is the feed of a single worker."""

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
    """Training or evaluation that reads the batches of a feed.

    Args:
        wants_stop: function that returns True if the reader wants no further batch. Default: the
            reader reads all batches.
        interrupted: function that returns True after the process has received a stop signal.
            Default: always False.
        knows_ids: function that returns True if the reader knows which columns are ids. Default:
            always False.
        has_batch: function that returns True if the reader already has a batch for the next step;
            called only while a worker waits for data. `has_batch` must return the same value on all
            workers. Default: always False.
        on_idle: function that all workers call together while they wait for data. Default: none.
    """

    wants_stop: Callable[[], bool] = _no
    interrupted: Callable[[], bool] = _no
    knows_ids: Callable[[], bool] = _no
    has_batch: Callable[[], bool] = _no
    on_idle: Callable[[], None] = lambda: None


class Feed(Protocol):
    """Protocol of a worker's feed of batches; all workers read the same number of batches."""

    @property
    def stopped(self) -> bool:
        """True if the training or evaluation makes no further step."""

    @property
    def ids_known(self) -> bool:
        """True if all workers know which columns are ids."""

    def start(self, read: Callable[[], Batch | None], reader: Reader) -> None:
        """Begin a pass.

        Args:
            read: function that returns the next batch, with Tensors as columns, or None at the end.
                If the reader still has a batch, but the source does not have its next batch yet,
                `read` may return `LATER`.
            reader: the training or evaluation that reads the batches.
        """

    def next(self) -> Batch | None:
        """Return the next batch, None at the end or after an error, or `LATER`.

        If reading the data fails, the batches that were already read are used first, and afterwards
        `check` raises the error.
        """

    def begin_step(self, step: int, batch: Batch, summed: bool = False) -> Sequence[int]:
        """Report each worker's number of rows in a step to the tables and the optimizer.

        Args:
            step: the step number, from 1.
            batch: the batch that this step uses.
            summed: True if the loss is a sum over a batch's rows, False if the loss is a mean.

        Returns:
            Number of rows of each worker.
        """

    def check(self) -> None:
        """If an error has ended the data, raise the error."""

    def on_wait(self) -> None:
        """Called several times per second while the reader waits for the source's next batch.

        Raises:
            KeyboardInterrupt, ReadGivenUpError: the process received a stop signal, or a worker
                asks to stop.
            ReadLaterError: the reader has a batch for the next step, but the source has no batch
                yet.
        """


class OwnFeed:
    """Feed of a single worker; returns the batches in the order of the source.

    Example:
        >>> feed = OwnFeed()
        >>> feed.start(iter([Batch(()), None]).__next__, Reader())
        >>> feed.next(), feed.next(), feed.stopped
        (Batch(columns=(), names=None, event_time=None, number=None, place=None, before_step=None),
        None, False)
    """

    def __init__(self) -> None:
        self._read: Callable[[], Batch | None] = lambda: None
        self._reader = Reader()
        self._error: Exception | None = None

    @property
    def stopped(self) -> bool:
        """True if the training or evaluation makes no further step."""
        return self._reader.wants_stop()

    @property
    def ids_known(self) -> bool:
        """True if the reader knows which columns are ids."""
        return self._reader.knows_ids()

    def start(self, read: Callable[[], Batch | None], reader: Reader) -> None:
        """Begin a pass."""
        self._read, self._reader, self._error = read, reader, None

    def next(self) -> Batch | None:
        """Return the next batch, None at the end or after an error, or `LATER`."""
        try:
            return self._read()
        except Exception as error:
            self._error = error
            return None

    def begin_step(self, step: int, batch: Batch, summed: bool = False) -> Sequence[int]:
        """Return the batch's number of rows, as a tuple with one entry."""
        return (row_count(batch.columns),)

    def check(self) -> None:
        """If an error has ended the data, raise the error."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def on_wait(self) -> None:
        """Call `on_idle`, or raise an error if the wait for the next batch must end."""
        if self._reader.interrupted():
            raise KeyboardInterrupt
        if self._reader.has_batch():
            raise ReadLaterError
        self._reader.on_idle()
