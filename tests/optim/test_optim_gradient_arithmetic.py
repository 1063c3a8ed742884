# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on gradients does not reach a table's rows: it is refused; a plain sum is right."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from mindspore_rec import (
    CacheConfig,
    EmbeddingBag,
    GroupedEmbedding,
    HashEmbeddingLookup,
    MapParameter,
    TableConfig,
    TrainStep,
    optim,
)

DIM = 4
KINDS = ("lookup", "bag", "group", "device")
REFUSED = "its gradient was changed, dropped or used twice.*divide the loss by K.*loss_scale="


class Net(nn.Cell):
    """Looks ids up twice, so that the gradient of the table is a sum already."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__()
        self.kind = kind
        if kind == "bag":
            self.embedding: Any = EmbeddingBag(
                TableConfig(DIM, name=name, key_dtype=ms.int32, initializer="ones")
            )
        elif kind == "group":
            tables = [MapParameter(name + end, value_shape=DIM) for end in "ab"]
            self.embedding = GroupedEmbedding([*tables, tables[0]])
        else:
            cache = CacheConfig(device_rows=64) if kind == "device" else None
            self.embedding = HashEmbeddingLookup(DIM, param_init="ones", name=name, cache=cache)
        self.dense = nn.Dense(DIM, 1)

    def construct(self, ids: Tensor) -> Any:
        """Return the loss."""
        if self.kind == "bag":
            rows = self.embedding(ids)
        else:
            rows = self.embedding(ids) + self.embedding(ids)
        return ops.square(self.dense(rows)).mean()


def ids_of(kind: str, seed: int) -> Tensor:
    ids = np.random.default_rng(seed).integers(0, 20, (6, 3)).astype(np.int32)
    return Tensor(ids)


def rows_of(net: Net) -> list[np.ndarray]:
    tables = net.embedding.tables if net.kind == "group" else [net.embedding.embedding_table]
    return [table.read_rows(np.arange(20, dtype=np.int32)) for table in tables]


def parts(kind: str, name: str) -> tuple[Net, Any, Any]:
    ms.set_seed(3)
    net = Net(kind, name)
    net.dense.weight.set_data(Tensor(np.full((1, DIM), 0.3, np.float32)))
    net.set_train()
    optimizer = optim.SGD(net.trainable_params(), learning_rate=0.1)
    return net, optimizer, ms.value_and_grad(net, None, optimizer.parameters)


@pytest.fixture(params=[ms.PYNATIVE_MODE, ms.GRAPH_MODE], ids=["pynative", "graph"])
def mode(request: Any) -> Any:
    before = ms.get_context("mode")
    ms.set_context(mode=request.param)
    yield request.param
    ms.set_context(mode=before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mean_over_passes_is_refused_and_their_sum_is_taken(kind: str, mode: int) -> None:
    """The sum of two passes is one step by both; a mean would leave the rows twice too far."""
    net, optimizer, gradients_of = parts(kind, f"arithmetic.{kind}.{mode}")
    _, first = gradients_of(ids_of(kind, 1))
    _, second = gradients_of(ids_of(kind, 2))
    before = rows_of(net)
    with pytest.raises(RuntimeError, match=REFUSED):
        optimizer(tuple((one + two) / 2 for one, two in zip(first, second, strict=True)))
        rows_of(net)
    for row, was in zip(rows_of(net), before, strict=True):
        np.testing.assert_array_equal(row, was)
    optimizer(tuple(one + two for one, two in zip(first, second, strict=True)))

    # One pass over both batches, whose loss is their mean: the sum is twice its gradient.
    twin, _, _ = parts(kind, f"arithmetic.twin.{kind}.{mode}")
    same = optim.SGD(twin.trainable_params(), learning_rate=0.2)
    both = Tensor(np.concatenate([ids_of(kind, 1).asnumpy(), ids_of(kind, 2).asnumpy()]))
    if kind != "group":  # whose tables of other names begin with other rows
        _, gradients = ms.value_and_grad(twin, None, same.parameters)(both)
        same(gradients)
        np.testing.assert_allclose(rows_of(net)[0], rows_of(twin)[0], rtol=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        lambda g: ops.clip_by_global_norm(g, 1e-3),
        lambda g: tuple(each / 1024 for each in g),
        lambda g: tuple(ops.clip_by_value(each, -1.0, 1.0) for each in g),
        lambda g: tuple(ops.zeros_like(each) for each in g),
        lambda g: tuple(each * float("nan") for each in g),
        lambda g: tuple(ops.cast(each, ms.float16) for each in g),
    ],
    ids=["global norm", "loss scale", "clip by value", "dropped", "nan", "float16"],
)
def test_changed_gradients_are_refused_by_name(change: Any, mode: int) -> None:
    net, optimizer, gradients_of = parts("lookup", f"arithmetic.changed.{mode}")
    _, gradients = gradients_of(ids_of("lookup", 1))
    with pytest.raises(RuntimeError, match=f"table 'arithmetic.changed.{mode}': {REFUSED}"):
        optimizer(change(gradients))
        rows_of(net)
    net.embedding.embedding_table.close()


def test_gradients_that_are_not_handed_on_are_discarded_or_refused(mode: int) -> None:
    net, optimizer, gradients_of = parts("lookup", f"arithmetic.dropped.{mode}")
    gradients_of(ids_of("lookup", 1))
    _, gradients = gradients_of(ids_of("lookup", 2))
    with pytest.raises(RuntimeError, match="discard_gradients"):
        optimizer(gradients)
        rows_of(net)
    net.embedding.embedding_table.discard_gradients()
    _, gradients = gradients_of(ids_of("lookup", 2))
    optimizer(gradients)


@pytest.mark.parametrize("clip", [None, 1e-3])
def test_what_optimizers_do_themselves_is_not_arithmetic(clip: float | None, mode: int) -> None:
    """Loss scale and clipping of the optimizer, a table that is frozen and thawed, no lookup."""
    net = Net("lookup", f"arithmetic.own.{clip}.{mode}")
    optimizer = optim.LazyAdam(
        net.trainable_params(), learning_rate=0.1, loss_scale=64.0, clip_global_norm=clip
    )
    step = TrainStep(net, optimizer, loss_scale=64.0).set_train()
    table = net.embedding.embedding_table
    for seed in range(3):
        table.requires_grad = seed != 1
        step(ids_of("lookup", seed))
    assert np.isfinite(rows_of(net)[0]).all()
