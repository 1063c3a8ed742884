# SPDX-License-Identifier: Apache-2.0
"""Means and standard deviations of figures over several runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["mean_and_deviation"]


def mean_and_deviation(runs: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return mean and standard deviation of each metric over runs with different seeds.

    Args:
        runs: the metrics of each run, all with the same names; at least one run.

    Returns:
        `mean`, and `deviation`, the sample standard deviation (divisor n - 1). For a single run,
        `deviation` is None.

    Raises:
        ValueError: no run.

    Example:
        >>> mean_and_deviation([{"auc": 0.75}, {"auc": 0.25}, {"auc": 0.5}])
        {'mean': {'auc': 0.5}, 'deviation': {'auc': 0.25}}
        >>> mean_and_deviation([{"auc": 0.75}])
        {'mean': {'auc': 0.75}, 'deviation': None}
    """
    if not runs:
        raise ValueError("runs must have at least one run, got none")
    values = {name: [run[name] for run in runs] for name in runs[0]}
    deviation = None
    if len(runs) > 1:
        deviation = {name: statistics.stdev(sample) for name, sample in values.items()}
    return {
        "mean": {name: statistics.fmean(sample) for name, sample in values.items()},
        "deviation": deviation,
    }
