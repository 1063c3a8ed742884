# SPDX-License-Identifier: Apache-2.0
"""The exact AUC over all rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mindspore_rec.common.metrics.functional import auc_of_classes, auc_of_weights
from mindspore_rec.common.metrics.inputs import FloatArray
from mindspore_rec.train.metrics.base import BinaryMetric

__all__ = ["AUC"]


class AUC(BinaryMetric):
    """Exact area under the ROC curve; a pair of rows with equal scores counts one half.

    For definition and source, see `mindspore_rec.metrics.functional.auc`. Without weights, the
    value does not depend on the order of the rows or on the batches. While all added rows have one
    class, the value is NaN and no error is raised, so an online job can continue.

    The metric stores predictions as float32, 4 bytes per row. If rows have weights, the weights
    take 4 more bytes per row. Float64 predictions that are equal after rounding to float32 count as
    equal. Calling :meth:`eval` sorts the predictions; 10 million rows take about a second. For
    endless streams, see :class:`StreamingAUC`.

    Args:
        from_logits: whether the predictions are logits. Logits are ranked directly, because a
            float32 sigmoid would make large logits equal. Default: False.
        task: index of the column to use if predictions or labels are ``[B, T]``. Default: 0.
        weighted: whether :meth:`update` takes the weights of the rows too. Default: False.

    Examples:
        >>> metric = AUC()
        >>> metric.update(np.array([0.1, 0.4]), np.array([0, 0]))
        >>> metric.eval()
        nan
        >>> metric.update(np.array([0.35, 0.8]), np.array([1, 1]))
        >>> metric.eval()
        0.75
    """

    takes_weights: ClassVar[bool] = True

    def clear(self) -> None:
        """Forget all rows."""
        super().clear()
        # Scores of positive rows and of negative rows; with weights, also the weights of these
        # rows.
        names: tuple[str, ...] = ("positive", "negative")
        if self._weighted:
            names += ("positive_weight", "negative_weight")
        self._parts: dict[str, list[FloatArray]] = {name: [] for name in names}

    def _add(self, label: npt.NDArray[np.bool_], prediction: FloatArray, *others: Any) -> None:
        scores = prediction.astype(np.float32, copy=False)
        self._parts["positive"].append(scores[label])
        self._parts["negative"].append(scores[~label])
        if self._weighted:
            weights = others[0].astype(np.float32)
            self._parts["positive_weight"].append(weights[label])
            self._parts["negative_weight"].append(weights[~label])

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        none = np.zeros(0, np.float32)
        return {name: np.concatenate([none, *parts]) for name, parts in self._parts.items()}

    def _take_state(self, state: Mapping[str, npt.NDArray[Any]], rows: int) -> None:
        for name, parts in self._parts.items():
            parts.append(np.array(state[name], np.float32))

    def _value(self) -> float:
        # Keep one array per class, so that the next evaluation need not join the arrays of the
        # batches again.
        whole = {name: np.concatenate(parts) for name, parts in self._parts.items()}
        self._parts = {name: [array] for name, array in whole.items()}
        positive, negative = whole["positive"], whole["negative"]
        if not self._weighted:
            return auc_of_classes(positive, negative)
        label = np.arange(len(positive) + len(negative)) < len(positive)
        weights = np.concatenate([whole["positive_weight"], whole["negative_weight"]])
        return auc_of_weights(label, np.concatenate([positive, negative]), weights)
