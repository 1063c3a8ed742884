# SPDX-License-Identifier: Apache-2.0
"""Ordinary stacks of dense layers become one operator where convert is asked to, and back."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mindspore import Tensor, nn, ops

import mindspore_rec
from mindspore_rec.nn import MLP, FusedSequential

ACTIVATIONS: dict[str, Any] = {
    "relu": nn.ReLU,
    "leakyrelu": nn.LeakyReLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
}


class Net(nn.Cell):
    """An embedding, a stack that can be fused, and what cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = nn.Embedding(50, 4)
        self.tower = nn.SequentialCell(nn.Dense(8, 5), nn.ReLU(), nn.Dense(5, 3, has_bias=False))
        self.soft = nn.SequentialCell(nn.Dense(3, 4), nn.Softmax())
        self.ours = MLP(4, (3,), out_features=2)
        self.head = nn.Dense(2, 1)

    def construct(self, ids: Tensor) -> Tensor:
        rows = self.ids(ids).reshape((-1, 8))
        return self.head(self.ours(self.soft(self.tower(rows))))


IDS = Tensor([[1, 2], [3, 4], [5, 49]], ms.int32)


def layout(net: nn.Cell) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(path, p.name, p.shape) for path, p in net.parameters_and_names()]


def test_a_stack_is_fused_and_put_back(mode, unique, capsys):
    net = Net()
    before, paths = net(IDS).asnumpy(), layout(net)
    tower = net.tower
    conversion = mindspore_rec.convert(net, dense=True, prefix=f"{unique()}.")
    assert conversion.stacks == ("tower",) and "1 stacks" in repr(conversion)
    assert "tower  fused" in capsys.readouterr().out
    assert isinstance(net.tower, FusedSequential) and net.tower.is_fused
    assert net.tower[0] is tower[0] and len(net.tower) == 3 and list(net.tower) == list(tower)
    assert type(net.soft) is nn.SequentialCell and type(net.ours.layers) is nn.SequentialCell
    np.testing.assert_allclose(net(IDS).asnumpy(), before, rtol=1e-5, atol=1e-6)
    assert [each for each in layout(net) if each[0][:3] != "ids"] == paths[1:]
    mindspore_rec.revert(net)
    assert net.tower is tower and layout(net) == paths
    np.testing.assert_array_equal(net(IDS).asnumpy(), before)


def test_it_is_not_done_unasked(graph_mode, unique):
    net = Net()
    mindspore_rec.convert(net, prefix=f"{unique()}.")
    assert type(net.tower) is nn.SequentialCell
    mindspore_rec.revert(net)


def test_dry_run_changes_nothing(graph_mode):
    net = Net()
    conversion = mindspore_rec.convert(net, dense=True, dry_run=True)
    assert conversion.stacks == ("tower",) and not conversion.revertible
    assert type(net.tower) is nn.SequentialCell and type(net.ids) is nn.Embedding


class Dense(nn.Cell):
    """Dense layers alone."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.SequentialCell(nn.Dense(3, 4, activation="tanh"), nn.Dense(4, 1))

    def construct(self, x: Tensor) -> Tensor:
        return self.tower(x)


def test_checkpoints_move_both_ways(mode, tmp_path):
    plain, fused = Dense(), Dense()
    mindspore_rec.convert(fused, dense=True)
    x = Tensor(np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32))
    for source, target in ((plain, fused), (fused, plain)):
        source.tower[0].weight.set_data(Tensor(np.full((4, 3), 0.25, np.float32)))
        path = str(tmp_path / "net.ckpt")
        ms.save_checkpoint(source, path)
        assert ms.load_param_into_net(target, ms.load_checkpoint(path)) == ([], [])
        np.testing.assert_allclose(target(x).asnumpy(), source(x).asnumpy(), rtol=1e-5, atol=1e-6)


def test_training_is_the_ordinary_one(mode):
    ms.set_seed(2)
    plain = Dense()
    ms.set_seed(2)
    fused = Dense()
    mindspore_rec.convert(fused, dense=True)
    random = np.random.default_rng(1)
    x, y = (Tensor(random.standard_normal((64, w)).astype(np.float32)) for w in (3, 1))
    losses = []
    for net in (plain, fused):
        optimizer = nn.SGD(net.trainable_params(), 0.1)
        step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer).set_train()
        losses.append([float(step(x, y)) for _ in range(10)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert losses[0][-1] < losses[0][0]


@pytest.mark.parametrize(
    "cells",
    [
        [nn.Dense(2, 2), nn.Softmax()],
        [nn.ReLU(), nn.Dense(2, 2)],
        [nn.Dense(2, 2), nn.ReLU(), nn.Tanh()],
        [nn.Dense(2, 2), nn.LeakyReLU(0.1)],
        [nn.Dense(2, 2), nn.GELU(approximate=False)],
        [nn.Dense(2, 2), nn.Dropout(p=0.5)],
        [nn.Dense(2, 2, dtype=ms.float16)],
        [nn.Dense(2, 2).to_float(ms.float16)],
        [nn.ReLU()],
    ],
)
def test_other_stacks_are_left(cells):
    stack = nn.SequentialCell(*cells)
    assert not FusedSequential.takes(stack)
    with pytest.raises(ValueError, match="stack must consist of"):
        FusedSequential(stack)


def test_hooks_are_kept():
    stack = nn.SequentialCell(nn.Dense(2, 2))
    stack[0].register_forward_hook(lambda cell, inputs, output: output)
    assert not FusedSequential.takes(stack)


def test_bad_arguments():
    with pytest.raises(TypeError, match="dense must be a bool"):
        mindspore_rec.convert(Dense(), dense=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="net must hold an embedding"):
        mindspore_rec.convert(nn.SequentialCell(nn.ReLU()), dense=True)
    with pytest.raises(TypeError, match=r"stack must be an nn\.SequentialCell"):
        FusedSequential(nn.Dense(1, 1))


@given(
    rows=st.sampled_from([1, 2, 5, 33]),
    widths=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    names=st.lists(st.none() | st.sampled_from(sorted(ACTIVATIONS)), min_size=3, max_size=3),
    inside=st.booleans(),
    bias=st.booleans(),
)
@settings(max_examples=40)
def test_fused_stacks_are_the_stacks(rows, widths, names, inside, bias):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    cells: list[nn.Cell] = []
    for into, out, name in zip(widths, widths[1:], names, strict=False):
        cells.append(nn.Dense(into, out, has_bias=bias, activation=name if inside else None))
        if name is not None and not inside:
            cells.append(ACTIVATIONS[name]())
    stack = nn.SequentialCell(*cells)
    fused = FusedSequential(stack)
    assert fused.is_fused
    random = np.random.default_rng(rows)
    x = Tensor(random.standard_normal((rows, widths[0])).astype(np.float32))
    dout = Tensor(random.standard_normal((rows, fused(x).shape[1])).astype(np.float32))
    weights = ms.ParameterTuple(stack.trainable_params())
    found = []
    for net in (fused, stack):
        gradient = ops.GradOperation(get_all=True, get_by_list=True, sens_param=True)
        of_inputs, of_weights = gradient(net, weights)(x, dout)
        found.append([net(x), *of_inputs, *of_weights])
    largest = max(float(np.abs(each.asnumpy()).max()) for each in found[1])
    # MindSpore's tanh is exact to some 1e-5.
    for one, other in zip(*found, strict=True):
        atol = 5e-5 * largest
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-4, atol=atol)


def test_other_inputs_go_through_the_stack(mode):
    stack = nn.SequentialCell(nn.Dense(3, 2), nn.ReLU())
    x = Tensor(np.random.default_rng(0).standard_normal((4, 5, 3)).astype(np.float32))
    expected = stack(x).asnumpy()
    assert expected.shape == (4, 5, 2)
    for kind, error in (("float32", 1e-6), ("bfloat16", 0.02)):
        got = FusedSequential(stack, kind)(x).asnumpy()
        np.testing.assert_allclose(got, expected, rtol=error, atol=error)
