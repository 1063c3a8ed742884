# SPDX-License-Identifier: Apache-2.0
"""ToPadded and ToValues: convert lists (values and offsets) to blocks of one length, and back."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from mindspore_rec.common.checks import check_int, check_one_of

__all__ = ["ToPadded", "ToValues"]

_ENDS = ("last", "first")
_MOST_VALUES = 1 << 16


class ToPadded(nn.Cell):
    """Arrange the values of lists in a block with one row per list, padded at the right.

    Values are in the order of the list, with the first value at index 0. A list that is longer than
    a row of the block is shortened. N and B may change from call to call without a new compilation,
    and N may be 0.

    Args:
        length: number of values per row of the block, L, 1 to 65536.
        keep: 'last' to keep the last `length` values of a longer list, 'first' to keep the first.
            Default: 'last'.
        padding: value of the padding, such as `PADDING_KEY` for keys. Default: 0.

    Inputs:
        values: Tensor `[N, ...]`, the concatenated values of all lists.
        offsets: int64 Tensor `[B + 1]`, with B at least 1. List i consists of the values from
            `offsets[i]` to `offsets[i + 1] - 1`. The first offset is 0, and the last offset is N.

    Outputs:
        Tuple of the block and the mask. The block is a Tensor `[B, L, ...]`, of the same dtype as
            `values`. The mask is a bool Tensor `[B, L]`, True for values and False for padding.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> from mindspore_rec.nn import ToPadded
        >>> block, mask = ToPadded(2)(Tensor([7, 8, 9, 5]), Tensor([0, 3, 3, 4], ms.int64))
        >>> block.asnumpy().tolist(), mask.asnumpy().sum(1).tolist()
        ([[8, 9], [0, 0], [5, 0]], [2, 0, 1])
    """

    def __init__(self, length: int, keep: str = "last", padding: int = 0) -> None:
        super().__init__()
        self.length = check_int("length", length, 1, _MOST_VALUES)
        self.keeps_last = check_one_of("keep", keep, _ENDS) == "last"
        check_int("padding", padding, -(1 << 63), (1 << 63) - 1)
        self.padding = Tensor(np.array([padding], np.int64))
        self.places = Tensor(np.arange(length)[None], ms.int64)

    def construct(self, values: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        """Return block and mask."""
        starts, ends = offsets[:-1], offsets[1:]
        counts = ops.minimum(ends - starts, self.length)
        mask = self.places < counts.expand_dims(1)
        first = ends - counts if self.keeps_last else starts
        places = first.expand_dims(1) + self.places
        # Append the padding to the values, so that the gather also works for N = 0.
        places = ops.select(mask, places, ops.ones_like(places) * offsets[-1])
        padding = ops.zeros((1, *values.shape[1:]), values.dtype)
        padding = padding + self.padding.astype(values.dtype)
        return ops.gather(ops.concat((values, padding), 0), places, 0), mask


class ToValues(nn.Cell):
    """Convert a padded block of `ToPadded` back to the concatenated values of the lists.

    Args:
        keep: the value of `keep` with which `ToPadded` made the block. Default: 'last'.

    Inputs:
        block: Tensor `[B, L, ...]`.
        offsets: int64 Tensor `[B + 1]`, the offsets of the lists, with B at least 1.
        values: any Tensor `[N, ...]`, such as the keys of the lists; only the number N is used.

    Outputs:
        Tensor `[N, ...]`, of the same dtype as `block`. If a list is longer than L, the result
        contains 0 for each value that is not in the block.

    Raises:
        ValueError: `keep` is unknown.

    Example:
        >>> from mindspore_rec.nn import ToPadded, ToValues
        >>> values, offsets = Tensor([7, 8, 9, 5]), Tensor([0, 3, 3, 4], ms.int64)
        >>> block, mask = ToPadded(2)(values, offsets)
        >>> ToValues()(block, offsets, values).asnumpy().tolist()
        [0, 8, 9, 5]
    """

    def __init__(self, keep: str = "last") -> None:
        super().__init__()
        self.keeps_last = check_one_of("keep", keep, _ENDS) == "last"

    @property
    def is_eager(self) -> bool:
        """True in PyNative mode; the value is fixed in a compiled graph."""
        return bool(ms.get_context("mode") == ms.PYNATIVE_MODE)

    def construct(self, block: Tensor, offsets: Tensor, values: Tensor) -> Tensor:
        """Return the values."""
        if self.is_eager and values.shape[0] == 0:
            return ops.zeros((0, *block.shape[2:]), block.dtype)
        rows, length = block.shape[0], block.shape[1]
        # The last index refers to an appended element, because MindSpore has no gradient for a
        # gather of an empty Tensor.
        numbers = ops.arange(0, values.shape[0] + 1, 1, dtype=ms.int64)
        row = ops.searchsorted(offsets[1:], numbers, right=True)
        row = ops.minimum(row, rows - 1)
        place = numbers - ops.gather(offsets, row, 0)
        if self.keeps_last:
            counts = offsets[1:] - offsets[:-1]
            place = place - ops.gather(ops.maximum(counts - length, 0), row, 0)
        there = ops.logical_and(place >= 0, place < length)
        there = ops.logical_and(there, numbers < offsets[-1])
        flat = block.reshape((rows * length, *block.shape[2:]))
        padding = ops.zeros((1, *block.shape[2:]), block.dtype)
        places = ops.select(there, row * length + place, ops.ones_like(place) * rows * length)
        return ops.gather(ops.concat((flat, padding), 0), places, 0)[:-1]
