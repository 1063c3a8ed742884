# SPDX-License-Identifier: Apache-2.0
"""Mean and spread of labels, from a sample of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mindspore_rec.common.columns.arrow_columns import to_record_batch
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.rows import Rows

__all__ = ["LabelLevels", "label_levels"]

_SAMPLE = 100_000  # rows


@dataclass(frozen=True)
class LabelLevels:
    """Mean and standard deviation of each label, weighted by the weights of the rows.

    Args:
        means: mean of each label, float64 ``[T]``; for a label with the values 0 and 1, this is the
            base rate.
        spreads: standard deviation of each label, float64 ``[T]``.
    """

    means: npt.NDArray[np.float64]
    spreads: npt.NDArray[np.float64]


def label_levels(schema: Schema, rows: Rows, thinned: str | None = None) -> LabelLevels | None:
    """Return mean and spread of the labels in a sample of rows; None if there are no rows.

    Args:
        schema: schema of the rows, with at least one label.
        rows: training rows.
        thinned: name of the weight column that corrects for dropped negatives. Default: None.
    """
    weight = [] if schema.weight is None else [schema.weight.name]
    names = [*(label.name for label in schema.labels), *weight]
    sample = to_record_batch(rows.select(names).sample(_SAMPLE, seed=0))
    if not sample.num_rows:
        return None
    labels = schema.labels_of(sample).astype(np.float64)
    weights = schema.weights_of(sample)
    if weights is None and thinned is not None:
        weights = sample.column(thinned).to_numpy(zero_copy_only=False)
    if weights is not None and not weights.any():
        weights = None
    means = np.average(labels, axis=0, weights=weights)
    squares = np.average((labels - means) ** 2, axis=0, weights=weights)
    return LabelLevels(means, np.sqrt(squares))
