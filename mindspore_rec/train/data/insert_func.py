# SPDX-License-Identifier: Apache-2.0
"""InsertFunc: a FeaturePipeline whose output has the event time as a column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from mindspore.dataset import Dataset

from mindspore_rec.common.columns.dataset_columns import map_dataset
from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline, name_taken
from mindspore_rec.common.columns.feature_spec import check_specs

__all__ = ["InsertFunc"]


class InsertFunc:
    """Function of `get_insert_func`: call it with a Dataset, or a dict or tuple of columns.

    Args:
        specs: FeatureSpec objects, or a FeaturePipeline.
        with_time: whether the batch's event time comes out, if a feature is the timestamp. False
            leaves its column out, and does not look for it. Default: True.
        learn: whether a batch is taken into the pipeline's statistics first. Default: True.

    Attributes:
        pipeline: the FeaturePipeline that does the work.
        specs: the features.
        features: the features that are looked up.
        timestamp: the feature that is the time, or None.
        time_place: place of the event time among the columns that come out, or None.
    """

    def __init__(self, specs: Any, *, with_time: bool = True, learn: bool = True) -> None:
        is_pipeline = isinstance(specs, FeaturePipeline)
        self.pipeline = (
            specs if is_pipeline else FeaturePipeline(check_specs(specs), keep_rest=True)
        )
        self.specs = self.pipeline.specs
        self.features = tuple(spec for spec in self.specs if not spec.is_timestamp)
        self.timestamp = self.pipeline.timestamp
        self._time = self.timestamp if with_time else None
        self._learn = learn
        self.time_place = None if self._time is None else len(self.pipeline.column_names)

    def __call__(self, batch: Any) -> Any:
        """Return the same kind of object with features as keys; see `get_insert_func`."""
        if isinstance(batch, Dataset):
            return map_dataset(self.pipeline, batch, self._learn, with_time=self._time is not None)
        if not isinstance(batch, (Mapping, tuple, list)):
            raise TypeError(
                "a batch must be a dict or a tuple of columns, or a mindspore.dataset.Dataset, got "
                f"{type(batch).__name__}"
            )
        made, seconds = self.pipeline.batch(batch, self._learn, with_time=self._time is not None)
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
