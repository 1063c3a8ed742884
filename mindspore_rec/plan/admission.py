# SPDX-License-Identifier: Apache-2.0
"""Propose an admission threshold for the keys of one column, by a dry run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from mindspore_rec.plan.age import AgeSweep
from mindspore_rec.plan.index import KeyIndex
from mindspore_rec.plan.sizes import DIGEST_BYTES

__all__ = ["AdmissionProposal", "propose_admission"]

_THRESHOLDS = (1, 2, 3, 5, 10)
_MOST_LOST = 0.01
_LEAST_SAVED = 0.3


@dataclass(frozen=True)
class AdmissionProposal:
    """Savings and costs of an admission threshold, compared with no threshold.

    Args:
        admission: the proposed threshold.
        saved_share: share by which the threshold reduces the memory for rows and counters.
        lost_share: share of the hits that are lost because of the threshold. A hit is a lookup that
            reads a row that was trained in an earlier batch.
    """

    admission: int
    saved_share: float
    lost_share: float

    @property
    def sentence(self) -> str:
        """The proposal as an English sentence."""
        return (
            f"In a dry run, admission {self.admission} saves {self.saved_share:.0%} of the memory "
            f"and loses {self.lost_share:.1%} of the lookups of trained rows."
        )


def propose_admission(
    batches: Iterable[np.ndarray],
    row_bytes: int,
    least_keys: int = 100_000,
    thresholds: Sequence[int] = _THRESHOLDS,
) -> AdmissionProposal | None:
    """Return the greatest threshold that saves at least 30 % of memory and loses at most 1 % of the
    hits.

    Memory grows with the number of different keys. The batches must be successive rows of the data.
    A sample of the data does not suffice, because frequent keys look rare in a sample.

    Args:
        batches: int64 keys of one column, one array per training batch, in the order of training.
        row_bytes: bytes of a row, as computed by `row_bytes()`.
        least_keys: if the column has fewer than `least_keys` different keys, the table is small,
            and nothing is proposed. Default: 100,000.
        thresholds: admission thresholds to compare. Default: 1, 2, 3, 5 and 10.

    Returns: The proposal; None if the table is small, if there are no hits, or if each threshold
        saves too little memory or loses too many hits.

    Example:
        >>> rare = np.arange(1000).reshape(10, 100)
        >>> frequent = np.tile(np.arange(-100, 0), (10, 10))
        >>> log = np.concatenate([frequent, rare], axis=1)
        >>> propose_admission(log, row_bytes=220, least_keys=1000)
        AdmissionProposal(admission=10, saved_share=0.79..., lost_share=0.0)
    """
    sweep = AgeSweep(sorted({1, *thresholds}), row_bytes + DIGEST_BYTES)
    with closing(KeyIndex()) as index:
        for step, keys in enumerate(batches):
            sweep.add(index.distinct(np.asarray(keys, np.int64).reshape(-1)), step)
        if index.size < least_keys:
            return None
    outcomes = sweep.outcomes()
    least = outcomes[0]
    if not least.hit_rate:
        return None
    for outcome in reversed(outcomes[1:]):
        saved = 1 - outcome.peak_bytes / least.peak_bytes
        lost = 1 - outcome.hit_rate / least.hit_rate
        if saved >= _LEAST_SAVED and lost <= _MOST_LOST:
            return AdmissionProposal(outcome.admission, saved, lost)
    return None
