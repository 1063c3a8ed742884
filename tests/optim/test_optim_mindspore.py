# SPDX-License-Identifier: Apache-2.0
"""Side by side with MindSpore's own optimizers, step by step, on networks with real gradients."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from mindspore_rec import optim
from mindspore_rec.nn import EmbeddingLookup
from tests.optim.test_optim_rules import FACE

VOCAB, DIM, BATCH, FIELDS = 11, 4, 6, 3
FIRST = np.random.default_rng(0).normal(0, 0.3, (VOCAB, DIM)).astype(np.float32)
WEIGHT = np.random.default_rng(1).normal(0, 0.3, (1, DIM)).astype(np.float32)


class Net(nn.Cell):
    """Products of rows, so that gradients depend on values; ids repeat in and between lookups."""

    def __init__(self, embedding, lookups):
        super().__init__()
        self.embedding = embedding
        self.fc = nn.Dense(DIM, 1, weight_init=Tensor(WEIGHT), bias_init="zeros")
        self.lookups = lookups

    def construct(self, ids):
        if self.lookups == 2:
            rows, next_rows = self.embedding(ids), self.embedding(ids + 1)
        else:
            both = self.embedding(ops.concat((ids, ids + 1), 1))
            rows, next_rows = both[:, :FIELDS], both[:, FIELDS:]
        return self.fc(rows.sum(1) * next_rows.sum(1))


def ours():
    return Net(EmbeddingLookup(VOCAB, DIM, Tensor(FIRST), target="CPU", sparse=True), 2)


def mindspores_sparse():
    # MindSpore cannot add the sparse gradients of two lookups of one table.
    return Net(nn.EmbeddingLookup(VOCAB, DIM, Tensor(FIRST), target="CPU", sparse=True), 1)


def mindspores_dense():
    return Net(nn.Embedding(VOCAB, DIM, embedding_table=Tensor(FIRST)), 2)


def batches(n, every_id):
    rng = np.random.default_rng(2)
    for _ in range(n):
        ids = rng.integers(0, VOCAB - 1, (BATCH, FIELDS))
        if every_id:  # all rows get a gradient: the lazy form is then the dense one
            ids.flat[: VOCAB - 1] = np.arange(VOCAB - 1)
        yield Tensor(ids.astype(np.int32)), Tensor(rng.normal(0, 1, (BATCH, 1)).astype(np.float32))


def train_cell(net, optimizer):
    cell = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
    cell.set_train()
    return cell


def compare(mine, my_optimizer, theirs, their_optimizer, table, every_id=False, steps=10):
    cells = train_cell(mine, my_optimizer), train_cell(theirs, their_optimizer)
    for ids, label in batches(steps, every_id):
        losses = [float(cell(ids, label).asnumpy()) for cell in cells]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
        pairs = [
            (mine.embedding.embedding_table.asnumpy(), table(theirs).asnumpy()),
            (mine.fc.weight.asnumpy(), theirs.fc.weight.asnumpy()),
            (mine.fc.bias.asnumpy(), theirs.fc.bias.asnumpy()),
        ]
        for got, expected in pairs:
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


SPARSE = {
    "LazyAdam": (optim.LazyAdam, nn.LazyAdam, {"learning_rate": 0.01}),
    "FTRL": (optim.FTRL, nn.FTRL, {"learning_rate": 0.05, "l1": 1e-3, "l2": 1e-3}),
}


@pytest.mark.usefixtures("graph_mode")
@pytest.mark.parametrize("name", SPARSE)
def test_like_mindspores_sparse_optimizer(name):
    mine_cls, theirs_cls, arguments = SPARSE[name]
    mine, theirs = ours(), mindspores_sparse()
    their_optimizer = theirs_cls(theirs.trainable_params(), **arguments)
    their_optimizer.target = "CPU"
    my_optimizer = mine_cls(mine.trainable_params(), **arguments)
    compare(mine, my_optimizer, theirs, their_optimizer, lambda net: net.embedding.embedding_table)


# The last: whether the lazy form differs, so that every row must have a gradient.
DENSE = {
    "SGD": (optim.SGD, nn.SGD, {"learning_rate": 0.02}, False),
    "SGD-decay": (optim.SGD, nn.SGD, {"learning_rate": 0.02, "weight_decay": 0.01}, True),
    "Adagrad": (optim.Adagrad, nn.Adagrad, {"learning_rate": 0.02, "accum": 0.2}, False),
    "Adam": (optim.Adam, nn.Adam, {"learning_rate": 0.01, "eps": 1e-6}, True),
    "Momentum": (optim.Momentum, nn.Momentum, {"learning_rate": 0.01, "momentum": 0.9}, True),
    "RMSProp": (optim.RMSProp, nn.RMSProp, {"learning_rate": 0.01, "momentum": 0.5}, True),
    "RMSProp-centered": (
        optim.RMSProp,
        nn.RMSProp,
        {"learning_rate": 0.01, "centered": True},
        True,
    ),
}


@pytest.mark.parametrize("name", DENSE)
def test_like_mindspores_dense_optimizer(mode, name):
    mine_cls, theirs_cls, arguments, every_id = DENSE[name]
    mine, theirs = ours(), mindspores_dense()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        their_optimizer = theirs_cls(theirs.trainable_params(), **arguments)
    my_optimizer = mine_cls(mine.trainable_params(), **arguments)
    compare(
        mine,
        my_optimizer,
        theirs,
        their_optimizer,
        lambda net: net.embedding.embedding_table,
        every_id,
        steps=10 if mode == "graph" else 3,
    )


@pytest.mark.usefixtures("graph_mode")
@pytest.mark.parametrize("clip", [None, 1.0])
def test_sparse_gradient_of_a_mindspore_embedding_is_an_error(clip):
    """Without the check MindSpore 2.10 ends the process."""
    net = mindspores_sparse()
    cell = train_cell(net, optim.SGD(net.trainable_params(), clip_global_norm=clip))
    ids, label = next(batches(1, False))
    with pytest.raises(TypeError, match="a dense parameter has a sparse gradient"):
        cell(ids, label)


CREATE_ALL = """
import numpy as np
from mindspore import Parameter, Tensor
from mindspore_rec import optim
for name in optim.__all__:
    cls = getattr(optim, name)
    if isinstance(cls, type) and name != "CombinedOptimizer":
        arguments = {"momentum": 0.9} if name == "Momentum" else {}
        w = Parameter(Tensor(np.ones(2, np.float32)), name="w")
        optimizer = cls([w], learning_rate=0.1, **arguments)
        optim.CombinedOptimizer([optimizer])((Tensor(np.ones(2, np.float32)),))
        assert (w.asnumpy() != 1).all(), name
        print(name)
"""


def test_no_optimizer_warns():
    environment = {k: v for k, v in os.environ.items() if k not in ("GLOG_v", "PYTHONWARNINGS")}
    command = [sys.executable, "-W", "always::UserWarning", "-c", CREATE_ALL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == FACE
    assert "deprecated" not in done.stderr.lower(), done.stderr
    assert "[WARNING]" not in done.stderr, done.stderr
