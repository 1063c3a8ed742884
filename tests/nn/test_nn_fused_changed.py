# SPDX-License-Identifier: Apache-2.0
"""A fused layer of which a cell inside was frozen, watched or replaced is its unfused twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec.nn import MLP, CrossNetMix, CrossNetV2, FusedGraph, FusedSequential, MMoE
from mindspore_rec.nn.fused import FusedLayer
from mindspore_rec.train.graph.cell_caller import CellCaller
from mindspore_rec.train.nn.fused.cell import ProgramCell
from mindspore_rec.train.nn.fused.rounding import GradientRounding, Rounding
from tests.nn.fused_cells import GraphOf, close, told, unfuse


def graph() -> GraphOf:
    """Return a network of which the layers are inside a FusedGraph."""
    steps = {
        "deep": (MLP(6, (5, 4), dropout=0.4, batch_norm=True), ("x",)),
        "cross": (CrossNetV2(6, 2), ("x",)),
        "logit": (nn.Dense(10, 1), ("deep", "cross")),
    }
    return GraphOf({"x": 6}, steps)


MADE: dict[str, Callable[[], Any]] = {
    "mlp": lambda: MLP(6, (5, 4), batch_norm=True, dropout=0.4, out_features=2),
    "gelu": lambda: MLP(6, (5,), "gelu", 0.4),
    "mmoe": lambda: MMoE(6, 2, (4, 3), 1, dropout=0.4, input_dropout=0.2),
    "cross": lambda: CrossNetV2(6, 2),
    "mix": lambda: CrossNetMix(6, 2, experts=2, rank=3),
    "stack": lambda: FusedSequential(nn.SequentialCell(nn.Dense(6, 5), nn.ReLU(), nn.Dense(5, 2))),
    "graph": graph,
}


def inside(net: nn.Cell) -> dict[str, nn.Cell]:
    """Return the cells that one operator stands for, by name."""
    known = (ProgramCell, Rounding, GradientRounding, FusedGraph)
    return {n: c for n, c in net.cells_and_names() if n and not isinstance(c, known)}


def pair(kind: str) -> tuple[Any, Any]:
    made = []
    for _ in range(2):
        ms.set_seed(3)
        made.append(MADE[kind]().set_train())
    unfuse(made[1].graph if kind == "graph" else made[1])
    for cell in inside(made[1]).values():
        if isinstance(cell, FusedLayer):
            cell.fused_training = cell.fused_evaluation = None
    assert made[0].is_fused and not made[1].is_fused
    return made[0], made[1]


def seen_of(net: nn.Cell, x: Tensor) -> list[np.ndarray]:
    """Return outputs, gradients and state after a step in which nothing is learned."""
    found: list[np.ndarray] = []

    def squares(*given: Tensor) -> Any:
        y = net(*given)
        total = 0.0
        for each in y if isinstance(y, tuple) else (y,):
            found.append(each.asnumpy())
            total = total + (each * each).sum()
        return total

    _, gradients = ms.value_and_grad(squares, None, net.trainable_params())(x)
    found += [each.asnumpy() for each in gradients]
    return found + [p.asnumpy() for p in net.get_parameters()]


def assert_alike(fused: nn.Cell, plain: nn.Cell) -> None:
    x = Tensor(np.random.default_rng(2).standard_normal((9, 6)).astype(np.float32))
    close(seen_of(fused, x), seen_of(plain, x), 1e-4)


@pytest.mark.parametrize("kind", MADE)
def test_each_cell_inside_may_be_frozen(pynative, kind):
    for name in inside(MADE[kind]()):
        fused, plain = pair(kind)
        for net in (fused, plain):
            inside(net)[name].set_train(False)
        said = told(lambda: assert_alike(fused, plain))  # noqa: B023
        modal = (nn.BatchNorm1d, nn.Cell) if "ropout" in name else (nn.BatchNorm1d,)
        assert len(said) >= isinstance(inside(fused)[name], modal), name
        assert len(set(said)) == len(said), "said once"


@pytest.mark.parametrize("kind", MADE)
def test_hooks_of_each_cell_inside_are_called(pynative, kind):
    for name in inside(MADE[kind]()):
        calls: list[list[str]] = []
        fused, plain = pair(kind)
        for net in (fused, plain):
            mine: list[str] = []
            calls.append(mine)
            inside(net)[name].register_forward_hook(lambda *_, mine=mine: mine.append("called"))
        assert_alike(fused, plain)
        assert calls[0] == calls[1], name


@pytest.mark.parametrize("kind", ["mlp", "graph"])
def test_a_cell_that_was_replaced_computes(pynative, kind):
    fused, plain = pair(kind)
    for net in (fused, plain):
        (net.deep if kind == "graph" else net).layers[2] = nn.Tanh()
    said = told(lambda: assert_alike(fused, plain))
    assert len(said) == 1 and "layers.2' in it, of type Tanh, has taken" in said[0]


def test_the_sentence_names_the_cell(mode):
    net = graph().set_train()
    net.deep.layers[1].set_train(False)
    x = Tensor(np.ones((4, 6), np.float32))
    said = told(lambda: [net(x), net(x)])
    assert said[0] == (
        "FusedGraph runs as MindSpore's layers, which are slower, for 'deep.layers.1' in it, of "
        "type BatchNorm1d, is set to evaluation in a layer that trains"
    )
    assert len(said) == 1
    np.testing.assert_array_equal(net.deep.layers[1].moving_mean.asnumpy(), np.zeros(5))


def test_a_graph_alone_sets_the_mode_of_its_layers(pynative):
    net = graph()
    net.graph.set_train()
    assert net.deep.training and net.is_fused
    net.graph.set_train(False)
    assert not net.deep.layers[1].training and net.is_fused


def test_what_was_frozen_stays_so_when_the_caller_sets_the_mode(mode):
    """`RecModel` sets its train cell to train; that is no wish to train what was set apart."""
    net = graph()
    frozen = net.deep.layers[1]
    around = nn.SequentialCell(net)
    caller, evaluation = CellCaller(around, net), CellCaller(nn.SequentialCell(net), net)
    x = Tensor(np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32))
    net.set_train()
    frozen.set_train(False)
    for _ in range(2):
        caller(True, x)
        assert net.training and net.deep.layers[5].training and not frozen.training
        evaluation(False, x)
        assert not net.training
    assert not frozen.moving_mean.asnumpy().any() and net.deep.layers[5].moving_mean.asnumpy().any()
