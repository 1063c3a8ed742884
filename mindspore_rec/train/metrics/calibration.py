# SPDX-License-Identifier: Apache-2.0
"""Calibration: compares predicted rates with observed rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mindspore_rec.common.metrics.functional import (
    ReliabilityCurve,
    bin_edges,
    bin_sums,
    curve_of_sums,
    sigmoid,
)
from mindspore_rec.common.metrics.inputs import FloatArray
from mindspore_rec.train.metrics.base import BinaryMetric

__all__ = ["Calibration"]


class Calibration(BinaryMetric):
    """Mean predicted rate divided by mean observed rate; above 1, the predictions are too high.

    For definition and source, see `mindspore_rec.metrics.functional.calibration`. The
    value is NaN while no added row has a positive label. The metric uses constant memory.

    Args:
        bins: the number of bins of equal width for :meth:`reliability_curve`, or the increasing
            edges of the bins from 0 to 1. Default: 10.
        from_logits: whether the predictions are logits. Default: False.
        task: index of the column to use if predictions or labels are ``[B, T]``. Default: 0.
        weighted: whether :meth:`update` takes the weights of the rows too. Default: False.

    Raises:
        ValueError: ``bins`` is below 1, or the edges do not increase from 0 to 1.

    Examples:
        >>> metric = Calibration(bins=[0, 0.3, 1])
        >>> metric.update(np.array([0.25, 0.5, 0.25, 0.5]), np.array([1, 0, 0, 0]))
        >>> metric.eval()
        1.5
        >>> metric.reliability_curve().observed
        array([0.5, 0. ])
    """

    undefined_if: ClassVar[str] = "no label is 1"
    takes_weights: ClassVar[bool] = True

    def __init__(
        self,
        *,
        bins: int | Sequence[float] = 10,
        from_logits: bool = False,
        task: int = 0,
        weighted: bool = False,
    ) -> None:
        self._edges = bin_edges(bins)
        super().__init__(from_logits=from_logits, task=task, weighted=weighted)

    def clear(self) -> None:
        """Forget all rows."""
        super().clear()
        self._sums = np.zeros((3, len(self._edges) - 1))

    def reliability_curve(self) -> ReliabilityCurve:
        """Return the predicted and observed rates for each bin of predicted probability.

        If the metric is weighted, `rows` of the curve contains the sum of the rows' weights in each
        bin, rounded down to a whole number.

        Raises:
            RuntimeError: no rows have been added.
        """
        self._check_seen()
        return curve_of_sums(self._edges, self._sums)

    def _add(self, label: npt.NDArray[np.bool_], prediction: FloatArray, *others: Any) -> None:
        rate = sigmoid(prediction) if self.from_logits else prediction
        self._sums += bin_sums(label, rate, self._edges, *others)

    def _settings(self) -> npt.NDArray[np.float64]:
        return np.concatenate([super()._settings(), self._edges])

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        return {"sums": self._sums.copy()}

    def _take_state(self, state: Mapping[str, npt.NDArray[Any]], rows: int) -> None:
        self._sums += state["sums"]

    def _value(self) -> float:
        _, predicted, observed = self._sums.sum(axis=1)
        return float(predicted / observed) if observed else float("nan")
