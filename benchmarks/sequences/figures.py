# SPDX-License-Identifier: Apache-2.0
"""Figures of rankings, and the interval of the difference between two rankings."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.sequences.tasks import Part
from mindspore_rec.metrics import functional

__all__ = ["K", "difference", "figures_of"]

K = 10


def figures_of(part: Part, ranks: np.ndarray) -> dict[str, float]:
    """Return Recall@10, NDCG@10 and the mean reciprocal rank."""
    offsets = part.rows.target_offsets
    return {
        "recall": functional.recall(ranks, K, offsets),
        "ndcg": functional.ndcg(ranks, K, offsets),
        "mrr": functional.mean_reciprocal_rank(ranks, None, offsets),
    }


def difference(
    part: Part, ranks: np.ndarray, others: np.ndarray, samples: int = 1000, seed: int = 0
) -> Mapping[str, float]:
    """Return the difference between two models' NDCG@10, and its 95 % bootstrap interval.

    The bootstrap draws all rows of a user together, because a user's rows are similar.

    Args:
        part: the rows.
        ranks: mid ranks of the targets in one model's scores: ``[N]`` for one seed, or ``[S, N]``
            for several seeds. With several seeds, NDCG@10 is the mean over the seeds.
        others: mid ranks of the targets in the other model's scores.
        samples: number of bootstrap samples.
        seed: seed of the bootstrap.

    Returns:
        A dict: `difference` is NDCG@10 of `ranks` minus NDCG@10 of `others`; `low` and `high` are
        the ends of the difference's 95 % interval.
    """
    values, other_values = (
        np.mean(
            [
                functional.ranking_values("ndcg", of_seed, K, part.rows.target_offsets)
                for of_seed in np.atleast_2d(each)
            ],
            axis=0,
        )
        for each in (ranks, others)
    )
    _, user = np.unique(part.rows.user, return_inverse=True)
    sums, rows = np.bincount(user, values - other_values), np.bincount(user)
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), size=samples)
    low, high = np.quantile((drawn @ sums) / (drawn @ rows), [0.025, 0.975])
    mean = float((values - other_values).mean())
    return {"difference": mean, "low": float(low), "high": float(high)}
