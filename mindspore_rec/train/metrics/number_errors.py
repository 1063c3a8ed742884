# SPDX-License-Identifier: Apache-2.0
"""Errors of predictions of numbers: MAE, MSE and RMSE."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from mindspore.train import rearrange_inputs

from mindspore_rec.common.metrics.inputs import FloatArray, check_same_length, task_column
from mindspore_rec.train.metrics.base import BinaryMetric

__all__ = ["MAE", "MSE", "RMSE"]


class MSE(BinaryMetric):
    """Mean squared error of predictions of numbers. The metric uses constant memory.

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
    takes_weights: ClassVar[bool] = True

    def __init__(self, *, task: int = 0, weighted: bool = False) -> None:
        super().__init__(task=task, weighted=weighted)

    def clear(self) -> None:
        """Forget all rows."""
        super().clear()
        self._sum = 0.0

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Add one batch ``(prediction, label)`` of numbers.

        Args:
            *inputs: MindSpore Tensors, NumPy arrays or lists, each ``[B]``, ``[B, 1]`` or ``[B,
                T]``. If the metric is weighted, the last input is the weights.

        Raises:
            TypeError: an input is not an array of numbers.
            ValueError: the number of inputs, a shape or a length is wrong.
        """
        if len(inputs) != len(self.inputs):
            raise ValueError(
                f"{type(self).__name__}.update takes ({', '.join(self.inputs)}), got "
                f"{len(inputs)} inputs"
            )
        arrays = [self._convert_data(data) for data in inputs]
        prediction, label = (
            task_column(array, name, self.task).astype(np.float64)
            for array, name in zip(arrays[:2], self.inputs[:2], strict=True)
        )
        check_same_length(prediction=prediction, label=label)
        others = [self._weights_of(arrays[2], label)] if self._weighted else []
        errors = self._errors(prediction - label)
        self._sum += float((others[0] * errors if self._weighted else errors).sum())
        self._count(len(label), others)

    def _errors(self, difference: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the error of each row, whose mean is the metric."""
        return np.square(difference)

    def _add(self, label: npt.NDArray[np.bool_], prediction: FloatArray, *others: Any) -> None:
        raise NotImplementedError  # `update` adds rows itself

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        return {"sum": np.array(self._sum)}

    def _take_state(self, state: Mapping[str, npt.NDArray[Any]], rows: int) -> None:
        self._sum += float(state["sum"])

    def _value(self) -> float:
        return self._sum / self._total if self._total else math.nan


class RMSE(MSE):
    """Root of the mean squared error of predictions of numbers. The metric uses constant memory.

    Args:
        task: as for `MSE`.
        weighted: as for `MSE`.

    Examples:
        >>> metric = RMSE()
        >>> metric.update(np.array([1.0, 4.0]), np.array([1.0, 1.0]))
        >>> round(metric.eval(), 4)
        2.1213
    """

    def _value(self) -> float:
        return math.sqrt(super()._value())


class MAE(MSE):
    """Mean absolute error of predictions of numbers. The metric uses constant memory.

    Args:
        task: as for `MSE`.
        weighted: as for `MSE`.

    Examples:
        >>> metric = MAE()
        >>> metric.update(np.array([1.0, 4.0]), np.array([1.0, 1.0]))
        >>> metric.eval()
        1.5
    """

    def _errors(self, difference: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.abs(difference)
