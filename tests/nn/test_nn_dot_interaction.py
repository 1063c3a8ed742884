# SPDX-License-Identifier: Apache-2.0
"""DLRM's dot products against explicit pairs in float64, and what they can learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mindspore import Tensor, nn

from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecModel
from mindspore_rec.nn import DotInteraction
from tests.nn.formulas import close, rows_of
from tests.support.networks import GradientsOfInputs

KINDS = [(False, False), (True, False), (False, True), (True, True)]


def explicit_pairs(diagonal: bool, x: np.ndarray, dense: np.ndarray | None = None) -> np.ndarray:
    """Pair by pair, in the order of the lower triangle's rows."""
    vectors = list(np.moveaxis(x.astype(np.float64), 1, 0))
    columns: list[np.ndarray] = []
    if dense is not None:
        vectors.insert(0, dense.astype(np.float64))
        columns.extend(dense.T.astype(np.float64))
    for i in range(len(vectors)):
        for j in range(i + 1 if diagonal else i):
            columns.append((vectors[i] * vectors[j]).sum(1))
    return np.stack(columns, 1)


def inputs_of(rows: int, fields: int, dim: int, dense: bool) -> list[np.ndarray]:
    x = [rows_of(rows, fields, dim, seed=rows)]
    return [*x, rows_of(rows, dim, seed=rows + 1)] if dense else x


@settings(max_examples=40)
@given(
    rows=st.integers(1, 4),
    fields=st.integers(2, 7),
    dim=st.integers(1, 6),
    diagonal=st.booleans(),
    dense=st.booleans(),
)
def test_is_the_explicit_pairs(rows, fields, dim, diagonal, dense):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    cell = DotInteraction(fields, dim, diagonal, dense)
    inputs = inputs_of(rows, fields, dim, dense)
    got = cell(*map(Tensor, inputs))
    close(got, explicit_pairs(diagonal, *inputs))
    assert got.shape == (rows, cell.out_features)


@pytest.mark.parametrize(("diagonal", "dense"), [(True, False), (False, True)])
def test_one_embedding_is_enough_with_a_second_vector(mode, diagonal, dense):
    inputs = inputs_of(3, 1, 4, dense)
    close(
        DotInteraction(1, 4, diagonal, dense)(*map(Tensor, inputs)),
        explicit_pairs(diagonal, *inputs),
    )


def slopes(score: Callable[..., float], arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Gradients by central differences."""
    arrays = [a.astype(np.float64) for a in arrays]
    gradients = [np.zeros_like(a) for a in arrays]
    for array, gradient in zip(arrays, gradients, strict=True):
        for at in np.ndindex(*array.shape):
            kept = array[at]
            array[at] = kept + 1e-4
            above = score(*arrays)
            array[at] = kept - 1e-4
            gradient[at] = (above - score(*arrays)) / 2e-4
            array[at] = kept
    return gradients


@pytest.mark.parametrize(("diagonal", "dense"), KINDS)
def test_gradients_are_the_formula_s(mode, diagonal, dense):
    cell = DotInteraction(4, 3, diagonal, dense)
    inputs = inputs_of(3, 4, 3, dense)
    seed = rows_of(3, cell.out_features, seed=9)
    got = GradientsOfInputs(cell)(*map(Tensor, inputs), Tensor(seed))
    expected = slopes(
        lambda *a: float((seed.astype(np.float64) * explicit_pairs(diagonal, *a)).sum()), inputs
    )
    assert len(got) == len(expected)
    for one, slope in zip(got, expected, strict=True):
        close(one, slope)


@pytest.mark.parametrize(("diagonal", "dense"), KINDS)
def test_one_compiled_network_takes_batches_of_any_size(graph_mode, diagonal, dense):
    cell = DotInteraction(4, 3, diagonal, dense)
    gradients = GradientsOfInputs(DotInteraction(4, 3, diagonal, dense))
    shapes = [Tensor(shape=[None, 4, 3], dtype=ms.float32)]
    if dense:
        shapes.append(Tensor(shape=[None, 3], dtype=ms.float32))
    cell.set_inputs(*shapes)
    gradients.set_inputs(*shapes, Tensor(shape=[None, cell.out_features], dtype=ms.float32))
    for size in (4, 1, 7, 300):
        inputs = inputs_of(size, 4, 3, dense)
        expected = explicit_pairs(diagonal, *inputs)
        close(cell(*map(Tensor, inputs)), expected)
        got = gradients(*map(Tensor, inputs), Tensor(np.ones(expected.shape, np.float32)))
        assert [g.shape for g in got] == [a.shape for a in inputs]
    assert len(cell.compile_cache) == len(gradients.compile_cache) == 1


def loss_after_training(net: nn.Cell, ids: np.ndarray, target: np.ndarray) -> float:
    """With batches of several sizes, so that the dynamic graph trains too."""
    model = RecModel(net, nn.MSELoss(), LazyAdam(net.trainable_params(), learning_rate=0.1))
    cuts = (0, 40, 70, 90, 144)
    batches = [(ids[a:b], target[a:b]) for a, b in zip(cuts, cuts[1:], strict=False)]
    model.train(40, batches)
    predicted = net.set_train(False)(Tensor(ids)).asnumpy()
    return float(((predicted - target) ** 2).mean())


def test_learns_products_of_fields_that_a_linear_model_of_its_size_cannot(graph_mode):
    ms.set_seed(1)
    left, right = rows_of(12, 2, seed=2), rows_of(12, 2, seed=3)
    order = np.random.default_rng(0).permutation(144)
    ids = np.array([(a, 12 + b) for a in range(12) for b in range(12)], np.int64)[order]
    table = left @ right.T
    # without the sums that each field alone explains
    table = table - table.mean(0, keepdims=True) - table.mean(1, keepdims=True) + table.mean()
    target = (table / table.std()).reshape(-1, 1)[order]

    def net_of(between: nn.Cell, width: int) -> nn.Cell:
        lookup = HashEmbeddingLookup(4, key_dtype=ms.int64)
        return nn.SequentialCell(lookup, between, nn.Dense(width, 1))

    dots = DotInteraction(2, 4)
    assert loss_after_training(net_of(dots, dots.out_features), ids, target) < 0.1
    assert loss_after_training(net_of(nn.Flatten(), 8), ids, target) > 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fields": 1}, r"fields must be in \[2, 4096\], got 1"),
        ({"fields": 0, "diagonal": True}, r"fields must be in \[1, 4096\], got 0"),
        ({"fields": "3"}, "fields must be an int, got '3'"),
        ({"embedding_dim": 0}, r"embedding_dim must be in \[1, 8192\], got 0"),
        ({"diagonal": 1}, "diagonal must be a bool, got 1"),
        ({"dense": None}, "dense must be a bool, got None"),
    ],
)
def test_bad_arguments(change: dict[str, Any], message: str):
    with pytest.raises((TypeError, ValueError), match=message):
        DotInteraction(**{"fields": 3, "embedding_dim": 2, **change})


@pytest.mark.parametrize(
    ("with_dense", "shapes", "message"),
    [
        (False, [(2, 6, 2)], r"x must be \[B, 3, 2\], got \(2, 6, 2\)"),
        (False, [(2, 6)], r"x must be \[B, 3, 2\], got \(2, 6\)"),
        (False, [(2, 3, 2), (2, 2)], "dense must be None"),
        (True, [(2, 3, 2)], "dense must be a Tensor, got None"),
        (True, [(2, 3, 2), (2, 3)], r"dense must be \[B, 2\], got \(2, 3\)"),
    ],
)
def test_inputs_of_other_shapes(mode, with_dense, shapes, message):
    cell = DotInteraction(3, 2, dense=with_dense)
    with pytest.raises((TypeError, ValueError), match=message):
        cell(*(Tensor(np.ones(shape, np.float32)) for shape in shapes))
