# SPDX-License-Identifier: Apache-2.0
"""`get_insert_func`: a FeaturePipeline under the name and with the output that Rec SDK has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from mindspore.dataset import Dataset

from mindspore_rec.feature.dataset_columns import map_dataset
from mindspore_rec.feature.feature_pipeline import FeaturePipeline, name_taken
from mindspore_rec.feature.feature_spec import check_specs
from mindspore_rec.old_names import refuse_arguments

__all__ = ["InsertFunc", "get_insert_func"]


class InsertFunc:
    """Function of `get_insert_func`: call it with a Dataset, or a dict or tuple of columns.

    Args:
        specs: FeatureSpec objects, or a FeaturePipeline.
        with_time: whether the batch's event time comes out, where a feature is the timestamp.
            False leaves its column out, and does not look for it. Default: True.
        learn: whether a batch is taken into the pipeline's statistics first. Default: True.

    Attributes:
        pipeline: the FeaturePipeline that does the work.
        specs: the features.
        features: those that are looked up.
        timestamp: the one that is the time, or None.
        time_place: place of the event time among the columns that come out, or None.
    """

    def __init__(self, specs: Any, *, with_time: bool = True, learn: bool = True) -> None:
        given = isinstance(specs, FeaturePipeline)
        self.pipeline = specs if given else FeaturePipeline(check_specs(specs), keep_rest=True)
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


def get_insert_func(specs: Any = None, **unknown: Any) -> InsertFunc:
    """Return a function that turns features into keys ahead of the step, whole batches at a time.

    Give it to a Dataset's `apply`, where it runs in the pipeline's threads while the network
    trains, or call it with batches: dicts or tuples of arrays. Out come, in this order, the keys of
    each feature (under its name, in the order of the specs), the batch's event time, int64 `[1]`
    (where a feature is the timestamp, under its name), and the columns that no feature reads. So
    the label stays last. `FeatureBatches` does this and sets the tables' event time too. It is
    `FeaturePipeline(specs, keep_rest=True)` with the event time among the columns.

    Args:
        specs: features of a batch, FeatureSpec objects; or a FeaturePipeline, whose arrays come out
            in place of the features' keys.
        **unknown: refused with a TypeError, which names the replacement of arguments of Rec SDK.

    Returns:
        The function. Where a batch does not fit, it raises ValueError or TypeError, which name the
        feature: a column that is not there; values neither integers nor strings; features of
        different lengths; times that are no seconds since 1970. A Dataset then raises RuntimeError
        with that message.

    Raises:
        TypeError, ValueError: as `check_specs`.

    After `mx_rec.core.asc.helper.get_asc_insert_func` of Rec SDK.

    Example:
        >>> from mindspore_rec import FeatureSpec
        >>> time = FeatureSpec("time", index_key=0, is_timestamp=True)
        >>> insert = get_insert_func([FeatureSpec("user", index_key=1), time])
        >>> label = np.zeros((2, 1), np.float32)
        >>> insert((np.array([60, 61]), np.array([[7], [9]]), label))[:2]
        (array([[7],
               [9]]), array([61]))
    """
    refuse_arguments("get_insert_func", unknown, "specs")
    return InsertFunc(specs)
