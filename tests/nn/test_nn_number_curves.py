# SPDX-License-Identifier: Apache-2.0
"""Embeddings of numbers by curves: the formulas, their gradients, and a start as straight lines."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, strategies as st
from mindspore import Tensor, nn, ops

from mindspore_rec.nn import (
    MLP,
    CrossNetV2,
    NumberEmbedding,
    PeriodicEmbedding,
    PiecewiseLinear,
)
from tests.nn.fused_cells import MODES, close, fused_pair, rows_of, run, unfuse
from tests.support.nightly import examples

SIZES: dict[str, Any] = {
    "numbers": st.integers(1, 5),
    "dim": st.integers(1, 9),
    "rows": st.sampled_from([1, 2, 33]),
    "mode": st.sampled_from(MODES),
}


def piecewise(x: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """The curves by interpolation between knots, with the first and last piece going on."""
    bins = knots.shape[1] - 1
    places = (x + 1) * bins / 2
    at = np.floor(places).clip(0, bins - 1).astype(int)
    numbers = range(len(knots))
    below, above = (np.stack([knots[n][at[:, n] + k] for n in numbers], 1) for k in (0, 1))
    share = (places - at)[:, :, None]
    return below * (1 - share) + above * share


def periodic(x: np.ndarray, frequencies: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> Any:
    angles = 2 * np.pi * x[:, :, None] * frequencies
    return np.maximum(np.concatenate([np.sin(angles), np.cos(angles)], 2) @ weight.T + bias, 0)


FORMULAS: dict[Any, Any] = {PiecewiseLinear: piecewise, PeriodicEmbedding: periodic}


def parameters_of(cell: nn.Cell) -> list[np.ndarray]:
    return [each.asnumpy().astype(np.float64) for each in cell.trainable_params()]


def steepness(formula: Any, x: np.ndarray, of: list[np.ndarray], given_: np.ndarray) -> list[Any]:
    """Gradients of x and of parameters along random directions, by finite differences."""
    rng = np.random.default_rng(1)
    found = []
    for k in range(len(of) + 1):
        direction = rng.standard_normal((x, *of)[k].shape)
        sides = []
        for step in (1e-6, -1e-6):
            moved = [each.copy() for each in (x, *of)]
            moved[k] += step * direction
            sides.append((formula(*moved) * given_).sum())
        found.append((direction, (sides[0] - sides[1]) / 2e-6))
    return found


@pytest.mark.parametrize("kind", FORMULAS)
@examples(4, 25)
@given(**SIZES, further=st.integers(1, 70), spread=st.sampled_from([0.4, 2.0]))
def test_a_curve_is_its_formula_and_so_is_its_gradient(
    kind, numbers, dim, rows, mode, further, spread
):
    ms.set_context(mode=mode, pynative_synchronize=True)
    cell = kind(numbers, dim, further).set_train()
    rng = np.random.default_rng(numbers + dim)
    for each in cell.trainable_params():
        each.set_data(Tensor(rng.normal(0, 0.5, each.shape).astype(np.float32)))
    x = (spread * rows_of(rows, numbers)).astype(np.float32)
    given_ = rows_of(rows, numbers, dim, seed=1)
    outputs, gradients = run(cell, [x], [given_])
    formula, learned = FORMULAS[kind], parameters_of(cell)
    x64 = x.astype(np.float64)
    np.testing.assert_allclose(outputs[0], formula(x64, *learned), rtol=1e-3, atol=1e-4)
    scale = 1 + np.abs(given_).sum() * np.sqrt(further)
    for got, (direction, wanted) in zip(
        gradients, steepness(formula, x64, learned, given_), strict=True
    ):
        assert abs((got * direction).sum() - wanted) < 2e-4 * scale


@examples(4, 25)
@given(**SIZES, bins=st.integers(1, 200))
def test_piecewise_linear_numbers_start_as_embedded_numbers(numbers, dim, rows, mode, bins):
    ms.set_context(mode=mode, pynative_synchronize=True)
    ms.set_seed(3)
    curve = PiecewiseLinear(numbers, dim, bins, std=0.5)
    ms.set_seed(3)
    line = NumberEmbedding(numbers, dim, std=0.5)
    x = Tensor(rows_of(rows, numbers))
    assert curve.out_features == line.out_features == numbers * dim
    np.testing.assert_allclose(curve(x).asnumpy(), line(x).asnumpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", FORMULAS)
@examples(4, 25)
@given(
    **{**SIZES, "rows": st.sampled_from([1, 2, 33, 300, 1000])},
    further=st.integers(1, 70),
    training=st.booleans(),
    narrow=st.booleans(),
)
def test_the_operator_is_the_plain_cell(kind, numbers, dim, rows, mode, further, training, narrow):
    ms.set_context(mode=mode, pynative_synchronize=True)
    cell = kind(numbers, dim, further).set_train(training)
    rng = np.random.default_rng(numbers)
    for each in cell.trainable_params():
        each.set_data(Tensor(rng.normal(0, 0.3, each.shape).astype(np.float32)))
    assert cell.is_fused
    given_ = [0.7 * rows_of(rows, numbers)], [rows_of(rows, numbers, dim, seed=1)]
    if narrow:  # rows of a lookup may be bfloat16
        x = Tensor(given_[0][0]).astype(ms.bfloat16)
        got = cell(x).asnumpy()
        close([got], [unfuse(cell)(x).asnumpy()])
        return
    got = run(cell, *given_)
    expected = run(unfuse(cell), *given_)
    close(got[0], expected[0])
    close(got[1], expected[1], 2e-5)


class Scored(nn.Cell):
    """A network whose first layer makes vectors of numbers."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.curves = kind(3, 4, 6)
        self.deep, self.cross = MLP((10, 12), (8,)), CrossNetV2((10, 12), 2)
        self.logit = nn.Dense(30, 1)

    def construct(self, row: Tensor, numbers: Tensor) -> Tensor:
        vectors = self.curves(numbers)
        joined = ops.concat((self.cross(row, vectors), self.deep(row, vectors)), 1)
        return self.logit(joined), vectors


@pytest.mark.parametrize("kind", FORMULAS)
def test_a_network_with_curves_is_one_operator(kind, mode):
    fused, plain = fused_pair(lambda: Scored(kind))
    assert any(part is fused.curves for part in fused.fused_graph.parts)
    assert len(fused.fused_graph.parts) == 4
    given_ = [rows_of(50, 10), rows_of(50, 3)], [rows_of(50, 1, seed=1), rows_of(50, 3, 4, seed=2)]
    got, expected = (run(cell.set_train(), *given_) for cell in (fused, plain))
    close(got[0], expected[0])
    close(got[1], expected[1])


@pytest.mark.parametrize("kind", FORMULAS)
def test_no_rows_have_gradients_of_zero(kind, pynative):
    cell = kind(2, 3, 4).set_train()
    outputs, gradients = run(
        cell, [np.zeros((0, 2), np.float32)], [np.zeros((0, 2, 3), np.float32)]
    )
    assert outputs[0].shape == (0, 2, 3)
    assert all((each == 0).all() for each in gradients[1:])


def test_many_rows_have_the_same_gradients_each_time(graph_mode):
    cell = PiecewiseLinear(20, 8, 4, std=0.5).set_train()
    given_ = [rows_of(4096, 20)], [rows_of(4096, 20, 8, seed=1)]
    first, second = (run(cell, *given_)[1] for _ in range(2))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PiecewiseLinear(0, 3), "numbers"),
        (lambda: PiecewiseLinear(2, 0), "embedding_dim"),
        (lambda: PiecewiseLinear(2, 3, bins=0), "bins"),
        (lambda: PiecewiseLinear(2, 3, std=-1.0), "std"),
        (lambda: PeriodicEmbedding(2, 3, frequencies=0), "frequencies"),
        (lambda: PeriodicEmbedding(2, 3, scale=0.0), "scale"),
        (lambda: PiecewiseLinear(2, 3)(Tensor(rows_of(4, 3))), r"x must be \[B, 2\]"),
        (lambda: PeriodicEmbedding(2, 3)(Tensor(rows_of(4, 3))), r"x must be \[B, 2\]"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()
