# SPDX-License-Identifier: Apache-2.0
"""Metrics of rankings: Recall, HitRate, NDCG, MRR, MAP and Coverage."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from mindspore.train import rearrange_inputs

from mindspore_rec.common.metrics.ranking import (
    ROW_METRICS,
    fixed_sum,
    mean_of_sum,
    mid_ranks,
    places_of,
    relevant_ranks,
    seen_items,
)
from mindspore_rec.train.metrics.merged import MergedMetric, check_integer

__all__ = ["MAP", "MRR", "NDCG", "Coverage", "HitRate", "RankingMetric", "Recall"]

_LIMB = 1 << 62


class _ListMetric(MergedMetric):
    """Base class of the metrics whose rows are lists of items."""

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Add one batch; a batch without rows is valid.

        Raises:
            TypeError: an input is not an array of numbers, or its dtype is of the wrong kind.
            ValueError: the number of inputs, a shape or a value is wrong.
        """
        if len(inputs) != len(self.inputs):
            raise ValueError(
                f"{type(self).__name__}.update takes ({', '.join(self.inputs)}), got "
                f"{len(inputs)} inputs; set_indexes chooses among more"
            )
        self._add(*(self._convert_data(data) for data in inputs))

    @abstractmethod
    def _add(self, *arrays: Any) -> None:
        """Add one batch, whose arrays have not been checked."""


class RankingMetric(_ListMetric):
    """Base class of the metrics that are means over rankings; a ``mindspore.train.Metric``.

    A row is one ranking of items, and its targets are the items that are relevant. If several items
    have the same score, each item's rank is the mean of the ranks of these items (mid rank):
    another item with the target's score counts one half.

    ``mindspore.Model(net, loss_fn, metrics={"ndcg": NDCG()}).eval(dataset)`` passes ``(score,
    target)`` to :meth:`update`. For many items, compute the ranks with
    `mindspore_rec.metrics.rank_targets`, and call :meth:`add_ranks`.

    Merging is exact: the value does not depend on the order of the rows, on the batches or on the
    number of workers. The metric uses constant memory.

    Args:
        k: number of items at the top of a ranking, at least 1; None for all items. Default: 10.

    Raises:
        TypeError: ``k`` is neither an int nor None.
        ValueError: ``k`` is below 1.
    """

    inputs: ClassVar[tuple[str, ...]] = ("score", "target")
    row_metric: ClassVar[str] = ""
    """Key of the metric in `ROW_METRICS`."""

    def __init__(self, k: int | None = 10) -> None:
        self.k = k if k is None else check_integer(k, "k", minimum=1)
        super().__init__()

    def clear(self) -> None:
        """Forget all rows."""
        super().clear()
        self._sum = 0

    def add_ranks(self, rank: npt.ArrayLike, offsets: npt.ArrayLike | None = None) -> None:
        """Add rows, given the ranks of the rows' targets.

        Args:
            rank: ``[B]``, the rank of one target per row; or, if `offsets` is set, ``[N]``, the
                concatenated ranks of all rows.
            offsets: ``[B + 1]``; row b has the ranks ``rank[offsets[b]:offsets[b + 1]]``. Default:
                None.

        Raises:
            TypeError: the ranks are not numbers, or the offsets are not integers.
            ValueError: a rank is below 1, or a row has no target.

        Examples:
            >>> metric = Recall(k=2)
            >>> metric.add_ranks([1, 2.5, 2, 7])
            >>> metric.eval()
            0.5
        """
        places = places_of(rank, offsets)
        self._sum += fixed_sum(ROW_METRICS[self.row_metric](places, self.k))
        self._rows += len(places.number)

    def _add(self, *arrays: Any) -> None:
        score, target = arrays
        scores = np.asarray(score)
        targets = np.asarray(target)
        if scores.ndim == 2 and targets.shape == (len(scores), 1):
            targets = targets[:, 0]
        if targets.ndim == 1:
            self.add_ranks(mid_ranks(scores, targets))
        else:
            self.add_ranks(*relevant_ranks(scores, targets))

    def _settings(self) -> npt.NDArray[np.float64]:
        return np.array([0 if self.k is None else self.k], np.float64)

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        high, low = divmod(self._sum, _LIMB)
        return {"high": np.array(high), "low": np.array(low)}

    def _take_state(self, state: Mapping[str, npt.NDArray[Any]], rows: int) -> None:
        self._sum += int(state["high"]) * _LIMB + int(state["low"])

    def _value(self) -> float:
        return mean_of_sum(self._sum, self._rows)


class Recall(RankingMetric):
    """Mean share of a row's targets that are among the first k items.

    For definition and ties, see `mindspore_rec.metrics.functional.recall`.

    Args:
        k: number of items at the top of a ranking. Default: 10.

    Inputs of ``update``:
        - **score** (Tensor): scores ``[B, I]`` of the items of each row.
        - **target** (Tensor): integers ``[B]`` or ``[B, 1]``, the index of the row's target; or
          ``[B, I]``, 1 for the targets of the row and 0 for other items.

    Examples:
        >>> metric = Recall(k=2)
        >>> metric.update(np.array([[0.1, 0.9, 0.5], [0.3, 0.2, 0.1]]), np.array([2, 2]))
        >>> metric.eval()
        0.5
    """

    row_metric: ClassVar[str] = "recall"


class HitRate(RankingMetric):
    """Share of rows with at least one target among the first k items.

    The value equals :class:`Recall` if each row has one target. For definition and ties, see
    `mindspore_rec.metrics.functional.hit_rate`.

    Args:
        k: number of items at the top of a ranking. Default: 10.

    Inputs of ``update``: as in :class:`Recall`.

    Examples:
        >>> metric = HitRate(k=1)
        >>> metric.update(np.array([[0.1, 0.9, 0.5]]), np.array([[1, 1, 0]]))
        >>> metric.eval()
        1.0
    """

    row_metric: ClassVar[str] = "hit_rate"


class NDCG(RankingMetric):
    """Mean normalized discounted cumulative gain of the first k items.

    For definition, source and ties, see `mindspore_rec.metrics.functional.ndcg`.

    Args:
        k: number of items at the top of a ranking. Default: 10.

    Inputs of ``update``: as in :class:`Recall`.

    Examples:
        >>> metric = NDCG(k=3)
        >>> metric.update(np.array([[0.1, 0.9, 0.5]]), np.array([0]))
        >>> metric.eval()
        0.5
    """

    row_metric: ClassVar[str] = "ndcg"


class MRR(RankingMetric):
    """Mean, over rows, of 1 / rank of the row's first target.

    For definition, source and ties, see `mindspore_rec.metrics.functional.mean_reciprocal_rank`.

    Args:
        k: number of items at the top of a ranking; a row without a target among these items counts
            as 0. Default: None, which means all items.

    Inputs of ``update``: as in :class:`Recall`.

    Examples:
        >>> metric = MRR()
        >>> metric.update(np.array([[0.1, 0.9, 0.5, 0.7]]), np.array([0]))
        >>> metric.eval()
        0.25
    """

    row_metric: ClassVar[str] = "mean_reciprocal_rank"

    def __init__(self, k: int | None = None) -> None:
        super().__init__(k)


class MAP(RankingMetric):
    """Mean average precision of the first k items.

    For definition and ties, see `mindspore_rec.metrics.functional.average_precision`.

    Args:
        k: number of items at the top of a ranking. Default: 10.

    Inputs of ``update``: as in :class:`Recall`.

    Examples:
        >>> metric = MAP(k=4)
        >>> metric.update(np.array([[0.9, 0.8, 0.7, 0.6]]), np.array([[1, 0, 0, 1]]))
        >>> metric.eval()
        0.75
    """

    row_metric: ClassVar[str] = "average_precision"


class Coverage(_ListMetric):
    """Share of all items that are in at least one list.

    For definition, see `mindspore_rec.metrics.functional.coverage`. The metric stores one byte per
    item. `mindspore_rec.metrics.top_items` makes lists.

    Args:
        catalogue: number of all items, at least 1.

    Inputs of ``update``:
        - **items** (Tensor): integers ``[B, K]`` in ``[-1, catalogue)``; -1 means no item.

    Raises:
        TypeError: ``catalogue`` is not an int.
        ValueError: ``catalogue`` is below 1.

    Examples:
        >>> metric = Coverage(catalogue=4)
        >>> metric.update(np.array([[0, 1], [1, -1]]))
        >>> metric.eval()
        0.5
    """

    inputs: ClassVar[tuple[str, ...]] = ("items",)

    def __init__(self, catalogue: int) -> None:
        self.catalogue = check_integer(catalogue, "catalogue", minimum=1)
        super().__init__()

    def clear(self) -> None:
        """Forget all rows."""
        super().clear()
        self._seen = np.zeros(self.catalogue, np.bool_)

    def _add(self, *arrays: Any) -> None:
        items = np.asarray(arrays[0])
        if items.ndim != 2:
            raise ValueError(f"items must have the shape [B, K], got {items.shape}")
        self._seen |= seen_items(items, self.catalogue)
        self._rows += len(items)

    def _settings(self) -> npt.NDArray[np.float64]:
        return np.array([self.catalogue], np.float64)

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        return {"seen": self._seen.copy()}

    def _take_state(self, state: Mapping[str, npt.NDArray[Any]], rows: int) -> None:
        self._seen |= state["seen"].astype(np.bool_)

    def _value(self) -> float:
        return float(self._seen.sum()) / self.catalogue
