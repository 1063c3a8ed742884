# SPDX-License-Identifier: Apache-2.0
"""batch_source: converts any training data to a BatchSource."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
from mindspore.dataset import Dataset, GeneratorDataset
from mindspore.dataset.engine.datasets import RepeatDataset

from mindspore_rec.common.columns.arrow_columns import to_record_batch
from mindspore_rec.common.stream.batches import Batch, BatchSource

_ROWS = (pa.RecordBatch, pa.Table, pd.DataFrame)

__all__ = ["DatasetBatches", "IterableBatches", "batch_source"]


def batch_source(data: Any, argument: str = "data") -> BatchSource:
    """Return training data as a source of batches.

    `data` may be one of the following objects.

    * A `BatchSource`, such as `StreamingDataset` and `FeatureBatches`, is returned unchanged.
    * A `mindspore.dataset.Dataset` yields its batches.
    * An iterable yields batches. A batch is a tuple, list or dict of arrays, or a single array. For
      `FeatureBatches`, batches may also be Arrow RecordBatches or Tables, or DataFrames. The
      iterable can be resumed if it has `state_dict(batches=N)` and `load_state_dict`, like a
      `StreamingDataset`.

    Args:
        data: the training data.
        argument: name of the argument in error messages (default "data").

    Raises:
        TypeError: `data` has an unsupported type.

    Example:
        >>> batch_source([(1,), (2,)]).length
        2
        >>> batch_source(iter([(1,), (2,)])).cannot_resume
        'is a list_iterator'
    """
    if isinstance(data, BatchSource):
        return data
    if isinstance(data, _ROWS):
        raise TypeError(
            f"{argument} must be an iterable of batches, got a {type(data).__name__}, which is one "
            "batch: a list may have it"
        )
    if isinstance(data, Dataset):
        return DatasetBatches(data)
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, Mapping)):
        return IterableBatches(data)
    raise TypeError(
        f"{argument} must be a mindspore.dataset.Dataset or an iterable of batches (tuples, dicts "
        f"of arrays), got {type(data).__name__}"
    )


class IterableBatches(BatchSource):
    """Source of the batches of an iterable.

    Args:
        data: iterable of batches. A batch is a tuple, list or dict of arrays, a single array, or
            rows in an Arrow RecordBatch, a Table or a DataFrame. Columns with names are returned in
            the order of the first batch's columns. If a batch consists of rows, the columns of the
            batch are Arrow arrays.

    Raises:
        ValueError: during iteration, a batch's columns differ from the columns of the first batch.

    Example:
        >>> source = IterableBatches([{"a": 1, "b": 2}, {"b": 4, "a": 3}])
        >>> [batch.columns for batch in source.read()]
        [(1, 2), (3, 4)]
    """

    def __init__(self, data: Iterable[Any]) -> None:
        self._data = data
        self._stateful = hasattr(data, "state_dict") and hasattr(data, "load_state_dict")

    def read(self) -> Iterator[Batch]:
        """Return an iterator over one pass of the iterable."""
        number = self._count()
        names: tuple[str, ...] | None = None
        for batch in self._data:
            each = _columns_of_rows(batch) if isinstance(batch, _ROWS) else batch
            number = None if number is None else number + 1
            if isinstance(each, Mapping):
                names = tuple(each) if names is None else names
                if set(names) != set(each):
                    raise ValueError(
                        f"batches must have the same columns {list(names)}, got {list(each)}"
                    )
                yield Batch(tuple(each[name] for name in names), names, number=number)
            else:
                columns = tuple(each) if isinstance(each, (tuple, list)) else (each,)
                yield Batch(columns, number=number)

    @property
    def column_names(self) -> list[str]:
        """The iterable's attribute `column_names`; empty if the iterable has no such attribute."""
        return list(getattr(self._data, "column_names", ()))

    @property
    def length(self) -> int | None:
        """Length of the iterable; None if it has no length."""
        return _length(self._data)

    @property
    def stop_reason(self) -> str:
        """The iterable's attribute `stop_reason`; empty if the iterable has no such attribute."""
        return str(getattr(self._data, "stop_reason", ""))

    @property
    def lag(self) -> int | None:
        """The iterable's attribute `lag`; None if the iterable has no attribute `lag`."""
        return getattr(self._data, "lag", None)

    @property
    def has_state(self) -> bool:
        """True if the iterable has a state, and `state_dict` takes a number of batches."""
        return self._stateful and self._names_batches()

    @property
    def cannot_resume(self) -> str | None:
        """Reason why the position cannot be saved (such as a missing length), or None."""
        if self._stateful:
            if self._names_batches():
                return None
            return (
                f"is a {_kind(self._data)} whose state_dict does not tell 'batches' and take "
                "batches=N, the batches that were trained, as a StreamingDataset's does"
            )
        return None if self.length is not None else f"is a {_kind(self._data)}"

    @property
    def batches(self) -> int:
        """Number of batches that the iterable's state has counted; 0 if there is no state."""
        return self._count() or 0

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the iterable's state; see `BatchSource.state_dict`."""
        if not self._stateful:
            return super().state_dict(batches)
        data: Any = self._data
        state: dict[str, Any] = data.state_dict(**({} if batches is None else {"batches": batches}))
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state into the iterable."""
        if not self._stateful:
            super().load_state_dict(state)
        data: Any = self._data
        data.load_state_dict(state)

    def split_by_worker(self, worker: int, workers: int) -> BatchSource | None:
        """Return a source of the batches that the iterable's `split_by_worker(worker, workers)`
        returns.

        Returns: Source of the worker's batches. None if the iterable has no method
            `split_by_worker`, or if the method returns None.
        """
        split = getattr(self._data, "split_by_worker", None)
        share = None if split is None else split(worker, workers)
        return None if share is None else batch_source(share)

    def covered_streams(self) -> list[Any]:
        """Return the iterable and the sources that it wraps; [] if the iterable has no state."""
        streams: list[Any] = []
        each: Any = self._data if self.has_state else None
        while each is not None and not any(each is known for known in streams):
            streams.append(each)
            each = getattr(each, "source", None)
        return streams

    def skip_passes(self, passes: int) -> None:
        """Call the iterable's method `skip_passes(passes)` if the iterable has this method."""
        skip = getattr(self._data, "skip_passes", None)
        if skip is not None:
            skip(passes)

    def _count(self) -> int | None:
        if not self.has_state:
            return None
        data: Any = self._data
        return int(data.state_dict()["batches"])

    def _names_batches(self) -> bool:
        data: Any = self._data
        try:
            data.state_dict(batches=data.state_dict()["batches"])
        except (TypeError, KeyError, IndexError):
            return False
        return True


class DatasetBatches(BatchSource):
    """Source of the batches of a MindSpore data set; the data set yields whole batches.

    Args:
        dataset: any `mindspore.dataset.Dataset`.
        numpy: if True, a batch contains NumPy arrays, and the columns have names. If False, the
            columns have no names; text columns are arrays, and all other columns are Tensors.
            Default: False.
    """

    def __init__(self, dataset: Dataset, *, numpy: bool = False) -> None:
        self._dataset = dataset
        self._numpy = numpy

    def read(self) -> Iterator[Batch]:
        """Return an iterator over one pass of the data set."""
        # The names are read only if needed, because MindSpore copies the pipeline to return the
        # names.
        names = tuple(self.column_names) if self._numpy else None
        # The iterator runs in the calling thread. In a separate thread, an error inside the
        # pipeline would crash MindSpore 2.10. In the calling thread, Ctrl-C does not end a wait
        # immediately.
        for columns in self._dataset.create_tuple_iterator(
            num_epochs=1, output_numpy=self._numpy, do_copy=False
        ):
            yield Batch(tuple(columns), names)

    @property
    def column_names(self) -> list[str]:
        """Names of the data set's columns."""
        return list(self._dataset.get_col_names())

    @property
    def length(self) -> int | None:
        """Number of batches in a pass; None if the data are endless or must be read to be counted.

        If a generator has no length, `Dataset.get_dataset_size()` reads the generator to its end.
        For an unbounded generator, `get_dataset_size()` would never return. `get_dataset_size()` is
        not called for generators without a length.
        """
        if not _has_length(self._dataset):
            return None
        size = self._dataset.get_dataset_size()
        return size if size is not None and size > 0 else None

    @property
    def cannot_resume(self) -> str | None:
        """Reason why the position cannot be saved, such as an endless Python generator; or None."""
        for each in _generators(self._dataset):
            source = each.source
            if hasattr(source, "state_dict") and hasattr(source, "load_state_dict"):
                return f"is a GeneratorDataset over a {type(source).__name__}, which reads it ahead"
            if _length(source) is None:
                return f"is a GeneratorDataset over a {_kind(source)} without a length"
        return None

    def split_by_worker(self, worker: int, workers: int) -> BatchSource | None:
        """Return this source if the data set is already sharded for the worker.

        Returns: This source; None if the data set has no shards. If the result is None, the caller
            must divide the rows of each batch.

        Raises:
            ValueError: `num_shards` or `shard_id` of the data set does not match the workers.
        """
        shards = _shards(self._dataset)
        if not shards:
            return None
        if shards != {(workers, worker)}:
            text = ", ".join(f"shard {shard} of {number}" for number, shard in sorted(shards))
            raise ValueError(
                f"the data set must have num_shards={workers} and shard_id={worker}, the shard of "
                f"this worker, or no shards, got {text}"
            )
        return self

    @property
    def reads_in_pipeline(self) -> bool:
        """True if a `GeneratorDataset` is part of the data set."""
        return bool(_generators(self._dataset))


def _columns_of_rows(rows: Any) -> dict[str, Any]:
    batch = to_record_batch(rows)
    names = batch.schema.names
    if len(set(names)) < len(names):
        raise ValueError(f"batches must have columns of different names, got {names}")
    return dict(zip(names, batch.columns, strict=True))


def _has_length(dataset: Dataset) -> bool:
    if isinstance(dataset, GeneratorDataset) and _length(dataset.source) is None:
        return False
    if isinstance(dataset, RepeatDataset) and dataset.count < 1:  # repeated without end
        return False
    return all(_has_length(child) for child in dataset.children)


def _generators(dataset: Dataset) -> list[GeneratorDataset]:
    generators = [dataset] if isinstance(dataset, GeneratorDataset) else []
    return generators + [each for child in dataset.children for each in _generators(child)]


def _shards(dataset: Dataset) -> set[tuple[int, int]]:
    """Return `(num_shards, shard_id)` of each sharded source in the data set."""
    sampler = getattr(dataset, "sampler", None)
    shards = set()
    for each in (dataset, sampler):
        number, shard = getattr(each, "num_shards", None), getattr(each, "shard_id", None)
        if isinstance(number, int) and isinstance(shard, int) and number > 1:
            shards.add((number, shard))
    return shards.union(*(_shards(child) for child in dataset.children))


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except TypeError:
        return None


def _kind(data: Any) -> str:
    return getattr(data, "__name__", None) or type(data).__name__
