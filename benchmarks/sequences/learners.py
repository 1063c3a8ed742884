# SPDX-License-Identifier: Apache-2.0
"""Figures of networks that predict the next item, alone and with the scores of a baseline."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.sequences.baselines import CO_OCCURRENCE, Scores, ranks_of
from benchmarks.sequences.figures import figures_of
from benchmarks.sequences.nets import GRIDS, NETS, net_scores, trained
from benchmarks.sequences.tasks import TASKS, Part

__all__ = ["NETS", "run_net"]

_LEAST = 0.01  # added to a baseline's scores before the logarithm
_SHARES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # tried factors of the logarithm


def run_net(
    kind: str,
    task: str,
    valid: Part,
    test: Part,
    baseline: tuple[str, Mapping[str, Any]],
    seeds: int,
) -> dict[str, dict[str, Any]]:
    """Train a network; return the figures and the targets' ranks of two models: the network alone,
    and the network combined with a baseline.

    Args:
        kind: 'SASRec' or 'HSTU'.
        task: a name in `TASKS`.
        valid: validation rows, by which settings are chosen.
        test: test rows.
        baseline: name and settings of the baseline with which the network is combined.
        seeds: number of seeds.
    """
    began = time.perf_counter()
    together = TASKS[task].together
    counted = CO_OCCURRENCE[baseline[0]]
    of_valid = counted(valid, baseline[1])
    tried = []
    for settings in GRIDS[task]:
        scores = net_scores(
            trained(kind, valid, together, settings, seed=0), valid, settings["length"]
        )
        alone = figures_of(valid, ranks_of(valid, scores))["ndcg"]
        joined = {
            share: figures_of(valid, ranks_of(valid, _joined(scores, of_valid, share)))["ndcg"]
            for share in _SHARES
        }
        share = max(joined, key=lambda each: joined[each])
        tried.append((alone, settings, share, joined[share]))
    alone, settings, share, joined_ndcg = max(tried, key=lambda each: each[0])
    of_test = counted(test, baseline[1])
    ranks: tuple[list[np.ndarray], ...] = ([], [])
    for seed in range(seeds):
        net = trained(kind, test, together, settings, seed)
        scores = net_scores(net, test, settings["length"])
        ranks[0].append(ranks_of(test, scores))
        ranks[1].append(ranks_of(test, _joined(scores, of_test, share)))
    seconds = time.perf_counter() - began
    with_baseline = {**settings, "baseline": baseline[0], "share": share}
    return {
        kind: _row(test, ranks[0], settings, alone, seconds),
        f"{kind} + {baseline[0]}": _row(test, ranks[1], with_baseline, joined_ndcg, seconds),
    }


def _joined(scores: Scores, others: Scores, share: float) -> Callable[[int, int], Any]:
    """Return a function that computes `scores + share * log(others)`."""

    def joined(begin: int, end: int) -> Any:
        logs = np.log(np.maximum(others(begin, end), 0) + _LEAST)
        return scores(begin, end) + share * logs

    return joined


def _row(
    part: Part, ranks: list[np.ndarray], settings: Mapping[str, Any], valid: float, seconds: float
) -> dict[str, Any]:
    figures = [figures_of(part, each) for each in ranks]
    means = {key: float(np.mean([each[key] for each in figures])) for key in figures[0]}
    return {
        "settings": settings,
        "valid_ndcg": valid,
        **means,
        "seeds": figures,
        "seconds": seconds,
        "ranks": np.array(ranks),
    }
