# SPDX-License-Identifier: Apache-2.0
"""NumPy functions that compute metrics from arrays; the metric classes use these functions too.

The order of arguments is ``(label, prediction)``, as in scikit-learn. A MindSpore metric's
``update`` takes ``(prediction, label)``, the order of ``mindspore.Model``. All arrays are ``[B]``
or ``[B, 1]``. Labels are 0 or 1 of any dtype, and predictions are finite floats. If a quantity is
undefined because only one class occurs, the value is NaN. All sums are computed in float64.

The functions `auc`, `gauc`, `log_loss`, `normalized_entropy`, `calibration` and `reliability_curve`
check their arguments. The functions raise ValueError for empty arrays, different lengths, illegal
shapes, labels other than 0 and 1, and predictions that are NaN or infinite. Probabilities outside
``[0, 1]`` raise ValueError too. Predictions that are not numbers raise TypeError. The helpers of
the metric classes, such as `auc_of_classes` and `bin_sums`, do not check their arguments.

A row with the optional weight w, at least 0, counts like w equal rows.

The ranking metrics `recall`, `hit_rate`, `ndcg`, `mean_reciprocal_rank` and `average_precision`
take the ranks of the relevant items. The module `common/metrics/ranking.py` defines ranks, ties and
the metrics of rankings. `mid_ranks` and `relevant_ranks` compute ranks from scores. `coverage`
computes the share of all items that are in at least one list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mindspore_rec.common.metrics.inputs import (
    FloatArray,
    as_groups,
    as_labels,
    as_predictions,
    as_scores,
    as_weights,
    check_same_length,
    single_column,
)
from mindspore_rec.common.metrics.ranking import (
    average_precision,
    coverage,
    hit_rate,
    mean_reciprocal_rank,
    mid_ranks,
    ndcg,
    ranking_values,
    recall,
    relevant_ranks,
)

__all__ = [
    "PROBABILITY_EPS",
    "ReliabilityCurve",
    "auc",
    "auc_error_bound",
    "auc_from_counts",
    "auc_of_classes",
    "auc_of_weights",
    "average_precision",
    "background_entropy",
    "bin_edges",
    "bin_sums",
    "calibration",
    "coverage",
    "curve_of_sums",
    "example_log_loss",
    "gauc",
    "hit_rate",
    "log_loss",
    "mean_reciprocal_rank",
    "mid_ranks",
    "ndcg",
    "normalized_entropy",
    "ranking_values",
    "recall",
    "relevant_ranks",
    "reliability_curve",
    "sigmoid",
    "weighted_mean",
]

PROBABILITY_EPS = 1e-7
"""Least distance of a probability from 0 and 1 in log losses, about the resolution of float32."""


class ReliabilityCurve(NamedTuple):
    """Predicted and observed click rate in each bin of predicted probabilities.

    All fields are arrays with one value per bin. Bin ``i`` contains the probabilities ``lower[i] <
    p <= upper[i]``. The first bin contains ``p = 0`` too. The means of an empty bin are NaN.
    """

    lower: npt.NDArray[np.float64]
    upper: npt.NDArray[np.float64]
    rows: npt.NDArray[np.int64]
    predicted: npt.NDArray[np.float64]
    observed: npt.NDArray[np.float64]


def auc(label: npt.ArrayLike, score: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> float:
    """Compute the area under the ROC curve: the share of correctly ordered positive-negative pairs.

    A tied pair counts one half (the mid-rank form of the Mann-Whitney U statistic, Hanley & McNeil
    1982). Without weights, pairs are counted in integers, so the value is the correctly rounded
    fraction and does not depend on the order of the rows.

    Args:
        label: ``[B]``, 0 or 1.
        score: ``[B]``, any finite real numbers. Probabilities and logits give the same AUC.
        weight: ``[B]``, weights of the rows. Default: None, which means that every row counts once.

    Returns:
        The AUC in ``[0, 1]``, or NaN if a class has no row or no weight.

    Examples:
        >>> auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
        0.75
        >>> auc([1, 1], [0.1, 0.4])
        nan
    """
    labels, scores = _label_and_score(label, score)
    if weight is not None:
        return auc_of_weights(labels, scores, _weights(weight, labels))
    return auc_of_classes(scores[labels], scores[~labels])


def auc_of_classes(positive: FloatArray, negative: FloatArray) -> float:
    """Compute the AUC from the scores ``[P]`` of positives and ``[N]`` of negatives, in any order.

    The inputs are not checked. The time is O((P + N) log(P + N)). `auc_of_classes` needs memory for
    a sorted copy of each class's scores.

    Examples:
        >>> auc_of_classes(np.array([0.35, 0.8]), np.array([0.1, 0.4]))
        0.75
    """
    pairs = positive.size * negative.size
    if pairs == 0:
        return float("nan")
    # Search for the scores of the smaller class among the scores of the larger class, so that the
    # number of searches is small.
    swapped = positive.size > negative.size
    few, many = (negative, positive) if swapped else (positive, negative)
    few, many = np.sort(few), np.sort(many)
    twice_above = int(np.searchsorted(many, few, "left").sum())
    twice_above += int(np.searchsorted(many, few, "right").sum())
    return (2 * pairs - twice_above if swapped else twice_above) / (2 * pairs)


def auc_of_weights(
    label: npt.NDArray[np.bool_], score: FloatArray, weight: npt.NDArray[np.floating]
) -> float:
    """Compute the weighted AUC of checked rows ``[B]``; NaN if a class has no weight.

    Examples:
        >>> label, score = np.array([True, False, False]), np.array([0.5, 0.4, 0.6])
        >>> auc_of_weights(label, score, np.array([1.0, 3.0, 1.0]))
        0.75
    """
    if not score.size:
        return float("nan")
    order = np.argsort(score, kind="stable")
    ordered = score[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    weights, labels = weight[order].astype(np.float64), label[order]
    sums = [np.add.reduceat(np.where(of, weights, 0.0), first) for of in (labels, ~labels)]
    return auc_from_counts(*sums)


def auc_from_counts(positive: npt.NDArray[np.number], negative: npt.NDArray[np.number]) -> float:
    """Compute the AUC from the positives and negatives in each bin; a pair within a bin counts 1/2.

    Args:
        positive: ``[bins]``, number (or total weight, at least 0) of the positives in each bin. The
            bins are in the order of rising scores.
        negative: ``[bins]``, number (or total weight, at least 0) of the negatives in each bin. The
            bins are in the order of rising scores.

    Returns:
        The AUC, or NaN if one class has no weight. :func:`auc_error_bound` bounds the error.

    Examples:
        >>> auc_from_counts(np.array([0, 1, 1]), np.array([1, 1, 0]))
        0.875
    """
    p, n = _shares(positive, negative)
    below = np.cumsum(n) - n
    return float(np.clip(p @ (below + 0.5 * n), 0.0, 1.0))  # rounding may leave the range


def auc_error_bound(positive: npt.NDArray[np.number], negative: npt.NDArray[np.number]) -> float:
    """Compute an upper bound of the difference between :func:`auc_from_counts` and the exact AUC.

    Only the order of a positive and a negative in the same bin is unknown, and each such pair adds
    an error of at most one half. The bound ``0.5 * sum_b(P_b * N_b) / (P * N)`` is half the share
    of the pairs whose positive and negative are in the same bin. The bound holds for any scores.
    The error equals the bound if, in every bin, all positives are above all negatives, or if, in
    every bin, all negatives are above all positives.

    Examples:
        >>> auc_error_bound(np.array([0, 1, 1]), np.array([1, 1, 0]))
        0.125
    """
    p, n = _shares(positive, negative)
    return 0.5 * float(p @ n)


def gauc(label: npt.ArrayLike, score: npt.ArrayLike, group: npt.ArrayLike) -> float:
    """Compute the mean of the groups' AUCs, weighted by the groups' rows (impressions).

    The result is ``sum_g(rows_g * AUC_g) / sum_g(rows_g)`` over the groups with both classes. Other
    groups are skipped. Source: Zhou et al. 2018, Deep Interest Network
    (https://arxiv.org/abs/1706.06978), section 6.3, with impressions as the weight.

    Args:
        label: ``[B]``, 0 or 1.
        score: ``[B]``, any finite real numbers.
        group: ``[B]``, any int64 keys, for instance user ids.

    Returns:
        The GAUC in ``[0, 1]``, or NaN if no group has both classes.

    Examples:
        >>> gauc([0, 1, 0, 1, 1], [0.1, 0.9, 0.8, 0.3, 0.5], [7, 7, 8, 8, 9])
        0.5
    """
    labels, scores = _label_and_score(label, score)
    groups = as_groups(single_column(group, "group"), "group")
    check_same_length(label=labels, group=groups)
    order = np.lexsort((scores, groups))
    scores, groups, labels = scores[order], groups[order], labels[order]

    new_group = np.ones(labels.size, dtype=bool)
    new_group[1:] = groups[1:] != groups[:-1]
    new_tie = new_group.copy()
    new_tie[1:] |= scores[1:] != scores[:-1]
    group_start, tie_start = np.flatnonzero(new_group), np.flatnonzero(new_tie)
    group_rows = np.diff(group_start, append=labels.size)
    tie_rows = np.diff(tie_start, append=labels.size)
    tie_positives = np.add.reduceat(labels, tie_start, dtype=np.int64)

    group_of_tie = np.cumsum(new_group)[tie_start] - 1
    below = tie_start - group_start[group_of_tie]
    twice_midrank = 2 * below + tie_rows + 1
    first_tie = np.searchsorted(tie_start, group_start)
    twice_rank_sum = np.add.reduceat(tie_positives * twice_midrank, first_tie)

    positives = np.add.reduceat(tie_positives, first_tie)
    pairs = positives * (group_rows - positives)
    mixed = pairs > 0
    if not mixed.any():
        return float("nan")
    twice_u = (twice_rank_sum - positives * (positives + 1))[mixed]
    return float(np.average(twice_u / (2 * pairs[mixed]), weights=group_rows[mixed]))


def log_loss(
    label: npt.ArrayLike,
    prediction: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    from_logits: bool = False,
) -> float:
    """Compute the mean binary cross entropy in nats: ``-mean(y log p + (1 - y) log(1 - p))``.

    Probabilities are clipped to ``[PROBABILITY_EPS, 1 - PROBABILITY_EPS]``, so the loss of a row is
    at most 16.1. Logits ``z`` are not clipped: ``max(z, 0) - z y + log(1 + exp(-|z|))``.

    Args:
        label: ``[B]``, 0 or 1.
        prediction: ``[B]``, probabilities in ``[0, 1]``, or logits.
        weight: ``[B]``, weights of the rows. Default: None, which means that every row counts once.
        from_logits: True if the predictions are logits. Default: False.

    Returns:
        The log loss, or NaN if all weights are 0.

    Examples:
        >>> round(log_loss([1, 0], [0.9, 0.2]), 4)
        0.1643
    """
    labels, predictions = _label_and_prediction(label, prediction, from_logits)
    losses = example_log_loss(labels, predictions, from_logits=from_logits)
    if weight is None:
        return float(losses.mean())
    return weighted_mean(losses, _weights(weight, labels))


def weighted_mean(values: npt.NDArray[np.floating], weight: npt.NDArray[np.floating]) -> float:
    """Compute the weighted mean of values ``[B]``; NaN if all weights are 0.

    Examples:
        >>> weighted_mean(np.array([1.0, 4.0]), np.array([2.0, 1.0]))
        2.0
    """
    weights = weight.astype(np.float64)
    total = float(weights.sum())
    return float((weights * values).sum()) / total if total else float("nan")


def example_log_loss(
    label: npt.NDArray[np.bool_], prediction: FloatArray, *, from_logits: bool
) -> npt.NDArray[np.float64]:
    """Return the loss ``[B]`` of each row of checked arrays; :func:`log_loss` is the mean loss.

    Examples:
        >>> example_log_loss(np.array([True, False]), np.array([0., 0.]), from_logits=True).round(4)
        array([0.6931, 0.6931])
    """
    values = prediction.astype(np.float64)
    if from_logits:
        return np.maximum(values, 0) - values * label + np.log1p(np.exp(-np.abs(values)))
    values = np.clip(values, PROBABILITY_EPS, 1 - PROBABILITY_EPS)
    return -np.log(np.where(label, values, 1 - values))


def normalized_entropy(
    label: npt.ArrayLike,
    prediction: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    from_logits: bool = False,
) -> float:
    """Compute the log loss divided by the entropy of the mean label; predicting the mean gives 1.

    Source: He et al. 2014, Practical Lessons from Predicting Clicks on Ads at Facebook
    (https://doi.org/10.1145/2648584.2648589), equation 1.

    Args:
        label: ``[B]``, 0 or 1.
        prediction: ``[B]``, probabilities in ``[0, 1]``, or logits.
        weight: ``[B]``, weights of the rows. Default: None, which means that every row counts once.
        from_logits: True if the predictions are logits. Default: False.

    Returns:
        The normalized entropy (0 is perfect), or NaN if all labels with a weight above 0 are equal,
        because the entropy is then 0.

    Examples:
        >>> normalized_entropy([1, 0], [0.5, 0.5])
        1.0
    """
    loss = log_loss(label, prediction, weight, from_logits=from_logits)
    labels = as_labels(single_column(label, "label"), "label")
    if weight is None:
        return loss / background_entropy(int(labels.sum()), labels.size)
    weights = _weights(weight, labels)
    return loss / background_entropy(float(weights[labels].sum()), float(weights.sum()))


def background_entropy(positives: float, rows: float) -> float:
    """Compute the entropy of ``positives / rows`` in nats, from counts or from sums of weights.

    The entropy is the log loss of a model that predicts ``positives / rows`` for every row. The
    result is NaN if the rate is 0 or 1, because an entropy of 0 is no baseline.

    Examples:
        >>> round(background_entropy(1, 2), 4)
        0.6931
    """
    if positives in (0, rows):
        return float("nan")
    rate = positives / rows
    return float(-(rate * np.log(rate) + (1 - rate) * np.log1p(-rate)))


def calibration(
    label: npt.ArrayLike,
    prediction: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    from_logits: bool = False,
) -> float:
    """Compute the mean predicted rate divided by the mean observed rate; 1 means calibrated.

    Source: He et al. 2014 (https://doi.org/10.1145/2648584.2648589), section 3.

    Args:
        label: ``[B]``, 0 or 1.
        prediction: ``[B]``, probabilities in ``[0, 1]``, or logits.
        weight: ``[B]``, weights of the rows. Default: None, which means that every row counts once.
        from_logits: True if the predictions are logits. Default: False.

    Returns: The ratio, or NaN if no positive label has a weight above 0.

    Examples:
        >>> calibration([1, 0, 0, 0], [0.25, 0.5, 0.25, 0.5])
        1.5
    """
    labels, predictions = _label_and_prediction(label, prediction, from_logits)
    if not labels.any():
        return float("nan")
    rates = sigmoid(predictions) if from_logits else predictions
    if weight is None:
        return float(rates.sum(dtype=np.float64)) / int(labels.sum())
    weights = _weights(weight, labels)
    observed = float(weights[labels].sum())
    return float((weights * rates).sum()) / observed if observed else float("nan")


def reliability_curve(
    label: npt.ArrayLike,
    prediction: npt.ArrayLike,
    *,
    bins: int | Sequence[float] = 10,
    from_logits: bool = False,
) -> ReliabilityCurve:
    """Compute the predicted and the observed rate in each bin of predicted probabilities.

    Args:
        label: ``[B]``, 0 or 1.
        prediction: ``[B]``, probabilities in ``[0, 1]``, or logits.
        bins: number of bins of equal width, or rising edges from 0 to 1. Click rates are low, so
            edges such as ``[0, 0.001, 0.003, 0.01, 0.03, 0.1, 1]`` show more detail than bins of
            equal width. Default: 10.
        from_logits: True if the predictions are logits. Default: False.

    Raises:
        ValueError: ``bins`` is below 1, or its edges do not rise from 0 to 1.

    Examples:
        >>> curve = reliability_curve([0, 1, 1], [0.2, 0.4, 0.9], bins=2)
        >>> curve.predicted.round(3), curve.observed
        (array([0.3, 0.9]), array([0.5, 1. ]))
    """
    edges = bin_edges(bins)
    labels, predictions = _label_and_prediction(label, prediction, from_logits)
    rates = sigmoid(predictions) if from_logits else predictions
    return curve_of_sums(edges, bin_sums(labels, rates, edges))


def bin_edges(bins: int | Sequence[float]) -> npt.NDArray[np.float64]:
    """Return the edges ``[bins + 1]`` of ``bins`` bins of equal width, or the edges in ``bins``.

    Raises:
        ValueError: the number is below 1, or the edges do not rise from 0 to 1.

    Examples:
        >>> bin_edges(2)
        array([0. , 0.5, 1. ])
    """
    if isinstance(bins, int | np.integer):
        if bins < 1:
            raise ValueError(f"bins must be at least 1, got {bins}")
        return np.linspace(0.0, 1.0, int(bins) + 1)
    edges = np.array(bins, dtype=np.float64)
    if edges.ndim != 1 or len(edges) < 2 or edges[0] != 0 or edges[-1] != 1:
        raise ValueError(f"bins must be edges from 0 to 1, got {bins!r}")
    if not (np.diff(edges) > 0).all():
        raise ValueError(f"bins must be edges that rise strictly, got {bins!r}")
    return edges


def bin_sums(
    label: npt.NDArray[np.bool_],
    rate: FloatArray,
    edges: npt.NDArray[np.float64],
    weight: npt.NDArray[np.float64] | None = None,
) -> npt.NDArray[np.float64]:
    """Return ``[3, bins]``: for each bin, the sums of rows, predicted rates and positives.

    With weights, each row counts in proportion to its weight.

    Examples:
        >>> bin_sums(np.array([True, False]), np.array([0.75, 0.5]), bin_edges(2))
        array([[1.  , 1.  ], [0.5 , 0.75], [0.  , 1.  ]])
    """
    number = len(edges) - 1
    place = np.searchsorted(edges[1:-1], rate, side="left")
    each: tuple[Any, ...] = (None, rate, label)
    if weight is not None:
        each = (weight, weight * rate, weight * label)
    sums = [np.bincount(place, weights=w, minlength=number) for w in each]
    return np.array(sums, dtype=np.float64)


def curve_of_sums(
    edges: npt.NDArray[np.float64], sums: npt.NDArray[np.float64]
) -> ReliabilityCurve:
    """Compute the curve from one result of :func:`bin_sums`, or from the sum of several results.

    Examples:
        >>> curve_of_sums(bin_edges(1), np.array([[4.0], [1.0], [2.0]])).observed
        array([0.5])
    """
    rows, rate, positives = sums
    some = np.where(rows > 0, rows, np.nan)
    return ReliabilityCurve(
        edges[:-1].copy(), edges[1:].copy(), rows.astype(np.int64), rate / some, positives / some
    )


def sigmoid(logit: FloatArray) -> npt.NDArray[np.float64]:
    """Compute ``1 / (1 + exp(-z))`` in float64, without overflow for any finite logit.

    Examples:
        >>> sigmoid(np.array([-1000.0, 0.0, 1000.0]))
        array([0. , 0.5, 1. ])
    """
    small = np.exp(-np.abs(logit.astype(np.float64)))
    return np.where(logit >= 0, 1.0, small) / (1.0 + small)


def _label_and_score(
    label: npt.ArrayLike, score: npt.ArrayLike
) -> tuple[npt.NDArray[np.bool_], FloatArray]:
    labels = as_labels(single_column(label, "label"), "label")
    scores = as_scores(single_column(score, "score"), "score")
    check_same_length(label=labels, score=scores)
    _check_not_empty(labels)
    return labels, scores


def _label_and_prediction(
    label: npt.ArrayLike, prediction: npt.ArrayLike, from_logits: bool
) -> tuple[npt.NDArray[np.bool_], FloatArray]:
    labels = as_labels(single_column(label, "label"), "label")
    column = single_column(prediction, "prediction")
    predictions = as_predictions(column, "prediction", from_logits=from_logits)
    check_same_length(label=labels, prediction=predictions)
    _check_not_empty(labels)
    return labels, predictions


def _weights(weight: npt.ArrayLike, labels: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    weights = as_weights(single_column(weight, "weight"), "weight")
    check_same_length(label=labels, weight=weights)
    return weights


def _check_not_empty(labels: npt.NDArray[np.bool_]) -> None:
    if not labels.size:
        raise ValueError("label must have at least one row, got none")


def _shares(
    positive: npt.NDArray[np.number], negative: npt.NDArray[np.number]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """For each class, return each bin's share of the class's weight; NaN if the weight is 0."""
    p, n = np.asarray(positive, np.float64), np.asarray(negative, np.float64)
    return _share(p), _share(n)


def _share(weight: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    total = weight.sum()
    return weight / total if total > 0 else np.full_like(weight, np.nan)
