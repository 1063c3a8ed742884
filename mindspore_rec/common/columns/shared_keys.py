# SPDX-License-Identifier: Apache-2.0
"""SharedKeys: the keys of a batch, computed once for all outputs that read the keys."""

from __future__ import annotations

from collections.abc import Hashable
from operator import attrgetter

import numpy as np
import pyarrow as pa

from mindspore_rec.common.columns.cross import Cross
from mindspore_rec.common.columns.joint import JointFeature
from mindspore_rec.common.columns.labels import Times
from mindspore_rec.common.columns.transforms import Category, Feature, Key, TimePart

__all__ = ["SharedKeys"]

# For each class of transform, the attributes that determine the keys of a value.
_SETTINGS: dict[type[Feature], attrgetter] = {
    Category: attrgetter("column", "field", "values"),
    Key: attrgetter("column"),
    Times: attrgetter("column", "unit", "format"),
    TimePart: attrgetter("column", "part", "unit", "format"),
}


class SharedKeys:
    """Keys of one batch. Transforms with equal settings share a column's keys.

    The same columns are read for the ids of a network, for the statistics of labels, for the folds
    of these statistics, and for crosses. Only the transforms `Category`, `Key`, `Times` and
    `TimePart`, and a `Cross` of these transforms, share values. All other transforms, for example
    transforms that learn, compute their values at each call.

    Example:
        >>> keys, ages = SharedKeys(), pa.array([30, 40])
        >>> first = keys.of(Category("age"), ages, learn=False)
        >>> keys.of(Category("age"), ages, learn=False) is first
        True
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, np.ndarray] = {}

    def of(self, feature: Feature, values: pa.Array, learn: bool) -> np.ndarray:
        """Return the values of a transform; the caller must not change the array.

        Args:
            feature: the transform to apply.
            values: the argument of `feature.apply`; all calls pass columns of the same batch.
            learn: if True, the statistics learn from the values before the values are transformed.
        """
        settings = _settings_of(feature)
        if settings is None:
            return self._applied(feature, values, learn)
        # Two threads that need the same keys at the same time may both compute the keys.
        if settings not in self._made:
            self._made[settings] = self._applied(feature, values, learn)
        return self._made[settings]

    def _applied(self, feature: Feature, values: pa.Array, learn: bool) -> np.ndarray:
        if isinstance(feature, JointFeature):
            return feature.apply(values, learn, self)
        return feature.apply(values, learn)


def _settings_of(feature: Feature) -> Hashable:
    """Return the settings that decide a transform's values; None if the values are not shared."""
    if type(feature) is Cross:
        parts = [_settings_of(part) for part in feature.parts]
        return None if None in parts else (Cross, feature.field, *parts)
    of_kind = _SETTINGS.get(type(feature))
    return None if of_kind is None else (type(feature), of_kind(feature))
