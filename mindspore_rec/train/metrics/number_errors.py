# SPDX-License-Identifier: Apache-2.0
"""Errors of predicted numbers: MAE, MSE and RMSE."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mindspore_rec.common.metrics.inputs import FloatArray
from mindspore_rec.train.metrics.row_mean import RowMean

__all__ = ["MAE", "MSE", "RMSE"]


class MSE(RowMean):
    """Mean squared error of predicted numbers. The metric uses constant memory.

    Predictions and labels may be any real numbers.

    Args:
        task: index of the column to use if predictions or labels are ``[B, T]``. Default: 0.
        weighted: whether :meth:`update` takes the weights of the rows too. Default: False.

    Examples:
        >>> metric = MSE()
        >>> metric.update(np.array([1.0, 4.0]), np.array([1.0, 1.0]))
        >>> metric.eval()
        4.5
    """

    undefined_if: ClassVar[str] = "a prediction is infinite"

    def __init__(self, *, task: int = 0, weighted: bool = False) -> None:
        super().__init__(task=task, weighted=weighted)

    def _checked(
        self, prediction: npt.NDArray[Any], label: npt.NDArray[Any]
    ) -> tuple[FloatArray, npt.NDArray[Any]]:
        """Return both arrays as float64; infinite predictions make the metric infinite or NaN."""
        return prediction.astype(np.float64), label.astype(np.float64)

    def _of_rows(self, label: npt.NDArray[Any], prediction: FloatArray) -> npt.NDArray[Any]:
        return np.square(prediction - label)


class RMSE(MSE):
    """Root of the mean squared error of predicted numbers. The metric uses constant memory.

    Args:
        task: see `MSE`.
        weighted: see `MSE`.

    Examples:
        >>> metric = RMSE()
        >>> metric.update(np.array([1.0, 4.0]), np.array([1.0, 1.0]))
        >>> round(metric.eval(), 4)
        2.1213
    """

    def _value(self) -> float:
        return math.sqrt(super()._value())


class MAE(MSE):
    """Mean absolute error of predicted numbers. The metric uses constant memory.

    Args:
        task: see `MSE`.
        weighted: see `MSE`.

    Examples:
        >>> metric = MAE()
        >>> metric.update(np.array([1.0, 4.0]), np.array([1.0, 1.0]))
        >>> metric.eval()
        1.5
    """

    def _of_rows(self, label: npt.NDArray[Any], prediction: FloatArray) -> npt.NDArray[Any]:
        return np.abs(prediction - label)
