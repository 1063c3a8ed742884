# SPDX-License-Identifier: Apache-2.0
"""Cross networks against their formulas in float64: values, gradients, and what they learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec.nn import CrossNet, CrossNetMix, CrossNetV2
from tests.nn.formulas import close, rows_of
from tests.support.networks import Gradients

Arrays = list[np.ndarray]
KINDS: tuple[Any, ...] = (CrossNet, CrossNetV2, CrossNetMix)
WIDTH = 5


def formula_v1(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    crossed = x
    for w, b in zip(weight, bias, strict=True):
        crossed = x * (crossed @ w)[:, None] + b + crossed
    return crossed


def formula_v2(x: np.ndarray, *maps: np.ndarray) -> np.ndarray:
    crossed = x
    for matrix, b in zip(maps[::2], maps[1::2], strict=True):
        crossed = x * (crossed @ matrix.T + b) + crossed
    return crossed


def formula_mix(
    activation: Callable[[np.ndarray], np.ndarray] | None, experts: int, rank: int
) -> Callable[..., np.ndarray]:
    """Row by row and expert by expert; of each layer v, u, bias and, with an activation, c."""

    def outputs(x: np.ndarray, *weights: np.ndarray) -> np.ndarray:
        parts = 3 if activation is None else 4
        gates, layers = (weights[-1], weights[:-1]) if experts > 1 else (None, weights)
        result = np.zeros_like(x)
        for b, row in enumerate(x):
            crossed = row
            for k in range(0, len(layers), parts):
                v, u, bias = layers[k : k + 3]
                score = np.ones(1) if gates is None else np.exp(gates @ crossed)
                total = np.zeros_like(row)
                for e in range(experts):
                    of_e = slice(e * rank, (e + 1) * rank)
                    h = v[:, of_e].T @ crossed
                    if activation is not None:
                        h = activation(layers[k + 3][e].T @ activation(h))
                    total += score[e] / score.sum() * row * (u[of_e].T @ h + bias)
                crossed = total + crossed
            result[b] = crossed
        return result

    return outputs


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


CASES: dict[str, tuple[Callable[[], nn.Cell], Callable[..., np.ndarray]]] = {
    "v1": (lambda: CrossNet(WIDTH, 4), formula_v1),
    "v1 of one layer": (lambda: CrossNet(WIDTH, 1), formula_v1),
    "v2": (lambda: CrossNetV2(WIDTH, 3), formula_v2),
    "mix": (lambda: CrossNetMix(WIDTH, 2, 3, 2), formula_mix(np.tanh, 3, 2)),
    "mix sigmoid": (
        lambda: CrossNetMix(WIDTH, 1, 2, 3, activation="sigmoid"),
        formula_mix(sigmoid, 2, 3),
    ),
    "mix linear": (lambda: CrossNetMix(WIDTH, 3, 3, 2, None), formula_mix(None, 3, 2)),
    "mix of one": (lambda: CrossNetMix(WIDTH, 2, 1, 3), formula_mix(np.tanh, 1, 3)),
}


def made(case: str) -> tuple[nn.Cell, Callable[..., np.ndarray], Arrays]:
    """A cell with biases that are not 0, its formula, and its weights in float64."""
    ms.set_seed(11)
    make, formula = CASES[case]
    cell = make()
    for number, p in enumerate(cell.trainable_params()):
        if "bias" in p.name:
            shift = 0.3 * np.random.default_rng(number).standard_normal(p.shape)
            p.set_data(Tensor(shift.astype(np.float32)))
    return cell, formula, [p.asnumpy().astype(np.float64) for p in cell.trainable_params()]


def tolerance(case: str) -> float:
    """MindSpore's own tanh is off by up to 1.6e-5 on CPU; all else keeps to 1e-5."""
    return 5e-5 if case in ("mix", "mix of one") else 1e-5


def slopes(function: Callable[..., np.ndarray], arrays: Sequence[np.ndarray], seed: np.ndarray):
    """Gradients of sum(seed * function(*arrays)) by central differences."""
    gradients = [np.zeros_like(a) for a in arrays]
    for array, gradient in zip(arrays, gradients, strict=True):
        for at in np.ndindex(*array.shape):
            kept = array[at]
            array[at] = kept + 1e-5
            above = (seed * function(*arrays)).sum()
            array[at] = kept - 1e-5
            below = (seed * function(*arrays)).sum()
            array[at] = kept
            gradient[at] = (above - below) / 2e-5
    return gradients


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_the_formula_s(mode, case):
    cell, formula, weights = made(case)
    x, seed = rows_of(3, WIDTH), rows_of(3, WIDTH, seed=1)
    close(cell(Tensor(x)), formula(x.astype(np.float64), *weights), tolerance(case))
    of_inputs, of_weights = Gradients(cell)(Tensor(x), Tensor(seed))
    expected = slopes(formula, [x.astype(np.float64), *weights], seed.astype(np.float64))
    for got, slope in zip([*of_inputs, *of_weights], expected, strict=True):
        assert np.abs(slope).max() > 1e-3
        close(got, slope, tolerance(case))


@pytest.mark.parametrize("case", ["v1", "v2", "mix"])
def test_one_compiled_network_takes_batches_of_any_size(graph_mode, case):
    cell, formula, weights = made(case)
    gradients = Gradients(cell)
    rows = Tensor(shape=[None, WIDTH], dtype=ms.float32)
    cell.set_inputs(rows)
    gradients.set_inputs(rows, rows)
    for size in (4, 1, 7, 300):
        x = rows_of(size, WIDTH, seed=size)
        close(cell(Tensor(x)), formula(x.astype(np.float64), *weights), tolerance(case))
        (of_x,), _ = gradients(Tensor(x), Tensor(np.ones_like(x)))
        assert of_x.shape == x.shape
    assert len(cell.compile_cache) == len(gradients.compile_cache) == 1


def test_gates_of_a_row_sum_to_one(mode):
    x = Tensor(3 * rows_of(8, WIDTH))
    gates = CrossNetMix(WIDTH, experts=6, rank=2).gate_weights(x).asnumpy()
    assert gates.shape == (8, 6) and gates.min() > 0
    np.testing.assert_allclose(gates.sum(1), 1, rtol=1e-5)
    assert gates.std(axis=0).min() > 0.01  # they depend on the row
    one = CrossNetMix(WIDTH, experts=1, rank=2)
    np.testing.assert_array_equal(one.gate_weights(x).asnumpy(), np.ones((8, 1)))


def test_one_expert_of_full_rank_is_the_matrix_form(mode):
    full, _, weights = made("v2")
    low = CrossNetMix(WIDTH, 3, experts=1, rank=WIDTH, activation=None)
    for mixture, matrix, bias in zip(low.mixtures, weights[::2], weights[1::2], strict=True):
        left, sizes, right = np.linalg.svd(matrix)
        mixture.u.set_data(Tensor((left * sizes).T.astype(np.float32)))
        mixture.v.set_data(Tensor(right.T.astype(np.float32)))
        mixture.bias.set_data(Tensor(bias.astype(np.float32)))
    x = rows_of(6, WIDTH)
    close(low(Tensor(x)), full(Tensor(x)).asnumpy())


def test_the_seed_decides_the_first_values():
    def draw(seed: int) -> Arrays:
        ms.set_seed(seed)
        cells: list[nn.Cell] = [CrossNet(6), CrossNetV2(6), CrossNetMix(6, rank=2)]
        return [p.asnumpy().copy() for cell in cells for p in cell.trainable_params()]

    one, again, other = draw(3), draw(3), draw(4)
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    drawn = [not np.array_equal(a, b) for a, b in zip(one, other, strict=True)]
    assert drawn == [a.any() for a in one] and sum(drawn) == 10  # all but the biases


def test_first_values_have_the_spread_of_one_matrix():
    ms.set_seed(3)
    mixture = CrossNetMix(400, 1, experts=8, rank=50).mixtures[0]
    for values, fans in ((mixture.v, 450), (mixture.u, 450), (mixture.c, 100)):
        assert values.asnumpy().std() == pytest.approx(np.sqrt(2 / fans), rel=0.05)
    matrix = CrossNetV2(200, 1).maps[0].weight.asnumpy()
    assert matrix.std() == pytest.approx(np.sqrt(1 / 200), rel=0.05)
    assert CrossNet(20_000, 2).weight.asnumpy().std() == pytest.approx(0.01, rel=0.05)


def loss_after_training(net: nn.Cell, x: np.ndarray, target: np.ndarray) -> float:
    step = nn.TrainOneStepCell(
        nn.WithLossCell(net, nn.MSELoss()), nn.Adam(net.trainable_params(), 0.05)
    ).set_train()
    return [float(step(Tensor(x), Tensor(target))) for _ in range(200)][-1]


@pytest.mark.parametrize("case", ["v1 of one layer", "v2", "mix"])
def test_learns_a_product_that_a_linear_model_of_its_size_cannot(graph_mode, case):
    ms.set_seed(1)
    x = rows_of(512, WIDTH)
    target = ((x[:, :1] + x[:, 1:2]) * (x[:, 2:3] - x[:, 3:4]) / 2).astype(np.float32)
    crossed = nn.SequentialCell(CASES[case][0](), nn.Dense(WIDTH, 1))
    size = sum(p.size for p in crossed.trainable_params())
    hidden = -(-size // (WIDTH + 1))
    linear = nn.SequentialCell(nn.Dense(WIDTH, hidden), nn.Dense(hidden, 1))
    assert sum(p.size for p in linear.trainable_params()) >= size
    assert loss_after_training(crossed, x, target) < 0.1 * target.var()
    assert loss_after_training(linear, x, target) > 0.9 * target.var()


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        *(
            (kind, change, message)
            for kind in KINDS
            for change, message in (
                ({"in_features": 0}, r"in_features must be in \[1, 1048576\], got 0"),
                ({"in_features": 2.0}, "in_features must be an int, got 2.0"),
                ({"layers": 0}, r"layers must be in \[1, 64\], got 0"),
                ({"layers": True}, "layers must be an int, got True"),
            )
        ),
        (CrossNetMix, {"experts": 0}, r"experts must be in \[1, 1024\], got 0"),
        (CrossNetMix, {"rank": 8193}, r"rank must be in \[1, 8192\], got 8193"),
        (CrossNetMix, {"rank": "2"}, "rank must be an int, got '2'"),
        (CrossNetMix, {"activation": "swish"}, "activation must be one of 'relu'.*got 'swish'"),
    ],
)
def test_bad_arguments(kind: type[nn.Cell], change: dict[str, Any], message: str):
    with pytest.raises((TypeError, ValueError), match=message):
        kind(**{"in_features": 3, **change})
