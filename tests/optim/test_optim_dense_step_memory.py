# SPDX-License-Identifier: Apache-2.0
"""The native step writes the memory that the parameters have, however the step is called."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import initializer

from mindspore_rec import optim

RATE = 0.25


class Net(nn.Cell):
    """Two layers without a kink, whose gradients NumPy gives as well."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.a = Parameter(Tensor(rng.normal(0, 0.5, (5, 3)).astype(np.float32)), name="a")
        self.b = Parameter(Tensor(rng.normal(0, 0.5, (3,)).astype(np.float32)), name="b")

    def construct(self, x: Tensor) -> Tensor:
        return ops.matmul(ops.matmul(x, self.a), self.b.reshape((3, 1))).mean()


class Model:
    """Weights of a `Net` trained by plain gradient descent, in double precision."""

    def __init__(self, net: Net) -> None:
        self.read(net)

    def read(self, net: Net) -> None:
        self.a, self.b = (p.asnumpy().astype(np.float64) for p in (net.a, net.b))

    def step(self, x: np.ndarray, rate: float = RATE) -> None:
        mean = x.astype(np.float64).mean(0)
        a, b = self.a, self.b
        self.a, self.b = a - rate * np.outer(mean, b), b - rate * (mean @ a)

    def check(self, net: Net) -> None:
        np.testing.assert_allclose(net.a.asnumpy(), self.a, 1e-5, 1e-6)
        np.testing.assert_allclose(net.b.asnumpy(), self.b, 1e-5, 1e-6)


def batch(step: int, n: int = 4) -> np.ndarray:
    return np.random.default_rng(100 + step).normal(0, 1, (n, 5)).astype(np.float32)


def combined(params: Any) -> nn.Optimizer:
    """Two optimizers with one formula."""
    params = list(params)
    return optim.CombinedOptimizer(
        [optim.SGD(params[:1], RATE), optim.Momentum(params[1:], RATE, momentum=0.0)]
    )


def clipped(params: Any) -> nn.Optimizer:
    return optim.SGD(params, RATE, clip_global_norm=1e6)


OPTIMIZERS = {
    "one": lambda params: optim.SGD(params, RATE),
    "clipped": clipped,
    "combined": combined,
}


def train_cell(net: Net, optimizer: nn.Optimizer) -> nn.Cell:
    cell = nn.TrainOneStepCell(net, optimizer)
    cell.set_train()
    return cell


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_weights_that_are_replaced_between_steps(mode, tmp_path, name, dynamic):
    net = Net()
    optimizer = OPTIMIZERS[name](net.trainable_params())
    cell, model = train_cell(net, optimizer), Model(net)
    if dynamic:
        cell.set_inputs(Tensor(shape=[None, 5], dtype=ms.float32))
    for step in range(9):
        if step == 2:
            net.a.set_data(Tensor(np.full((5, 3), 0.5, np.float32)))
            model.read(net)
        elif step == 4:
            path = str(tmp_path / "other.ckpt")
            ms.save_checkpoint(Net(5), path)
            ms.load_checkpoint(path, net)
            model.read(net)
        elif step == 6:
            other = {p.name: p for p in Net(7).trainable_params()}
            ms.load_param_into_net(net, other)
            model.read(net)
        elif step == 8:
            net.b.asnumpy()[:] = 1.0  # the parameter's own memory
            model.read(net)
        x = batch(step, 4 + step if dynamic else 4)
        cell(Tensor(x))
        model.step(x)
        optimizer.global_step.asnumpy()
        model.check(net)


@pytest.mark.parametrize("jit", [False, True])
def test_value_and_grad_and_a_direct_call(mode, jit):
    net = Net()
    optimizer = optim.SGD(net.trainable_params(), RATE)
    gradient = ms.value_and_grad(net, None, optimizer.parameters)

    def step(x):
        loss, g = gradient(x)
        return ops.depend(loss, optimizer(g))

    run = ms.jit(step) if jit else step
    model = Model(net)
    for k in range(4):
        x = batch(k)
        run(Tensor(x))
        model.step(x)
        model.check(net)


def test_pynative_behind_the_program(pynative_mode):
    net = Net()
    optimizer = optim.SGD(net.trainable_params(), RATE)
    cell, model = train_cell(net, optimizer), Model(net)
    for k in range(20):
        x = batch(k)
        cell(Tensor(x))
        model.step(x, RATE)
    model.check(net)


def test_states_that_are_loaded(mode, tmp_path):
    """A run that goes on from a checkpoint ends with the bits of one that was not stopped."""
    ends = []
    for stop in (False, True):
        net = Net()
        cell = train_cell(net, optim.Adam(net.trainable_params(), 0.1))
        for k in range(3):
            cell(Tensor(batch(k)))
        if stop:
            path = str(tmp_path / "state.ckpt")
            ms.save_checkpoint(cell, path)
            net = Net(3)
            cell = train_cell(net, optim.Adam(net.trainable_params(), 0.1))
            cell(Tensor(batch(9)))  # compiled with the memory that is then replaced
            ms.load_param_into_net(cell, ms.load_checkpoint(path))
        for k in range(3, 6):
            cell(Tensor(batch(k)))
        ends.append({p.name: p.asnumpy().copy() for p in cell.get_parameters()})
    assert ends[0].keys() == ends[1].keys()
    for name, value in ends[0].items():
        np.testing.assert_array_equal(value, ends[1][name], err_msg=name)


class Product(nn.Cell):
    """Its gradients are its weights: MindSpore hands on their memory."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Parameter(Tensor(np.array([2.0, 3.0], np.float32)), name="a")
        self.b = Parameter(Tensor(np.array([5.0, 7.0], np.float32)), name="b")

    def construct(self, x: Tensor) -> Tensor:
        return (self.a * self.b).sum() + 0 * x.sum()


@pytest.mark.parametrize("clip", [None, 1e6])
def test_gradients_that_are_weights(mode, clip):
    net = Product()
    cell = train_cell(net, optim.SGD(net.trainable_params(), 0.5, clip_global_norm=clip))
    a, b = net.a.asnumpy().copy(), net.b.asnumpy().copy()
    for _ in range(3):
        cell(Tensor(np.ones(2, np.float32)))
        a, b = a - np.float32(0.5) * b, b - np.float32(0.5) * a
        np.testing.assert_allclose(net.a.asnumpy(), a, 1e-6)
        np.testing.assert_allclose(net.b.asnumpy(), b, 1e-6)


class ReadsAround(nn.Cell):
    """Reads its weights before and after a step of its optimizer, in one graph."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()
        self.optimizer = optim.SGD(self.net.trainable_params(), RATE)
        self.gradient = ms.value_and_grad(self.net, None, self.optimizer.parameters)

    def construct(self, x: Tensor) -> Any:
        before = self.net.b * 1.0
        loss, g = self.gradient(x)
        done = self.optimizer(g)
        return before, ops.depend(loss, done), self.net.b * 1.0


def test_reads_of_a_graph_keep_their_order(mode):
    cell = ReadsAround()
    model = Model(cell.net)
    for k in range(3):
        expected = model.b
        model.step(batch(k))
        before, _, after = cell(Tensor(batch(k)))
        np.testing.assert_allclose(before.asnumpy(), expected, 1e-5, 1e-6)
        np.testing.assert_allclose(after.asnumpy(), model.b, 1e-5, 1e-6)


class SkipsOverflow(nn.Cell):
    """A train cell with its optimizer in a branch of the graph, as loss scaling has it."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net
        self.optimizer = clipped(net.trainable_params())
        self.gradient = ms.value_and_grad(net, None, self.optimizer.parameters)

    def construct(self, x: Tensor) -> Tensor:
        loss, g = self.gradient(x)
        if ops.isfinite(loss):
            loss = ops.depend(loss, self.optimizer(g))
        return loss


def test_steps_that_an_overflow_skips(mode):
    net = Net()
    cell, model = SkipsOverflow(net), Model(net)
    for k in range(5):
        x = batch(k)
        if k == 2:
            x[0, 0] = np.inf
        cell(Tensor(x))
        if k != 2:
            model.step(x)
        model.check(net)
        assert cell.optimizer.global_step.asnumpy() == [k + (k < 2)]


def test_weights_of_strange_memory(mode):
    """Transposed, lazily initialised, and gradients that are views."""
    transposed = np.arange(6, dtype=np.float32).reshape(2, 3).T
    w = Parameter(Tensor(transposed), name="w")
    lazy = Parameter(initializer("ones", (3, 2), ms.float32), name="lazy")
    optimizer = optim.SGD([w, lazy], 1.0)
    g = np.arange(6, dtype=np.float32).reshape(2, 3)
    view = ops.transpose(Tensor(g), (1, 0))
    for k in (1, 2):
        optimizer((view, view))
        optimizer.global_step.asnumpy()
        np.testing.assert_array_equal(w.asnumpy(), transposed - k * g.T)
        np.testing.assert_array_equal(lazy.asnumpy(), 1 - k * g.T)
