# SPDX-License-Identifier: Apache-2.0
"""Accuracy: the share of rows whose class is predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mindspore_rec.common.metrics.inputs import FloatArray
from mindspore_rec.train.metrics.base import BinaryMetric

__all__ = ["Accuracy"]


class Accuracy(BinaryMetric):
    """Share of rows whose label is 1 and whose probability is above 0.5, or neither.

    Constant memory.

    Args:
        from_logits: whether the predictions are logits. Default: False.
        task: column to take if predictions or labels are ``[B, T]``. Default: 0.
        weighted: whether :meth:`update` takes the weights of the rows too. Default: False.

    Examples:
        >>> metric = Accuracy()
        >>> metric.update(np.array([0.9, 0.2, 0.7, 0.1]), np.array([1, 0, 0, 0]))
        >>> metric.eval()
        0.75
    """

    undefined_if: ClassVar[str] = "all weights are 0"
    takes_weights: ClassVar[bool] = True

    def clear(self) -> None:
        """Forget all rows."""
        super().clear()
        self._right = 0.0

    def _add(self, label: npt.NDArray[np.bool_], prediction: FloatArray, *others: Any) -> None:
        right = label == (prediction > (0.0 if self.from_logits else 0.5))
        self._right += float(others[0][right].sum() if self._weighted else right.sum())

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        return {"right": np.array(self._right)}

    def _take_state(self, state: Mapping[str, npt.NDArray[Any]], rows: int) -> None:
        self._right += float(state["right"])

    def _value(self) -> float:
        return self._right / self._total if self._total else math.nan
