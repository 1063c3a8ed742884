# SPDX-License-Identifier: Apache-2.0
"""Moving statistics and masks of another size or type: errors, and not what lies behind them."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from mindspore_rec import _native
from mindspore_rec.nn import MLP
from tests.nn.mlp_pair import numbers


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("statistic", ["moving_mean", "moving_variance"])
def test_moving_statistics(pynative, training, statistic):
    mlp = MLP(4, (3,), batch_norm=True).set_train(training)
    wrong = Tensor(np.ones(1, np.float32))
    getattr(mlp.layers[1], statistic).set_data(wrong, slice_shape=True)
    with pytest.raises(RuntimeError, match=r"must have 3 elements of float32, got \[1\]"):
        mlp(numbers(2, 4)).asnumpy()


def test_masks(pynative):
    mlp = MLP(4, (3,), dropout=0.5).set_train()
    drop = mlp.layers[2]
    assert mlp(numbers(2, 4)).shape == (2, 3)
    whole = drop.scaled
    drop.scaled = whole[:5]
    with pytest.raises(RuntimeError, match=rf"must have {3 * drop.masks} elements of float32"):
        mlp(numbers(2, 4)).asnumpy()
    drop.scaled = ms.ops.cast(whole, ms.float64)
    with pytest.raises(RuntimeError, match="elements of float32, got .* of float64"):
        mlp(numbers(2, 4)).asnumpy()


def _program(masks: int, other: int) -> _native.DenseProgram:
    program = _native.DenseProgram("float32")
    for _ in range(3):
        program.add_value(2)
    program.add_input((0, 0, 2))
    program.add_dropout((0, 0, 2), (1, 0, 2), 0, 1, masks)
    program.add_dropout((1, 0, 2), (2, 0, 2), 0, 1, other)
    program.add_output((2, 0, 2))
    return program


def test_layers_that_share_masks():
    assert _program(4, 4).finish(0, 2) > 0
    with pytest.raises(ValueError, match="further input 0 as of different sizes"):
        _program(4, 5).finish(0, 2)
    with pytest.raises(ValueError, match="a dropout has at most 4294967296 masks"):
        _program(1 << 62, 1)
