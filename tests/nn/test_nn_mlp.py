# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, strategies as st
from mindspore import Tensor, nn

from mindspore_rec.nn import MLP

ACTIVATE: dict[str, Any] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


@given(
    widths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    out=st.none() | st.integers(1, 3),
    activation=st.sampled_from(sorted(ACTIVATE)),
    rows=st.integers(1, 5),
)
def test_output_is_the_formula(widths, out, activation, rows):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    mlp = MLP(widths[0], widths[1:] or [4], activation, out_features=out)
    x = np.random.default_rng(rows).standard_normal((rows, widths[0])).astype(np.float32)
    layers = [cell for _, cell in mlp.cells_and_names() if isinstance(cell, nn.Dense)]
    expected = x
    for i, layer in enumerate(layers):
        expected = expected @ layer.weight.asnumpy().T + layer.bias.asnumpy()
        if out is None or i < len(layers) - 1:
            expected = ACTIVATE[activation](expected)
    np.testing.assert_allclose(mlp(Tensor(x)).asnumpy(), expected, rtol=2e-3, atol=1e-4)
    assert mlp.out_features == expected.shape[1]


def test_first_values_keep_the_scale_of_the_signal(graph_mode):
    ms.set_seed(3)
    x = np.random.default_rng(0).standard_normal((256, 512)).astype(np.float32)
    square = float((MLP(512, [512] * 6)(Tensor(x)).asnumpy() ** 2).mean())
    assert 0.25 < square < 4.0
    ms.set_seed(3)
    again = float((MLP(512, [512] * 6)(Tensor(x)).asnumpy() ** 2).mean())
    assert again == square


def test_dropout_and_normalization_act_in_training_only(graph_mode):
    x = Tensor(np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32) * 5 + 3)
    dropping = MLP(8, [64], dropout=0.5)
    dropping.set_train(False)
    whole = dropping(x).asnumpy()
    np.testing.assert_array_equal(dropping(x).asnumpy(), whole)
    dropping.set_train(True)
    kept = dropping(x).asnumpy()
    dropped = (kept == 0) & (whole > 0)
    assert 0.4 < dropped.sum() / (whole > 0).sum() < 0.6
    np.testing.assert_allclose(kept[kept > 0], 2 * whole[kept > 0], rtol=1e-4)
    normal = MLP(8, [16], "tanh", batch_norm=True)
    assert not [p.name for p in normal.trainable_params() if p.name.endswith("bias")]
    normal.set_train(True)
    inside = np.arctanh(np.clip(normal(x).asnumpy(), -0.999999, 0.999999))
    np.testing.assert_allclose(inside.mean(0), 0, atol=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, [1]), "in_features"),
        ((1, [0]), r"hidden\[0\]"),
        ((1, [2.5]), r"hidden\[0\]"),
        ((1, 3), "hidden"),
        ((1, []), "hidden"),
        ((1, [1], "swish"), "activation"),
        ((1, [1], "relu", 1.0), "dropout"),
        ((1, [1], "relu", 0.0, 1), "batch_norm"),
        ((1, [1], "relu", 0.0, False, 0), "out_features"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        MLP(*arguments)
