# SPDX-License-Identifier: Apache-2.0
"""MindSpore's linear layers inside a fused layer that does not run as an operator."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec.nn.fused import FusedLayer
from tests.nn.mlp_pair import numbers


class Linear(FusedLayer):
    """A linear layer of MindSpore's."""

    def __init__(self, compute_dtype: str, activation: str | None, has_bias: bool) -> None:
        super().__init__(compute_dtype)
        self.linear = nn.Dense(4, 3, has_bias=has_bias, activation=activation)

    def construct(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        return self.through(self.linear, x)


@pytest.mark.parametrize("activation", [None, "relu", "sigmoid"])
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_rounded_layer_has_its_activation(mode, activation, has_bias):
    ms.set_seed(4)
    exact = Linear("float32", activation, has_bias)
    rounded = Linear("bfloat16", activation, has_bias)
    for one, other in zip(exact.get_parameters(), rounded.get_parameters(), strict=True):
        other.set_data(one)
    x = numbers(64, 4)
    np.testing.assert_array_equal(exact(x).asnumpy(), exact.linear(x).asnumpy())
    assert (rounded(x).asnumpy() != exact(x).asnumpy()).any()
    np.testing.assert_allclose(rounded(x).asnumpy(), exact(x).asnumpy(), rtol=0, atol=0.03)
