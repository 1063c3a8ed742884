# SPDX-License-Identifier: Apache-2.0
"""RecModel and TrainStep fuse the layers of a network if they are told to."""

from __future__ import annotations

import warnings
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from mindspore_rec import HashEmbeddingLookup, RecModel, tables_of
from mindspore_rec.nn import MLP, BCEWithLogitsLoss, CrossNet
from mindspore_rec.optim import LazyAdam
from mindspore_rec.train import TrainStep

WIDTHS = (3 * 4, 2)


class Net(nn.Cell):
    """A network as users write them."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.embedding = HashEmbeddingLookup(4, ms.int64, name=name)
        self.cross, self.deep = CrossNet(WIDTHS), MLP(WIDTHS, (8,), batch_norm=True)
        self.logit = nn.Dense(sum(WIDTHS) + 8, 1)

    def construct(self, ids: Tensor, numbers: Tensor) -> Tensor:
        row = (self.embedding(ids), numbers)
        return self.logit(ops.concat((self.cross(*row), self.deep(*row)), 1))


class Branching(Net):
    """A network that cannot be followed."""

    def construct(self, ids: Tensor, numbers: Tensor) -> Tensor:
        row = (self.embedding(ids), numbers)
        joined = ops.concat((self.cross(*row), self.deep(*row)), 1)
        return self.logit(joined) if numbers.shape[0] > 0 else joined


class Small(Branching):
    """A network with one layer, which is an operator by itself."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.cross = nn.Identity()

    def construct(self, ids: Tensor, numbers: Tensor) -> Tensor:
        return self.deep(self.embedding(ids), numbers).sum(1, keepdims=numbers.shape[0] > 0)


class WithLoss(nn.Cell):
    """A network that returns its loss."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net, self.loss = net, BCEWithLogitsLoss()

    def construct(self, ids: Tensor, numbers: Tensor, label: Tensor) -> Tensor:
        return self.loss(self.net(ids, numbers), label)


def batches() -> list[tuple[np.ndarray, ...]]:
    random = np.random.default_rng(1)
    ids = random.integers(0, 50, (5, 40, 3))
    numbers = random.standard_normal((5, 40, 2)).astype(np.float32)
    label = (ids[:, :, :1] % 2).astype(np.float32)
    return list(zip(ids, numbers, label, strict=True))


def told(call: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in caught if "operators of their own" in str(each.message)]


def trained(kind: type[Net], name: str, by_step: bool, **more: Any) -> tuple[Any, list[np.ndarray]]:
    """Return a network, and its parameters, rows and predictions after a training."""
    ms.set_seed(3)
    net: Any = kind(name)
    optimizer = LazyAdam(net.trainable_params(), learning_rate=0.05)
    if by_step:
        step = TrainStep(WithLoss(net), optimizer, **more).set_train()
        for batch in batches():
            step(*map(Tensor, batch))
        output = net.set_train(False)(*map(Tensor, batches()[0][:2]))
    else:
        model = RecModel(net, BCEWithLogitsLoss(), optimizer, **more)
        model.train(1, batches(), progress=False)
        output = model.predict(*batches()[0][:2])
    (table,) = tables_of(net)
    state = [p.asnumpy() for p in net.get_parameters() if p.name.count("anchor") == 0]
    found = [*state, table.read_rows(np.arange(50)), output.asnumpy()]
    table.close()
    return net, found


@pytest.mark.parametrize("by_step", [False, True])
def test_a_network_is_fused_and_trains_as_its_layers(graph_mode, unique, by_step):
    name = unique()
    net, fused = trained(Net, name, by_step, fuse=True)
    plain_net, plain = trained(Net, name, by_step)
    assert type(plain_net) is Net
    assert by_step or (net.runs_as_operator and net.fused_graph.is_fused)
    for one, other in zip(fused, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_a_step_fuses_the_network_with_its_loss(graph_mode, unique):
    net = WithLoss(Net(unique()))
    step = TrainStep(net, LazyAdam(net.trainable_params()), fuse=True)
    assert step.network is net and net.runs_as_operator and net.fused_graph.is_fused


class Towers(nn.Cell):
    """Scores of the items of a user, whose layers read different numbers of rows."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.embedding = HashEmbeddingLookup(4, ms.int64, name=name)
        self.user, self.item = MLP(4, (5,), batch_norm=True), MLP(4, (5,), dropout=0.3)

    def construct(self, users: Tensor, items: Tensor) -> Tensor:
        user = self.user(self.embedding(users).reshape((-1, 4)))
        item = self.item(self.embedding(items).reshape((-1, 4)))
        return (user.reshape((-1, 1, 5)) * item.reshape((-1, 3, 5))).sum(2)


@pytest.mark.parametrize("sizes", [(40, 40, 30), (40, 30, 20, 10)])  # four: dynamic shapes
def test_layers_of_different_numbers_of_rows_train(graph_mode, unique, sizes):
    random = np.random.default_rng(1)
    name, found, said = unique(), [], []
    batches = [
        (random.integers(0, 50, (size, 1)), random.integers(0, 50, (size, 3))) for size in sizes
    ]
    data = [(*ids, (ids[1] % 2).astype(np.float32)) for ids in batches]
    choices: list[dict[str, Any]] = [{"fuse": True}, {}]
    for fuse in choices:
        ms.set_seed(3)
        net = Towers(name)
        optimizer = LazyAdam(net.trainable_params(), learning_rate=0.05)
        model = RecModel(net, BCEWithLogitsLoss(), optimizer, **fuse)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.train(1, data, progress=False)
        said.append([str(each.message) for each in caught if "slower" in str(each.message)])
        (table,) = tables_of(net)
        state = [p.asnumpy() for p in net.get_parameters() if p.name.count("anchor") == 0]
        output = model.predict(*batches[0]).asnumpy()
        found.append([*state, table.read_rows(np.arange(50)), output])
        assert hasattr(net, "runs_as_operator") == bool(fuse)
        table.close()
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    assert [len(each) for each in said] == [1, 0]
    assert said[0][0].startswith("Towers runs layer by layer") and "fuse=False" in said[0][0]


def test_what_cannot_be_followed_is_one_warning(graph_mode, unique):
    nets: list[Any] = []
    said = told(lambda: nets.append(trained(Branching, unique(), False, fuse=True)))
    assert len(said) == 1
    assert said[0].startswith("the layers of Branching are operators of their own, which is slower")
    assert "it asks for 'shape' of a Tensor" in said[0] and "fuse=False" in said[0]
    assert type(nets[0][0]) is Branching
    assert told(lambda: trained(Branching, unique(), False)) == []


def test_nothing_is_said_of_a_network_with_nothing_to_fuse(graph_mode, unique):
    nets: list[Any] = []
    assert told(lambda: nets.append(trained(Small, unique(), False, fuse=True))) == []
    assert type(nets[0][0]) is Small


def test_fuse_must_be_a_bool(unique):
    net = Net(unique())
    with pytest.raises(TypeError, match="fuse must be a bool, got 1"):
        RecModel(net, fuse=1)  # type: ignore[arg-type]
