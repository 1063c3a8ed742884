# SPDX-License-Identifier: Apache-2.0
"""Index that maps keys to small numbers, and reduces a batch to its distinct keys."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mindspore_rec import _native

__all__ = ["DistinctBatch", "KeyIndex", "grown"]

_numbers = itertools.count()


@dataclass(frozen=True)
class DistinctBatch:
    """Distinct keys of a batch, in the order of the keys' last occurrences in the batch.

    Args:
        codes: int32 `[n]`, the number of each key in the index.
        counts: int64 `[n]`, the number of occurrences of each key.
        positions: int64 `[n]`, the position of each key's last occurrence, counted over all lookups
            of the log.
        lookups: number of lookups in the batch.
        keys_so_far: number of distinct keys in the log up to the end of the batch; all codes are
            below this number.
    """

    codes: np.ndarray
    counts: np.ndarray
    positions: np.ndarray
    lookups: int
    keys_so_far: int


class KeyIndex:
    """Map of keys to numbers 0, 1, 2, ... in the order of first occurrence; call `close` at the
    end.

    Example:
        >>> index = KeyIndex()
        >>> batch = index.distinct(np.array([70, -1, 70, 5]))
        >>> batch.codes, batch.counts, batch.positions
        (array([1, 0, 2], dtype=int32), array([1, 2, 1]), array([1, 2, 3]))
        >>> index.close()
    """

    def __init__(self) -> None:
        # In the native hash table, each key has a row of one float. The float's bits, read as an
        # integer, are n + 1, where n is the key's number. For an unknown key, the table returns
        # 0.0. The bits of 0.0 equal the bits of the integer 0.
        name = f"mindspore_rec.plan.index.{next(_numbers)}"
        self._table = _native.Table(name=name, dim=1)
        self._where = np.empty(0, np.int32)
        self._lookups = 0
        self.size = 0

    def codes(self, keys: np.ndarray) -> np.ndarray:
        """Return the number of each key, int32; new keys get the next numbers.

        Raises:
            ValueError: the log has too many distinct keys, 2^31 - 1 or more.
        """
        codes = self._find(keys)
        unknown = codes < 0
        if unknown.any():
            new = pd.unique(keys[unknown])
            if self.size + len(new) >= np.iinfo(np.int32).max:
                raise ValueError("a log may have less than 2^31 - 1 distinct keys")
            numbers = np.arange(self.size + 1, self.size + len(new) + 1, dtype=np.int32)
            self._table.put(new, numbers.view(np.float32).reshape(-1, 1))
            self.size += len(new)
            codes[unknown] = self._find(keys[unknown])
        return codes

    def distinct(self, keys: np.ndarray) -> DistinctBatch:
        """Return the distinct keys of the next batch."""
        codes = self.codes(keys)
        self._where = grown(self._where, self.size, 0)
        places = np.arange(len(codes), dtype=np.int32)
        self._where[codes] = places  # of a key given twice the last place stays
        last_places = self._where[codes]
        last = last_places == places
        rank = np.cumsum(last) - 1
        counts = np.bincount(rank[last_places], minlength=int(last.sum()))
        begin = self._lookups
        self._lookups += len(codes)
        return DistinctBatch(
            codes[last], counts, begin + np.flatnonzero(last), len(codes), self.size
        )

    def close(self) -> None:
        """Free the index."""
        self._table.close()

    def _find(self, keys: np.ndarray) -> np.ndarray:
        places = self._table.lookup(np.ascontiguousarray(keys, np.int64), insert=False)
        return places.reshape(-1).view(np.int32) - np.int32(1)


def grown(array: np.ndarray, size: int, fill: Any) -> np.ndarray:
    """Return `array` with at least `size` elements; new elements have the value `fill`."""
    if len(array) >= size:
        return array
    larger = np.full(max(size, 2 * len(array), 1024), fill, array.dtype)
    larger[: len(array)] = array
    return larger
