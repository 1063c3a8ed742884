# SPDX-License-Identifier: Apache-2.0
"""Simulate tiers with LRU or LFU demotion: compute each key's tier and the rows that move.

During the training step of a batch, the rows of the batch are in the first tier. After the batch,
each tier, beginning with the first, demotes the rows beyond its capacity to the next tier. Rows of
the lowest rank are demoted first. The last tier has no limit. A row keeps its count when the row
moves, so LFU uses counts over the whole log.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mindspore_rec.plan.index import DistinctBatch, grown
from mindspore_rec.plan.stack import StackDistances

__all__ = ["LfuTiers", "LruTiers", "TierCounts", "TierRun"]

# The rank of a row is an int64 that contains the row's count and the position of its last use. LFU
# treats all counts from 2^22 - 1 on as equal.
_POSITION_BITS = 41
_MAX_FREQUENCY = (1 << 22) - 1
_EVERY = np.iinfo(np.int64).max


@dataclass(frozen=True)
class TierCounts:
    """Sums over the batches since `start_counting`: one sum per tier, the top tier first.

    Args:
        found: number of distinct keys whose row was in the tier when the batch began, summed over
            the batches.
        written: number of rows that were demoted to the tier; 0 for the first tier.
        rows: number of rows that are in the tier after the last batch.
        new: number of distinct keys that had no row when the batch began, summed over the batches.
    """

    found: list[int]
    written: list[int]
    rows: list[int]
    new: int


class TierRun(Protocol):
    """Simulate tiers of fixed capacities batch by batch."""

    def add(self, batch: DistinctBatch) -> None:
        """Look up the next batch, then demote the rows beyond the capacities of the tiers."""

    def start_counting(self) -> None:
        """Reset the counts; the rows stay in their tiers."""

    def counts(self, capacities: tuple[int, ...]) -> TierCounts:
        """Return the counts since `start_counting`."""


class LruTiers:
    """Simulate tiers of any capacities; each tier demotes the least recently used row first."""

    def __init__(self) -> None:
        self._stack = StackDistances(row_bytes=0)
        self.start_counting()

    def add(self, batch: DistinctBatch) -> None:
        """Look up the next batch, then demote the rows beyond the capacities of the tiers."""
        self._stack.add(batch)

    def start_counting(self) -> None:
        """Reset the counts; the rows stay in their tiers."""
        self._returns = self._stack.returns.copy()
        self._lookups = self._stack.distinct_lookups
        self._keys = self._stack.keys

    def counts(self, capacities: tuple[int, ...]) -> TierCounts:
        """Return the counts since `start_counting`."""
        returns = self._stack.returns.copy()
        returns[: len(self._returns)] -= self._returns
        lookups = self._stack.distinct_lookups - self._lookups
        together = np.cumsum([0, *capacities])  # capacity of each tier and the tiers above it
        hits = [
            int(returns[low:high].sum())
            for low, high in zip(together, [*together[1:], len(returns)], strict=True)
        ]
        # A row that has entered one of the tiers 0 to i, and then leaves these tiers, is demoted to
        # tier i + 1.
        grew = np.minimum(together, self._stack.keys) - np.minimum(together, self._keys)
        written = [0, *(lookups - np.cumsum(hits)[:-1] - grew[1:]).tolist()]
        rows = np.minimum([*together, _EVERY], self._stack.keys)
        return TierCounts(hits, written, np.diff(rows).tolist(), lookups - sum(hits))


class LfuTiers:
    """Simulate tiers; each tier demotes the least often used row first (on a tie, the least
    recently used row).

    Args:
        capacities: maximum number of rows in each tier except the last tier, which has no limit.
    """

    def __init__(self, capacities: tuple[int, ...]) -> None:
        self._capacities = capacities
        tiers = len(capacities) + 1
        self._tier = np.empty(0, np.int8)  # of a key: 1 is the first tier; 0: no row
        self._count = np.empty(0, np.int64)
        self._position = np.empty(0, np.int64)
        self._rows = [0] * tiers
        # Candidates for demotion from each tier. Rows of tier i that are not candidates have ranks
        # above _limits[i].
        self._pools: list[list[np.ndarray]] = [[] for _ in capacities]
        self._limits = [-1] * len(capacities)
        self.start_counting()

    def add(self, batch: DistinctBatch) -> None:
        """Look up the next batch, then demote the rows beyond the capacities of the tiers."""
        codes = batch.codes
        self._tier = grown(self._tier, batch.keys_so_far, 0)
        self._count = grown(self._count, batch.keys_so_far, 0)
        self._position = grown(self._position, batch.keys_so_far, 0)
        tier = self._tier[codes]
        counts = np.bincount(tier, minlength=len(self._rows) + 1)
        self._found += counts
        for i, number in enumerate(counts[1:]):
            self._rows[i] -= int(number)
        self._rows[0] += len(codes)
        self._count[codes] += batch.counts
        self._position[codes] = batch.positions
        self._tier[codes] = 1
        self._enter(0, codes[tier != 1])
        for i, capacity in enumerate(self._capacities):
            over = self._rows[i] - capacity
            if over <= 0:
                continue
            leaving = self._lowest(i, over)
            self._tier[leaving] = i + 2
            self._rows[i] -= over
            self._rows[i + 1] += over
            self._written[i + 1] += over
            if i + 1 < len(self._capacities):
                self._enter(i + 1, leaving)

    def start_counting(self) -> None:
        """Reset the counts; the rows stay in their tiers."""
        self._found = np.zeros(len(self._rows) + 1, np.int64)
        self._written = [0] * len(self._rows)

    def counts(self, capacities: tuple[int, ...]) -> TierCounts:
        """Return the counts since `start_counting`."""
        assert capacities == self._capacities
        new, *hits = self._found.tolist()
        return TierCounts(hits, list(self._written), list(self._rows), new)

    def _enter(self, i: int, codes: np.ndarray) -> None:
        if self._limits[i] >= 0:
            self._pools[i].append(codes)

    def _rank(self, codes: np.ndarray) -> np.ndarray:
        frequency = np.minimum(self._count[codes], _MAX_FREQUENCY)
        return (frequency << _POSITION_BITS) | self._position[codes]

    def _lowest(self, i: int, number: int) -> np.ndarray:
        """Select the rows that tier i demotes."""
        pool = np.concatenate([np.empty(0, np.int64), *self._pools[i]]).astype(np.int64)
        # A candidate may have left the tier, and may have entered it again.
        pool = np.unique(pool[self._tier[pool] == i + 1])
        rank = self._rank(pool)
        low = rank <= self._limits[i]
        pool, rank = pool[low], rank[low]
        if len(pool) < number:
            pool, rank = self._new_pool(i, number)
        order = np.argpartition(rank, number - 1)
        self._pools[i] = [pool[order[number:]]]
        return pool[order[:number]]

    def _new_pool(self, i: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Select the rows of lowest rank; they are the candidates for demotion in this and later
        batches."""
        pool = np.flatnonzero(self._tier == i + 1)
        rank = self._rank(pool)
        size = max(2 * number, math.isqrt(len(pool) * number))
        self._limits[i] = _EVERY
        if size < len(pool):
            lowest = np.argpartition(rank, size - 1)[:size]
            pool, rank = pool[lowest], rank[lowest]
            self._limits[i] = int(rank[size - 1])
        return pool, rank
