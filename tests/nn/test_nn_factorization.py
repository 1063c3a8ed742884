# SPDX-License-Identifier: Apache-2.0
"""Factorization machine against the explicit sum over pairs in float64, and what it can learn."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mindspore import Tensor, nn

from mindspore_rec.nn import FactorizationMachine
from tests.nn.formulas import close, rows_of
from tests.support.networks import GradientsOfInputs


def sum_over_pairs(x: np.ndarray) -> np.ndarray:
    """[B, D]: products of all pairs, not yet summed over the vectors' units."""
    x = x.astype(np.float64)
    result = np.zeros((x.shape[0], x.shape[2]))
    for i, j in combinations(range(x.shape[1]), 2):
        result += x[:, i] * x[:, j]
    return result


@settings(max_examples=30)
@given(rows=st.integers(1, 4), fields=st.integers(2, 7), dim=st.integers(1, 6))
def test_is_the_sum_over_pairs(rows, fields, dim):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    x = rows_of(rows, fields, dim, seed=rows)
    expected = sum_over_pairs(x)
    whole, units = (FactorizationMachine(fields, dim, r) for r in ("sum", "none"))
    assert (whole.out_features, units.out_features) == (1, dim)
    close(whole(Tensor(x)), expected.sum(1, keepdims=True))
    close(units(Tensor(x)), expected)


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_gradient_is_the_formula_s(mode, reduction):
    cell = FactorizationMachine(5, 3, reduction)
    x, seed = rows_of(4, 5, 3), rows_of(4, cell.out_features, seed=1)

    def score(x: np.ndarray) -> float:
        return float((seed.astype(np.float64) * _reduced(sum_over_pairs(x), reduction)).sum())

    close(GradientsOfInputs(cell)(Tensor(x), Tensor(seed))[0], slope_of(score, x))


def _reduced(units: np.ndarray, reduction: str) -> np.ndarray:
    return units.sum(1, keepdims=True) if reduction == "sum" else units


def slope_of(score: Any, x: np.ndarray) -> np.ndarray:
    """The gradient by central differences."""
    x = x.astype(np.float64)
    result = np.zeros_like(x)
    for at in np.ndindex(*x.shape):
        step = np.zeros_like(x)
        step[at] = 1e-4
        result[at] = (score(x + step) - score(x - step)) / 2e-4
    return result


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_one_compiled_network_takes_batches_of_any_size(graph_mode, reduction):
    cell = FactorizationMachine(4, 3, reduction)
    gradient = GradientsOfInputs(FactorizationMachine(4, 3, reduction))
    rows = Tensor(shape=[None, 4, 3], dtype=ms.float32)
    cell.set_inputs(rows)
    gradient.set_inputs(rows, Tensor(shape=[None, cell.out_features], dtype=ms.float32))
    for size in (4, 1, 7, 300):
        x = rows_of(size, 4, 3, seed=size)
        close(cell(Tensor(x)), _reduced(sum_over_pairs(x), reduction))
        ones = np.ones((size, cell.out_features), np.float32)
        others = x.sum(1, keepdims=True) - x  # what a vector is multiplied by
        close(gradient(Tensor(x), Tensor(ones))[0], others.astype(np.float64))
    assert len(cell.compile_cache) == len(gradient.compile_cache) == 1


class _Scores(nn.Cell):
    """Embeddings of two fields of ids, then the cell or, without one, linear layers."""

    def __init__(self, interaction: nn.Cell | None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2 * 12, 4, embedding_table="normal")
        self.bias = nn.Embedding(2 * 12, 1, embedding_table="zeros")
        self.interaction = interaction
        self.linear = nn.Dense(2 * 4, 1)

    def construct(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        if self.interaction is None:
            score = self.linear(x.reshape((-1, 8)))
        else:
            score = self.interaction(x)
        return score + self.bias(ids).sum(1)


def loss_after_training(net: nn.Cell, ids: np.ndarray, target: np.ndarray) -> float:
    step = nn.TrainOneStepCell(
        nn.WithLossCell(net, nn.MSELoss()), nn.Adam(net.trainable_params(), 0.05)
    ).set_train()
    return [float(step(Tensor(ids), Tensor(target))) for _ in range(200)][-1]


def test_learns_products_of_fields_that_a_linear_model_of_its_size_cannot(graph_mode):
    ms.set_seed(1)
    left, right = rows_of(12, 2, seed=2), rows_of(12, 2, seed=3)
    ids = np.array([(a, 12 + b) for a in range(12) for b in range(12)], np.int32)
    products = (left @ right.T).reshape(-1, 1)
    # without the sums that each field alone explains
    table = products.reshape(12, 12)
    table = table - table.mean(0, keepdims=True) - table.mean(1, keepdims=True) + table.mean()
    target = (table / table.std()).reshape(-1, 1)
    assert loss_after_training(_Scores(FactorizationMachine(2, 4)), ids, target) < 0.05
    assert loss_after_training(_Scores(None), ids, target) > 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fields": 1}, r"fields must be in \[2, 4096\], got 1"),
        ({"fields": 2.0}, "fields must be an int, got 2.0"),
        ({"embedding_dim": 0}, r"embedding_dim must be in \[1, 8192\], got 0"),
        ({"embedding_dim": True}, "embedding_dim must be an int, got True"),
        ({"reduction": "mean"}, "reduction must be one of 'sum', 'none', got 'mean'"),
    ],
)
def test_bad_arguments(change: dict[str, Any], message: str):
    with pytest.raises((TypeError, ValueError), match=message):
        FactorizationMachine(**{"fields": 3, "embedding_dim": 2, **change})


@pytest.mark.parametrize("shape", [(2, 6, 2), (2, 6), (2, 2, 3), (6,)])
def test_input_of_another_shape(mode, shape):
    with pytest.raises(ValueError, match=r"x must be \[B, 3, 2\], got \("):
        FactorizationMachine(3, 2)(Tensor(np.ones(shape, np.float32)))
