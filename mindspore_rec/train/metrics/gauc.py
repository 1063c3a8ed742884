# SPDX-License-Identifier: Apache-2.0
"""GAUC: the AUC within groups, which are usually users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mindspore_rec.common.metrics.functional import gauc
from mindspore_rec.common.metrics.inputs import (
    FloatArray,
    as_groups,
    check_same_length,
    single_column,
)
from mindspore_rec.train.metrics.base import BinaryMetric

__all__ = ["GAUC"]


class GAUC(BinaryMetric):
    """Average of the AUCs of all groups, weighted by the groups' row counts (impressions).

    For definition and source, see `mindspore_rec.metrics.functional.gauc`. Groups with labels of
    only one class are skipped and have no weight. The value is NaN if no group has both classes.
    The rows of a group may be in several batches, or in several metrics that are merged.

    ``update`` takes a third input with the group of each row, as int64 keys ``[B]`` or ``[B, 1]``.
    ``mindspore.Model`` and ``RecModel.fit`` pass the group only if an ``eval_network`` returns the
    group and ``eval_indexes`` is None. ``Model.fit`` of MindSpore 2.10 fails if ``eval_indexes`` is
    None.

    The metric stores 13 bytes per row. During :meth:`eval`, sorting needs about 80 more bytes per
    row.

    Args:
        from_logits: whether the predictions are logits. Default: False.
        task: index of the column to use if predictions or labels are ``[B, T]``. Default: 0.

    Examples:
        >>> metric = GAUC()
        >>> metric.update(np.array([0.1, 0.9, 0.8, 0.3]), np.array([0, 1, 0, 1]),
        ...               np.array([7, 7, 8, 8]))
        >>> metric.eval()
        0.5
    """

    inputs: ClassVar[tuple[str, ...]] = ("prediction", "label", "group")
    undefined_if: ClassVar[str] = "no group has labels of both classes"

    def clear(self) -> None:
        """Forget all rows."""
        super().clear()
        self._chunks: list[tuple[npt.NDArray[np.bool_], FloatArray, npt.NDArray[np.int64]]] = []

    def _add(self, label: npt.NDArray[np.bool_], prediction: FloatArray, *others: Any) -> None:
        group = as_groups(single_column(others[0], "group"), "group")
        check_same_length(label=label, group=group)
        self._chunks.append((label.copy(), prediction.astype(np.float32), group.copy()))

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        empty = (np.zeros(0, np.bool_), np.zeros(0, np.float32), np.zeros(0, np.int64))
        chunks = [empty, *self._chunks]
        names = ("label", "prediction", "group")
        return {
            name: np.concatenate([chunk[i] for chunk in chunks]) for i, name in enumerate(names)
        }

    def _take_state(self, state: Mapping[str, npt.NDArray[Any]], rows: int) -> None:
        label = np.array(state["label"], np.bool_)
        prediction = np.array(state["prediction"], np.float32)
        self._chunks.append((label, prediction, np.array(state["group"], np.int64)))

    def _value(self) -> float:
        label, prediction, group = (np.concatenate(c) for c in zip(*self._chunks, strict=True))
        self._chunks = [(label, prediction, group)]
        return gauc(label, prediction, group)
