# SPDX-License-Identifier: Apache-2.0
"""Sums of weights and labels for each pair of a value and a part of the rows."""

from __future__ import annotations

import numpy as np
import pandas as pd

__all__ = ["ValueSums"]


class ValueSums:
    """Sums over rows, for each pair of a value's key and a part of the rows (such as a fold).

    An object never changes. To leave out one part, all other parts are added up, because
    subtracting the part from the total would change the sums by rounding errors.

    Args:
        keys: key of each pair, int64 ``[E]``, ascending.
        parts: index of each pair's part, int64 ``[E]``, ascending within a key.
        sums: the sums of each pair of a key and a part, float64 ``[E, S]``.
        count: number of parts.

    Example:
        >>> sums = ValueSums.of(np.array([7, 8, 7]), np.array([0, 0, 1]), np.eye(3), 2)
        >>> sums.total(np.array([7, 9])).tolist()
        [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
        >>> sums.without(np.array([7, 7]), np.array([0, 1])).tolist()
        [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
        >>> sums.before(np.array([7, 7]), np.array([0, 1])).tolist()
        [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """

    def __init__(self, keys: np.ndarray, parts: np.ndarray, sums: np.ndarray, count: int) -> None:
        self.keys, self.parts, self.sums, self.count = keys, parts, sums, count
        is_first = np.ones(len(keys), bool)
        is_first[1:] = keys[1:] != keys[:-1]
        self._first = np.flatnonzero(is_first)  # of each value, in the pairs
        self._stop = np.append(self._first[1:], len(keys))
        self.values = keys[self._first]
        self._up_to = self._running(range(1, count))
        self._others: np.ndarray | None = None

    @classmethod
    def of(cls, keys: np.ndarray, parts: np.ndarray, sums: np.ndarray, count: int) -> ValueSums:
        """Add up the numbers of the rows for each pair of a key and a part.

        Args:
            keys: key of each row, int64 ``[B]``.
            parts: index of the part that each row belongs to, int64 ``[B]``, 0 to `count` - 1.
            sums: numbers to add up, float64 ``[B, S]``.
            count: number of parts.
        """
        values, known = pd.factorize(keys)
        pairs, codes = pd.factorize(values * count + parts)
        added = np.empty((len(codes), sums.shape[1]))
        for place, column in enumerate(sums.T):
            added[:, place] = np.bincount(pairs, column, len(codes))
        keys, parts = known[codes // count], codes % count
        order = np.lexsort((parts, keys))
        return cls(keys[order], parts[order], added[order], count)

    def merged(self, *others: ValueSums) -> ValueSums:
        """Return the sums over the rows of this object and of all `others`."""
        all_of = (self, *others)
        keys, parts, sums = (
            np.concatenate([getattr(each, name) for each in all_of])
            for name in ("keys", "parts", "sums")
        )
        return ValueSums.of(keys, parts, sums, self.count)

    def kept(self, most: int) -> ValueSums:
        """Return the sums of at most `most` values: the greatest by the total of `sums[:, 0]`."""
        if len(self.values) <= most:
            return self
        weights = np.add.reduceat(self.sums[:, 0], self._first)
        chosen = np.zeros(len(self.values), bool)
        chosen[np.argsort(-weights, kind="stable")[:most]] = True
        rows = np.repeat(chosen, self.lengths)
        return ValueSums(self.keys[rows], self.parts[rows], self.sums[rows], self.count)

    @property
    def lengths(self) -> np.ndarray:
        """Number of parts that contain each value, int64 ``[V]``."""
        return self._stop - self._first

    def alone_share(self, least: float) -> float:
        """Return the share of rows whose value occurs in one part only.

        Args:
            least: a value is left out if the value's total of `sums[:, 0]` is below `least`.
        """
        if not len(self.values):
            return 0.0
        rows = np.add.reduceat(self.sums[:, 0], self._first)
        counted = rows >= least
        total = rows[counted].sum()
        return float(rows[counted & (self.lengths == 1)].sum() / total) if total else 0.0

    def total(self, keys: np.ndarray) -> np.ndarray:
        """Return the sums of all parts, float64 ``[B, S]``; 0 for unknown values."""
        made = np.zeros((len(keys), self.sums.shape[1]))
        places, is_known = self._places(keys)
        made[is_known] = self._up_to[self._stop[places[is_known]] - 1]
        return made

    def before(self, keys: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """Return the sums of ``keys[i]`` over all parts before ``parts[i]``, float64 ``[B, S]``."""
        made = np.zeros((len(keys), self.sums.shape[1]))
        places, is_known = self._places(keys)
        places = places[is_known]
        earlier = self._earlier(places, parts[is_known])
        last = self._first[places] + earlier - 1
        made[is_known] = np.where(earlier[:, None] > 0, self._up_to[last], 0.0)
        return made

    def without(self, keys: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """Return the sums of ``keys[i]`` over all parts except ``parts[i]``, float64 ``[B, S]``."""
        if self._others is None:
            self._others = self._all_but_own()
        made = np.zeros((len(keys), self.sums.shape[1]))
        places, is_known = self._places(keys)
        places, parts = places[is_known], parts[is_known]
        stop = self._stop[places]
        pair = self._first[places] + self._earlier(places, parts)
        within = np.minimum(pair, stop - 1)
        has_pair = (pair < stop) & (self.parts[within] == parts)
        made[is_known] = np.where(has_pair[:, None], self._others[within], self._up_to[stop - 1])
        return made

    def _all_but_own(self) -> np.ndarray:
        """Return, for each pair of a value and a part, the value's sums over all other parts."""
        after = self._running(range(self.count - 2, -1, -1))
        made = np.zeros_like(self.sums)
        has_before = np.ones(len(self.keys), bool)
        has_before[self._first] = False
        has_after = np.append(has_before[1:], False)[: len(self.keys)]
        made[has_before] = self._up_to[np.flatnonzero(has_before) - 1]
        made[has_after] += after[np.flatnonzero(has_after) + 1]
        return made

    def _earlier(self, places: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """Return, for each row, how many earlier parts contain the row's value, int64 ``[B]``."""
        first, stop = self._first[places], self._stop[places]
        made = np.zeros(len(places), np.int64)
        for more in range(self.count):
            pair = np.minimum(first + more, stop - 1)
            is_earlier = (first + more < stop) & (self.parts[pair] < parts)
            if not is_earlier.any():
                break
            made += is_earlier
        return made

    def _places(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the indexes of keys in `values`, and bools: True if `values` contains the key."""
        if not len(self.values):
            return np.zeros(len(keys), np.int64), np.zeros(len(keys), bool)
        places = np.searchsorted(self.values, keys).clip(max=len(self.values) - 1)
        return places, self.values[places] == keys

    def _running(self, order: range) -> np.ndarray:
        """Return each value's cumulative sums, added up part by part in the order `order`.

        If `order` ascends, the sums include all earlier parts; if `order` descends, all later
        parts.
        """
        made = self.sums.copy()
        step = -order.step
        same = np.zeros(len(self.keys), bool)  # whether the neighbour is of the same value
        if step < 0:
            same[1:] = self.keys[1:] == self.keys[:-1]
        else:
            same[:-1] = self.keys[1:] == self.keys[:-1]
        for part in order:
            pairs = np.flatnonzero((self.parts == part) & same)
            made[pairs] += made[pairs + step]
        return made
