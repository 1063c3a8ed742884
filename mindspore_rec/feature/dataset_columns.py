# SPDX-License-Identifier: Apache-2.0
"""A MindSpore Dataset of whole batches through a FeaturePipeline, in the Dataset's own threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from mindspore.dataset import Dataset

from mindspore_rec.feature.batch_rows import BatchRows
from mindspore_rec.feature.outputs import column_of

if TYPE_CHECKING:
    from mindspore_rec.feature.feature_pipeline import FeaturePipeline

__all__ = ["map_dataset"]


def map_dataset(
    pipeline: FeaturePipeline, dataset: Dataset, learn: bool, with_time: bool = False
) -> Dataset:
    """Return the Dataset of a pipeline's arrays.

    Args:
        pipeline: of which features name columns or their places.
        dataset: whole batches.
        learn: whether the pipeline learns; where it can, one thread does it, in order.
        with_time: whether the event time comes out as well, int64 ``[1]`` after the arrays under
            the timestamp's name.

    Raises:
        ValueError: a column is missing, or has the name of an array.

    Example:
        >>> from mindspore_rec.feature.feature_pipeline import FeaturePipeline
        >>> from mindspore_rec.feature.feature_spec import FeatureSpec
        >>> from mindspore.dataset import NumpySlicesDataset
        >>> rows = NumpySlicesDataset({"user": [[1, 2]], "price": [[0.5, 0.7]]}, shuffle=False)
        >>> made = map_dataset(FeaturePipeline([FeatureSpec("user")]), rows, learn=False)
        >>> made.get_col_names()
        ['user']
    """
    names = dataset.get_col_names()
    view = BatchRows({}, names)
    timestamp = pipeline.timestamp if with_time or pipeline._times_out else None
    read = names
    if not pipeline._prepare:
        members = [each for output in pipeline._outputs for each in output.members]
        found = [column_of(each, view) for each in members]
        found += [] if timestamp is None else [column_of(timestamp, view)]
        read = list(dict.fromkeys(found)) or names
    rest = pipeline._rest(view) if pipeline.keep_rest else []
    times = [timestamp.name] if with_time and timestamp is not None else []
    made = [*pipeline.column_names, *times]
    for name in made:
        if name in rest:
            raise ValueError(
                f"feature '{name}' has the name of another column of the batch: give it another "
                "name"
            )

    def work(*columns: np.ndarray) -> tuple[np.ndarray, ...]:
        rows = BatchRows(dict(zip(read, columns, strict=True)), names)
        arrays, seconds = pipeline.batch(rows, learn, with_time=bool(times))
        if times and seconds is None:
            raise ValueError("prepare must leave at least one row of a batch, got none")
        last = [np.array([seconds], np.int64)] if times else []
        return (*(arrays[name] for name in pipeline.column_names), *last)

    one_by_one = {"num_parallel_workers": 1} if learn and pipeline.learns else {}
    mapped = dataset.map(work, input_columns=read, output_columns=made, **one_by_one)
    return mapped.project([*made, *rest])
