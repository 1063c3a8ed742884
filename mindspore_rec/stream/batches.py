# SPDX-License-Identifier: Apache-2.0
"""Batch and BatchSource: the one protocol of whatever yields batches for training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Batch", "BatchSource", "BatchWrapper"]

_STATES_KEPT = 1024


@dataclass(frozen=True)
class Batch:
    """One batch of a source, with what belongs to this very batch.

    Args:
        columns: arrays ``[B, ...]`` or Tensors, the label last.
        names: of the columns. Default: None, they have none.
        event_time: the latest of the batch's events, whole seconds since 1970, 1 to 2**32 - 1.
            Default: None, no time is known.
        number: batches of the source's life up to and with this one: what
            `BatchSource.state_dict(batches=number)` takes to name the state after this batch.
            Default: None, the source has no state.

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

    @property
    def plain(self) -> dict[str, Any] | tuple[Any, ...]:
        """The columns alone: a dict by name, or a tuple where they have no names."""
        if self.names is None:
            return self.columns
        return dict(zip(self.names, self.columns, strict=True))


class BatchSource(ABC):
    """What training, evaluation and checkpoints ask of data; `batch_source` makes it of others'.

    A source is one of three kinds:

    * it has a state (`has_state`): `state_dict` says where it is, `load_state_dict` goes on there;
    * it begins anew with each pass and has an end: an epoch begins at its beginning, and there is
      no state to keep;
    * neither: it cannot be resumed, and `cannot_resume` says why.

    A subclass must have `read`, and whatever else differs from "no state, no known length". One
    that changes batches of another source is a `BatchWrapper`.
    """

    @abstractmethod
    def read(self) -> Iterator[Batch]:
        """Return an iterator over one pass.

        The arrays of a batch may be used again by the source when the next one is asked for.
        """

    def __iter__(self) -> Iterator[Any]:
        """Iterate over one pass: dicts of columns, or tuples where columns have no names."""
        for batch in self.read():
            yield batch.plain

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, as far as known before the first batch."""
        return []

    @property
    def length(self) -> int | None:
        """Number of batches in a pass; None where it is not known or there is no end."""
        return None

    @property
    def stop_reason(self) -> str:
        """Why the last pass ended, or nothing."""
        return ""

    @property
    def lag(self) -> int | None:
        """Number of messages of a stream that are in no batch yet; None for other data."""
        return None

    # ---- going on after a restart

    @property
    def has_state(self) -> bool:
        """Whether `state_dict` and `load_state_dict` save and restore the place in the data."""
        return False

    @property
    def cannot_resume(self) -> str | None:
        """Why the place in the data would be lost, to be put after the data's name; or None."""
        if self.has_state or self.length is not None:
            return None
        return f"is a {type(self).__name__} without a state or a length"

    @property
    def batches(self) -> int:
        """Number of batches read in the source's life; 0 without a state."""
        return 0

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the place in the data as JSON values, `batches` among them.

        Args:
            batches: as it was after so many batches in the source's life, which is a batch's
                `number`; for a reader that is ahead of the training. Default: after the last one.

        Raises:
            ValueError: the source has no state, or that one is not known any more.
        """
        raise ValueError(f"a {type(self).__name__} has no state")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where that state was taken; before the first batch only.

        Raises:
            TypeError, ValueError: it is no state of such a source.
            RuntimeError: batches have been read.
        """
        raise ValueError(f"a {type(self).__name__} has no state")

    def covered_streams(self) -> list[Any]:
        """Return the objects whose place in a stream is part of `state_dict`."""
        return []

    @property
    def reads_in_pipeline(self) -> bool:
        """Whether Python code of the data runs in the threads of a MindSpore pipeline."""
        return False

    # ---- event time

    def event_tables(self, tables: Iterable[Any]) -> list[Any]:
        """Return those of a network's tables whose event time the batches set: all of them.

        Args:
            tables: of the network that is trained.

        Raises:
            ValueError: a table that the source sets the time of is not among them.
        """
        return list(tables)


class BatchWrapper(BatchSource):
    """Changes the batches of another source; everything else is as of that source.

    So a wrapper around a wrapper around a stream has the stream's state. A batch may be left out:
    the state is that after the batch that was trained last, whatever its place among those that
    came out.

    Args:
        source: what batches come from.
        learner: what learns of the batches in `change`, with `state_dict` and `load_state_dict`:
            what it had learned by a batch is then part of the state. Default: nothing does.

    Attributes:
        source: the same.

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
        """Return the batch that comes out for one that comes in; None leaves it out."""
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
        """Names of the columns, as far as known before the first batch."""
        return self.source.column_names

    @property
    def length(self) -> int | None:
        """Number of batches in a pass; None where it is not known or there is no end."""
        return self.source.length

    @property
    def stop_reason(self) -> str:
        """Why the last pass ended, or nothing."""
        return self.source.stop_reason

    @property
    def lag(self) -> int | None:
        """Number of messages of a stream that are in no batch yet; None for other data."""
        return self.source.lag

    @property
    def has_state(self) -> bool:
        """Whether the source's place can be saved."""
        return self.source.has_state

    @property
    def cannot_resume(self) -> str | None:
        """Why the source's place would be lost, or None."""
        reason = self.source.cannot_resume
        if reason is None and self._learner is not None and not self.has_state:
            return f"is {type(self).__name__} that learns of data without a state"
        return None if reason is None else f"is {type(self).__name__} whose source {reason}"

    @property
    def batches(self) -> int:
        """Number of batches read of the source in its life."""
        return self.source.batches

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the source's place, with what was learned; see `BatchSource.state_dict`."""
        if self._learner is None:
            return self.source.state_dict(batches=batches)
        number = self.source.batches if batches is None else batches
        learned = dict(self._learned) or {self.source.batches: self._learner.state_dict()}
        if number < min(learned):
            raise ValueError(f"batches must be at least {min(learned)}, got {number}")
        place = self.source.state_dict(batches=number)
        # Nothing is learned of batches that the source leaves out.
        latest = max(known for known in learned if known <= number)
        return {"batches": number, "source": place, "learned": learned[latest]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where that state was taken; before the first batch only."""
        if self._learner is None:
            self.source.load_state_dict(state)
            return
        if not isinstance(state, Mapping) or not {"source", "learned"} <= set(state):
            raise TypeError(f"state must be what state_dict() returned, got {state!r:.100}")
        self.source.load_state_dict(state["source"])
        self._learner.load_state_dict(state["learned"])
        self._learned.clear()

    def covered_streams(self) -> list[Any]:
        """Return the streams whose place is part of the source's state."""
        return self.source.covered_streams()

    @property
    def reads_in_pipeline(self) -> bool:
        """Whether the source runs in the threads of a MindSpore pipeline."""
        return self.source.reads_in_pipeline

    def event_tables(self, tables: Iterable[Any]) -> list[Any]:
        """Return the tables whose event time the source's batches set."""
        return self.source.event_tables(tables)
