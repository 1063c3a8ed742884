# SPDX-License-Identifier: Apache-2.0
"""InsertFunc: computes the keys of features, and adds the event time as a column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from mindspore.dataset import Dataset

from mindspore_rec.common.columns.dataset_columns import map_dataset
from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline, name_taken
from mindspore_rec.common.columns.feature_spec import check_specs
from mindspore_rec.common.columns.schema.schema import Schema

__all__ = ["InsertFunc"]


class InsertFunc:
    """Function that computes keys, from a Dataset or from a dict or tuple of columns.

    `get_insert_func` returns an `InsertFunc`.

    Args:
        specs: FeatureSpec objects, a FeaturePipeline, or a Schema. Batches do not update the
            statistics of a Schema.
        with_time: whether the output contains the batch's event time, if a feature is the
            timestamp. If False, the timestamp column is neither read nor returned. Default: True.
        learn: whether each batch first updates the pipeline's statistics. Default: True.

    Attributes:
        schema: the Schema, or None.
        pipeline: the FeaturePipeline that computes the keys.
        learn: whether batches update the statistics of the pipeline.
        training: whether a network trains on the batches.
        specs: the features.
        features: the features that are looked up.
        timestamp: the timestamp feature, or None.
        time_place: index of the event time among the output columns, or None.
    """

    def __init__(self, specs: Any, *, with_time: bool = True, learn: bool = True) -> None:
        self.schema = specs if isinstance(specs, Schema) else None
        specs = specs if self.schema is None else self.schema.pipeline
        is_pipeline = isinstance(specs, FeaturePipeline)
        self.pipeline = (
            specs if is_pipeline else FeaturePipeline(check_specs(specs), keep_rest=True)
        )
        self.specs = self.pipeline.specs
        self.features = tuple(spec for spec in self.specs if not spec.is_timestamp)
        self.timestamp = self.pipeline.timestamp
        self._time = self.timestamp if with_time else None
        self.learn = learn and self.schema is None
        self.training = learn
        self.time_place = None if self._time is None else len(self.pipeline.column_names)

    def __call__(self, batch: Any) -> Any:
        """Return the batch or Dataset with keys instead of raw features; see `get_insert_func`.

        Raises:
            TypeError: `batch` is neither a dict, a tuple, a list nor a Dataset.
            ValueError: the batch does not fit the features, or `prepare` removed all rows.
        """
        if isinstance(batch, Dataset):
            timed = self._time is not None
            return map_dataset(self.pipeline, batch, self.learn, timed, self.training)
        if not isinstance(batch, (Mapping, tuple, list)):
            raise TypeError(
                "a batch must be a dict or a tuple of columns, or a mindspore.dataset.Dataset, got "
                f"{type(batch).__name__}"
            )
        made, seconds = self.pipeline.batch(
            batch, self.learn, with_time=self._time is not None, training=self.training
        )
        if self._time is None:
            return made
        if seconds is None:
            raise ValueError("prepare must leave at least one row of a batch, got none")
        place = self.time_place
        time = np.array([seconds], np.int64)
        if isinstance(made, tuple):
            return (*made[:place], time, *made[place:])
        if self._time.name in made:
            raise name_taken(self._time.name)
        columns = list(made.items())
        return dict([*columns[:place], (self._time.name, time), *columns[place:]])
