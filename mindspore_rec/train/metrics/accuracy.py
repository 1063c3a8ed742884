# SPDX-License-Identifier: Apache-2.0
"""Accuracy: the share of rows whose class is predicted correctly."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from mindspore_rec.common.metrics.inputs import FloatArray
from mindspore_rec.train.metrics.row_mean import RowMean

__all__ = ["Accuracy"]


class Accuracy(RowMean):
    """Share of rows whose label equals the predicted class (1 if the probability is above 0.5).

    The value is NaN if all weights are 0. The metric uses constant memory.

    Args:
        from_logits: whether the predictions are logits. Default: False.
        task: index of the column to use if predictions or labels are ``[B, T]``. Default: 0.
        weighted: whether :meth:`update` takes the weights of the rows too. Default: False.

    Examples:
        >>> import numpy as np
        >>> metric = Accuracy()
        >>> metric.update(np.array([0.9, 0.2, 0.7, 0.1]), np.array([1, 0, 0, 0]))
        >>> metric.eval()
        0.75
    """

    def _of_rows(self, label: npt.NDArray[Any], prediction: FloatArray) -> npt.NDArray[Any]:
        return label == (prediction > (0.0 if self.from_logits else 0.5))
