# SPDX-License-Identifier: Apache-2.0
"""The fused MLP gives the outputs and gradients of MindSpore's layers."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mindspore import Tensor

from mindspore_rec.nn import MLP
from mindspore_rec.train.nn.mlp import ACTIVATIONS
from tests.nn.mlp_pair import assert_same, gradients, mlps, numbers

WIDTHS = st.one_of(st.integers(1, 40), st.sampled_from([64, 255, 256, 257, 511, 1023, 1024]))


def compare(inputs: Any, *arguments: Any, relative: float = 1e-5, **named: Any) -> None:
    fused, plain = mlps(*arguments, **named)
    got = gradients(fused, inputs)
    if not inputs[0].shape[0]:  # MindSpore's own gradients of weights are then whatever was there
        assert got[0].shape == (0, plain.out_features)
        assert not any(g.any() for g in got[1])
        return
    expected = gradients(plain, inputs)
    assert_same(got[0], expected[0], relative)
    for g, e in zip(got[1], expected[1], strict=True):
        assert_same(g, e, relative)


@settings(max_examples=40, derandomize=True)
@given(
    inputs=st.lists(WIDTHS, min_size=1, max_size=3),
    hidden=st.lists(WIDTHS, max_size=4),
    out=st.none() | WIDTHS,
    activation=st.sampled_from(ACTIVATIONS),
    dropout=st.sampled_from([0.0, 0.0, 0.4]),
    rows=st.sampled_from([0, 1, 2, 3, 15, 16, 17, 77, 256, 257, 600]),
    training=st.booleans(),
)
def test_values_and_gradients(inputs, hidden, out, activation, dropout, rows, training):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    if not hidden and out is None:
        out = 2
    x = [numbers(rows, width, seed=i) for i, width in enumerate(inputs)]
    # MindSpore's tanh and exp are off by up to 4e-5, through which errors of weights pass, too.
    relative = 2e-5 if activation in ("relu", "leakyrelu") else 1e-3
    compare(
        x,
        inputs,
        hidden,
        activation,
        dropout,
        out_features=out,
        training=training,
        relative=relative,
    )


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("activation", "dropout"), [("relu", 0.3), ("gelu", 0.0), ("tanh", 0.5)])
def test_in_a_graph(graph_mode, activation, dropout, training):
    x = [numbers(70, 5), numbers(70, 3, seed=1)]
    compare(x, (5, 3), (9, 4), activation, dropout, out_features=2, training=training)


def test_wide_layers_and_many_rows(pynative):
    compare([numbers(16000, 1024)], 1024, (1024,), "tanh", out_features=1)


@pytest.mark.parametrize("activation", ["relu", "leakyrelu"])
def test_slopes_at_the_corner(pynative, activation):
    fused, plain = mlps(3, (4,), activation, out_features=2)
    for mlp in (fused, plain):
        mlp.layers[0].bias.set_data(Tensor(np.zeros(4, np.float32)))
    x = Tensor(np.zeros((5, 3), np.float32))
    for g, e in zip(gradients(fused, [x])[1], gradients(plain, [x])[1], strict=True):
        assert_same(g, e)


def test_inputs_of_higher_rank(mode):
    flat = [numbers(6, 12), numbers(6, 4, seed=1)]
    fused, plain = mlps((12, 4), (8,), out_features=2)
    expected = gradients(plain, flat)
    for mlp in (fused, plain):
        shaped = (flat[0].reshape(6, 4, 3), flat[1].reshape(6, 2, 2))
        got = gradients(mlp, shaped)
        assert_same(got[0], expected[0])
        assert [g.shape for g in got[1][:2]] == [(6, 4, 3), (6, 2, 2)]
        for g, e in zip(got[1], expected[1], strict=True):
            assert_same(g.reshape(e.shape), e)


@pytest.mark.parametrize("rows", [0, 1])
def test_no_row_and_one(mode, rows):
    compare([numbers(rows, 4)], 4, (3,), "sigmoid", 0.5, out_features=2)


def test_gradients_are_differences(pynative):
    fused, _ = mlps(5, (7, 4), "tanh", out_features=3)
    x = numbers(4, 5)
    _, found = gradients(fused, [x])
    weights = numbers(4, 3, seed=9).asnumpy().astype(np.float64)
    at = [x.asnumpy(), *(p.asnumpy().copy() for p in fused.trainable_params())]

    def total(arrays: Any) -> float:
        for p, value in zip(fused.trainable_params(), arrays[1:], strict=True):
            p.set_data(Tensor(value))
        return float((fused(Tensor(arrays[0])).asnumpy() * weights).sum())

    random = np.random.default_rng(2)
    for which, gradient in enumerate(found):
        direction = random.choice([-1.0, 1.0], gradient.shape).astype(np.float32)
        ends = []
        for step in (0.01, -0.01):
            moved = [a.copy() for a in at]
            moved[which] += np.float32(step) * direction
            ends.append(total(moved))
        slope = (ends[0] - ends[1]) / 0.02
        assert float((gradient * direction).sum()) == pytest.approx(slope, rel=2e-3, abs=2e-3)


def rounded(x: Any) -> Any:
    """Return float32 numbers rounded to bfloat16, to the nearest, ties to even, as float64."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    even = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return even.astype(np.uint32).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_bfloat16_rounds_inputs_weights_and_gradients(pynative, activation):
    mlp = MLP(33, (64, 17), activation, out_features=5, compute_dtype="bfloat16")
    x = numbers(50, 33)
    got, found = gradients(mlp, [x])
    parameters = [p.asnumpy() for p in mlp.trainable_params()]
    weights, biases = parameters[0::2], parameters[1::2]
    kept = [x.asnumpy().astype(np.float64)]
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        y = rounded(kept[-1]) @ rounded(weight).T + bias
        if k < 2:
            y = np.tanh(y) if activation == "tanh" else np.maximum(y, 0)
        kept.append(y)
    np.testing.assert_allclose(got, kept[-1], atol=3e-3 * np.abs(kept[-1]).max())
    dy = numbers(50, 5, seed=9).asnumpy().astype(np.float64)
    expected: list[Any] = []
    for k in (2, 1, 0):
        if k < 2:
            slope = 1 - kept[k + 1] ** 2 if activation == "tanh" else kept[k + 1] > 0
            dy = dy * slope
        expected[:0] = [rounded(dy).T @ rounded(kept[k]), dy.sum(0)]
        dy = rounded(dy) @ rounded(weights[k])
    for g, e in zip(found, [dy, *expected], strict=True):
        np.testing.assert_allclose(g, e, atol=5e-3 * np.abs(e).max())


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nan_and_infinity_pass_as_in_the_layers(pynative, activation):
    x = numbers(6, 3).asnumpy().copy()
    x[1, 0], x[3, 1], x[4, 2] = np.nan, np.inf, -np.inf
    fused, plain = mlps(3, (4,), activation, training=False)
    if activation == "gelu":  # of MindSpore, that of -inf is NaN
        weight = Tensor(np.abs(plain.layers[0].weight.asnumpy()))
        for mlp in (fused, plain):
            mlp.layers[0].weight.set_data(weight)
        x[4, 2] = np.inf
    got, expected = fused(Tensor(x)).asnumpy(), plain(Tensor(x)).asnumpy()
    assert np.isnan(got[1]).all()
    if activation == "relu":  # of MindSpore, that of NaN is 0
        assert (expected[1] == 0).all()
        expected[1] = np.nan
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    assert np.isfinite(got[[0, 2, 5]]).all()


@pytest.mark.parametrize(
    ("shapes", "dtype", "message"),
    [
        ([(2, 3), (2, 2)], np.float32, r"input 0 must be \[2, 4\], got \[2, 3\]"),
        ([(2, 4), (3, 2)], np.float32, r"input 1 must be \[2, 2\], got \[3, 2\]"),
        ([(4,), (2,)], np.float32, r"input 0 must be \[B, 4\], got 1 dimension\(s\): .*None"),
        ([(), (2, 2)], np.float32, r"input 0 must be \[B, 4\], got 0 dimension"),
        ([(2, 4), ()], np.float32, r"input 1 must be \[B, 2\], got 0 dimension"),
        ([(2, 4), (2, 2)], np.float16, "input 0 must be float32 or bfloat16, got float16"),
        ([(2, 4), (2, 2)], np.int32, "input 0 must be float32 or bfloat16, got int32"),
    ],
)
def test_wrong_shapes_and_dtypes(pynative, shapes, dtype, message):
    mlp = MLP((4, 2), (3,))
    with pytest.raises((TypeError, ValueError, RuntimeError), match=message):
        mlp(*(Tensor(np.ones(shape, dtype)) for shape in shapes))
    assert mlp(numbers(2, 4), numbers(2, 2)).shape == (2, 3)
