# SPDX-License-Identifier: Apache-2.0
"""The best AUC and log loss that a model can reach, computed from the true probabilities."""

from __future__ import annotations

import numpy as np

__all__ = ["BayesAUC", "bayes_auc"]


def bayes_auc(bayes: np.ndarray) -> float:
    """Return the mean AUC over randomly drawn labels if the true probabilities are the scores.

    A row of probability p counts as a positive with weight p and also as a negative with weight 1 -
    p. The AUC is the weighted share of (positive, negative) pairs in the right order; ties count
    half.

    Args:
        bayes: Probabilities of a positive label, any float dtype and shape, within [0, 1].

    Returns:
        The AUC, in [0.5, 1]; NaN if all probabilities are 0 or all are 1.

    Example:
        >>> bayes_auc(np.array([0.5, 0.5])), bayes_auc(np.array([0.0, 1.0]))
        (0.5, 1.0)
    """
    values, counts = np.unique(np.asarray(bayes, np.float64).reshape(-1), return_counts=True)
    return _weighted_auc(values * counts, (1.0 - values) * counts)


class BayesAUC:
    """Compute the best possible AUC and log loss of a stream, in fixed memory, with 2**16 bins.

    ``rows``, ``click_rate``, ``auc`` and ``log_loss`` cover the rows so far. ``auc`` is within 1e-4
    of the exact AUC; the other values are exact.

    Example:
        >>> measure = BayesAUC()
        >>> measure.update(np.array([0.25, 0.75]))
        >>> measure.rows, measure.click_rate, round(measure.auc, 3), round(measure.log_loss, 4)
        (2, 0.5, 0.75, 0.5623)
    """

    _BINS = 1 << 16

    def __init__(self) -> None:
        self.rows = 0
        self._positive = np.zeros(self._BINS)
        self._negative = np.zeros(self._BINS)
        self._entropy = 0.0

    def update(self, bayes: np.ndarray) -> None:
        """Add true probabilities: floats of any dtype and shape, within [0, 1]."""
        p = np.asarray(bayes, np.float64).reshape(-1)
        bins = np.minimum((p * self._BINS).astype(np.int64), self._BINS - 1)
        self.rows += len(p)
        self._positive += np.bincount(bins, p, self._BINS)
        self._negative += np.bincount(bins, 1.0 - p, self._BINS)
        inner = p[(p > 0) & (p < 1)]
        self._entropy -= float(np.sum(inner * np.log(inner) + (1 - inner) * np.log1p(-inner)))

    @property
    def click_rate(self) -> float:
        """Mean true probability."""
        return float(self._positive.sum() / self.rows)

    @property
    def auc(self) -> float:
        """Expected AUC of a model that predicts the true probabilities."""
        return _weighted_auc(self._positive, self._negative)

    @property
    def log_loss(self) -> float:
        """Expected log loss, in nats, of a model that predicts the true probabilities."""
        return self._entropy / self.rows


def _weighted_auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the AUC from the weights of both classes per group, in ascending order of score."""
    below = np.cumsum(negative) - negative
    pairs = positive.sum() * negative.sum()
    if pairs == 0:
        return float("nan")
    return float(np.sum(positive * (below + 0.5 * negative)) / pairs)
