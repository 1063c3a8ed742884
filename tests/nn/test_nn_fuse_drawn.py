# SPDX-License-Identifier: Apache-2.0
"""Drawn networks train and predict the same, whether train steps fuse them or not."""

from __future__ import annotations

import warnings
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from mindspore import Tensor, nn

from mindspore_rec import RecModel
from mindspore_rec.nn.fused import FusedLayer
from mindspore_rec.optim import SGD
from mindspore_rec.train import TrainStep
from tests.nn.drawn_nets import ITEMS, WIDTH, drawn_net
from tests.nn.fused_cells import rows_of
from tests.support.gradients import forget_gradient
from tests.support.nightly import examples, nightly


def batch_of(users: int, ragged: int) -> list[np.ndarray]:
    return [
        rows_of(users, WIDTH),
        rows_of(users, ITEMS, WIDTH, seed=1),
        rows_of(ragged, WIDTH, seed=2),
    ]


def trained(net: nn.Cell, batches: list[list[np.ndarray]], by_step: bool, fuse: Any) -> Any:
    """Return losses, parameters and the loss in evaluation; or the type of an error."""
    if not net.trainable_params():
        return "no parameters"
    try:
        optimizer = SGD(net.trainable_params(), 0.02)
        if by_step:
            step = TrainStep(net, optimizer, **fuse).set_train()
            losses = [float(step(*map(Tensor, batch))) for batch in batches]
        else:
            model = RecModel(net, None, optimizer, **fuse)
            model.train(1, [tuple(batch) for batch in batches], progress=False)
            losses = []
        net.set_train(False)
        losses += [float(net(*map(Tensor, batch))) for batch in batches]
    except (ValueError, RuntimeError, TypeError):
        forget_gradient()
        return "error"
    return [np.array(losses), *(p.asnumpy() for p in net.get_parameters())]


def compare(seed: int, count: int, mixes: bool, sizes: Any, by_step: bool) -> Any:
    """Compare a network that is fused by itself with its twin, and return it."""
    batches = [batch_of(*each) for each in sizes]
    nets = [drawn_net(seed, count, mixes) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        fused = trained(nets[0], batches, by_step, {"fuse": True})
        plain = trained(nets[1], batches, by_step, {})
    if isinstance(plain, str):
        assert isinstance(fused, str) and fused == plain
    else:
        for one, other in zip(fused, plain, strict=True):
            scale = max(float(np.abs(other).max()), 1.0)
            np.testing.assert_allclose(one / scale, other / scale, rtol=0, atol=2e-4)
    return nets[0]


SIZES = st.sampled_from([((5, 5), (5, 5)), ((5, 9), (4, 9)), ((1, 3), (6, 2)), ((4, 12), (3, 9))])
DYNAMIC = ((5, 5), (4, 9), (3, 3))  # the third shape makes RecModel's graph dynamic


@examples(30, 600)
@given(seed=st.integers(0, 99999), count=st.integers(2, 9), mixes=st.booleans(), sizes=SIZES)
def test_networks_in_pynative(seed, count, mixes, sizes):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    compare(seed, count, mixes, sizes, True)


@examples(1, 60)
@given(seed=st.integers(0, 99999), count=st.integers(2, 9), sizes=SIZES, by_step=st.booleans())
@example(131, 8, ((5, 9), (4, 9)), True)  # operators for training and evaluation
def test_networks_in_a_graph(seed, count, sizes, by_step):
    ms.set_context(mode=ms.GRAPH_MODE)
    compare(seed, count, False, sizes, by_step)


# The operator of 159 is used, by a comparison in each step.
@pytest.mark.parametrize("seed", [159, *nightly(*range(100, 130))])
def test_networks_in_a_dynamic_graph(seed):
    ms.set_context(mode=ms.GRAPH_MODE)
    compare(seed, 8, False, DYNAMIC, False)


def test_most_of_them_are_fused():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    nets = [compare(seed, 8, False, [(5, 15)], True) for seed in range(8)]
    assert sum(hasattr(net, "runs_as_operator") for net in nets) > 4
    assert any(isinstance(c, FusedLayer) for net in nets for c in net.cells())
