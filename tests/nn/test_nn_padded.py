# SPDX-License-Identifier: Apache-2.0
"""ToPadded and ToValues: blocks and values equal a plain model, with gradients, in both modes."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec.feature import PADDING_KEY
from mindspore_rec.nn import ToPadded, ToValues
from mindspore_rec.train.graph.cell_caller import CellCaller

LENGTHS = [[2, 0, 1, 5], [1, 1], [0, 0, 7], [0, 0, 0], [0], [3] * 6, [40, 2]]
L = 3


def model(
    values: np.ndarray, offsets: np.ndarray, keep: str, padding: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return block, mask and the values that are in the block."""
    rows = len(offsets) - 1
    block = np.full((rows, L, *values.shape[1:]), padding, values.dtype)
    mask, kept = np.zeros((rows, L), bool), np.zeros_like(values)
    for row in range(rows):
        count = min(offsets[row + 1] - offsets[row], L)
        first = offsets[row + 1] - count if keep == "last" else offsets[row]
        block[row, :count] = values[first : first + count]
        mask[row, :count] = True
        kept[first : first + count] = values[first : first + count]
    return block, mask, kept


class Both(nn.Cell):
    """Values to a block, and back."""

    varying_inputs = True

    def __init__(self, keep: str, padding: int = 0) -> None:
        super().__init__()
        self.to_padded, self.to_values = ToPadded(L, keep, padding), ToValues(keep)

    def construct(self, values: Tensor, offsets: Tensor) -> Any:
        block, mask = self.to_padded(values, offsets)
        return block, mask, self.to_values(block, offsets, values)


class Squares(nn.Cell):
    """Sum of the squares of the values in the block, and of the block."""

    def __init__(self, keep: str) -> None:
        super().__init__()
        self.both = Both(keep)

    def construct(self, values: Tensor, offsets: Tensor) -> Tensor:
        block, _, again = self.both(values, offsets)
        return (again * again).sum() + block.sum()


class Gradient(nn.Cell):
    """Gradient with regard to the values."""

    varying_inputs = True

    def __init__(self, keep: str) -> None:
        super().__init__()
        self.squares = Squares(keep)
        self.gradient = ms.grad(self.squares)

    def construct(self, values: Tensor, offsets: Tensor) -> Tensor:
        return self.gradient(values, offsets)


@pytest.mark.parametrize("keep", ["last", "first"])
def test_blocks_and_values_equal_a_plain_model(mode: str, keep: str) -> None:
    call, gradient = CellCaller(Both(keep)), CellCaller(Gradient(keep))
    for seed, lengths in enumerate(LENGTHS):
        rng = np.random.default_rng(seed)
        offsets = np.cumsum([0, *lengths])
        values = rng.integers(-9, 9, (offsets[-1], 2)).astype(np.float32)
        tensors = Tensor(values), Tensor(offsets)
        for made, wanted in zip(call(False, *tensors), model(values, offsets, keep), strict=True):
            np.testing.assert_array_equal(made.asnumpy(), wanted, str(lengths))
        is_kept = model(np.ones_like(values), offsets, keep)[2]
        found = gradient(False, *tensors).asnumpy()
        np.testing.assert_array_equal(found, (2 * values + 1) * is_kept, str(lengths))
    if mode == "graph":
        assert call.compilations == gradient.compilations == 1


def test_keys_are_padded_by_the_padding_key(graph_mode: None) -> None:
    values, offsets = np.array([7, 1 << 62, -3, 5]), np.array([0, 1, 1, 4])
    block, mask, _ = Both("last", PADDING_KEY)(Tensor(values), Tensor(offsets))
    wanted = model(values, offsets, "last", PADDING_KEY)
    assert block.dtype == ms.int64
    np.testing.assert_array_equal(block.asnumpy(), wanted[0])
    np.testing.assert_array_equal(mask.asnumpy(), wanted[1])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ToPadded(0), "length must be"),
        (lambda: ToPadded(2, "middle"), "keep must be"),
        (lambda: ToValues("middle"), "keep must be"),
        (lambda: ToPadded(2, padding=1 << 63), "padding must be"),
    ],
)
def test_arguments_out_of_range(make: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()
