# SPDX-License-Identifier: Apache-2.0
"""Fused MMoE against MindSpore's layers, finite differences, and a model that rounds factors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from mindspore import Tensor, nn

from mindspore_rec.nn import MMoE
from mindspore_rec.train.nn.mlp import ACTIVATIONS
from tests.nn.fused_cells import MODES, close, rows_of, run, unfuse
from tests.support.nightly import examples


def weights_of(cell: MMoE, batch: int) -> list[np.ndarray]:
    return [rows_of(batch, cell.out_features, seed=50 + k) for k in range(cell.tasks)]


@examples(4, 25)
@given(
    widths=st.lists(st.integers(1, 20), min_size=1, max_size=3),
    experts=st.integers(1, 6),
    hidden=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    tasks=st.integers(1, 4),
    activation=st.sampled_from(ACTIVATIONS),
    batch=st.sampled_from([1, 2, 7, 33, 301, 1000]),
    mode=st.sampled_from(MODES),
    training=st.booleans(),
)
@example([429], 8, [64], 2, "relu", 1000, ms.GRAPH_MODE, True)
@example([30], 4, [1], 1, "relu", 7, ms.PYNATIVE_MODE, True)
def test_outputs_and_gradients_are_those_of_mindspore(
    widths, experts, hidden, tasks, activation, batch, mode, training
):
    ms.set_context(mode=mode, pynative_synchronize=True)
    ms.set_seed(batch)
    cell = MMoE(tuple(widths), experts, hidden, tasks, activation).set_train(training)
    assert cell.is_fused
    inputs = [rows_of(batch, width, seed=i) for i, width in enumerate(widths)]
    fused = run(cell, inputs, weights_of(cell, batch))
    expected = run(unfuse(cell), inputs, weights_of(cell, batch))
    # MindSpore's own tanh is off by up to 1e-4 on the CPU.
    bound = 3e-4 if activation in ("tanh", "gelu") else 1e-5
    close(fused[0], expected[0], bound)
    scales = [max(1e-30, float(np.abs(g).max())) for g in expected[1]]
    # Where all of a gradient cancels, its rounding is of the size of the others'.
    largest = max(scales)
    for got, other, scale in zip(fused[1], expected[1], scales, strict=True):
        assert np.abs(got - other).max() <= max(bound * scale, 0.1 * bound * largest)


def gradients_by_differences(cell: MMoE, x: np.ndarray, weights: list[np.ndarray]) -> Any:
    """Gradients of the first 20 elements of each parameter, by central differences in float64."""

    def score() -> float:
        outputs = cell(Tensor(x))
        return sum(
            float((y.asnumpy().astype(np.float64) * w).sum())
            for y, w in zip(outputs, weights, strict=True)
        )

    for parameter in cell.trainable_params():
        before = parameter.asnumpy().copy()
        slopes = []
        for at in range(min(20, before.size)):
            values = []
            for step in (1e-2, -1e-2):
                moved = before.copy()
                moved.ravel()[at] += step
                parameter.set_data(Tensor(moved))
                values.append(score())
            slopes.append((values[0] - values[1]) / 2e-2)
        parameter.set_data(Tensor(before))
        yield np.array(slopes)


def test_gradients_are_the_slopes(pynative):
    ms.set_seed(4)
    cell = MMoE(6, 3, (7, 5), 2, "tanh").set_train()
    x, weights = rows_of(9, 6), weights_of(cell, 9)
    _, (_, *found) = run(cell, [x], weights)
    for got, slopes in zip(found, gradients_by_differences(cell, x, weights), strict=True):
        np.testing.assert_allclose(got.ravel()[: len(slopes)], slopes, rtol=2e-2, atol=5e-3)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("hidden", [(5,), (5, 4)])
def test_an_empty_batch_has_empty_outputs_and_zero_gradients(pynative, training, hidden):
    cell = MMoE(3, 2, hidden, 2).set_train(training)
    outputs, (of_x, *learned) = run(cell, [rows_of(0, 3)], weights_of(cell, 0))
    assert [y.shape for y in outputs] == [(0, hidden[-1])] * 2 and of_x.shape == (0, 3)
    assert not any(g.any() for g in learned)


def test_dropout_is_that_of_mindspore_s_form(mode):
    x = rows_of(70, 9)
    found = []
    for fused in (True, False):
        ms.set_seed(11)
        cell = MMoE(9, 3, (8, 6, 4), 2, dropout=0.4, input_dropout=0.2).set_train()
        if not fused:
            unfuse(cell)
        steps = [run(cell, [x], weights_of(cell, 70)) for _ in range(3)]
        found.append([[*outputs, *gradients] for outputs, gradients in steps])
    for one, other in zip(*found, strict=True):
        close(one, other)
    assert np.abs(found[0][0][0] - found[0][1][0]).max() > 0.01  # each step drops other units


# ---------------------------------------------------------------- bfloat16


def rounded(x: np.ndarray) -> np.ndarray:
    """Numbers to the nearest of 8 bits, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    up = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    return up.astype(np.uint32).view(np.float32).astype(np.float64)


def model(cell: MMoE, x: np.ndarray, weights: list[np.ndarray], cut: Any) -> Any:
    """Outputs, and gradients of x, first weight, first bias and gates, of one layer of experts."""
    first, bias = (p.asnumpy() for p in cell.first.layers[0].trainable_params())
    gate = cell.gates.weight.asnumpy()
    experts, tasks, width = cell.experts, cell.tasks, cell.width
    h = np.maximum(cut(x) @ cut(first).T + bias, 0)
    scores = (cut(x) @ cut(gate).T).reshape(-1, tasks, experts)
    g = np.exp(scores - scores.max(2, keepdims=True))
    g /= g.sum(2, keepdims=True)
    units = h.reshape(-1, experts, width)
    outputs = np.einsum("bke,beh->bkh", g, units)
    dy = np.stack(weights, 1)
    dh = np.einsum("bke,bkh->beh", g, dy).reshape(h.shape) * (h > 0)
    dg = np.einsum("bkh,beh->bke", dy, units)
    ds = (g * (dg - (g * dg).sum(2, keepdims=True))).reshape(len(x), -1)
    of_x = cut(dh) @ cut(first) + cut(ds) @ cut(gate)
    found = [of_x, cut(dh).T @ cut(x), dh.sum(0), cut(ds).T @ cut(x)]
    return [outputs[:, k] for k in range(tasks)], found


@pytest.mark.parametrize("precision", ["bfloat16", "bfloat16_in_float32"])
def test_bfloat16_rounds_the_factors_of_products(mode, precision):
    ms.set_seed(2)
    cell = MMoE(50, 4, (24,), 3, compute_dtype="bfloat16").set_train()
    cell.compute_dtype = precision  # the second is how processors without bfloat16 compute
    cell._fuse()
    x, weights = rows_of(300, 50), weights_of(cell, 300)
    outputs, gradients = run(cell, [x], weights)
    as_rounded = model(cell, x, weights, rounded)
    as_float32 = model(cell, x, weights, lambda a: a.astype(np.float64))
    for got, near, far in zip(
        [*outputs, *gradients],
        [*as_rounded[0], *as_rounded[1]],
        [*as_float32[0], *as_float32[1]],
        strict=True,
    ):
        # An element on the verge is rounded the other way now and then.
        np.testing.assert_allclose(got / np.abs(near).max(), near / np.abs(near).max(), atol=5e-3)
        assert np.abs(got - near).mean() < 0.2 * np.abs(got - far).mean()


def test_mindspore_s_layers_round_as_the_fused_form_does(mode):
    ms.set_seed(2)
    cell = MMoE(30, 4, (16, 8), 2, "tanh").set_train().set_compute_dtype("bfloat16")
    x, weights = rows_of(100, 30), weights_of(cell, 100)
    fused = run(cell, [x], weights)
    expected = run(unfuse(cell), [x], weights)
    in_float32 = run(cell.set_compute_dtype("float32"), [x], weights)
    for one, same, other in zip(
        [*fused[0], *fused[1]],
        [*expected[0], *expected[1]],
        [*in_float32[0], *in_float32[1]],
        strict=True,
    ):
        assert np.abs(one - same).mean() < 0.2 * np.abs(one - other).mean()


def test_bfloat16_of_deep_experts_is_near_float32(graph_mode):
    found = []
    for compute_dtype in ("float32", "bfloat16"):
        ms.set_seed(2)
        # Smooth, for a rectifier's slope jumps where its input is rounded across 0.
        cell = MMoE((20, 13), 5, (24, 18, 7), 2, "tanh", compute_dtype=compute_dtype).set_train()
        inputs = [rows_of(333, 20), rows_of(333, 13, seed=1)]
        found.append(run(cell, inputs, weights_of(cell, 333)))
    for one, other in zip(*found, strict=True):
        close(one, other, 0.03)
    assert np.abs(found[0][0][0] - found[1][0][0]).max() > 1e-5


# ---------------------------------------------------------------- the cell as a part of others


@pytest.mark.parametrize("compute_dtype", ["float32", "bfloat16"])
def test_any_number_of_threads_gives_the_same_bits(graph_mode, threads, compute_dtype):
    cell = MMoE(60, 4, (32, 16), 2, compute_dtype=compute_dtype).set_train()
    x, weights = rows_of(1500, 60), weights_of(cell, 1500)
    found = []
    for count in (1, 2, 5):
        threads(count)
        outputs, gradients = run(cell, [x], weights)
        found.append([*outputs, *gradients])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("file_format", ["ONNX", "MINDIR"])
def test_an_exported_cell_has_ordinary_operators(graph_mode, tmp_path: Path, file_format):
    cell = MMoE(7, 3, (5, 4), 2).set_train(False)
    ms.export(
        cell, Tensor(rows_of(8, 7)), file_name=str(tmp_path / "mmoe"), file_format=file_format
    )
    [written] = tmp_path.glob("mmoe.*")
    content = written.read_bytes()
    assert (b"MatMul" in content or b"Gemm" in content) and b"MsrDense" not in content
    assert cell.is_fused


def test_a_checkpoint_moves_both_ways(pynative, tmp_path: Path):
    x = rows_of(6, 7)
    for fused_first in (True, False):
        ms.set_seed(1 + fused_first)
        one, other = (MMoE(7, 3, (5, 4), 2, dropout=0.1).set_train(False) for _ in range(2))
        unfuse(other if fused_first else one)
        path = str(tmp_path / f"{fused_first}.ckpt")
        ms.save_checkpoint(one, path)
        missing = ms.load_param_into_net(other, ms.load_checkpoint(path))
        assert missing == ([], [])
        close([y.asnumpy() for y in other(Tensor(x))], [y.asnumpy() for y in one(Tensor(x))])


def test_parameters_have_the_names_they_had():
    names = [name for name, _ in MMoE(4, 2, (3, 2), 2).parameters_and_names()]
    assert names == [
        "first.layers.0.weight",
        "first.layers.0.bias",
        "later.0.0.layers.0.weight",
        "later.0.0.layers.0.bias",
        "later.1.0.layers.0.weight",
        "later.1.0.layers.0.bias",
        "gates.weight",
    ]


def test_experts_and_gates_can_be_asked_for(mode):
    cell = MMoE((3, 4), 3, (6, 5), 2).set_train(False)
    inputs = [Tensor(rows_of(8, 3)), Tensor(rows_of(8, 4, seed=1))]
    gates = cell.gate_weights(*inputs).asnumpy()
    experts = np.stack([y.asnumpy() for y in cell.expert_outputs(*inputs)], 1)
    expected = np.einsum("bke,beh->bkh", gates, experts)
    close([y.asnumpy() for y in cell(*inputs)], [expected[:, 0], expected[:, 1]])


def test_a_cell_may_be_dropped_before_its_operator_has_run():
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=False)
    x = Tensor(rows_of(4096, 300))
    found = [MMoE(300, 4, (64,), 1).set_train(False)(x)[0] for _ in range(20)]
    assert all(np.isfinite(y.asnumpy()).all() for y in found)


def test_a_dynamic_batch_trains(graph_mode):
    cell = MMoE(5, 3, (6, 4), 2, dropout=0.2).set_train()

    class Loss(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.mixture = cell

        def construct(self, x: Tensor) -> Tensor:
            first, second = self.mixture(x)
            return (first * first).sum() + second.sum()

    step = nn.TrainOneStepCell(Loss(), nn.SGD(cell.trainable_params(), 0.01)).set_train()
    step.set_inputs(Tensor(shape=[None, 5], dtype=ms.float32))
    before = cell.gates.weight.asnumpy().copy()
    assert all(np.isfinite(float(step(Tensor(rows_of(rows, 5))))) for rows in (4, 1, 300))
    assert np.abs(cell.gates.weight.asnumpy() - before).max() > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"compute_dtype": "float16"}, "compute_dtype"),
        ({"in_features": ()}, "in_features"),
        ({"in_features": (3, 0)}, r"in_features\[1\]"),
    ],
)
def test_bad_arguments(change: dict[str, Any], message: str):
    arguments: dict[str, Any] = {"in_features": 3, "experts": 2, "hidden": (4,), "tasks": 2}
    with pytest.raises((TypeError, ValueError), match=message):
        MMoE(**{**arguments, **change})


def test_inputs_of_other_widths_are_named(pynative):
    with pytest.raises(Exception, match="input 0 must be"):
        MMoE(3, 2, (4,), 2)(Tensor(rows_of(5, 4)))
