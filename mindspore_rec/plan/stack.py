# SPDX-License-Identifier: Apache-2.0
"""Simulate exact LRU tables of every capacity in one pass over the log.

After each batch, an LRU table of C rows that admits every key at once contains the C most recently
used keys. The stack distance of a lookup of key k is the number of other keys that were used after
the previous use of k and before the start of the batch. See Mattson, Gecsei, Slutz and Traiger,
"Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2), 1970. A lookup finds its
row in a table of C rows if and only if the stack distance is less than C. The stack distances are
counted by a Fenwick tree over the times of last use (Fenwick, "A new data structure for cumulative
frequency tables", 1994).
"""

from __future__ import annotations

import numpy as np

from mindspore_rec.plan.index import DistinctBatch, grown
from mindspore_rec.plan.outcome import Curve, Outcome

__all__ = ["StackDistances"]


class StackDistances:
    """Count hits, rows and evictions of LRU tables of any capacity, with admission threshold 1.

    Args:
        row_bytes: bytes of a row.
    """

    def __init__(self, row_bytes: int) -> None:
        self._row_bytes = row_bytes
        self._place = np.empty(0, np.int64)  # of a key in the order of last uses; -1: none
        self._owner = np.empty(0, np.int64)  # key at each place; -1: none
        self._tree = np.zeros(1, np.int64)
        self._next = 0
        self._keys = 0
        self._lookups = 0
        self._distinct_lookups = 0
        self._hits = np.zeros(1, np.int64)  # lookups by distance
        self._returns = np.zeros(1, np.int64)  # keys of a batch by distance

    def add(self, batch: DistinctBatch) -> None:
        """Look up the next batch."""
        codes, new = batch.codes, len(batch.codes)
        self._place = grown(self._place, batch.keys_so_far, -1)
        self._hits = grown(self._hits, batch.keys_so_far, 0)
        self._returns = grown(self._returns, batch.keys_so_far, 0)
        if self._next + new > len(self._owner):
            self._compact(batch.keys_so_far + new)
        places = self._place[codes]
        seen = places >= 0
        places = places[seen]
        distance = self._keys - self._up_to(places)
        np.add.at(self._hits, distance, batch.counts[seen])
        np.add.at(self._returns, distance, 1)
        self._change(places, -1)
        self._owner[places] = -1
        fresh = np.arange(self._next, self._next + new)
        self._change(fresh, 1)
        self._owner[fresh] = codes
        self._place[codes] = fresh
        self._next += new
        self._keys += new - len(places)
        self._lookups += batch.lookups
        self._distinct_lookups += new

    @property
    def keys(self) -> int:
        """Number of distinct keys of the log so far."""
        return self._keys

    @property
    def distinct_lookups(self) -> int:
        """Number of distinct keys in each batch, summed over all batches."""
        return self._distinct_lookups

    @property
    def returns(self) -> np.ndarray:
        """Array whose element d counts the (batch, distinct key) pairs with stack distance d.

        A key with the stack distance d has a row in tables of more than d rows.
        """
        return self._returns

    def outcome(self, capacity: int) -> Outcome:
        """Return the outcome of all batches added so far, for a table with the given capacity."""
        rows = min(capacity, self._keys)
        inserted = self._distinct_lookups - int(self._returns[:capacity].sum())
        return Outcome(
            admission=1,
            idle=None,
            idle_unit="",
            capacity=capacity,
            order="lru",
            hit_rate=int(self._hits[:capacity].sum()) / max(self._lookups, 1),
            admitted_rate=1.0 if self._lookups else 0.0,
            peak_rows=rows,
            final_rows=rows,
            peak_counters=0,
            final_counters=0,
            peak_bytes=rows * self._row_bytes,
            final_bytes=rows * self._row_bytes,
            evictions=inserted - rows,
        )

    def curve(self, points: int = 64) -> Curve:
        """Return the hit rate at capacities from 1 % to 100 % of the keys, in logarithmic steps."""
        keys = max(self._keys, 1)
        rows = np.unique(np.geomspace(max(keys / 100, 1), keys, points).round().astype(np.int64))
        hits = np.cumsum(self._hits)[rows - 1] / max(self._lookups, 1)
        return Curve(
            "lru, every capacity",
            rows.tolist(),
            (rows * self._row_bytes).tolist(),
            hits.tolist(),
        )

    def _up_to(self, places: np.ndarray) -> np.ndarray:
        """For each place, return the number of keys at this place and at all earlier places."""
        total = np.zeros(len(places), np.int64)
        at = places + 1
        left = np.arange(len(at))
        while len(at):
            total[left] += self._tree[at]
            at = at & (at - 1)
            more = at > 0
            at, left = at[more], left[more]
        return total

    def _change(self, places: np.ndarray, by: int) -> None:
        at = places + 1
        while len(at := at[at < len(self._tree)]):
            np.add.at(self._tree, at, by)
            at = at + (at & -at)

    def _compact(self, room: int) -> None:
        """Renumber the places without gaps, and increase the room for places by half."""
        codes = self._owner[self._owner >= 0]
        size = room + room // 2 + 1024
        self._owner = np.full(size, -1, np.int64)
        self._owner[: len(codes)] = codes
        self._place[codes] = np.arange(len(codes))
        self._next = len(codes)
        sums = np.minimum(np.arange(size + 1), len(codes))
        at = np.arange(size + 1)
        self._tree = sums - sums[at & (at - 1)]
