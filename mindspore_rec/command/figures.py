# SPDX-License-Identifier: Apache-2.0
"""Metrics of predicted probabilities: over all rows, by group of rows, and by predicted rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mindspore_rec.common.metrics import functional

__all__ = [
    "BinFigures",
    "GroupFigures",
    "by_group",
    "calibration_bins",
    "figures_of",
    "number_figures",
]

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class GroupFigures:
    """Metrics of the rows that have the same value in a column.

    Attributes:
        value: the value that the rows have in common, as text.
        rows: number of rows.
        metrics: metrics as `figures_of` returns them.
    """

    value: str
    rows: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class BinFigures:
    """Mean prediction and mean label of the rows whose predictions are in one range.

    Attributes:
        low: smallest prediction in the range.
        high: largest prediction of the range.
        rows: number of rows.
        predicted: mean prediction of the rows.
        observed: mean label of the rows.
    """

    low: float
    high: float
    rows: int
    predicted: float
    observed: float


def figures_of(
    label: Floats, prediction: Floats, weight: Floats | None = None, group: Any = None
) -> dict[str, float]:
    """Return the metrics of predicted probabilities.

    Args:
        label: 0 or 1, `[N]`.
        prediction: probabilities, `[N]`.
        weight: weight of each row, above 0. Default: each weight is 1.
        group: group of each row, for example a user, `[N]`. Default: None, which means that `gauc`
            is not computed.

    Returns:
        `auc`, `log_loss`, `normalized_entropy` and `calibration`, and `gauc` if `group` is set.
        `gauc` ignores the weights.

    Example:
        >>> label, prediction = np.array([0, 1, 1, 0.0]), np.array([0.2, 0.6, 0.9, 0.3])
        >>> {name: round(value, 3) for name, value in figures_of(label, prediction).items()}
        {'auc': 1.0, 'log_loss': 0.299, 'normalized_entropy': 0.431, 'calibration': 1.0}
    """
    of = (label > 0.5, prediction, weight)
    made = {
        "auc": functional.auc(*of),
        "log_loss": functional.log_loss(*of),
        "normalized_entropy": functional.normalized_entropy(*of),
        "calibration": functional.calibration(*of),
    }
    if group is not None:
        made["gauc"] = functional.gauc(*of[:2], np.unique(group, return_inverse=True)[1])
    return made


def number_figures(
    label: Floats, prediction: Floats, weight: Floats | None = None
) -> dict[str, float]:
    """Return the metrics of predicted numbers: `rmse` and `mae`.

    Example:
        >>> number_figures(np.array([1.0, 3.0]), np.array([1.0, 1.0]))
        {'rmse': 1.4142135623730951, 'mae': 1.0}
    """
    error = prediction.astype(np.float64) - label
    return {
        "rmse": float(np.sqrt(np.average(error**2, weights=weight))),
        "mae": float(np.average(np.abs(error), weights=weight)),
    }


def by_group(
    label: Floats,
    prediction: Floats,
    values: npt.NDArray[Any],
    weight: Floats | None = None,
    most: int = 20,
) -> list[GroupFigures]:
    """Return the metrics for each value of a column, the most frequent value first.

    Args:
        label: see `figures_of`.
        prediction: see `figures_of`.
        values: the column's value in each row, as text `[N]`.
        weight: see `figures_of`.
        most: greatest number of values to return. Default: 20.

    Example:
        >>> label, prediction = np.array([0, 1, 1.0]), np.array([0.2, 0.6, 0.9])
        >>> [(each.value, each.rows) for each in by_group(label, prediction, np.array(list("aab")))]
        [('a', 2), ('b', 1)]
    """
    names, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    groups = []
    for k in np.argsort(-counts, kind="stable")[:most]:
        of_value = place == k
        weights = None if weight is None else weight[of_value]
        metrics = figures_of(label[of_value], prediction[of_value], weights)
        groups.append(GroupFigures(str(names[k]), int(counts[k]), metrics))
    return groups


def calibration_bins(
    label: Floats, prediction: Floats, weight: Floats | None = None, bins: int = 10
) -> list[BinFigures]:
    """Divide the predictions into ranges of about equal row counts; return each range's means.

    Rows with equal predictions are in the same range, so there may be fewer ranges than `bins`.

    Example:
        >>> label, prediction = np.array([0, 0, 1, 1.0]), np.array([0.1, 0.2, 0.6, 0.8])
        >>> [(each.rows, round(each.predicted, 2), each.observed) for each in
        ...     calibration_bins(label, prediction, bins=2)]
        [(2, 0.15, 0.0), (2, 0.7, 1.0)]
    """
    inner = np.unique(np.quantile(prediction, np.arange(1, bins) / bins, method="lower"))
    place = np.searchsorted(inner, prediction, side="left")
    made = []
    for k in np.unique(place):
        chosen = place == k
        weights = None if weight is None else weight[chosen]
        made.append(
            BinFigures(
                float(prediction[chosen].min()),
                float(prediction[chosen].max()),
                int(chosen.sum()),
                float(np.average(prediction[chosen], weights=weights)),
                float(np.average(label[chosen], weights=weights)),
            )
        )
    return made
