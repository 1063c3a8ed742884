# SPDX-License-Identifier: Apache-2.0
"""Log loss, plain and normalized by the entropy of the labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mindspore_rec.common.metrics.functional import background_entropy, example_log_loss
from mindspore_rec.common.metrics.inputs import FloatArray
from mindspore_rec.train.metrics.row_mean import RowMean

__all__ = ["LogLoss", "NormalizedEntropy"]


class LogLoss(RowMean):
    """Mean binary cross entropy, in nats, over the rows of all batches so far.

    For definition and clipping, see `mindspore_rec.metrics.functional.log_loss`. The value is NaN
    if all weights are 0. The metric uses constant memory.

    Args:
        from_logits: whether the predictions are logits. Logits are not clipped. Default: False.
        task: index of the column to use if predictions or labels are ``[B, T]``. Default: 0.
        weighted: whether :meth:`update` takes the weights of the rows too. Default: False.

    Examples:
        >>> metric = LogLoss()
        >>> metric.update(np.array([0.9, 0.2]), np.array([1, 0]))
        >>> round(metric.eval(), 4)
        0.1643
    """

    def _of_rows(self, label: npt.NDArray[Any], prediction: FloatArray) -> npt.NDArray[Any]:
        return example_log_loss(label, prediction, from_logits=self.from_logits)


class NormalizedEntropy(LogLoss):
    """Log loss divided by the log loss of a model that always predicts the mean label.

    For definition and source, see `mindspore_rec.metrics.functional.normalized_entropy`. The value
    is 0 for perfect predictions and 1 for predictions no better than the mean label. The
    value is NaN while all added labels are equal. The metric uses constant memory.

    Args:
        from_logits: whether the predictions are logits. Default: False.
        task: index of the column to use if predictions or labels are ``[B, T]``. Default: 0.
        weighted: whether :meth:`update` takes the weights of the rows too. Default: False.

    Examples:
        >>> metric = NormalizedEntropy()
        >>> metric.update(np.array([0.9, 0.2]), np.array([1, 0]))
        >>> round(metric.eval(), 4)
        0.237
    """

    undefined_if: ClassVar[str] = "all labels are of one class"

    def clear(self) -> None:
        """Forget all rows."""
        super().clear()
        self._positives = 0.0

    def _add(self, label: npt.NDArray[np.bool_], prediction: FloatArray, *others: Any) -> None:
        super()._add(label, prediction, *others)
        self._positives += float(others[0][label].sum() if self._weighted else label.sum())

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        return {**super()._state(), "positives": np.array(self._positives)}

    def _take_state(self, state: Mapping[str, npt.NDArray[Any]], rows: int) -> None:
        super()._take_state(state, rows)
        self._positives += float(state["positives"])

    def _value(self) -> float:
        return super()._value() / background_entropy(self._positives, self._total)
