# SPDX-License-Identifier: Apache-2.0
"""Second derivatives of layers that run as one operator: an error that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from mindspore_rec.nn import MLP, DotInteraction, FusedLayer
from tests.nn.mlp_pair import numbers


def penalty(layer: FusedLayer) -> Callable[[Tensor], Any]:
    """Return the squared norm of the gradient with regard to the input."""

    def total(x: Tensor) -> Any:
        return layer(x).sum()

    gradient = ms.grad(total)

    def squares(x: Tensor) -> Any:
        return (gradient(x) ** 2).sum()

    return squares


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: MLP(4, (6,), "tanh", out_features=1), (3, 4)),
        (lambda: DotInteraction(3, 2), (3, 3, 2)),
    ],
    ids=["mlp", "dots"],
)
def test_a_gradient_penalty(mode, make, shape, training):
    layer = make().set_train(training)
    x = Tensor(np.random.default_rng(0).normal(size=shape).astype(np.float32))
    of = penalty(layer)
    assert float(of(x).asnumpy()) > 0  # the penalty itself needs first derivatives only
    with pytest.raises(
        NotImplementedError, match="has no second derivatives.*MINDSPORE_REC_ONEDNN=off"
    ):
        ms.grad(of)(x).asnumpy()
    layer.fused_training = layer.fused_evaluation = None
    assert ms.grad(penalty(layer))(x).asnumpy().any()


def test_of_parameters(mode):
    layer = MLP(4, (6,), "tanh", out_features=1).set_train()
    with pytest.raises(NotImplementedError, match="has no second derivatives"):
        ms.value_and_grad(penalty(layer), None, layer.trainable_params())(numbers(3, 4))
