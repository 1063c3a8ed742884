# SPDX-License-Identifier: Apache-2.0
"""FeaturePipeline: from rows of raw columns to the arrays that a model reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.checks import check_int
from mindspore_rec.feature.arrow_columns import to_record_batch
from mindspore_rec.feature.transforms import Feature

__all__ = ["FeaturePipeline"]

Prepare = Callable[[Any], Any]


class FeaturePipeline:
    """Turns record batches, DataFrames or dicts of columns into whole-batch arrays.

    As the transform of a `StreamingDataset`, or before a `DataSender`; what it has learned of the
    stream is its state. The same object serves: `apply` changes nothing.

    Args:
        outputs: by the array's name, the feature or features of which it is made, side by side:
            int64 ``[B, F]`` of keys or float32 ``[B, N]`` of numbers. The label last.
        prepare: functions from a DataFrame to a DataFrame, applied first, in order. They may add
            columns and leave rows out. Default: none.
        threads: columns worked on at a time, at least 1 (default 1).

    Attributes:
        column_names: of the arrays.

    Raises:
        TypeError, ValueError: an argument is of the wrong type; an output mixes keys and numbers.

    Example:
        >>> from mindspore_rec.stream import Category, LogScale, MinMaxScale, Number
        >>> pipeline = FeaturePipeline(
        ...     {
        ...         "ids": [Category("user"), Category("item")],
        ...         "dense": [LogScale("views"), MinMaxScale("price")],
        ...         "label": Number("click"),
        ...     }
        ... )
        >>> rows = {"user": ["ann", None], "item": [1, 2], "views": [0, 9], "price": [1.0, 3.0]}
        >>> batch = pipeline({**rows, "click": [1, 0]})
        >>> batch["ids"].shape, batch["dense"].round(2).tolist(), batch["label"].tolist()
        ((2, 2), [[0.0, 0.0], [2.299999952316284, 1.0]], [[1.0], [0.0]])
    """

    def __init__(
        self,
        outputs: Mapping[str, Feature | Sequence[Feature]],
        prepare: Sequence[Prepare] = (),
        threads: int = 1,
    ) -> None:
        if not isinstance(outputs, Mapping) or not outputs:
            raise TypeError(f"outputs must be a dict of features by name, got {outputs!r}")
        self._outputs = {name: _features(name, made) for name, made in outputs.items()}
        self.column_names = list(self._outputs)
        self._prepare = [prepare] if callable(prepare) else list(prepare)
        if not all(callable(function) for function in self._prepare):
            raise TypeError("prepare must be functions of a DataFrame")
        threads = check_int("threads", threads, 1, 256)
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def __call__(self, rows: Any) -> dict[str, np.ndarray]:
        """The arrays of the stream's next rows, which are taken into the statistics first.

        Args:
            rows: a record batch, Table, DataFrame, or dict of columns.

        Raises:
            ValueError: a column is missing or of a type that a feature cannot read.
        """
        return self._run(rows, True)

    def apply(self, rows: Any) -> dict[str, np.ndarray]:
        """The arrays of rows by what was learned before; for evaluation and serving."""
        return self._run(rows, False)

    def _run(self, rows: Any, learn: bool) -> dict[str, np.ndarray]:
        batch = to_record_batch(rows)
        for function in self._prepare:
            batch = to_record_batch(function(batch.to_pandas()))
        return {
            name: self._stack(features, batch, learn) for name, features in self._outputs.items()
        }

    def _stack(self, features: list[Feature], batch: pa.RecordBatch, learn: bool) -> np.ndarray:
        width = sum(feature.width for feature in features)
        # Columns one after the other in memory, as they are written; a copy makes it rows.
        made: np.ndarray = np.empty((width, batch.num_rows), features[0].dtype)

        def work(place: int, feature: Feature) -> None:
            values = feature.apply(_column(batch, feature.column), learn)
            made[place : place + feature.width] = values.T if values.ndim == 2 else values

        places = np.cumsum([0] + [feature.width for feature in features[:-1]]).tolist()
        if self._pool is None:
            for place, feature in zip(places, features, strict=True):
                work(place, feature)
        else:
            list(self._pool.map(work, places, features))
        return np.ascontiguousarray(made.T)

    def state_dict(self) -> dict[str, Any]:
        """What was learned, as JSON values."""
        return {
            name: [feature.state_dict() for feature in features]
            for name, features in self._outputs.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from there.

        Raises:
            ValueError: the state is of a pipeline with other features.
        """
        shape = {name: len(features) for name, features in self._outputs.items()}
        found = {name: len(learned) for name, learned in state.items()}
        if found != shape:
            raise ValueError(f"state must be of a pipeline with outputs {shape}, got {found}")
        for name, features in self._outputs.items():
            for feature, learned in zip(features, state[name], strict=True):
                feature.load_state_dict(learned)


def _features(name: str, made: Feature | Sequence[Feature]) -> list[Feature]:
    features = [made] if isinstance(made, Feature) else list(made)
    if not features or not all(isinstance(feature, Feature) for feature in features):
        raise TypeError(f"output {name!r} must be of one or more features, got {made!r}")
    if len({feature.dtype for feature in features}) > 1:
        raise ValueError(f"output {name!r} must be of keys only or of numbers only")
    return features


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    place = batch.schema.get_field_index(name)
    if place < 0:
        raise ValueError(f"rows must have a column {name!r}, they have {batch.schema.names}")
    return batch.column(place)
