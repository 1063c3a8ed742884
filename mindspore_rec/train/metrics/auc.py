# SPDX-License-Identifier: Apache-2.0
"""The exact AUC over all rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mindspore_rec.common.metrics.functional import auc_of_classes
from mindspore_rec.common.metrics.inputs import FloatArray
from mindspore_rec.train.metrics.base import BinaryMetric

__all__ = ["AUC"]


class AUC(BinaryMetric):
    """Exact area under the ROC curve; tied pairs count one half (mid-ranks).

    For definition and source, see `mindspore_rec.metrics.functional.auc`. The value does not depend
    on the order of the rows or on the batches. Until rows of both classes have been added, the
    value is NaN and no error is raised, so an online job can continue.

    The metric stores 4 bytes per row, because predictions are stored as float32. Float64
    predictions that are equal as float32 count as tied. Calling :meth:`eval` sorts the predictions;
    10 million rows take about a second. For endless streams see :class:`StreamingAUC`.

    Args:
        from_logits: whether the predictions are logits. Logits are ranked directly, because a
            float32 sigmoid would make large logits equal. Default: False.
        task: index of the column to use if predictions or labels are ``[B, T]``. Default: 0.

    Examples:
        >>> metric = AUC()
        >>> metric.update(np.array([0.1, 0.4]), np.array([0, 0]))
        >>> metric.eval()
        nan
        >>> metric.update(np.array([0.35, 0.8]), np.array([1, 1]))
        >>> metric.eval()
        0.75
    """

    def clear(self) -> None:
        """Forget all rows."""
        super().clear()
        self._positive: list[FloatArray] = []
        self._negative: list[FloatArray] = []

    def _add(self, label: npt.NDArray[np.bool_], prediction: FloatArray, *others: Any) -> None:
        scores = prediction.astype(np.float32, copy=False)
        self._positive.append(scores[label])
        self._negative.append(scores[~label])

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        none = np.zeros(0, np.float32)
        return {
            "positive": np.concatenate([none, *self._positive]),
            "negative": np.concatenate([none, *self._negative]),
        }

    def _take_state(self, state: Mapping[str, npt.NDArray[Any]], rows: int) -> None:
        self._positive.append(np.array(state["positive"], np.float32))
        self._negative.append(np.array(state["negative"], np.float32))

    def _value(self) -> float:
        # Keep one array per class, so that the next evaluation need not join the parts again.
        self._positive = [np.concatenate(self._positive)]
        self._negative = [np.concatenate(self._negative)]
        return auc_of_classes(self._positive[0], self._negative[0])
