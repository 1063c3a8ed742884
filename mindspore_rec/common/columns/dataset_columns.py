# SPDX-License-Identifier: Apache-2.0
"""Apply a FeaturePipeline to a MindSpore Dataset of whole batches, in the Dataset's threads.

The code of this module only calls methods of the Dataset, and does not import MindSpore.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from mindspore_rec.common.columns.batch_rows import BatchRows

__all__ = ["ColumnsAmong", "map_dataset"]


class ColumnsAmong(NamedTuple):
    """Names of the columns that a pipeline reads, makes and keeps.

    Attributes:
        read: columns from which the pipeline makes its arrays.
        made: names of the arrays that the pipeline makes. If the event time is requested, the name
            of the timestamp feature is the last name.
        kept: columns that the pipeline passes on unchanged.
    """

    read: list[str]
    made: list[str]
    kept: list[str]


class _Pipeline(Protocol):
    """The methods and properties of FeaturePipeline that this module needs."""

    column_names: list[str]

    @property
    def learns(self) -> bool: ...

    def columns_among(
        self, names: Sequence[str], with_time: bool, training: bool
    ) -> ColumnsAmong: ...

    def batch(
        self, rows: Any, learn: bool, with_time: bool, training: bool
    ) -> tuple[Any, int | None]: ...


def map_dataset(
    pipeline: _Pipeline,
    dataset: Any,
    learn: bool,
    with_time: bool = False,
    training: bool = False,
) -> Any:
    """Return a Dataset of the arrays that a pipeline makes.

    Args:
        pipeline: FeaturePipeline whose features refer to columns by name or by place.
        dataset: `mindspore.dataset.Dataset` of whole batches.
        learn: True to let the pipeline's statistics learn from the batches. If the pipeline has
            statistics and `learn` is True, one thread processes the batches in order.
        with_time: True if the Dataset also returns the event time, int64 ``[1]``, after the arrays.
            The column of the event time is named after the timestamp feature.
        training: True if a network trains on the batches. Default: False.

    Raises:
        ValueError: a column is missing, or a column of `keep_rest` has the name of an array.

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
    columns = pipeline.columns_among(names, with_time, training)
    read, made = columns.read, columns.made
    with_time = len(made) > len(pipeline.column_names)

    def work(*columns: np.ndarray) -> tuple[np.ndarray, ...]:
        rows = BatchRows(dict(zip(read, columns, strict=True)), names)
        arrays, seconds = pipeline.batch(rows, learn, with_time, training)
        if with_time and seconds is None:
            raise ValueError("prepare must leave at least one row of a batch, got none")
        last = [np.array([seconds], np.int64)] if with_time else []
        return (*(arrays[name] for name in pipeline.column_names), *last)

    one_by_one = {"num_parallel_workers": 1} if learn and pipeline.learns else {}
    mapped = dataset.map(work, input_columns=read, output_columns=made, **one_by_one)
    return mapped.project([*made, *columns.kept])
