# SPDX-License-Identifier: Apache-2.0
"""FeatureBatches: a source of raw batches as batches for `RecModel`, with event time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from mindspore.dataset import Dataset

from mindspore_rec.feature.event_tables import event_tables
from mindspore_rec.feature.insert_func import InsertFunc
from mindspore_rec.parameter import MapParameter
from mindspore_rec.train.batches import batch_count, check_source

__all__ = ["FeatureBatches"]

_OF_A_STREAM = ("state_dict", "load_state_dict", "lag", "stop_reason")


class FeatureBatches:
    """Batches of features as keys, for `RecModel.train`, `online_train`, `eval`.

    A batch that comes out has, in this order, the keys of each feature and the columns that no
    feature reads, the label last as it was. The timestamp does not come out: when a batch is handed
    over for training, the tables are told its latest time, just before the step that looks its ids
    up. For a Dataset the keys are made in the pipeline's threads, ahead of that. `RecModel`, which
    reads ahead where a table's cache prefetches, tells the time at the step all the same. Nothing
    else that reads ahead, such as a thread, belongs around this object; put it inside.

    Around a `mindspore_rec.stream.StreamingDataset` it has the stream's state as its own
    (`state_dict`, `load_state_dict`, `lag`, `stop_reason`), for it makes one batch of each: a
    `RecCheckpoint` goes on where the training was.

    Args:
        source: a `mindspore.dataset.Dataset`, or an iterable of dicts or tuples of columns, whole
            batches. It may be endless.
        specs: features of a batch, FeatureSpec objects, or a FeaturePipeline, which learns in
            training only.
        tables: the network, or its tables, that are told the time. Needed in training where a
            feature is the timestamp, and only then.
        is_train: False for evaluation: tables are not told the time, and a source whose columns
            have names need not have it. Default: True.

    Attributes:
        source: what it reads.

    Yields:
        Dicts, or tuples where the source gives tuples.

    Raises:
        TypeError, ValueError: an argument is of the wrong type; features do not fit together, to
            the tables or to a batch.
        RuntimeError: a Dataset whose batch does not fit, with the same message.

    Example:
        >>> import mindspore as ms
        >>> import numpy as np
        >>> from mindspore_rec import FeatureBatches, FeatureSpec
        >>> source = [{"user": np.array([["ann"], ["bob"]]), "label": np.ones((2, 1), np.float32)}]
        >>> for batch in FeatureBatches(source, FeatureSpec("user", table_name="users")):
        ...     print({name: (column.dtype.name, column.shape) for name, column in batch.items()})
        {'user': ('int64', (2, 1)), 'label': ('float32', (2, 1))}
    """

    def __init__(
        self, source: Any, specs: Any, tables: Any = None, *, is_train: bool = True
    ) -> None:
        check_source(source, "source")
        if not isinstance(is_train, bool):
            raise TypeError(f"is_train must be a bool, got {is_train!r}")
        self._insert = InsertFunc(specs, with_time=is_train, learn=is_train)
        self._tables = self._told(tables, is_train)
        self._count = batch_count(source)
        self.source = self._insert(source) if isinstance(source, Dataset) else source
        self._place = self._insert.time_place if self._tables else None

    def _told(self, tables: Any, is_train: bool) -> tuple[MapParameter, ...]:
        timestamp = self._insert.timestamp
        if tables is not None:
            if not is_train:
                raise ValueError("tables are told the time in training only: leave tables out")
            return event_tables(self._insert.specs, tables)
        if is_train and timestamp is not None:
            raise ValueError(
                f"tables must be given: feature '{timestamp.name}' is the time they are told"
            )
        return ()

    def __getattr__(self, name: str) -> Any:
        # Only what a stream has; a list has no state, and then neither has this.
        if name in _OF_A_STREAM and not isinstance(self.source, Dataset):
            return getattr(self.source, name)
        raise AttributeError(f"FeatureBatches has no attribute {name!r}", name=name, obj=self)

    def __len__(self) -> int:
        if self._count is None:
            raise TypeError("the number of batches of this source is not known")
        return self._count

    def __iter__(self) -> Iterator[Any]:
        for batch, tell in self.read_ahead():
            tell()
            yield batch

    def read_ahead(self) -> Iterator[tuple[Any, Callable[[], None]]]:
        """One pass in which the tables are not told the time when a batch comes out.

        Yields:
            The batch, and a function that tells the tables its time: to be called just before the
            batch's step.
        """
        if isinstance(self.source, Dataset):
            names = self.source.get_col_names()
            rows = self.source.create_tuple_iterator(num_epochs=1, output_numpy=True)
            made = (dict(zip(names, row, strict=True)) for row in rows)
        else:
            made = (self._insert(batch) for batch in self.source)
        for batch in made:
            seconds = None
            if self._place is not None:
                batch, seconds = _without_time(batch, self._place)
            yield batch, partial(self._tell, seconds)

    def _tell(self, seconds: int | None) -> None:
        if seconds is not None:
            for table in self._tables:
                table.set_event_time(seconds)


def _without_time(batch: Any, place: int) -> tuple[Any, int]:
    """The batch without its column of times, and the time."""
    if isinstance(batch, Mapping):
        batch = dict(batch)
        times = batch.pop(list(batch)[place])
    else:
        times = batch[place]
        batch = batch[:place] + batch[place + 1 :]
    return batch, int(times[0])
