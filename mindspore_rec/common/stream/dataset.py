# SPDX-License-Identifier: Apache-2.0
"""StreamingDataset: read a stream as batches of arrays for training."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.common.columns.arrow_columns import as_array, to_arrays
from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.columns.tables_of_features import network_event_tables
from mindspore_rec.common.stream.batches import Batch, BatchSource
from mindspore_rec.common.stream.source import StreamSource
from mindspore_rec.common.stream.worker_states import join_states, states_in

__all__ = ["StreamingDataset"]

_KEPT = 1024

Transform = Callable[[pa.RecordBatch], Mapping[str, np.ndarray]]


class StreamingDataset(BatchSource):
    """Source that yields batches of a stream, for `RecModel.online_train` and `FeatureBatches`.

    The dataset's state consists of the position in the stream and the transform's state. The
    position and the transform's state are always saved after the same batch.
    `state_dict(batches=...)` returns the state after the last batch used in training, even if
    further batches have been read ahead. `RecCheckpoint` saves the state if the training data are
    this object or a `BatchWrapper` around this object, such as `FeatureBatches`. `RecCheckpoint`
    refuses other objects that read this dataset, such as a `mindspore.dataset.GeneratorDataset` or
    a generator expression, because the number of batches used in training is then unknown.

    If the source has `event_time=`, or a feature of the transform is the timestamp, each batch has
    the latest time of its events. `RecModel` sets a batch's time on tables just before the batch's
    step, even if batches are read ahead. If a feature of the transform is the timestamp, the time
    is set on the tables of the transform's features. If no feature of the transform is the
    timestamp, the time is set on all hash tables.

    Args:
        source: a `KafkaSource`, `DataReceiver` or other `StreamSource`.
        transform: function, for example a `FeaturePipeline`, that converts an Arrow record batch to
            a dict from column name to whole-batch array. The label must be the last column. If the
            transform has `state_dict` and `load_state_dict`, the transform's state is part of the
            dataset's state. A batch that has no rows after the transform is skipped. The transform
            may also be a `Schema`, which must be fitted already, because the schema does not learn
            from the stream. Default: `to_arrays`, which does not change the columns.
        columns: names of the columns of a batch, in order, with the label last. Columns that are
            not inputs of the network, such as the event time, may be left out. Default: None, which
            means all columns.

    Raises:
        TypeError: `source`, `transform` or `columns` is of the wrong type.
        ValueError: `columns` is empty, or contains a name twice or a name that batches lack.

    Example:
        >>> from mindspore_rec.stream import DataReceiver, DataSender, MemoryTopic, StopWhen
        >>> topic = MemoryTopic()
        >>> ids, label = np.array([[1, 2], [3, 4]]), np.array([[0.0], [1.0]], np.float32)
        >>> DataSender(topic).send({"ids": ids, "label": label})
        >>> receiver = DataReceiver(topic, batch_size=2, stop=StopWhen(batches=1))
        >>> for ids, label in StreamingDataset(receiver):
        ...     ids.tolist(), label.tolist()
        ([[1, 2], [3, 4]], [[0.0], [1.0]])
    """

    def __init__(
        self,
        source: StreamSource,
        transform: Transform | Schema | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        if not isinstance(source, StreamSource):
            raise TypeError(f"source must be a StreamSource, got {type(source).__name__}")
        self._schema = transform if isinstance(transform, Schema) else None
        if transform is not None and self._schema is None and not callable(transform):
            raise TypeError(f"transform must be callable, got {type(transform).__name__}")
        self.source = source
        self._transform: Any = transform if transform is not None else to_arrays
        self._learns = hasattr(self._transform, "state_dict")
        stage = transform if self._schema is None else self._schema.pipeline
        made = getattr(stage, "column_names", None)
        if transform is None and source.format.schema is not None:
            made = source.format.schema.names
        self._stage = stage if isinstance(stage, FeaturePipeline) else None
        if self._stage is not None and self._stage.keep_rest:
            made = None  # the first batch has the names
        self._chosen = _check_columns(columns, made)
        self._select = self._chosen if transform is None else None  # others need not be numbers
        self._names = tuple(self._chosen or made or ())
        self._checked = made is not None
        self._batches = 0
        self._lock = threading.Lock()
        self._places: deque[tuple[int, int, Any]] = deque(maxlen=_KEPT)
        self._remember(source.state_dict()["batches"])

    def __iter__(self) -> StreamingDataset:
        return self

    def __next__(self) -> tuple[np.ndarray, ...]:
        return self._next().columns

    def read(self) -> Iterator[Batch]:
        """Return an iterator over the next batches until the stream ends."""
        while True:
            try:
                batch = self._next()
            except StopIteration:
                return
            yield batch

    def _next(self) -> Batch:
        if self._schema is not None:
            self._schema.check_fitted()
        while True:
            rows = next(self.source)
            taken, event_time = self.source.batches, self.source.event_time
            if self._select is not None:
                rows = self._selected(rows)
            if self._stage is None:
                columns = self._transform(rows)
            else:
                columns, latest = self._stage.batch(rows, learn=self._schema is None, training=True)
                event_time = event_time if self._stage.timestamp is None else latest
            if not self._checked:
                _check_columns(self._chosen, list(columns))
                self._names = self._names or tuple(columns)
                self._checked = True
            self._batches += 1
            made = tuple(columns[name] for name in self._names)
            if self._stage is not None and self._stage.keep_rest:
                made = tuple(
                    as_array(*each, text=True) for each in zip(self._names, made, strict=True)
                )
            if len(made[-1]):
                self._remember(taken)
                return Batch(made, self._names, event_time, self._batches)
            self._batches -= 1

    def _selected(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        _check_columns(self._select, rows.schema.names)
        return rows.select(list(self._select or ()))

    def _remember(self, taken: int) -> None:
        learned = self._transform.state_dict() if self._learns else None
        with self._lock:
            self._places.append((self._batches, taken, learned))

    @property
    def column_names(self) -> list[str]:
        """Names of a batch's arrays; empty if the names are not known before the first batch."""
        return list(self._names)

    @property
    def has_state(self) -> bool:
        """True, because the position in a stream can be saved."""
        return True

    @property
    def reads_on(self) -> bool:
        """True, because the stream keeps the rows of the unfinished batch after an exception."""
        return True

    @property
    def learns(self) -> bool:
        """True if the transform learns from the batches."""
        return self._learns and self._schema is None and getattr(self._transform, "learns", True)

    @property
    def batches(self) -> int:
        """Number of batches read over all runs of the stream."""
        return self._batches

    def split_by_worker(self, worker: int, workers: int) -> BatchSource | None:
        """Restrict this stream to the partitions of one worker, and return the stream.

        Returns:
            This stream; None if there are fewer partitions than workers, or if the transform
            learns. A transform that learns must read all rows on every worker. If the result is
            None, the training divides the rows of each batch among the workers.
        """
        if self.learns or len(self.source.wanted_partitions) < workers:
            return None
        self.source.split_by_worker(worker, workers)
        with self._lock:
            self._places.clear()
        self._remember(self.source.batches)
        return self

    def covered_streams(self) -> list[Any]:
        """Return the source, because the source's position is part of the dataset's state."""
        return [self.source]

    def event_tables(self, tables: Iterable[Any]) -> list[Any]:
        """Return the tables on which the event time is set.

        If a feature of the transform is the timestamp, return the tables of the transform's
        features. Otherwise, return all tables.

        Args:
            tables: tables of the network that is trained.

        Raises:
            ValueError: a feature is the timestamp, but `tables` contains none of the features'
                tables, or a table that evicts rows by age is missing.
        """
        if self._stage is None or self._stage.timestamp is None or self._schema is not None:
            return list(tables)
        return network_event_tables(self._stage.specs, tables)

    @property
    def lag(self) -> int:
        """Approximate number of the topic's messages that are not in any batch yet."""
        return self.source.lag

    @property
    def stop_reason(self) -> str:
        """Reason why the stream ended, or ""."""
        return self.source.stop_reason

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return a JSON dict that contains the position in the stream and the transform's state.

        Args:
            batches: number of batches, counted over all runs, after which the state is returned.
                The states after the last 1024 batches are kept. Default: None, which means the
                state after the last batch.

        Raises:
            ValueError: the state after `batches` batches is not known.
        """
        with self._lock:
            places = list(self._places)
        matching = [place for place in places if batches is None or place[0] == batches]
        if not matching:
            raise ValueError(f"batches must be in [{places[0][0]}, {places[-1][0]}], got {batches}")
        number, taken, learned = matching[-1]
        source = self.source.state_dict(batches=taken)
        return {"batches": number, "source": source, "transform": learned}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at the position of a state. Call this method before the first batch.

        Raises:
            TypeError, ValueError: `state` does not belong to this kind of stream and transform.
            RuntimeError: batches have been read.
        """
        states = states_in(state)
        if states is not None:
            state = {**states[0], "batches": state["batches"]}
            state["source"] = join_states([each["source"] for each in states])
        if not isinstance(state, Mapping) or not {"batches", "source", "transform"} <= set(state):
            raise TypeError(f"state must be what state_dict() returned, got {state!r:.100}")
        if self._learns != (state["transform"] is not None):
            raise ValueError("state must be of a stream with the same transform")
        self.source.load_state_dict(state["source"])
        if self._learns:
            self._transform.load_state_dict(state["transform"])
        self._batches = int(state["batches"])
        with self._lock:
            self._places.clear()
        self._remember(self.source.batches)

    def close(self) -> None:
        """Stop reading. `state_dict` still works afterwards."""
        self.source.close()

    def __enter__(self) -> StreamingDataset:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _check_columns(columns: Any, made: Sequence[str] | None) -> tuple[str, ...] | None:
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise TypeError(f"columns must be a list of names, got {columns!r}")
    if not columns or len(set(columns)) < len(columns):
        raise ValueError(f"columns must be one or more different names, got {columns!r}")
    if made is not None and not set(columns) <= set(made):
        raise ValueError(f"columns must be among {list(made)}, got {list(columns)}")
    return tuple(columns)
