# SPDX-License-Identifier: Apache-2.0
"""Simulate admission by count with eviction by age, for many thresholds in one pass.

All thresholds share one count per key. The age of a row or a counter is the time since the key's
last occurrence, so a key is evicted at the same time whether it has a row or a counter. A key's
*level* is the number of thresholds that the key's count has reached.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mindspore_rec.plan.index import DistinctBatch, grown
from mindspore_rec.plan.outcome import Outcome
from mindspore_rec.plan.sizes import COUNTER_BYTES

__all__ = ["AgeSweep"]

_MAX_COUNT = (1 << 30) - 1  # where a table's counter saturates


class AgeSweep:
    """Simulate a table without a capacity, for several admission thresholds at once.

    Args:
        thresholds: admission thresholds, each at least 1.
        row_bytes: bytes of a row.
        max_idle: limit on the idle time of a key, in steps or seconds; see `unit`. If the unit is
            'seconds', a key is evicted when `max_idle` seconds have passed since the key's last
            occurrence. If the unit is 'steps', a key is evicted after the key has been absent for
            `max_idle` whole steps. None: no key is evicted.
        unit: unit of `max_idle` and of the clock: 'steps' or 'seconds'; '' if `max_idle` is None.
    """

    def __init__(
        self,
        thresholds: Sequence[int],
        row_bytes: int,
        max_idle: int | None = None,
        unit: str = "",
    ) -> None:
        self._asked = list(thresholds)
        # Always simulate threshold 1. At threshold 1, each key has a row. At any other threshold,
        # each key has a row or a counter, so the rows and counters together are as many as the rows
        # at threshold 1.
        self._thresholds = np.unique([1, *thresholds])
        self._row_bytes = row_bytes
        self._max_idle = max_idle
        self._unit = unit
        levels = len(self._thresholds) + 1
        self._count = np.empty(0, np.int32)
        self._last = np.empty(0, np.int32)  # batch of the last occurrence
        self._clocks: list[int] = []
        self._alive_from = 0  # keys last seen in an earlier batch are gone
        # Element [b, l] is the number of keys in the table that have level l and last occurred in
        # batch b.
        self._held = np.empty((0, levels), np.int32)
        self._keys = np.zeros(levels, np.int64)  # held now, by level; of level 0 there are none
        self._evicted = np.zeros(levels, np.int64)
        self._lookups = 0
        self._before = np.zeros(levels)  # lookups by their key's level before the batch
        self._after = np.zeros(levels)  # ... and with it
        self._peak_rows = np.zeros(levels - 1, np.int64)
        self._peak_counters = np.zeros(levels - 1, np.int64)
        self._peak_bytes = np.zeros(levels - 1, np.int64)

    def add(self, batch: DistinctBatch, clock: int) -> None:
        """Look up the next batch.

        Args:
            batch: the distinct keys to look up.
            clock: number of the step, or event time; must not be less than in the previous call.
        """
        codes, levels = batch.codes, len(self._thresholds) + 1
        self._count = grown(self._count, batch.keys_so_far, 0)
        before = self._count[codes]
        number = len(self._clocks)
        if self._max_idle is not None:
            self._expire(clock)
            self._clocks.append(clock)
            self._last = grown(self._last, batch.keys_so_far, -1)
            last = self._last[codes]
            before[last < self._alive_from] = 0
        after = np.minimum(before + batch.counts, _MAX_COUNT)
        self._count[codes] = after
        was = np.searchsorted(self._thresholds, before, "right")
        now = np.searchsorted(self._thresholds, after, "right")
        self._lookups += batch.lookups
        self._before += np.bincount(was, batch.counts, levels)
        self._after += np.bincount(now, batch.counts, levels)
        moved_in = np.bincount(now, minlength=levels)
        moved_out = np.bincount(was, minlength=levels)
        moved_out[0] = 0
        self._keys += moved_in - moved_out
        if self._max_idle is not None:
            self._held = _grown_rows(self._held, number + 1)
            resident = was > 0
            flat = self._held.reshape(-1)
            np.subtract.at(flat, last[resident].astype(np.int64) * levels + was[resident], 1)
            self._held[number] += moved_in.astype(np.int32)
            self._last[codes] = number
        self._note_peaks()

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes after the batches so far, one per threshold, in the order of
        `thresholds`."""
        rows, counters, bytes_ = self._sizes()
        evicted = _reached(self._evicted)
        hits, admitted = _reached(self._before), _reached(self._after)
        made = []
        for threshold in self._asked:
            i = int(np.searchsorted(self._thresholds, threshold))
            made.append(
                Outcome(
                    admission=threshold,
                    idle=self._max_idle,
                    idle_unit=self._unit,
                    capacity=None,
                    order="",
                    hit_rate=float(hits[i]) / max(self._lookups, 1),
                    admitted_rate=float(admitted[i]) / max(self._lookups, 1),
                    peak_rows=int(self._peak_rows[i]),
                    final_rows=int(rows[i]),
                    peak_counters=int(self._peak_counters[i]),
                    final_counters=int(counters[i]),
                    peak_bytes=int(self._peak_bytes[i]),
                    final_bytes=int(bytes_[i]),
                    evictions=int(evicted[i]),
                )
            )
        return made

    def _expire(self, clock: int) -> None:
        first = self._alive_from
        limit = (self._max_idle or 0) + (self._unit == "steps")
        while first < len(self._clocks) and clock - self._clocks[first] >= limit:
            first += 1
        gone = self._held[self._alive_from : first].sum(axis=0)
        self._alive_from = first
        self._keys -= gone
        self._evicted += gone

    def _sizes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows = _reached(self._keys)
        counters = rows[0] - rows
        return rows, counters, rows * self._row_bytes + counters * COUNTER_BYTES

    def _note_peaks(self) -> None:
        rows, counters, bytes_ = self._sizes()
        np.maximum(self._peak_rows, rows, out=self._peak_rows)
        np.maximum(self._peak_counters, counters, out=self._peak_counters)
        np.maximum(self._peak_bytes, bytes_, out=self._peak_bytes)


def _reached(by_level: np.ndarray) -> np.ndarray:
    """For each threshold, sum `by_level` over the levels of keys that reached the threshold."""
    return np.cumsum(by_level[::-1])[::-1][1:]


def _grown_rows(array: np.ndarray, rows: int) -> np.ndarray:
    if len(array) >= rows:
        return array
    larger = np.zeros((max(rows, 2 * len(array), 64), array.shape[1]), array.dtype)
    larger[: len(array)] = array
    return larger
