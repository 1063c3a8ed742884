# SPDX-License-Identifier: Apache-2.0
"""Base class of metrics that are the mean of a number per row."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mindspore_rec.common.metrics.inputs import FloatArray
from mindspore_rec.train.metrics.base import BinaryMetric

__all__ = ["RowMean"]


class RowMean(BinaryMetric):
    """Base class of metrics that are the mean of a number per row, such as the row's loss.

    The value is NaN if all weights are 0. The metric uses constant memory.

    Args:
        from_logits, task, weighted: see `BinaryMetric`.
    """

    undefined_if: ClassVar[str] = "all weights are 0"
    takes_weights: ClassVar[bool] = True

    def clear(self) -> None:
        """Forget all rows."""
        super().clear()
        self._sum = 0.0

    @abstractmethod
    def _of_rows(self, label: npt.NDArray[Any], prediction: FloatArray) -> npt.NDArray[Any]:
        """Return one number per row; the metric is the mean of these numbers."""

    def _add(self, label: npt.NDArray[Any], prediction: FloatArray, *others: Any) -> None:
        numbers = self._of_rows(label, prediction)
        self._sum += float((others[0] * numbers if self._weighted else numbers).sum())

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        return {"sum": np.array(self._sum)}

    def _take_state(self, state: Mapping[str, npt.NDArray[Any]], rows: int) -> None:
        self._sum += float(state["sum"])

    def _value(self) -> float:
        return self._sum / self._total if self._total else math.nan
