# SPDX-License-Identifier: Apache-2.0
"""NegativeSampler: items that are drawn as negatives, by popularity or uniformly."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mindspore_rec.common.checks import check_int, check_number

__all__ = ["NegativeSampler"]

_UNITS = 2.0**40
_MOST_TOTAL = 2**52


class NegativeSampler:
    """Draws items with probabilities in proportion to ``count ** alpha``.

    A draw depends only on the sampler's arguments and the arguments of :meth:`draw`: a training
    that continues from a checkpoint draws the same items as an uninterrupted training. Workers need
    different seeds to draw different items. Probabilities are rounded to multiples of about 2^-40.
    If an item's count is above 0, the item's probability is at least about 2^-40.

    Args:
        count: ``[I]``, the number of events of each item, at least 0. Items without an event are
            never drawn if ``alpha`` is above 0.
        alpha: power of the counts, 0 to 1. With 0, all items are drawn uniformly; with 1, items are
            drawn by popularity. Default: 0.75, as in Mikolov et al. 2013, Distributed
            representations of words and phrases and their compositionality
            (https://arxiv.org/abs/1310.4546).
        seed: seed of all draws, 0 to 2^63 - 1. Default: 0.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a count is negative or not finite, fewer than two items can be drawn, or an
            argument is out of range.

    Examples:
        >>> sampler = NegativeSampler([5, 0, 90, 5], alpha=1.0, seed=3)
        >>> items = sampler.draw(0, (1000,))
        >>> (items == 1).sum(), (items == 2).mean().round(1)
        (0, 0.9)
        >>> bool((items == sampler.draw(0, (1000,))).all())
        True
        >>> np.exp(sampler.log_q([0, 2])).round(2)
        array([0.05, 0.9 ], dtype=float32)
    """

    def __init__(self, count: npt.ArrayLike, alpha: float = 0.75, seed: int = 0) -> None:
        counts = np.asarray(count, np.float64)
        if counts.ndim != 1 or not np.isfinite(counts).all() or (counts < 0).any():
            raise ValueError("count must be finite numbers [I] of at least 0")
        self._seed = check_int("seed", seed, 0, 2**63 - 1)
        power = check_number("alpha", alpha, low=0.0, high=1.0)
        weights = counts**power
        if (weights > 0).sum() < 2:
            raise ValueError("count must have at least two items that can be drawn")
        shares = np.rint(weights / weights.sum() * _UNITS)
        self._weights = np.where(weights > 0, np.maximum(shares, 1), 0).astype(np.int64)
        self._ends = np.cumsum(self._weights)
        if self._ends[-1] > _MOST_TOTAL:
            raise ValueError(f"count has too many items, {len(counts)}")

    def draw(
        self, step: int, shape: tuple[int, ...], avoid: npt.ArrayLike | None = None
    ) -> npt.NDArray[np.int64]:
        """Return the items for one step; each item is drawn independently.

        Args:
            step: number of the step, 0 to 2^63 - 1.
            shape: shape of the items, such as ``(N,)`` for items that all rows of a batch share, or
                ``(B, N)`` for separate items per row.
            avoid: ``[B]``. Item i of `avoid`, such as the target of row i, is not drawn for row i
                of the result. The relative probabilities of the remaining items stay the same.
                Default: None.

        Raises:
            TypeError: ``avoid`` is not an array of integers.
            ValueError: ``step`` is out of range, or ``avoid`` does not have an item in ``[0, I)``
                for each row.

        Examples:
            >>> sampler = NegativeSampler([1, 1, 1])
            >>> items = sampler.draw(7, (2, 100), avoid=[0, 2])
            >>> np.unique(items[0]), np.unique(items[1])
            (array([1, 2]), array([0, 1]))
        """
        key = [self._seed, check_int("step", step, 0, 2**63 - 1)]
        bits = np.random.Philox(key=np.array(key, np.uint64)).random_raw(int(np.prod(shape)))
        share = (bits >> np.uint64(11)).astype(np.float64).reshape(shape) * 2.0**-53
        avoided = None if avoid is None else self._avoided(avoid, shape)
        # The range [0, total) consists of one interval for each item. The avoided item's interval
        # is left out.
        own = 0 if avoided is None else self._weights[avoided]
        most = self._ends[-1] - own
        place = np.minimum((share * most).astype(np.int64), most - 1)
        if avoided is not None:
            place += np.where(place >= self._ends[avoided] - own, own, 0)
        return np.searchsorted(self._ends, place, "right").astype(np.int64)

    def log_q(self, items: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Return the logarithms of the items' probabilities, for `nn.SampledSoftmaxLoss`.

        Args:
            items: items in ``[0, I)``, of any shape. For an item that is never drawn, the value of
                the rarest item is returned.

        Raises:
            TypeError: the items are not integers.
            ValueError: an item is outside ``[0, I)``.
        """
        numbers = np.asarray(items)
        if not numbers.size:
            return np.zeros(numbers.shape, np.float32)
        _check_items(numbers, len(self._weights), "items")
        weights = np.maximum(self._weights[numbers], self._weights[self._weights > 0].min())
        return np.log(weights / self._ends[-1]).astype(np.float32)

    def _avoided(self, avoid: npt.ArrayLike, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
        avoided = np.asarray(avoid)
        if avoided.shape != shape[:1]:
            raise ValueError(f"avoid must have the shape {shape[:1]}, got {avoided.shape}")
        _check_items(avoided, len(self._weights), "avoid")
        return avoided.astype(np.int64).reshape((-1, *[1] * (len(shape) - 1)))


def _check_items(items: npt.NDArray[Any], number: int, name: str) -> None:
    if items.size and items.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {items.dtype}")
    if items.size and not (items.min() >= 0 and items.max() < number):
        raise ValueError(f"{name} must be in [0, {number}), got {items.min()} to {items.max()}")
