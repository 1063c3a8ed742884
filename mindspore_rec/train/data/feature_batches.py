# SPDX-License-Identifier: Apache-2.0
"""FeatureBatches: converts batches of raw columns to batches of keys with event time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from mindspore.dataset import Dataset

from mindspore_rec.common.columns.arrow_columns import as_array
from mindspore_rec.common.columns.tables_of_features import network_event_tables
from mindspore_rec.common.stream.batches import Batch, BatchSource, BatchWrapper
from mindspore_rec.common.stream.dataset import StreamingDataset
from mindspore_rec.common.stream.source import StreamSource
from mindspore_rec.train.data.batch_sources import DatasetBatches, batch_source
from mindspore_rec.train.data.event_tables import event_tables
from mindspore_rec.train.data.insert_func import InsertFunc
from mindspore_rec.train.parameter.hash_table import HashTable

__all__ = ["FeatureBatches", "stream_batches"]


class FeatureBatches(BatchWrapper):
    """Source of batches of feature keys, for `RecModel.train`, `online_train` and `eval`.

    For FeatureSpec objects, each batch contains the keys of each feature, followed by the columns
    that no feature reads. The label is not a feature, so it stays the last column. For a
    FeaturePipeline, each batch contains the pipeline's arrays. The timestamp is not a column of the
    batch. The batch's event time is the latest timestamp of its rows. Just before a batch's step,
    `RecModel` sets the batch's event time on the tables in which the network looks up the features.
    For a Dataset, the threads of the pipeline compute the keys ahead of the step.

    A batch is skipped if the pipeline's `prepare` removes all of its rows.

    If the source is a stream, the state of `FeatureBatches` includes the stream's position, so a
    `RecCheckpoint` can resume at the saved position.

    Args:
        source: a `mindspore.dataset.Dataset`, a `mindspore_rec.stream.StreamingDataset` or another
            `BatchSource`. The source may also be a finite or endless iterable of whole batches. A
            batch is a dict or tuple of columns, an Arrow RecordBatch or Table, or a DataFrame. The
            source may also be a `StreamSource`. The columns of a `StreamSource`, such as a
            `KafkaSource`, are used unchanged.
        specs: the features of a batch, as FeatureSpec objects or as a FeaturePipeline. A
            FeaturePipeline learns only in training. The statistics that a FeaturePipeline has
            learned are part of the state of `FeatureBatches`. A `Schema` is also accepted as
            `specs`. Call `Schema.fit` before passing a `Schema`, because `FeatureBatches` does not
            call `fit`.
        tables: the network or its tables, for a training loop without `RecModel`. If `tables` is
            set, iterating over this object sets the event time of the tables for each batch.
            Default: the tables of the network that `RecModel` trains.
        is_train: if True, the batches have an event time, and a FeaturePipeline learns from the
            batches. Use False for evaluation. If `is_train` is False, a source with column names
            needs no timestamp column. `RecModel.eval` rejects a pipeline that would learn. Default:
            True.

    Attributes:
        source: the source of raw batches.

    Yields:
        Dicts of columns; or tuples of columns, if columns have no names or the specs name columns
        by index.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, two features contradict each other,
            or features do not fit the tables or a batch. A ValueError is also raised if a training
            loop without `RecModel` reads the batches, a feature is the timestamp, and `tables` is
            None.
        RuntimeError: a batch of a Dataset does not fit the features; MindSpore raises the
            ValueError as a RuntimeError with the same message.

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
        if not isinstance(is_train, bool):
            raise TypeError(f"is_train must be a bool, got {is_train!r}")
        batches = _source_of(source)
        self._insert = InsertFunc(specs, with_time=is_train, learn=is_train)
        self._is_train = is_train
        self._timed = is_train and self._insert.timestamp is not None
        self._tables = self._check_tables(tables)
        specs = self._insert.specs
        self._by_place = bool(specs) and all(isinstance(spec.column, int) for spec in specs)
        self._inserted = isinstance(source, Dataset)
        if self._insert.schema is not None:
            self._insert.schema.check_fitted()
        learns = self._insert.learn and self._insert.pipeline.learns
        learner = self._insert.pipeline if learns else None
        super().__init__(
            DatasetBatches(self._insert(source), numpy=True) if self._inserted else batches, learner
        )

    def _check_tables(self, tables: Any) -> tuple[HashTable, ...] | None:
        if tables is None:
            return None
        if not self._is_train:
            raise ValueError("tables have their time set in training only: leave tables out")
        return event_tables(self._insert.specs, tables)

    def __len__(self) -> int:
        length = self.length
        if length is None:
            raise TypeError("the number of batches of this source is not known")
        return length

    def iteration_tables(self) -> Sequence[Any]:
        """Return the tables that receive event times when a program iterates over this object.

        Raises:
            ValueError: a feature is the timestamp, but `tables` is None.
        """
        if not self._is_train:
            return ()
        if not self._timed:
            return self.source.iteration_tables()
        if self._tables is None:
            name = self._insert.timestamp.name if self._insert.timestamp is not None else ""
            raise ValueError(
                f"tables must be given: feature '{name}' sets their event time. Only RecModel, "
                "which knows its network's tables, needs none"
            )
        return self._tables

    def change(self, batch: Batch) -> Batch | None:
        """Convert the features to keys; return a new batch with the keys and the event time.

        The method returns None if `prepare` removed all rows of the batch.
        """
        made = self._of_dataset(batch) if self._inserted else self._of_rows(batch)
        prepared = self._insert.pipeline.reads() is None
        if prepared and made.columns and not len(made.columns[-1]):
            return None
        return made if self._is_train else replace(made, event_time=None)

    def _of_dataset(self, batch: Batch) -> Batch:
        """Return a Dataset's batch with the event time removed from the columns."""
        place = self._insert.time_place
        if place is None:
            return batch
        without = partial(_without, place=place)
        names = None if batch.names is None else without(batch.names)
        return Batch(without(batch.columns), names, int(batch.columns[place][0]))

    def _of_rows(self, batch: Batch) -> Batch:
        pipeline = self._insert.pipeline
        by_place = batch.names is None or self._by_place
        rows = batch.columns if by_place else batch.plain
        made, seconds = pipeline.batch(
            rows, self._insert.learn, with_time=self._timed, training=self._is_train
        )
        names = tuple(map(str, range(len(made)))) if by_place else tuple(made)
        values = made if by_place else made.values()
        columns = tuple(as_array(*each, text=True) for each in zip(names, values, strict=True))
        event_time = seconds if self._timed else batch.event_time
        return Batch(columns, None if by_place else names, event_time)

    @property
    def column_names(self) -> list[str]:
        """Names of the batches' columns; empty if only the first batch can show the names."""
        names = self.source.column_names
        if self._inserted:
            place = len(self._insert.pipeline.column_names)
            return names[:place] + names[place + 1 :] if self._timed else names
        if not names or self._by_place:
            return []
        pipeline = self._insert.pipeline
        if not pipeline.keep_rest:
            return list(pipeline.column_names)
        taken = set(pipeline.reads() or ())
        if pipeline.timestamp is not None:
            taken.add(pipeline.timestamp.column)
        return pipeline.column_names + [name for name in names if name not in taken]

    def event_tables(self, tables: Iterable[Any]) -> list[Any]:
        """Return the tables that receive the event time.

        If the constructor's argument `tables` was set, return the tables in that argument.

        Args:
            tables: tables of the network that is trained.

        Raises:
            ValueError: a feature is the timestamp, but no feature is looked up in a table, or
                `tables` lacks a table that evicts by age.
        """
        if not self._timed:
            return self.source.event_tables(tables)
        if self._tables is not None:
            return list(self._tables)
        if self._insert.schema is not None:
            return list(tables)
        return network_event_tables(self._insert.specs, tables)


def _source_of(source: Any) -> BatchSource:
    if isinstance(source, StreamSource):
        return stream_batches(source)
    return batch_source(source, "source")


def stream_batches(source: StreamSource) -> StreamingDataset:
    """Return the raw columns of a stream, in batches of Arrow arrays."""
    return StreamingDataset(source, _columns_of)


def _columns_of(rows: pa.RecordBatch) -> dict[str, Any]:
    return dict(zip(rows.schema.names, rows.columns, strict=True))


def _without(values: tuple[Any, ...], place: int) -> tuple[Any, ...]:
    return values[:place] + values[place + 1 :]
