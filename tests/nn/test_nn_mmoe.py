# SPDX-License-Identifier: Apache-2.0
"""MMoE against its formula; experts that are and become different; gates that see everything."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, strategies as st
from mindspore import Tensor, nn, ops

from mindspore_rec.nn import MMoE
from tests.nn.formulas import rows_of


def layers_of(cell: nn.Cell) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weight [out, in] and bias of each layer."""
    dense = [each for _, each in cell.cells_and_names() if isinstance(each, nn.Dense)]
    return [(each.weight.asnumpy(), each.bias.asnumpy()) for each in dense]


def expected_mixtures(cell: MMoE, x: np.ndarray) -> list[np.ndarray]:
    """The formula, expert by expert, task by task, row by row."""
    [(first, bias)] = layers_of(cell.first)
    width = cell.width
    outputs = []
    for e in range(cell.experts):
        part = slice(e * width, (e + 1) * width)
        h = np.maximum(x @ first[part].T + bias[part], 0)
        for weight, shift in layers_of(cell.later[e]) if len(cell.later) else ():
            h = np.maximum(h @ weight.T + shift, 0)
        outputs.append(h)
    gates = cell.gates.weight.asnumpy()
    mixtures = []
    for k in range(cell.tasks):
        gate = gates[k * cell.experts : (k + 1) * cell.experts]
        mixture = np.zeros((len(x), outputs[0].shape[1]))
        for b, row in enumerate(x.astype(np.float64)):
            score = np.exp(gate @ row - (gate @ row).max())
            mixture[b] = sum(
                s / score.sum() * output[b] for s, output in zip(score, outputs, strict=True)
            )
        mixtures.append(mixture)
    return mixtures


@given(
    width=st.integers(1, 6),
    experts=st.integers(1, 5),
    hidden=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    tasks=st.integers(1, 3),
    rows=st.integers(1, 5),
)
def test_outputs_are_the_formula(width, experts, hidden, tasks, rows):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    cell = MMoE(width, experts, hidden, tasks)
    x = rows_of(rows, width, seed=rows)
    got = cell(Tensor(x))
    assert len(got) == tasks and cell.out_features == hidden[-1]
    for one, expected in zip(got, expected_mixtures(cell, x), strict=True):
        np.testing.assert_allclose(one.asnumpy(), expected, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("hidden", [(5,), (5, 4)])
def test_outputs_are_the_formula_in_a_graph(graph_mode, hidden):
    cell = MMoE(7, 3, hidden, 2)
    x = rows_of(6, 7)
    for one, expected in zip(cell(Tensor(x)), expected_mixtures(cell, x), strict=True):
        np.testing.assert_allclose(one.asnumpy(), expected, rtol=2e-3, atol=1e-4)


def test_a_row_does_not_depend_on_its_batch(mode):
    cell = MMoE(4, 3, (5,), 2)
    x = rows_of(8, 4)
    together = [y.asnumpy() for y in cell(Tensor(x))]
    alone = [y.asnumpy() for y in cell(Tensor(x[2:3]))]
    for one, all_rows in zip(alone, together, strict=True):
        np.testing.assert_allclose(one[0], all_rows[2], rtol=1e-4, atol=1e-6)


def test_weights_of_the_experts_sum_to_one_in_each_row(mode):
    gates = MMoE(4, 6, (5,), 3).gate_weights(Tensor(3 * rows_of(8, 4))).asnumpy()
    assert gates.shape == (8, 3, 6)
    np.testing.assert_allclose(gates.sum(2), 1, rtol=1e-5)
    # over the experts only: over the batch or the tasks they do not
    assert np.abs(gates.sum(0) - 1).max() > 0.1 and np.abs(gates.sum(1) - 1).max() > 0.1


def test_every_gate_sees_every_input(mode):
    cell = MMoE(9, 4, (5,), 3)
    x = rows_of(1, 9)
    before = cell.gate_weights(Tensor(x)).asnumpy()[0]
    for i in range(9):
        changed = x.copy()
        changed[0, i] += 1
        after = cell.gate_weights(Tensor(changed)).asnumpy()[0]
        assert (np.abs(after - before).max(axis=1) > 1e-3).all(), f"input {i}"


class _Towers(nn.Cell):
    """The mixtures summed to a number for each task, so that there is something to learn."""

    def __init__(self, mixture: MMoE) -> None:
        super().__init__()
        self.mixture = mixture

    def construct(self, x: Tensor) -> Tensor:
        return ops.stack([y.sum(-1) for y in self.mixture(x)], 1)


def trained(cell: MMoE, steps: int = 150) -> MMoE:
    """The cell after steps on two targets that differ."""
    x = rows_of(256, 6, seed=1)
    target = np.stack([np.abs(x[:, 0]) + x[:, 1], x[:, 2] * x[:, 3]], 1).astype(np.float32)
    net = _Towers(cell)
    step = nn.TrainOneStepCell(
        nn.WithLossCell(net, nn.MSELoss()), nn.Adam(net.trainable_params(), 0.01)
    ).set_train()
    losses = [float(step(Tensor(x), Tensor(target))) for _ in range(steps)]
    assert losses[-1] < 0.5 * losses[0]
    net.set_train(False)
    return cell


def spread(cell: MMoE) -> float:
    """Least distance between the weights of two experts."""
    parts = cell.first.layers[0].weight.asnumpy().reshape(cell.experts, -1)
    distances = np.linalg.norm(parts[:, None] - parts[None], axis=2)
    return float(distances[~np.eye(cell.experts, dtype=bool)].min())


def same_experts(cell: MMoE) -> MMoE:
    """Every expert becomes a copy of the first, and every gate indifferent."""
    weight = cell.first.layers[0].weight
    one = weight.asnumpy()[: cell.width]
    weight.set_data(Tensor(np.tile(one, (cell.experts, 1))))
    cell.gates.weight.set_data(Tensor(np.zeros_like(cell.gates.weight.asnumpy())))
    return cell


def test_experts_start_different_and_learn_different_things(graph_mode):
    ms.set_seed(5)
    cell = MMoE(6, 4, (8,), 2)
    first = cell.first.layers[0].weight.asnumpy().reshape(4, -1).copy()
    assert np.abs(np.corrcoef(first) - np.eye(4)).max() < 0.5
    trained(cell)
    moved = cell.first.layers[0].weight.asnumpy().reshape(4, -1) - first
    similar = np.corrcoef(moved)[~np.eye(4, dtype=bool)]
    assert spread(cell) > 1.0 and similar.max() < 0.9
    gates = cell.gate_weights(Tensor(rows_of(256, 6, seed=1))).asnumpy()
    # tasks have come to weigh the experts differently, and rows too
    assert np.abs(gates[:, 0] - gates[:, 1]).mean() > 0.05
    assert gates.std(axis=0).max() > 0.05


def test_experts_that_start_alike_would_stay_alike(graph_mode):
    """What the test above guards against does happen."""
    ms.set_seed(5)
    assert spread(trained(same_experts(MMoE(6, 4, (8,), 2)))) < 1e-4


def test_later_layers_differ_too():
    cell = MMoE(6, 4, (8, 5), 2)
    weights = [layers_of(cell.later[e])[0][0].ravel() for e in range(4)]
    assert np.abs(np.corrcoef(weights) - np.eye(4)).max() < 0.8


def test_the_seed_decides_the_first_values():
    def draw(seed: int) -> list[np.ndarray]:
        ms.set_seed(seed)
        return [p.asnumpy().copy() for p in MMoE(6, 4, (8, 5), 2).trainable_params()]

    one, again, other = draw(3), draw(3), draw(4)
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not np.array_equal(one[0], other[0])


def test_first_values_have_the_spread_of_a_single_expert():
    ms.set_seed(3)
    cell = MMoE(300, 8, (16,), 2)
    weight = cell.first.layers[0].weight.asnumpy()
    assert weight.std() == pytest.approx(np.sqrt(2 / 300), rel=0.1)
    assert np.abs(cell.gates.weight.asnumpy()).max() <= np.sqrt(6 / 308)


def test_dropout_acts_in_training_only(mode):
    x = Tensor(rows_of(64, 6))
    for units, inputs in ((0.5, 0.0), (0.0, 0.5)):
        cell = MMoE(6, 3, (32, 16), 2, dropout=units, input_dropout=inputs)
        cell.set_train(False)
        whole = cell(x)[0].asnumpy().copy()
        np.testing.assert_array_equal(cell(x)[0].asnumpy(), whole)
        cell.set_train(True)
        first, second = (cell(x)[0].asnumpy().copy() for _ in range(2))
        assert min(np.abs(first - whole).max(), np.abs(first - second).max()) > 0.1


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_drops_at_its_rate_and_keeps_the_mean(graph_mode, rate):
    ms.set_seed(2)
    cell = MMoE(400, 1, (2,), 1, input_dropout=rate).set_train().input_dropout
    ones = Tensor(np.ones((300, 400), np.float32))
    seen = np.stack([cell(ones).asnumpy() for _ in range(20)])
    assert set(np.unique(seen.round(3))) == {0, np.float32(1 / (1 - rate)).round(3)}
    assert (seen == 0).mean() == pytest.approx(rate, abs=0.01)
    # rows of a batch, one row in step after step, and columns are dropped independently
    for masks in (seen[0], seen[:, 7], seen.reshape(-1, 400).T):
        assert np.abs(np.corrcoef(masks) - np.eye(len(masks))).max() < 0.4


def test_dropout_takes_batches_of_any_size(graph_mode):
    """Also where a graph does not know the size beforehand, and where it is above the masks'."""
    cell = MMoE(3, 2, (4,), 2, input_dropout=0.3, dropout=0.3)
    cell.set_inputs(Tensor(shape=[None, 3], dtype=ms.float32))
    cell.set_train()
    for rows in (1, 7, 5000):
        assert cell(Tensor(rows_of(rows, 3)))[1].shape == (rows, 4)


def test_a_seed_gives_the_same_training(graph_mode):
    """Which MindSpore's own dropout does not do on a CPU."""

    def weights() -> np.ndarray:
        ms.set_seed(7)
        cell = trained(MMoE(6, 4, (16, 8), 2, dropout=0.1, input_dropout=0.01), 80)
        return np.concatenate([p.asnumpy().ravel() for p in cell.trainable_params()])

    first = weights()
    for _ in range(2):
        np.testing.assert_array_equal(weights(), first)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"in_features": 0}, "in_features"),
        ({"experts": 0}, "experts"),
        ({"experts": 2.0}, "experts"),
        ({"experts": 1025}, "experts"),
        ({"hidden": ()}, "hidden"),
        ({"hidden": 4}, "hidden"),
        ({"hidden": (0,)}, r"hidden\[0\]"),
        ({"hidden": (4, 0)}, r"hidden\[1\]"),
        ({"tasks": 0}, "tasks"),
        ({"tasks": True}, "tasks"),
        ({"activation": "swish"}, "activation"),
        ({"dropout": 1.0}, "dropout"),
        ({"dropout": "0.1"}, "dropout"),
        ({"input_dropout": -0.1}, "input_dropout"),
    ],
)
def test_bad_arguments(change: dict[str, Any], message: str):
    arguments: dict[str, Any] = {"in_features": 3, "experts": 2, "hidden": (4,), "tasks": 2}
    with pytest.raises((TypeError, ValueError), match=message):
        MMoE(**{**arguments, **change})
