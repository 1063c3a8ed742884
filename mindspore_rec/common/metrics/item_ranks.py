# SPDX-License-Identifier: Apache-2.0
"""Compute the ranks of items, and the best items, from products of user and item vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mindspore_rec import _native
from mindspore_rec.common.checks import check_int
from mindspore_rec.common.metrics.ranking import MOST_ITEMS, checked_offsets

__all__ = ["rank_targets", "top_items"]

Lists = tuple[npt.ArrayLike, npt.ArrayLike]


def rank_targets(
    user: npt.ArrayLike,
    item: npt.ArrayLike,
    target: npt.ArrayLike | Lists,
    masked: Lists | None = None,
    bias: npt.ArrayLike | None = None,
) -> npt.NDArray[np.float64]:
    """Compute the mid ranks of targets among all items.

    The score of an item is the product of the user's vector and the item's vector, plus the item's
    bias. Scores are computed in native code, in tiles of 64 users and 256 items on all threads, so
    no matrix of all users and items is stored. Each score is summed in float32, in the order of the
    vectors' elements. Ranks do not depend on the number of threads, the instruction set or the
    other users in the call.

    Args:
        user: float32 ``[B, dim]``, a vector per row.
        item: float32 ``[I, dim]``, the vectors of all items.
        target: int64 ``[B]`` with one item per row; or a pair ``(values, offsets)`` with several
            items per row. The items of row b are ``values[offsets[b]:offsets[b + 1]]``. A target's
            rank does not count other targets of the row.
        masked: pair ``(values, offsets)`` of items that are not counted, for instance the items
            that a user already has. A masked target is still ranked. Default: None.
        bias: float32 ``[I]``, added to the scores of the items. Default: None.

    Returns:
        The ranks: float64 ``[B]``, or ``[N]`` if `target` is a pair with N values. A rank is 1,
        plus the number of counted items with a higher score, plus half the number of counted items
        with the same score. If an item's score overflows to NaN, the item counts as higher than the
        target. A target with a NaN score is last.

    Raises:
        TypeError: an item or an offset is not an integer.
        ValueError: a shape is wrong, a vector or bias is not finite, an item is outside ``[0, I)``,
            or offsets do not rise from 0 to the number of values.

    Examples:
        >>> item = [[1, 0], [0, 1], [1, 1], [1, 0]]
        >>> rank_targets([[1, 0], [0, 1]], item, target=[0, 0])
        array([2. , 3.5])
        >>> rank_targets([[1, 0], [0, 1]], item, target=[0, 0], masked=([2, 2], [0, 1, 2]))
        array([1.5, 2.5])
    """
    users, items = _vectors(user, "user"), _vectors(item, "item")
    if isinstance(target, tuple):
        targets = _lists(target, "target")
    else:
        targets = _numbers(target, "target"), np.arange(len(users) + 1)
    out = _no_lists(len(users)) if masked is None else _lists(masked, "masked")
    return _native.rank_targets(users, items, _bias(bias), *targets, *out)


def top_items(
    user: npt.ArrayLike,
    item: npt.ArrayLike,
    k: int,
    masked: Lists | None = None,
    bias: npt.ArrayLike | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Find each row's k items with the highest scores; :func:`rank_targets` defines the scores.

    Args:
        user: float32 ``[B, dim]``, a vector per row.
        item: float32 ``[I, dim]``, the vectors of all items.
        k: number of items per row, 1 to 2^31 - 1.
        masked: items to exclude, as a pair ``(values, offsets)``. Row b excludes the items
            ``values[offsets[b]:offsets[b + 1]]``. Default: None.
        bias: float32 ``[I]``, added to the scores of the items. Default: None.

    Returns:
        Items int64 ``[B, k]`` and their scores float32 ``[B, k]``, the highest score first. If
        scores are equal, the item with the smaller number is first. The result has no items whose
        score overflows to NaN. If a row has fewer than k items, the remaining places have the item
        -1 and the score -infinity.

    Raises:
        TypeError: ``k``, an item or an offset is not an integer.
        ValueError: ``k`` is below 1, a shape is wrong, a vector or bias is not finite, an item is
            outside ``[0, I)``, or offsets do not rise from 0 to the number of values.

    Examples:
        >>> top_items([[1, 0]], [[1, 0], [0, 1], [3, 1], [1, 0]], k=2)
        (array([[2, 0]]), array([[3., 1.]], dtype=float32))
    """
    k = check_int("k", k, 1, MOST_ITEMS)
    users, items = _vectors(user, "user"), _vectors(item, "item")
    out = _no_lists(len(users)) if masked is None else _lists(masked, "masked")
    return _native.top_items(users, items, _bias(bias), *out, k)


def _vectors(values: npt.ArrayLike, name: str) -> npt.NDArray[np.float32]:
    array = np.ascontiguousarray(values, np.float32)
    if array.ndim != 2:
        raise ValueError(f"{name} must have the shape [rows, dim], got {array.shape}")
    _check_finite(array, name)
    return array


def _bias(values: npt.ArrayLike | None) -> npt.NDArray[np.float32] | None:
    if values is None:
        return None
    array = np.ascontiguousarray(values, np.float32)
    _check_finite(array, "bias")
    return array


def _check_finite(array: npt.NDArray[np.float32], name: str) -> None:
    if array.size and not (np.isfinite(array.min()) and np.isfinite(array.max())):
        raise ValueError(f"{name} must be finite, got NaN or infinite numbers")


def _lists(lists: Lists, name: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    values = _numbers(lists[0], name)
    return values, checked_offsets(lists[1], len(values), f"{name} offsets")


def _numbers(values: npt.ArrayLike, name: str) -> npt.NDArray[np.int64]:
    array: npt.NDArray[Any] = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}")
    return np.ascontiguousarray(array, np.int64)


def _no_lists(rows: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return np.zeros(0, np.int64), np.zeros(rows + 1, np.int64)
