# SPDX-License-Identifier: Apache-2.0
"""Errors of dense layers for inputs that are too few, too many, or no Tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mindspore_rec.nn import (
    MLP,
    CrossNet,
    CrossNetMix,
    CrossNetV2,
    DotInteraction,
    FactorizationMachine,
    FusedLayer,
    MMoE,
)
from tests.nn.mlp_pair import numbers

LAYERS: dict[str, Callable[[Any], FusedLayer]] = {
    "mlp": lambda widths: MLP(widths, (5,), out_features=1),
    "cross": lambda widths: CrossNet(widths),
    "cross-v2": lambda widths: CrossNetV2(widths),
    "cross-mix": lambda widths: CrossNetMix(widths, experts=2, rank=2),
    "mmoe": lambda widths: MMoE(widths, 2, (3,), 2),
}


@pytest.fixture(params=[True, False], ids=["fused", "plain"])
def form(request):
    """Return a function that leaves a layer fused, or makes it use MindSpore's layers."""
    return (lambda layer: layer) if request.param else _plain


def _plain(layer: FusedLayer) -> FusedLayer:
    layer.fused_training = layer.fused_evaluation = None
    return layer


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("widths", [[7], [4, 3, 2], []])
def test_the_number_of_inputs_of_several_widths(mode, form, kind, widths):
    layer = form(LAYERS[kind]((4, 3)))
    given = [numbers(2, width) for width in widths]
    message = rf"must be given 2 inputs, of widths \(4, 3\), got {len(widths)}"
    with pytest.raises(TypeError, match=message):
        layer(*given)
    assert layer(numbers(2, 4), numbers(2, 3)) is not None


@pytest.mark.parametrize("kind", LAYERS)
def test_several_inputs_of_a_layer_of_one(mode, form, kind):
    layer = form(LAYERS[kind](4))
    with pytest.raises(TypeError, match="must be given 1 input, of width 4, got 2"):
        layer(numbers(2, 4), numbers(2, 3))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("what", [np.ones((2, 4), np.float32), None, [[1.0] * 4]])
def test_an_input_that_is_no_tensor(mode, form, kind, what):
    layer = form(LAYERS[kind](4))
    with pytest.raises(TypeError, match=f"input 0 must be a Tensor, got {type(what).__name__}"):
        layer(what)


@pytest.mark.parametrize("layer", [FactorizationMachine(3, 2), DotInteraction(3, 2)])
def test_fields_that_are_no_tensor(mode, layer):
    with pytest.raises(TypeError, match="input 0 must be a Tensor, got ndarray"):
        layer(np.ones((2, 3, 2), np.float32))


def test_parts_of_a_mixture_check_their_inputs(pynative):
    layer = MMoE((4, 3), 2, (3,), 2)
    for part in (layer.gate_weights, layer.expert_outputs):
        with pytest.raises(TypeError, match="must be given 2 inputs"):
            part(numbers(2, 7))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("width", [4.0, None, "4"])
def test_widths_that_are_none(kind, width):
    with pytest.raises(TypeError, match="in_features must be an int"):
        LAYERS[kind](width)


def test_widths_of_numpy_and_their_sum():
    four: Any = np.int64(4)
    assert MLP(four, (four,)).out_features == 4
    with pytest.raises(ValueError, match=r"the sum of in_features must be in \[1, 1048576\]"):
        MLP((1 << 20, 1), (1,))


@pytest.mark.parametrize("hidden", [None, 5, 5.0, "5"])
def test_hidden_layers_that_are_none(hidden):
    with pytest.raises(TypeError, match="hidden must be a sequence of ints"):
        MLP(4, hidden)
    with pytest.raises(TypeError, match="hidden must be a sequence of ints"):
        MMoE(4, 2, hidden, 2)
