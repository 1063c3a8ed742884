# SPDX-License-Identifier: Apache-2.0
"""NumPy functions that compute metrics of rankings from the ranks of the relevant items.

A row is one ranking of items, for instance for one user. The row's *targets* are the items that are
relevant. A target's rank is 1 plus the number of items with a higher score in the row, not counting
the row's other targets. **Ties**: an item with the target's score counts one half. A rank with ties
is called the mid rank, because it is the mean of the target's ranks over all orders of the tied
items. If a model gives all items the same score, a target's rank is in the middle, and not 1. Ranks
come from :func:`mid_ranks`, :func:`relevant_ranks` or `mindspore_rec.metrics.rank_targets`.

Ranks have the shape ``[B]`` if each row has one target. If rows have several targets, ``rank``
``[N]`` contains the ranks row after row, and ``offsets`` is ``[B + 1]``: the ranks of row b are
``rank[offsets[b]:offsets[b + 1]]``. The targets of a row are sorted by rank. The *place* of the
i-th target is its rank + i - 1. A target is among the first k items if its place is at most k.

Each metric except `coverage` is the mean of one value per row. The mean does not depend on the
order of the rows, because the values are rounded to multiples of 2^-52 and added as integers.

The metrics `recall`, `hit_rate`, `ndcg`, `mean_reciprocal_rank` and `average_precision` raise
ValueError if there are no rows, a row has no target, a rank is below 1 or NaN, or ``k`` is not in
[1, 2^31 - 1]. Ranks that are not numbers, and a ``k`` that is not an int, raise TypeError.
`ranking_values` raises the same errors, but accepts an array without rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.metrics.inputs import as_labels, as_scores

__all__ = [
    "MOST_ITEMS",
    "ROW_METRICS",
    "Places",
    "average_precision",
    "checked_offsets",
    "coverage",
    "fixed_sum",
    "hit_rate",
    "mean_of_sum",
    "mean_reciprocal_rank",
    "mid_ranks",
    "ndcg",
    "places_of",
    "ranking_values",
    "recall",
    "relevant_ranks",
]

MOST_ITEMS = 2**31 - 1
_BITS = 52
_HALF_BITS = 26


class Places(NamedTuple):
    """Places of each row's targets, sorted within the row.

    Attributes:
        place: float64 ``[N]``, the places of all targets, row after row.
        start: int64 ``[B]``, the index in `place` at which each row begins.
        number: int64 ``[B]``, the number of each row's targets, at least 1.
        order: int64 ``[N]``, each target's number in its row, from 1.
    """

    place: npt.NDArray[np.float64]
    start: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64]


def recall(rank: npt.ArrayLike, k: int, offsets: npt.ArrayLike | None = None) -> float:
    """Compute the share of a row's targets among the first k items, averaged over the rows.

    Args:
        rank: ranks of the targets: ``[B]``, or ``[N]`` with `offsets`.
        k: only the first k items of a row are used.
        offsets: ``[B + 1]``, the positions in `rank` at which the rows begin and the last row ends.
            Default: None, which means that each row has one target.

    Returns:
        The recall in ``[0, 1]``.

    Examples:
        >>> recall([1, 7.5, 30, 2], 10)
        0.75
        >>> recall([1, 30, 2], 10, offsets=[0, 2, 3])
        0.75
    """
    return _mean(recall_of_rows, rank, k, offsets)


def hit_rate(rank: npt.ArrayLike, k: int, offsets: npt.ArrayLike | None = None) -> float:
    """Compute the share of rows with at least one target among the first k items.

    The value equals :func:`recall` if each row has one target.

    Args:
        rank: ranks of the targets: ``[B]``, or ``[N]`` with `offsets`.
        k: only the first k items of a row are used.
        offsets: ``[B + 1]``, the positions in `rank` at which the rows begin and the last row ends.
            Default: None, which means that each row has one target.

    Examples:
        >>> hit_rate([1, 30, 2], 10, offsets=[0, 2, 3])
        1.0
    """
    return _mean(hits_of_rows, rank, k, offsets)


def ndcg(rank: npt.ArrayLike, k: int, offsets: npt.ArrayLike | None = None) -> float:
    """Compute the mean normalized discounted cumulative gain of the first k items.

    A target at the place p gains ``1 / log2(p + 1)``, even for a mid rank between two whole
    numbers. The sum of a row's gains is divided by the sum of gains of the best possible ranking,
    in which targets have the first ``min(targets, k)`` places. Source: Järvelin & Kekäläinen 2002,
    Cumulated gain-based evaluation of IR techniques (https://doi.org/10.1145/582415.582418), with
    gains of 0 and 1.

    Args:
        rank: ranks of the targets: ``[B]``, or ``[N]`` with `offsets`.
        k: only the first k items of a row are used.
        offsets: ``[B + 1]``, the positions in `rank` at which the rows begin and the last row ends.
            Default: None, which means that each row has one target.

    Examples:
        >>> ndcg([1, 3, 30], 10)
        0.5
    """
    return _mean(ndcg_of_rows, rank, k, offsets)


def mean_reciprocal_rank(
    rank: npt.ArrayLike, k: int | None = None, offsets: npt.ArrayLike | None = None
) -> float:
    """Compute the mean, over the rows, of 1 divided by the place of the row's first target.

    Source: Voorhees 1999, The TREC-8 question answering track report.

    Args:
        rank: ranks of the targets: ``[B]``, or ``[N]`` with `offsets`.
        k: only the first k items of a row are used. The row's value is 0 if none of the first k
            items is a target. Default: None, which means all items.
        offsets: ``[B + 1]``, the positions in `rank` at which the rows begin and the last row ends.
            Default: None, which means that each row has one target.

    Examples:
        >>> mean_reciprocal_rank([1, 4])
        0.625
        >>> mean_reciprocal_rank([1, 4], k=3)
        0.5
    """
    return _mean(reciprocal_of_rows, rank, k, offsets)


def average_precision(rank: npt.ArrayLike, k: int, offsets: npt.ArrayLike | None = None) -> float:
    """Compute the mean average precision of the first k items (MAP@k).

    The average precision of a row is the sum of i / p over the row's targets among the first k
    items, divided by ``min(targets, k)``; p is the place of the i-th target.

    Args:
        rank: ranks of the targets: ``[B]``, or ``[N]`` with `offsets`.
        k: only the first k items of a row are used.
        offsets: ``[B + 1]``, the positions in `rank` at which the rows begin and the last row ends.
            Default: None, which means that each row has one target. With one target per row, the
                value equals
            :func:`mean_reciprocal_rank`.

    Examples:
        >>> average_precision([1, 3], 10, offsets=[0, 2])  # places 1 and 4
        0.75
    """
    return _mean(precision_of_rows, rank, k, offsets)


def ranking_values(
    metric: str, rank: npt.ArrayLike, k: int | None, offsets: npt.ArrayLike | None = None
) -> npt.NDArray[np.float64]:
    """Return the value of each row, for instance to resample rows or to compare two models.

    Args:
        metric: "recall", "hit_rate", "ndcg", "mean_reciprocal_rank" or "average_precision".
        rank: ranks of the targets: ``[B]``, or ``[N]`` with `offsets`.
        k: only the first k items of a row are used. None means all items.
        offsets: ``[B + 1]``, the positions in `rank` at which the rows begin and the last row ends.
            Default: None, which means that each row has one target.

    Returns:
        float64 ``[B]``, whose mean is the metric.

    Raises:
        TypeError: the ranks are not numbers, or ``k`` is not an int.
        ValueError: the metric is unknown, a rank is below 1, a row has no target, or ``k`` is out
            of range.

    Examples:
        >>> ranking_values("ndcg", [1, 3, 30], 10)
        array([1. , 0.5, 0. ])
    """
    if metric not in ROW_METRICS:
        raise ValueError(f"metric must be one of {', '.join(ROW_METRICS)}, got {metric!r}")
    if k is not None:
        k = check_int("k", k, 1, MOST_ITEMS)
    return ROW_METRICS[metric](places_of(rank, offsets), k)


def coverage(items: npt.ArrayLike, catalogue: int) -> float:
    """Compute the share of all items that are in at least one list.

    Args:
        items: the items of all lists, integers in ``[0, catalogue)`` of any shape. The number -1
            stands for no item.
        catalogue: number of all items.

    Raises:
        TypeError: the items are not integers.
        ValueError: an item is outside ``[-1, catalogue)``, or ``catalogue`` is below 1.

    Examples:
        >>> coverage([[0, 3], [3, -1]], 4)
        0.5
    """
    return float(seen_items(items, catalogue).sum()) / catalogue


def seen_items(items: npt.ArrayLike, catalogue: int) -> npt.NDArray[np.bool_]:
    """Return bools ``[catalogue]``: True for items that are in a list; see :func:`coverage`."""
    if catalogue < 1:
        raise ValueError(f"catalogue must be at least 1, got {catalogue}")
    listed = np.asarray(items).reshape(-1)
    if listed.size and listed.dtype.kind not in "iu":
        raise TypeError(f"items must be integers, got dtype {listed.dtype}")
    listed = listed.astype(np.int64)
    wrong = (listed < -1) | (listed >= catalogue)
    if wrong.any():
        raise ValueError(f"items must be in [-1, {catalogue}), got {listed[wrong][0]}")
    seen = np.zeros(catalogue, np.bool_)
    seen[listed[listed >= 0]] = True
    return seen


# ---- ranks of scores


def mid_ranks(score: npt.ArrayLike, target: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Compute the mid rank of one target in each row of scores.

    Args:
        score: ``[B, I]``, finite numbers. Items with higher scores are ranked first.
        target: ``[B]``, the index of the target in its row, an integer in ``[0, I)``.

    Returns:
        float64 ``[B]``: 1, plus the number of items with a higher score, plus half the number of
        other items with the same score.

    Raises:
        TypeError: the scores are not numbers, or the targets are not integers.
        ValueError: a shape is wrong, a score is not finite, or a target is outside ``[0, I)``.

    Examples:
        >>> mid_ranks([[0.1, 0.9, 0.1], [0.5, 0.5, 0.5]], [0, 1])
        array([2.5, 2. ])
    """
    scores = _score_rows(score)
    targets = np.asarray(target)
    if targets.shape != scores.shape[:1]:
        raise ValueError(f"target must have the shape {scores.shape[:1]}, got {targets.shape}")
    if targets.size and targets.dtype.kind not in "iu":
        raise TypeError(f"target must be integers, got dtype {targets.dtype}")
    wrong = (targets < 0) | (targets >= scores.shape[1])
    if wrong.any():
        raise ValueError(f"target must be in [0, {scores.shape[1]}), got {targets[wrong][0]}")
    mine = np.take_along_axis(scores, targets.astype(np.int64)[:, None], 1)
    above, equal = (scores > mine).sum(1), (scores == mine).sum(1)
    return 1.0 + above + 0.5 * (equal - 1)


def relevant_ranks(
    score: npt.ArrayLike, relevance: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Compute the mid ranks of the relevant items in each row of scores.

    Args:
        score: ``[B, I]``, finite numbers. Items with higher scores are ranked first.
        relevance: ``[B, I]``, 1 for the relevant items of a row, and 0 for all other items.

    Returns:
        Two arrays, ``rank`` float64 ``[N]`` and ``offsets`` int64 ``[B + 1]``. A rank is 1, plus
        the number of items that are not relevant and have a higher score, plus half the number of
        items that are not relevant and have the same score.

    Raises:
        TypeError: the scores are not numbers.
        ValueError: the shapes differ, a score is not finite, or a relevance is not 0 or 1.

    Examples:
        >>> relevant_ranks([[0.9, 0.5, 0.5, 0.1]], [[0, 1, 0, 1]])
        (array([2.5, 3. ]), array([0, 2]))
    """
    scores = _score_rows(score)
    relevances = np.asarray(relevance)
    if relevances.shape != scores.shape:
        raise ValueError(f"relevance must have the shape {scores.shape}, got {relevances.shape}")
    is_target = as_labels(relevances.reshape(-1), "relevance").reshape(scores.shape)
    ranks = [
        _ranks_beside(mine[of], np.sort(mine[~of]))
        for mine, of in zip(scores, is_target, strict=True)
    ]
    offsets = np.concatenate([[0], np.cumsum(is_target.sum(1))]).astype(np.int64)
    return np.concatenate([np.zeros(0), *ranks]), offsets


def _ranks_beside(scores: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the mid rank of each score among `others`, the sorted scores of other items."""
    not_above = np.searchsorted(others, scores, "right")
    below = np.searchsorted(others, scores, "left")
    return 1.0 + (len(others) - not_above) + 0.5 * (not_above - below)


def _score_rows(score: npt.ArrayLike) -> npt.NDArray[np.floating[Any]]:
    scores = np.asarray(score)
    if scores.ndim != 2 or scores.shape[1] == 0:
        raise ValueError(f"score must have the shape [B, I], got {scores.shape}")
    return as_scores(scores.reshape(-1), "score").reshape(scores.shape)


# ---- values of rows


def places_of(rank: npt.ArrayLike, offsets: npt.ArrayLike | None = None) -> Places:
    """Check ranks and return the places of targets, sorted in each row.

    Raises:
        TypeError: the ranks are not numbers, or the offsets are not integers.
        ValueError: a rank is below 1, or the offsets do not give each row at least one rank.

    Examples:
        >>> places_of([5, 1, 1, 2], [0, 3, 4]).place
        array([1., 2., 7., 2.])
    """
    ranks = np.asarray(rank)
    if ranks.ndim != 1:
        raise ValueError(f"rank must have the shape [B] or [N], got {ranks.shape}")
    ranks = as_scores(ranks, "rank").astype(np.float64)
    if ranks.size and ranks.min() < 1:
        raise ValueError(f"rank must be at least 1, got {ranks.min()}")
    if offsets is None:
        number = np.ones(len(ranks), np.int64)
    else:
        number = np.diff(checked_offsets(offsets, len(ranks), "offsets"))
        if (number == 0).any():
            empty = int(np.argmax(number == 0))
            raise ValueError(f"each row must have a target, row {empty} has none")
    start = np.cumsum(number) - number
    row = np.repeat(np.arange(len(number)), number)
    order = np.arange(len(ranks)) - start[row] + 1
    if offsets is not None:
        ranks = ranks[np.lexsort((ranks, row))]
    return Places(ranks + (order - 1), start, number, order)


def checked_offsets(offsets: npt.ArrayLike, values: int, name: str) -> npt.NDArray[np.int64]:
    """Check the offsets of lists, and convert them to int64 ``[B + 1]``.

    Raises:
        TypeError: the offsets are not integers.
        ValueError: the offsets do not rise from 0 to the number of values.
    """
    array = np.asarray(offsets)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}")
    made = array.astype(np.int64)
    rises = made.ndim == 1 and made.size > 0 and made[0] == 0 and made[-1] == values
    if not rises or (np.diff(made) < 0).any():
        raise ValueError(f"{name} must rise from 0 to the number of values, {values}")
    return made


def recall_of_rows(places: Places, k: int | None) -> npt.NDArray[np.float64]:
    """Return the recall of each row; :func:`recall` is the mean recall."""
    return _row_sums(places, _within(places, k).astype(np.float64)) / places.number


def hits_of_rows(places: Places, k: int | None) -> npt.NDArray[np.float64]:
    """Return 1 for each row with a hit, otherwise 0; :func:`hit_rate` is the mean."""
    return _within(places, k)[places.start].astype(np.float64)


def ndcg_of_rows(places: Places, k: int | None) -> npt.NDArray[np.float64]:
    """Return the gain of each row; :func:`ndcg` is the mean of the gains."""
    gains = np.where(_within(places, k), 1.0 / np.log2(places.place + 1.0), 0.0)
    most = int(places.number.max(initial=0))
    best = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(2.0, most + 2.0)))])
    return _row_sums(places, gains) / best[_most_hits(places, k)]


def reciprocal_of_rows(places: Places, k: int | None) -> npt.NDArray[np.float64]:
    """Return the reciprocal rank of each row; :func:`mean_reciprocal_rank` is the mean."""
    return np.where(_within(places, k), 1.0 / places.place, 0.0)[places.start]


def precision_of_rows(places: Places, k: int | None) -> npt.NDArray[np.float64]:
    """Return the average precision of each row; :func:`average_precision` is the mean."""
    shares = np.where(_within(places, k), places.order / places.place, 0.0)
    return _row_sums(places, shares) / _most_hits(places, k)


RowMetric = Callable[[Places, "int | None"], npt.NDArray[np.float64]]
ROW_METRICS: dict[str, RowMetric] = {
    "recall": recall_of_rows,
    "hit_rate": hits_of_rows,
    "ndcg": ndcg_of_rows,
    "mean_reciprocal_rank": reciprocal_of_rows,
    "average_precision": precision_of_rows,
}
"""Functions that return the metric of each row, by the name of the metric."""


def _within(places: Places, k: int | None) -> npt.NDArray[np.bool_]:
    return places.place <= (np.inf if k is None else k)


def _most_hits(places: Places, k: int | None) -> npt.NDArray[np.int64]:
    return places.number if k is None else np.minimum(places.number, k)


def _row_sums(places: Places, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the sum of each row's values, added in the order of the places."""
    row = np.repeat(np.arange(len(places.number)), places.number)
    # Convert to float64, because for empty arrays bincount returns integers.
    return np.bincount(row, values, len(places.number)).astype(np.float64)


# ---- means


def fixed_sum(values: npt.NDArray[np.float64]) -> int:
    """Round values in ``[0, 1]`` to multiples of 2^-52, and return 2^52 times the sum.

    Examples:
        >>> fixed_sum(np.array([0.5, 0.25])) / 2**52
        0.75
    """
    units = np.rint(values * 2.0**_BITS).astype(np.int64)
    low = int((units & ((1 << _HALF_BITS) - 1)).sum())
    return (int((units >> _HALF_BITS).sum()) << _HALF_BITS) + low


def mean_of_sum(total: int, rows: int) -> float:
    """Return the mean of values whose :func:`fixed_sum` is `total`; NaN if `rows` is 0."""
    return total / (rows << _BITS) if rows else float("nan")


def _mean(
    of_rows: RowMetric, rank: npt.ArrayLike, k: int | None, offsets: npt.ArrayLike | None
) -> float:
    if k is not None:
        k = check_int("k", k, 1, MOST_ITEMS)
    places = places_of(rank, offsets)
    if not len(places.number):
        raise ValueError("rank must have at least one row, got none")
    return mean_of_sum(fixed_sum(of_rows(places, k)), len(places.number))
