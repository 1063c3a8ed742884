# SPDX-License-Identifier: Apache-2.0
"""Without MindSpore, combine the rows of each bag into one row, as `EmbeddingBag` does."""

from __future__ import annotations

import numpy as np

from mindspore_rec.common.run.network_file import Lookup

__all__ = ["pooled"]


def pooled(
    rows: np.ndarray,
    ids: np.ndarray,
    lookup: Lookup,
    offsets: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Return one row per bag, float32 `[bags, dim]`; zeros for a bag without members.

    Args:
        rows: the table's rows for the ids, float32 `[bags, length, dim]`, or `[N, dim]` with
            offsets. The row of a padding key is zeros.
        ids: array of the ids, with the shape of `rows` without the last dimension.
        lookup: `Lookup` with the combiner and the padding key. A padding key is not a member of a
            bag.
        offsets: first position of each bag. Default: None, which means that each row of `ids` is a
            bag.
        weights: weights of the ids, float32, in the shape of `ids`. Default: all 1.

    Example:
        >>> rows = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
        >>> bags = Lookup("", "", (), combiner="mean")
        >>> pooled(rows, np.array([5, 6]), bags, np.array([0, 2])).tolist()
        [[2.0, 3.0], [0.0, 0.0]]
    """
    if weights is not None:
        rows = rows * weights[..., None]
    sums = _sums(rows, offsets)
    if lookup.combiner == "sum":
        return sums
    each = np.ones(ids.shape, np.float32) if weights is None else weights
    if lookup.padding_key is not None:
        each = np.where(ids == lookup.padding_key, np.float32(0), each)
    if lookup.combiner == "mean":
        total = _sums(each[..., None], offsets)
    else:
        total = np.sqrt(_sums(np.square(each)[..., None], offsets))
    return np.divide(sums, total, out=np.zeros_like(sums), where=total != 0)


def _sums(values: np.ndarray, offsets: np.ndarray | None) -> np.ndarray:
    """Return the sum of each bag's values, `[bags, width]`."""
    if offsets is None:
        return values.sum(1, dtype=np.float32)
    made = np.zeros((len(offsets), values.shape[-1]), np.float32)
    ends = np.append(offsets[1:], len(values))
    filled = np.flatnonzero(offsets < ends)
    if len(filled):
        made[filled] = np.add.reduceat(values, offsets[filled], 0)
    return made
