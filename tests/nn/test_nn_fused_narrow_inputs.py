# SPDX-License-Identifier: Apache-2.0
"""Fused layers that are given bfloat16: what the same numbers give as float32, without a cast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

import mindspore_rec as mr
from mindspore_rec import HashEmbeddingLookup, TableConfig
from mindspore_rec.nn import MLP, CrossNetV2, DotInteraction, FactorizationMachine
from mindspore_rec.optim import LazyAdam
from mindspore_rec.parameter import from_bfloat16, to_bfloat16
from tests.nn.fused_cells import GraphOf, Score, rows_of, unfuse
from tests.support.clicks import rows_by_key

B, F, N, D = 70, 3, 5, 8


def graph() -> GraphOf:
    """Return a network over vectors and numbers."""
    row = ("vectors", "numbers")
    steps = {
        "crossed": (CrossNetV2((F * D, N), 2), row),
        "deep": (MLP((F * D, N), (16, 8)), row),
        "logit": (nn.Dense(F * D + N + 8, 1), ("crossed", "deep")),
    }
    return GraphOf({"vectors": F * D, "numbers": N}, steps)


Case = tuple[Callable[[], nn.Cell], list[tuple[int, ...]], list[int]]
CASES: dict[str, Case] = {  # maker, shapes of inputs, which of them are bfloat16
    "mlp": (lambda: MLP(F * D, (16, 8), out_features=1), [(F, D)], [0]),
    "bfloat16 mlp": (lambda: MLP(F * D, (16,), compute_dtype="bfloat16"), [(F, D)], [0]),
    "normalized mlp": (lambda: MLP(F * D, (16, 8), batch_norm=True), [(F, D)], [0]),
    "first": (lambda: MLP((F * D, N), (16, 8)), [(F, D), (N,)], [0]),
    "second": (lambda: MLP((N, F * D), (16, 8)), [(N,), (F, D)], [1]),
    "both": (lambda: MLP((F * D, N), (16, 8)), [(F, D), (N,)], [0, 1]),
    "many": (lambda: MLP((D, D, N, D), (16,)), [(D,), (D,), (N,), (D,)], [0, 3]),
    "cross": (lambda: CrossNetV2(F * D, 2), [(F, D)], [0]),
    "pairs": (lambda: FactorizationMachine(F, D), [(F, D)], [0]),
    "dots": (lambda: DotInteraction(F, D, dense=True), [(F, D), (D,)], [0]),
    "graph": (graph, [(F, D), (N,)], [0]),
}


def run(net: nn.Cell, given: list[Tensor], weight: np.ndarray) -> tuple[Any, list[Any], list[Any]]:
    """Return the output, the gradients of inputs, and those of parameters."""
    score = Score(net, 1)
    score.set_train(net.training)
    learned = tuple(net.trainable_params())
    at = tuple(range(1, 1 + len(given)))
    grad = ms.value_and_grad(score, at, learned or None, has_aux=True)
    (_, (out,)), found = grad(Tensor(weight), *given)
    inputs, parameters = found if learned else (found, ())
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return out.asnumpy(), list(inputs), [each.asnumpy() for each in parameters]


@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_the_same_numbers(mode: Any, case: str) -> None:
    make, shapes, narrow = CASES[case]
    net = make().set_train()
    values = [rows_of(B, *shape, seed=i) for i, shape in enumerate(shapes)]
    for i in narrow:
        values[i] = from_bfloat16(to_bfloat16(values[i]))
    wide = [Tensor(value) for value in values]
    given = [ops.cast(x, ms.bfloat16) if i in narrow else x for i, x in enumerate(wide)]
    weight = rows_of(B, net(*wide).shape[1], seed=9)
    before = [p.asnumpy().copy() for p in net.get_parameters()]
    expected = run(net, wide, weight)
    for parameter, value in zip(net.get_parameters(), before, strict=True):
        parameter.set_data(Tensor(value))  # moving statistics
    out, inputs, parameters = run(net, given, weight)
    assert out.tobytes() == expected[0].tobytes()
    for i, (got, one) in enumerate(zip(inputs, expected[1], strict=True)):
        assert got.shape == one.shape
        exact = one.asnumpy()
        if i in narrow:
            assert got.dtype == ms.bfloat16
            exact = from_bfloat16(to_bfloat16(exact))
        else:
            assert got.dtype == ms.float32
        assert ops.cast(got, ms.float32).asnumpy().tobytes() == exact.tobytes()
    for got, one in zip(parameters, expected[2], strict=True):
        assert got.tobytes() == one.tobytes()
    net.set_train(False)
    assert net(*given).asnumpy().tobytes() == net(*wide).asnumpy().tobytes()


@pytest.mark.parametrize("case", ["mlp", "both", "many", "cross", "graph"])
def test_without_the_fused_form_inputs_are_cast(mode: Any, case: str) -> None:
    make, shapes, narrow = CASES[case]
    net = unfuse(make().set_train(False))
    wide = [Tensor(from_bfloat16(to_bfloat16(rows_of(B, *shape)))) for shape in shapes]
    given = [ops.cast(x, ms.bfloat16) if i in narrow else x for i, x in enumerate(wide)]
    np.testing.assert_array_equal(net(*given).asnumpy(), net(*wide).asnumpy())


class Model(nn.Cell):
    """Lookup and perceptron; `rounds`: rows pass through bfloat16 by casts."""

    def __init__(self, dtype: Any, rounds: bool, compute_dtype: str) -> None:
        super().__init__()
        config = TableConfig(D, name="narrow_inputs", value_dtype=ms.bfloat16)
        self.lookup = HashEmbeddingLookup(config=config, output_dtype=dtype)
        ms.set_seed(3)
        self.deep = MLP((F * D, N), (16, 8), out_features=1, compute_dtype=compute_dtype)
        self.rounds = rounds
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, ids: Tensor, values: Tensor, label: Tensor) -> Tensor:
        rows = self.lookup(ids)
        if self.rounds:
            rows = ops.cast(ops.cast(rows, ms.bfloat16), ms.float32)
        return self.loss(self.deep(rows, values), label)


@pytest.mark.parametrize("compute_dtype", ["float32", "bfloat16"])
def test_a_model_trains_as_with_casts(graph_mode: Any, compute_dtype: str) -> None:
    """From table to perceptron and back in bfloat16: the bits of casts to and from it."""
    found = []
    for dtype, rounds in ((ms.bfloat16, False), (ms.float32, True)):
        net = Model(dtype, rounds, compute_dtype)
        step = mr.TrainStep(net, LazyAdam(net.trainable_params(), 0.01)).set_train()
        losses = []
        for number in range(12):
            rng = np.random.default_rng(number)
            ids = rng.integers(0, 40, (B, F))
            label = (ids.sum(1, keepdims=True) % 2).astype(np.float32)
            values = rng.normal(size=(B, N)).astype(np.float32)
            loss = step(Tensor(ids.astype(np.int64)), Tensor(values), Tensor(label))
            losses.append(float(loss.asnumpy()))
        rows = rows_by_key(net.lookup.embedding_table)
        found.append((losses, rows["values"].tobytes(), rows["states"].tobytes()))
        net.lookup.embedding_table.close()
        del net, step
    assert found[0] == found[1]
    assert found[0][0][-1] < found[0][0][0]
