# SPDX-License-Identifier: Apache-2.0
"""Lookups of int8 and int4 rows by key, without a network."""

from __future__ import annotations

import numpy as np

from mindspore_rec import _native
from mindspore_rec.common.checks import check_int
from mindspore_rec.common.old_arguments import Renamed, takes_old
from mindspore_rec.common.rows.quantise import BITS

__all__ = ["QuantizedRows"]


class QuantizedRows:
    """Rows of int8 or int4, for tables that are often read and rarely changed.

    Any thread may call the methods. Several lookups may run in parallel. While a call changes
    rows, no lookup runs, so a lookup sees either all or none of the call's changes. For a key
    without a row, or an id outside the vocabulary, a lookup returns `unknown`.

    Args:
        embedding_dim: number of values in a row, 1 to 8192.
        rows: 'int8' or 'int4'.
        vocabulary: number of ids; ids start at 0, and their rows are zeros at first. If
            `vocabulary` is 0, a key may be any int64. Default: 0.
        unknown: float32 `[embedding_dim]`. Default: zeros.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> rows = QuantizedRows(2, "int8")
        >>> rows.upsert(np.array([7, -1]), np.array([[0.5, 3.5], [2, 2]], np.float32))
        >>> rows.lookup(np.array([-1, 8]))
        array([[2., 2.],
               [0., 0.]], dtype=float32)
        >>> rows.pool(np.array([7, -1, -1]), np.array([0, 2])).round(2)  # two bags
        array([[2.5, 5.5],
               [2. , 2. ]], dtype=float32)
    """

    @takes_old(Renamed("dim", "embedding_dim"))
    def __init__(
        self,
        embedding_dim: int,
        rows: str,
        vocabulary: int = 0,
        unknown: np.ndarray | None = None,
    ) -> None:
        if rows not in BITS:
            raise ValueError(f"rows must be 'int8' or 'int4', got {rows!r}")
        check_int("embedding_dim", embedding_dim, 1, 8192)
        check_int("vocabulary", vocabulary, 0, 2**32 - 2)
        self._rows = _native.QuantisedRows(embedding_dim, BITS[rows], vocabulary, unknown)

    def upsert(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Set rows; if a key occurs several times, the last row is stored.

        Args:
            keys: int32 or int64 `[n]`.
            values: float32 `[n, embedding_dim]`, quantized as in `serving.quantize.quantize`.
        """
        self._rows.upsert(keys, values)

    def erase(self, keys: np.ndarray) -> int:
        """Remove the rows of `keys` (int32 or int64 `[n]`); return the number of removed rows.

        Raises:
            ValueError: the table has a vocabulary.
        """
        return self._rows.erase(keys)

    def clear(self) -> None:
        """Remove all rows. If the table has a vocabulary, the rows are not removed but set to
        zeros.
        """
        self._rows.clear()

    def lookup(self, ids: np.ndarray) -> np.ndarray:
        """Return the rows, float32 `[n, embedding_dim]`, of `ids` (int32 or int64 `[n]`)."""
        return self._rows.lookup(ids)

    def pool(
        self,
        ids: np.ndarray,
        offsets: np.ndarray,
        combiner: str = "sum",
        weights: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return one row per bag, float32 `[bags, embedding_dim]`; an empty bag's row is zeros.

        Args:
            ids: int32 or int64 `[n]`.
            offsets: int32 or int64 `[bags]`. Bag b consists of the ids at positions `offsets[b]` to
                `offsets[b + 1] - 1`; the last bag consists of all remaining ids.
            combiner: 'sum' or 'mean'; with weights, the weighted sum or the weighted mean. Default:
                'sum'.
            weights: float32 `[n]`. Default: 1 each.

        Raises:
            ValueError: offsets do not ascend from 0 to at most n, or the arrays' shapes do not
                match.
        """
        return self._rows.pool(ids, offsets, combiner, weights)

    def keys(self) -> np.ndarray:
        """Return the keys of all rows, int64, in any order."""
        return self._rows.keys()

    def stats(self) -> dict[str, int]:
        """Return `rows`, `row_bytes` and `index_bytes`; the bytes include room for growth."""
        return self._rows.stats()
