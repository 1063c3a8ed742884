# SPDX-License-Identifier: Apache-2.0
"""Batch and BatchSource: the protocol of all objects that yield batches for training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mindspore_rec.common.stream.worker_states import join_states, states_in

__all__ = ["LATER", "Batch", "BatchSource", "BatchWrapper", "PassPlace"]

_STATES_KEPT = 1024


@dataclass(frozen=True)
class PassPlace:
    """Position of a batch in data that are read again from the beginning in each pass.

    Args:
        passes: number of complete passes before the pass to which the batch belongs.
        batches: number of the batch in its pass, from 1.
        first: digest of the first batch of the pass.
        digest: digest of the pass's batches, in order, up to and including this batch.
        generators: states of random generators at the beginning of the pass.
    """

    passes: int
    batches: int
    first: int
    digest: int
    generators: Mapping[str, Any]


@dataclass(frozen=True)
class Batch:
    """Batch of a source: columns, event time and number.

    Args:
        columns: arrays ``[B, ...]`` or Tensors, with the label last. A source of raw rows may yield
            Arrow arrays, which a wrapper such as `FeatureBatches` converts.
        names: names of the columns. Default: None, which means that the columns have no names.
        event_time: latest event time of the batch's rows, whole seconds since 1970, 1 to 2**32 - 1.
            Default: None, which means that no time is known.
        number: number of batches, including this batch, that the source has yielded over all runs.
            `BatchSource.state_dict(batches=number)` returns the source's state after batch
            `number`. Default: None, which means that the source has no state.
        place: position of the batch, if the source has no state. The training sets `place`.
            Default: None.
        before_step: function that a training calls just before the step of the batch. `before_step`
            sets values, such as the event time, that must be set just before the step and not when
            the batch is read ahead. Default: None.

    Example:
        >>> import numpy as np
        >>> batch = Batch((np.array([7, 8]),), names=("ids",), event_time=1_700_000_000)
        >>> batch.plain
        {'ids': array([7, 8])}
    """

    columns: tuple[Any, ...]
    names: tuple[str, ...] | None = None
    event_time: int | None = None
    number: int | None = None
    place: PassPlace | None = None
    before_step: Callable[[], None] | None = None

    @property
    def idle(self) -> bool:
        """True if several workers train and this worker has no rows of the batch."""
        return False

    @property
    def plain(self) -> dict[str, Any] | tuple[Any, ...]:
        """The batch's columns: a dict by name, or a tuple if the columns have no names."""
        if self.names is None:
            return self.columns
        return dict(zip(self.names, self.columns, strict=True))


LATER = Batch(())  # stands for a batch that a stream has not yet, if the reader goes on meanwhile


class BatchSource(ABC):
    """Source of batches for training, evaluation and checkpoints.

    `batch_source` converts data of other types to a source. There are three kinds of sources:

    * A source with a state (`has_state`): `state_dict` returns its position in the data, and
      `load_state_dict` resumes at this position.
    * A finite source without a state: each pass reads the data from the beginning.
    * A source that cannot be resumed: `cannot_resume` contains the reason.

    A subclass must define the method `read`. By default, a source has no state and no known length.
    A source that changes the batches of another source is a `BatchWrapper`.
    """

    @abstractmethod
    def read(self) -> Iterator[Batch]:
        """Return an iterator over one pass.

        The source may reuse the arrays of a batch when the next batch is requested.
        """

    def __iter__(self) -> Iterator[Any]:
        """Iterate over one pass, and yield dicts of columns, or tuples if columns have no names.

        Before a batch is yielded, the batch's event time is set on the tables of
        `iteration_tables`.
        """
        return self._plain_batches(self.iteration_tables())

    def _plain_batches(self, tables: Sequence[Any]) -> Iterator[Any]:
        for batch in self.read():
            if batch.event_time is not None:
                for table in tables:
                    table.set_event_time(batch.event_time)
            yield batch.plain

    @property
    def column_names(self) -> list[str]:
        """Names of the columns; empty if the names are not known before the first batch."""
        return []

    @property
    def length(self) -> int | None:
        """Number of batches in a pass; None if unknown or infinite."""
        return None

    @property
    def stop_reason(self) -> str:
        """Reason why the last pass ended, or ""."""
        return ""

    @property
    def lag(self) -> int | None:
        """Number of the stream's messages that are not in a batch yet; None without a stream."""
        return None

    # ---- resuming after a restart

    @property
    def has_state(self) -> bool:
        """True if `state_dict` and `load_state_dict` save and restore the position in the data."""
        return False

    @property
    def cannot_resume(self) -> str | None:
        """Reason why the position cannot be saved, such as 'is a list without a state'; or None."""
        if self.has_state or self.length is not None:
            return None
        return f"is a {type(self).__name__} without a state or a length"

    @property
    def batches(self) -> int:
        """Number of batches read over all runs; 0 if the source has no state."""
        return 0

    @property
    def passes(self) -> int | None:
        """Number of complete passes in all runs; None if the source does not count passes."""
        return None

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the position in the data, as a JSON dict with an entry `batches`.

        Args:
            batches: number of the batch after which the state is returned. `batches` is required if
                batches are read ahead of the training. Default: None, which means the state after
                all batches read so far.

        Raises:
            ValueError: the source has no state, or no longer keeps the requested state.
        """
        raise ValueError(f"a {type(self).__name__} has no state")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at the position of a state. Call this method before the first batch is read.

        Raises:
            TypeError, ValueError: `state` is not a state of this kind of source.
            RuntimeError: batches have been read.
        """
        raise ValueError(f"a {type(self).__name__} has no state")

    def covered_streams(self) -> list[Any]:
        """Return the streams whose position is part of `state_dict`."""
        return []

    def skip_passes(self, passes: int) -> None:  # noqa: B027  - nothing is to be done by default
        """Mark the first passes as read; `passes` is the number of passes.

        A training that resumes in a later pass first calls `skip_passes`, and then reads its first
        batch. By default, `skip_passes` does nothing. Override `skip_passes` if the order differs
        from pass to pass and does not come from Python's or NumPy's random generators.
        """

    @property
    def reads_on(self) -> bool:
        """True if reading can continue after an exception without the loss of a batch."""
        return False

    @property
    def reads_in_pipeline(self) -> bool:
        """True if the data source runs Python code in threads of a MindSpore pipeline."""
        return False

    @property
    def learns(self) -> bool:
        """True if reading a batch changes learned statistics.

        If `learns` is True, read the source only for training.
        """
        return False

    # ---- several workers

    def split_by_worker(self, worker: int, workers: int) -> BatchSource | None:
        """Return a source that yields one worker's share of the data.

        A training with several workers calls `split_by_worker` on each worker, before the first
        batch. Each row of the data is in exactly one share. Instead of returning a new source,
        `split_by_worker` may limit this source to the worker's share and return this source.

        Args:
            worker: index of the worker, from 0.
            workers: number of workers, at least 2.

        Returns:
            A source of the worker's share; or None, the default, if the source cannot divide its
            data. If the result is None, the training divides the rows of each batch among the
            workers (`split_by_worker`).
        """
        return None

    # ---- event time

    def iteration_tables(self) -> Sequence[Any]:
        """Return the tables that get the event time of each batch in an iteration; none by default.

        Raises:
            ValueError: batches have an event time, but there is no table on which to set the time.
        """
        return ()

    def event_tables(self, tables: Iterable[Any]) -> list[Any]:
        """Return the tables that get the event time of each batch; by default all of `tables`.

        Args:
            tables: tables of the network that is trained.

        Raises:
            ValueError: `tables` lacks a table on which the event time must be set.
        """
        return list(tables)


class BatchWrapper(BatchSource):
    """Source that changes the batches of another source, and delegates all other calls to that
    source.

    In nested wrappers, a property such as `has_state` has the value of the innermost source. A
    wrapper may drop batches. Even if the wrapper drops batches, the wrapper's state is the state
    after the last batch that was used in training.

    Args:
        source: source whose batches are changed.
        learner: object whose state changes when the wrapper's method `change` processes a batch.
            The learner has the methods `state_dict` and `load_state_dict`. The learner's state
            after each batch is part of the wrapper's state. Default: None.

    Attributes:
        source: source whose batches are changed.

    Raises:
        TypeError: `source` is not a BatchSource, or `learner` has no `load_state_dict`.

    Example:
        >>> import numpy as np
        >>> from dataclasses import replace
        >>> from mindspore_rec.stream import batch_source
        >>> class Halved(BatchWrapper):
        ...     def change(self, batch):
        ...         return replace(batch, columns=tuple(c[::2] for c in batch.columns))
        >>> wrapped = Halved(batch_source([{"ids": np.arange(4)}]))
        >>> list(wrapped), wrapped.length
        ([{'ids': array([0, 2])}], 1)
    """

    def __init__(self, source: BatchSource, learner: Any = None) -> None:
        if not isinstance(source, BatchSource):
            raise TypeError(
                f"source must be a BatchSource, as batch_source() makes it of other data, got "
                f"{type(source).__name__}"
            )
        if learner is not None and not hasattr(learner, "load_state_dict"):
            raise TypeError(f"learner must have state_dict and load_state_dict, got {learner!r}")
        self.source = source
        self._learner = learner
        self._learned: deque[tuple[int, Any]] = deque(maxlen=_STATES_KEPT)  # by batch

    def change(self, batch: Batch) -> Batch | None:
        """Return the changed batch, or None to drop the batch."""
        return batch

    def read(self) -> Iterator[Batch]:
        """Return an iterator over one pass of changed batches."""
        if self._learner is not None and not self._learned:
            self._learned.append((self.source.batches, self._learner.state_dict()))
        for batch in self.source.read():
            made = self.change(batch)
            if self._learner is not None and batch.number is not None:
                self._learned.append((batch.number, self._learner.state_dict()))
            if made is not None:
                yield replace(made, number=batch.number)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns; empty if the names are not known before the first batch."""
        return self.source.column_names

    @property
    def length(self) -> int | None:
        """Number of batches in a pass; None if unknown or infinite."""
        return self.source.length

    @property
    def stop_reason(self) -> str:
        """Reason why the last pass ended, or ""."""
        return self.source.stop_reason

    @property
    def lag(self) -> int | None:
        """Number of the stream's messages that are not in a batch yet; None without a stream."""
        return self.source.lag

    @property
    def has_state(self) -> bool:
        """True if the source's position can be saved."""
        return self.source.has_state

    @property
    def cannot_resume(self) -> str | None:
        """Reason why the source's position cannot be saved, or None."""
        reason = self.source.cannot_resume
        if reason is None and self._learner is not None and not self.has_state:
            return f"is {type(self).__name__} that learns of data without a state"
        return None if reason is None else f"is {type(self).__name__} whose source {reason}"

    @property
    def batches(self) -> int:
        """Number of batches read from the source over all runs."""
        return self.source.batches

    @property
    def passes(self) -> int | None:
        """Number of complete passes over the source in all runs; None if passes are not counted."""
        return self.source.passes

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the states of the source and of the learner; see `BatchSource.state_dict`."""
        if self._learner is None:
            return self.source.state_dict(batches=batches)
        number = self.source.batches if batches is None else batches
        learned = dict(self._learned) or {self.source.batches: self._learner.state_dict()}
        if number < min(learned):
            raise ValueError(f"batches must be at least {min(learned)}, got {number}")
        place = self.source.state_dict(batches=number)
        # If the wrapper dropped batch `number`, use the learner's latest state before batch
        # `number`.
        latest = max(known for known in learned if known <= number)
        return {"batches": number, "source": place, "learned": learned[latest]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at the position of a state. Call this method before the first batch is read."""
        if self._learner is None:
            self.source.load_state_dict(state)
            return
        states = states_in(state)
        if states is not None:
            source = join_states([each["source"] for each in states])
            state = {"source": source, "learned": states[0]["learned"]}
        if not isinstance(state, Mapping) or not {"source", "learned"} <= set(state):
            raise TypeError(f"state must be what state_dict() returned, got {state!r:.100}")
        self.source.load_state_dict(state["source"])
        self._learner.load_state_dict(state["learned"])
        self._learned.clear()

    def covered_streams(self) -> list[Any]:
        """Return the streams whose position is part of the source's state."""
        return self.source.covered_streams()

    def skip_passes(self, passes: int) -> None:
        """Mark the source's first passes as read; `passes` is the number of passes."""
        self.source.skip_passes(passes)

    @property
    def reads_on(self) -> bool:
        """True if `reads_on` is True for the source, and this class does not override `read`."""
        return type(self).read is BatchWrapper.read and self.source.reads_on

    @property
    def reads_in_pipeline(self) -> bool:
        """True if the source runs in the threads of a MindSpore pipeline."""
        return self.source.reads_in_pipeline

    @property
    def learns(self) -> bool:
        """True if the learner or the source learns from the batches."""
        return self._learner is not None or self.source.learns

    def split_by_worker(self, worker: int, workers: int) -> BatchSource | None:
        """Restrict the source to a worker's share; see `BatchSource.split_by_worker`.

        Raises:
            ValueError: the learner would learn from the rows of only one worker.
        """
        # A learner must read all rows of a stream, so return None. After the learner has read a
        # batch, the training divides the batch's rows among the workers.
        if self._learner is not None and self.source.covered_streams():
            return None
        share = self.source.split_by_worker(worker, workers)
        if share is None:
            return None
        if self._learner is not None:
            raise ValueError(
                f"the features of {type(self).__name__} learn of its batches, and each worker has "
                "batches of its own, so every worker would learn something else: fit the features "
                "and give pipeline.apply, or the same data to every worker"
            )
        self.source = share
        return self

    def iteration_tables(self) -> Sequence[Any]:
        """Return the tables on which an iteration over the source sets each batch's event time."""
        return self.source.iteration_tables()

    def event_tables(self, tables: Iterable[Any]) -> list[Any]:
        """Return the tables that get the event time of the source's batches."""
        return self.source.event_tables(tables)
