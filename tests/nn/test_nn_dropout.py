# SPDX-License-Identifier: Apache-2.0
"""Dropout: the right share, unbiased, the same for a seed, nothing in evaluation."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from mindspore_rec import LazyAdam, TrainStep
from mindspore_rec.nn import MLP
from mindspore_rec.train.nn.dropout import SeededDropout
from tests.support.networks import MeanSquare


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.5, 0.9])
def test_share_and_mean(rate):
    ms.set_seed(3)
    dropout = SeededDropout(64, rate).set_train()
    out = dropout(Tensor(np.ones((2000, 64), np.float32))).asnumpy()
    assert (out == 0).mean() == pytest.approx(rate, abs=0.01)
    np.testing.assert_allclose(out[out != 0], 1 / (1 - rate), rtol=1e-6)
    assert out.mean() == pytest.approx(1, abs=0.03)
    # neither a row nor a unit is dropped as a whole
    assert np.ptp((out == 0).mean(0)) < 0.1


def test_rows_and_steps_have_masks_of_their_own():
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(3)
    dropout = SeededDropout(64, 0.5).set_train()
    steps = [dropout(Tensor(np.ones((300, 64), np.float32))).asnumpy() for _ in range(5)]
    masks = {row.tobytes() for out in steps for row in out}
    assert len(masks) == 1500


def test_evaluation_changes_nothing():
    x = Tensor(np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32))
    np.testing.assert_array_equal(SeededDropout(8, 0.5).set_train(False)(x).asnumpy(), x.asnumpy())


def test_a_seed_gives_the_same_training_bit_by_bit():
    ms.set_context(mode=ms.GRAPH_MODE)

    def train():
        ms.set_seed(7)
        net = MeanSquare(MLP(8, [256, 128], dropout=0.3, out_features=1))
        step = TrainStep(net, LazyAdam(net.trainable_params(), learning_rate=0.01)).set_train()
        rng = np.random.default_rng(0)
        x = [Tensor(rng.normal(size=(512, 8)).astype(np.float32)) for _ in range(25)]
        return [float(step(each)) for each in x]

    assert train() == train()


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_bad_rates_are_named(rate):
    with pytest.raises(ValueError, match=r"rate must be in \[0, 1\)"):
        SeededDropout(4, rate)
