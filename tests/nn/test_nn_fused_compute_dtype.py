# SPDX-License-Identifier: Apache-2.0
"""A type of products that is set after the network was compiled."""

from __future__ import annotations

import numpy as np
import pytest
from mindspore import nn

from mindspore_rec.nn import MLP, FusedLayer, FusedSequential, MMoE
from tests.nn.mlp_pair import numbers
from tests.support.networks import MeanSquare

MADE = {
    "mlp": lambda: MLP(4, (16,), out_features=3),
    "mmoe": lambda: MMoE(4, 2, (8, 3), 2),
    "sequential": lambda: FusedSequential(nn.SequentialCell(nn.Dense(4, 16), nn.Dense(16, 3))),
}


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("fused", [True, False])
def test_it_is_used_at_once(mode, kind, fused):
    layer: FusedLayer = MADE[kind]()
    if not fused:
        for cell in layer.cells_in():
            if isinstance(cell, FusedLayer):
                cell.fused_training = cell.fused_evaluation = None
    net = nn.SequentialCell(MeanSquare(layer))
    x = numbers(64, 4)
    exact = net(x).asnumpy().copy()
    layer.set_compute_dtype("bfloat16")
    rounded = net(x).asnumpy().copy()
    assert rounded != exact
    np.testing.assert_allclose(rounded, exact, rtol=0.05)
    layer.set_compute_dtype("float32")
    assert net(x).asnumpy() == exact


def test_a_train_step_uses_it(graph_mode):
    layer = MLP(4, (16,), out_features=3)
    step = nn.TrainOneStepCell(MeanSquare(layer), nn.SGD(layer.trainable_params(), 0.0)).set_train()
    x = numbers(64, 4)
    exact = step(x).asnumpy().copy()
    layer.set_compute_dtype("bfloat16")
    assert step(x).asnumpy() != exact


def test_other_networks_are_left_alone(graph_mode):
    one, other = MLP(4, (16,), out_features=3), MLP(4, (16,), out_features=3)
    first, second = MeanSquare(one), MeanSquare(other)
    x = numbers(64, 4)
    for net in (first, second):
        net(x)
    one.set_compute_dtype("bfloat16")
    assert second.compile_cache and not first.compile_cache


def test_layers_in_a_layer_have_it_and_networks_of_theirs_are_compiled_anew(graph_mode):
    mixture = MMoE(4, 2, (8, 3), 2)
    inside = [cell for cell in mixture.cells_in() if isinstance(cell, FusedLayer)]
    assert len(inside) == 4  # the mixture, the experts' first layers, and a second one of each
    expert = mixture.later[0]
    net = MeanSquare(expert)  # not a network that the mixture is in
    x = numbers(64, 8)
    exact = net(x).asnumpy().copy()
    assert mixture.set_compute_dtype("bfloat16") is mixture
    assert [cell.compute_dtype for cell in inside] == ["bfloat16"] * 4
    assert net(x).asnumpy() != exact
    with pytest.raises(ValueError, match="compute_dtype must be one of"):
        mixture.set_compute_dtype("float16")
    assert [cell.compute_dtype for cell in inside] == ["bfloat16"] * 4
