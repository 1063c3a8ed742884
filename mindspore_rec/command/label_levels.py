# SPDX-License-Identifier: Apache-2.0
"""Mean and spread of labels in the training rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mindspore_rec.command.evaluation import weights_of
from mindspore_rec.command.opened import Parts, one_batch
from mindspore_rec.common.columns.schema.schema import Schema

__all__ = ["LabelLevels", "label_levels"]

_SAMPLE = 100_000  # training rows


@dataclass(frozen=True)
class LabelLevels:
    """Mean and standard deviation of each label, weighted as the rows are.

    Args:
        means: mean of each label, float64 ``[T]``; of a label with two values, the base rate.
        spreads: standard deviation of each label, float64 ``[T]``.
    """

    means: npt.NDArray[np.float64]
    spreads: npt.NDArray[np.float64]


def label_levels(schema: Schema, parts: Parts) -> LabelLevels:
    """Return mean and spread of the labels in a sample of the training rows."""
    rows = one_batch(parts.whole_train.sample(_SAMPLE, seed=0))
    labels = schema.labels_of(rows).astype(np.float64)
    weight = weights_of(schema, rows)
    if weight is not None and not weight.any():
        weight = None
    means = np.average(labels, axis=0, weights=weight)
    squares = np.average((labels - means) ** 2, axis=0, weights=weight)
    return LabelLevels(means, np.sqrt(squares))
