# SPDX-License-Identifier: Apache-2.0
"""A MindSpore Dataset of whole batches through a FeaturePipeline, in the Dataset's own threads.

Only methods of the Dataset are called: nothing here imports MindSpore.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from mindspore_rec.common.columns.batch_rows import BatchRows

__all__ = ["ColumnsAmong", "map_dataset"]


class ColumnsAmong(NamedTuple):
    """Columns of batches, and of what is made of them.

    Attributes:
        read: columns that arrays are made of.
        made: names of the arrays, and of the event time behind them if it is asked for.
        kept: other columns, which come out as they are.
    """

    read: list[str]
    made: list[str]
    kept: list[str]


class _Pipeline(Protocol):
    """Protocol of a FeaturePipeline as it is needed here."""

    column_names: list[str]

    @property
    def learns(self) -> bool: ...

    def columns_among(self, names: Sequence[str], with_time: bool) -> ColumnsAmong: ...

    def batch(self, rows: Any, learn: bool, with_time: bool) -> tuple[Any, int | None]: ...


def map_dataset(pipeline: _Pipeline, dataset: Any, learn: bool, with_time: bool = False) -> Any:
    """Return the Dataset of a pipeline's arrays.

    Args:
        pipeline: FeaturePipeline whose features name columns or give their places.
        dataset: `mindspore.dataset.Dataset` of whole batches.
        learn: whether the pipeline learns; if it can, one thread does it, in order.
        with_time: whether the event time comes out as well, int64 ``[1]`` after the arrays under
            the timestamp's name.

    Raises:
        ValueError: a column is missing, or has the name of an array.

    Example:
        >>> from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
        >>> from mindspore_rec.common.columns.feature_spec import FeatureSpec
        >>> from mindspore.dataset import NumpySlicesDataset
        >>> rows = NumpySlicesDataset({"user": [[1, 2]], "price": [[0.5, 0.7]]}, shuffle=False)
        >>> made = map_dataset(FeaturePipeline([FeatureSpec("user")]), rows, learn=False)
        >>> made.get_col_names()
        ['user']
    """
    names = dataset.get_col_names()
    columns = pipeline.columns_among(names, with_time)
    read, made = columns.read, columns.made
    with_time = len(made) > len(pipeline.column_names)

    def work(*columns: np.ndarray) -> tuple[np.ndarray, ...]:
        rows = BatchRows(dict(zip(read, columns, strict=True)), names)
        arrays, seconds = pipeline.batch(rows, learn, with_time)
        if with_time and seconds is None:
            raise ValueError("prepare must leave at least one row of a batch, got none")
        last = [np.array([seconds], np.int64)] if with_time else []
        return (*(arrays[name] for name in pipeline.column_names), *last)

    one_by_one = {"num_parallel_workers": 1} if learn and pipeline.learns else {}
    mapped = dataset.map(work, input_columns=read, output_columns=made, **one_by_one)
    return mapped.project([*made, *columns.kept])
