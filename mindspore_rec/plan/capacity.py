# SPDX-License-Identifier: Apache-2.0
"""Simulate exact LRU and exact LFU eviction for a table with a maximum number of rows."""

from __future__ import annotations

import math

import numpy as np

from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.plan.index import DistinctBatch, grown
from mindspore_rec.plan.outcome import Outcome
from mindspore_rec.plan.sizes import COUNTER_BYTES

__all__ = ["ORDERS", "CapacityRun"]

ORDERS = ("lru", "lfu")

_MAX_COUNT = (1 << 30) - 1  # where a table's counter saturates
# The rank of a row is an int64 that contains the row's frequency and the position of its last use.
# LFU treats all counts of 2^22 - 1 or more as equal.
_POSITION_BITS = 41
_MAX_FREQUENCY = (1 << 22) - 1
_EVERY = np.iinfo(np.int64).max


class CapacityRun:
    """Simulate one capacity and one order of eviction, with admission by count.

    After each batch, the rows beyond the capacity are evicted, and the counts of evicted rows are
    reset. Order 'lru' evicts the least recently used rows. Order 'lfu' evicts the rows with the
    smallest counts; the count of a row includes the occurrences of the key before its admission. On
    a tie, the least recently used row is evicted first.

    Args:
        capacity: maximum number of rows that remain after a batch, at least 1.
        order: 'lru' or 'lfu'.
        threshold: number of occurrences at which a key gets a row, at least 1.
        row_bytes: bytes of a row.
    """

    def __init__(self, capacity: int, order: str, threshold: int, row_bytes: int) -> None:
        self._capacity = check_int("capacity", capacity, 1, (1 << 31) - 1)
        self._order = check_one_of("order", order, ORDERS)
        self._threshold = check_int("threshold", threshold, 1, _MAX_COUNT)
        self._row_bytes = row_bytes
        self._count = np.empty(0, np.int32)
        self._position = np.empty(0, np.int64)
        self._rows = self._counters = self._lookups = self._evictions = 0
        self._hits = self._admitted = 0
        self._peak_rows = self._peak_counters = self._peak_bytes = 0
        # Candidates for eviction: all rows whose rank is at most _limit, and perhaps other rows.
        # Ranks never fall, so a candidate whose rank has risen above _limit can be dropped.
        self._pool: list[np.ndarray] = []
        self._limit = -1

    def add(self, batch: DistinctBatch) -> None:
        """Look up the next batch, then evict rows beyond the capacity."""
        codes, threshold = batch.codes, self._threshold
        self._count = grown(self._count, batch.keys_so_far, 0)
        self._position = grown(self._position, batch.keys_so_far, 0)
        before = self._count[codes]
        after = np.minimum(before + batch.counts, _MAX_COUNT)
        self._count[codes] = after
        self._position[codes] = batch.positions
        had, has = before >= threshold, after >= threshold
        self._lookups += batch.lookups
        self._hits += int(batch.counts[had].sum())
        self._admitted += int(batch.counts[has].sum())
        new = codes[has & ~had]
        counted = (before > 0) & ~had
        self._rows += len(new)
        self._counters += int((~has).sum()) - int(counted.sum())
        if self._limit >= 0:
            self._pool.append(new)
        if self._rows > self._capacity:
            self._evict(self._rows - self._capacity)
        self._peak_rows = max(self._peak_rows, self._rows)
        self._peak_counters = max(self._peak_counters, self._counters)
        self._peak_bytes = max(self._peak_bytes, self._bytes())

    def outcome(self) -> Outcome:
        """Return the outcome of the batches that were added so far."""
        return Outcome(
            admission=self._threshold,
            idle=None,
            idle_unit="",
            capacity=self._capacity,
            order=self._order,
            hit_rate=self._hits / max(self._lookups, 1),
            admitted_rate=self._admitted / max(self._lookups, 1),
            peak_rows=self._peak_rows,
            final_rows=self._rows,
            peak_counters=self._peak_counters,
            final_counters=self._counters,
            peak_bytes=self._peak_bytes,
            final_bytes=self._bytes(),
            evictions=self._evictions,
        )

    def _bytes(self) -> int:
        return self._rows * self._row_bytes + self._counters * COUNTER_BYTES

    def _rank(self, codes: np.ndarray) -> np.ndarray:
        position = self._position[codes]
        if self._order == "lru":
            return position
        frequency = np.minimum(self._count[codes], _MAX_FREQUENCY).astype(np.int64)
        return (frequency << _POSITION_BITS) | position

    def _evict(self, number: int) -> None:
        pool = np.concatenate([np.empty(0, np.int64), *self._pool]).astype(np.int64)
        rank = self._rank(pool)
        low = rank <= self._limit
        pool, rank = pool[low], rank[low]
        if len(pool) < number:
            pool, rank = self._new_pool(number)
        order = np.argpartition(rank, number - 1)
        self._count[pool[order[:number]]] = 0
        self._pool = [pool[order[number:]]]
        self._rows -= number
        self._evictions += number

    def _new_pool(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Select the rows of lowest rank; they are the candidates for eviction in this and later
        batches."""
        pool = np.flatnonzero(self._count >= self._threshold)
        rank = self._rank(pool)
        size = max(2 * number, math.isqrt(len(pool) * number))
        self._limit = _EVERY
        if size < len(pool):
            lowest = np.argpartition(rank, size - 1)[:size]
            pool, rank = pool[lowest], rank[lowest]
            self._limit = int(rank[size - 1])
        return pool, rank
