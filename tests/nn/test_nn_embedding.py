# SPDX-License-Identifier: Apache-2.0
"""HashEmbeddingLookup and EmbeddingLookup: values, gradients, and training in whole networks."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Model, Tensor, nn, ops
from mindspore.dataset import GeneratorDataset

from mindspore_rec import (
    EmbeddingLookup,
    GroupedEmbedding,
    HashEmbeddingLookup,
    MapParameter,
    StaticParameter,
    TableConfig,
    optim,
    tables_of,
)
from mindspore_rec.nn import TableLookup
from tests.support.networks import LogitOf, Product, SumOfLookups, Weighed

RNG = np.random.default_rng(11)


def ids(values: Any, dtype: Any = ms.int32) -> Tensor:
    return Tensor(np.array(values), dtype)


def rows_after_a_step(embedding: nn.Cell, keys: Tensor, weights: np.ndarray) -> dict[int, Any]:
    """Trains one step of SGD with rate 1: what each row lost is its gradient."""
    net = Weighed(embedding)
    step = nn.TrainOneStepCell(net, optim.SGD(net.trainable_params(), 1.0)).set_train()
    step(keys, Tensor(weights))
    rows = tables_of(net)[0].export_rows()
    return dict(zip(rows["keys"].tolist(), rows["values"], strict=True))


@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3), (2, 3, 2), (1, 1, 1, 2)])
def test_any_rank(mode, unique, shape) -> None:
    """Each key's row moves by the sum of the gradients of its occurrences."""
    embedding = HashEmbeddingLookup(3, param_init=0.5, name=unique())
    keys = RNG.integers(-2, 3, shape).astype(np.int32)
    weights = RNG.normal(size=(*shape, 3)).astype(np.float32)
    expected: dict[int, np.ndarray] = {}
    for key, weight in zip(keys.ravel().tolist(), weights.reshape(-1, 3), strict=True):
        expected[key] = expected.get(key, np.full(3, 0.5, np.float32)) - weight
    found = rows_after_a_step(embedding, Tensor(keys), weights)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-6)
    # In evaluation: the same rows in the ids' shape.
    out = embedding.set_train(False)(Tensor(keys)).asnumpy()
    assert out.shape == (*shape, 3)
    flat = [found[key] for key in keys.ravel().tolist()]
    np.testing.assert_array_equal(out.reshape(-1, 3), np.array(flat))


def test_dynamic_shapes(mode, unique) -> None:
    embedding = HashEmbeddingLookup(2, param_init=0.0, name=unique())
    net = Weighed(embedding)
    net.set_inputs(
        Tensor(shape=[None, None], dtype=ms.int32), Tensor(shape=[None, None, 2], dtype=ms.float32)
    )
    optimizer = optim.SGD(net.trainable_params(), 1.0)
    grad = ms.value_and_grad(net.set_train(), None, optimizer.parameters)
    total = 0
    for n, m in ((2, 3), (1, 1), (4, 2), (3, 3)):
        _, token = grad(ids(np.full((n, m), 9)), Tensor(np.ones((n, m, 2), np.float32)))
        optimizer(token)
        total += n * m
    assert embedding.embedding_table.read_rows(np.array([9])).tolist() == [[-total, -total]]


@pytest.mark.parametrize("dtype", [ms.int32, ms.int64])
def test_padding_key_reads_zeros_and_is_never_trained(mode, unique, dtype) -> None:
    embedding = HashEmbeddingLookup(2, dtype, 1.0, padding_key=-1, name=unique())
    keys = ids([[1, -1], [-1, 2]], dtype)
    weights = np.full((2, 2, 2), 0.25, np.float32)
    assert rows_after_a_step(embedding, keys, weights).keys() == {1, 2}
    for training in (True, False):
        out = embedding.set_train(training)(keys).asnumpy()
        assert (out[[0, 1], [1, 0]] == 0).all() and (out[[0, 1], [0, 1]] == 0.75).all()
    static = EmbeddingLookup(4, 2, "ones", padding_key=0, name=unique())
    found = rows_after_a_step(static, ids([0, 1, 0]), np.ones((3, 2), np.float32))
    assert (found[0] == 1).all() and (found[1] == 0).all()


def clipped(rows: np.ndarray, max_norm: float) -> np.ndarray:
    norm = np.sqrt((rows.astype(np.float64) ** 2).sum(-1, keepdims=True))
    return rows * np.minimum(1.0, max_norm / np.maximum(norm, 1e-12))


def test_max_norm(mode, unique) -> None:
    """The value against its formula, the gradient against differences of it."""
    values = RNG.normal(size=(4, 3)).astype(np.float32)
    values[0] *= 0.01  # within the limit
    values[3] = 0
    weights = RNG.normal(size=(4, 3)).astype(np.float32)
    weights[3] = 0
    embedding = HashEmbeddingLookup(3, max_norm=0.7, name=unique())
    keys = ids([1, 2, 3, 4])
    embedding.embedding_table.put(keys, Tensor(values))
    out = embedding.set_train(False)(keys).asnumpy()
    np.testing.assert_allclose(out, clipped(values, 0.7), rtol=1e-5, atol=1e-7)
    found = rows_after_a_step(embedding, keys, weights)
    for i in range(3):
        for j in range(3):
            moved = values.astype(np.float64)
            moved[i, j] += 1e-5
            up = (clipped(moved, 0.7) * weights).sum()
            moved[i, j] -= 2e-5
            slope = (up - (clipped(moved, 0.7) * weights).sum()) / 2e-5
            np.testing.assert_allclose(values[i, j] - found[i + 1][j], slope, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(found[4], 0)


class Twisted(nn.Cell):
    """Hands the lookup gradients that do not lie in memory as rows."""

    def __init__(self, embedding: nn.Cell, how: str) -> None:
        super().__init__()
        self.embedding = embedding
        self.how = how

    def construct(self, keys, weights):
        rows = self.embedding(keys)
        if self.how == "transposed":
            return (rows.transpose(1, 0) * weights.transpose(1, 0)).sum()
        if self.how == "sliced":
            return (rows[:, 1:] * weights[:, 1:]).sum()
        if self.how == "strided":
            return (rows[::2] * weights[::2]).sum()
        if self.how == "broadcast":
            return rows.sum()
        return (ops.concat((rows, rows * 2), 1) * ops.concat((weights, weights), 1)).sum()


@pytest.mark.parametrize("how", ["transposed", "sliced", "strided", "broadcast", "concat"])
def test_gradients_that_are_not_rows_in_memory(mode, unique, how) -> None:
    embedding = HashEmbeddingLookup(3, param_init=0.0, name=unique())
    net = Twisted(embedding, how)
    weights = RNG.normal(size=(4, 3)).astype(np.float32)
    expected = {
        "transposed": weights,
        "sliced": weights * [0, 1, 1],
        "strided": weights * [[1], [0], [1], [0]],
        "broadcast": np.ones((4, 3)),
        "concat": weights * 3,
    }[how]
    step = nn.TrainOneStepCell(net, optim.SGD(net.trainable_params(), 1.0)).set_train()
    step(ids([5, 6, 7, 8]), Tensor(weights))
    found = embedding.embedding_table.read_rows(np.array([5, 6, 7, 8]))
    np.testing.assert_allclose(found, -expected, rtol=1e-6, atol=1e-7)


# ---------------------------------------------------------------- frozen, switched, shared


def test_a_frozen_table_is_only_read(mode, unique) -> None:
    frozen = HashEmbeddingLookup(2, param_init=1.0, name=unique())
    trained = HashEmbeddingLookup(2, param_init=1.0, name=unique())
    frozen.embedding_table.put(ids([1]), 3.0)
    frozen.embedding_table.requires_grad = False

    net = Product(frozen, trained)
    assert len(net.trainable_params()) == 1
    step = nn.TrainOneStepCell(net, optim.SGD(net.trainable_params(), 1.0)).set_train()
    step(ids([1, 2]))
    assert frozen.embedding_table.get_data()[1].asnumpy().tolist() == [[3, 3]]
    rows = trained.embedding_table.read_rows(np.array([1, 2]))
    assert rows.tolist() == [[-2, -2], [0, 0]]  # unknown ids of the frozen table read 1
    # Thawed, it is missing from the optimizer: an error, not a table that never learns. The error
    # costs MindSpore three seconds in a graph.
    if mode == "pynative":
        frozen.embedding_table.requires_grad = True
        with pytest.raises(RuntimeError, match="no optimizer covers it"):
            step(ids([1, 2]))


def test_set_train_switches(mode, unique) -> None:
    embedding = HashEmbeddingLookup(2, param_init=1.0, name=unique())
    net = Weighed(embedding)
    step = nn.TrainOneStepCell(net, optim.SGD(net.trainable_params(), 1.0))
    weights = Tensor(np.ones((1, 2), np.float32))
    for n in range(1, 4):
        step.set_train()
        step(ids([n]), weights)
        assert len(embedding.embedding_table) == n
        net.set_train(False)
        net(ids([100 + n]), weights)
        assert len(embedding.embedding_table) == n


def test_shared_tables(mode, unique) -> None:
    table = MapParameter(name=unique(), value_shape=2, default_value="zeros")
    first = HashEmbeddingLookup(2, table=table)
    second = HashEmbeddingLookup(2, table=table, padding_key=7)

    net = SumOfLookups(first, second, second)
    assert tables_of(net) == [table] and len(net.trainable_params()) == 1
    step = nn.TrainOneStepCell(net, optim.SGD(net.trainable_params(), 1.0)).set_train()
    step(ids([3, 7]))
    rows = table.read_rows(np.array([3, 7]))
    assert rows.tolist() == [[-3, -3], [-1, -1]]  # 7 is padding for one of them


def test_out_of_range_zeros(mode, unique) -> None:
    lookup = EmbeddingLookup(3, 2, "ones", out_of_range="zeros", name=unique())
    keys = ids([[-1, 0], [2, 3]])
    expected = np.array([[0, 1], [1, 0]])[..., None] * np.ones(2)
    np.testing.assert_array_equal(lookup(keys).asnumpy(), expected)
    rows_after_a_step(lookup, keys, np.ones((2, 2, 2), np.float32))
    table = lookup.embedding_table.asnumpy()
    assert table.tolist() == [[0, 0], [1, 1], [0, 0]]


# ---------------------------------------------------------------- against nn.Embedding


VOCABULARY, DIM, FIELDS, BATCH = 12, 4, 3, 16
PAIRS: dict[str, tuple[Any, Any, bool]] = {
    # Rules in which a row without a gradient stays, and Adam where every row has one.
    "sgd": (lambda p: optim.SGD(p, 0.5), lambda p: nn.SGD(p, 0.5), False),
    "adam": (lambda p: optim.Adam(p, 0.1), lambda p: nn.Adam(p, 0.1), True),
}


@pytest.mark.parametrize("target", ["CPU", "DEVICE", "hash"])
@pytest.mark.parametrize("rule", ["sgd", "adam"])
def test_trains_as_a_dense_parameter_does(mode, unique, target, rule) -> None:
    """The whole way: lookup, dense head, backward pass, optimizer; beside MindSpore's own."""
    ours, theirs, all_rows = PAIRS[rule]
    rng = np.random.default_rng(3)
    values = rng.normal(size=(VOCABULARY, DIM)).astype(np.float32) * 0.1
    head = rng.normal(size=(1, FIELDS * DIM)).astype(np.float32)
    if target == "hash":
        embedding: nn.Cell = HashEmbeddingLookup(DIM, name=unique())
        embedding.embedding_table.put(ids(np.arange(VOCABULARY)), Tensor(values))
    elif target == "CPU":
        embedding = EmbeddingLookup(VOCABULARY, DIM, Tensor(values), name=unique())
    else:
        embedding = EmbeddingLookup(VOCABULARY, DIM, Tensor(values), target, sparse=False)
    dense = nn.Embedding(VOCABULARY, DIM, embedding_table=Tensor(values))
    nets = []
    for each in (embedding, dense):
        layer = nn.Dense(FIELDS * DIM, 1, weight_init=Tensor(head), bias_init="zeros")
        logit = LogitOf(each, FIELDS * DIM, layer)
        nets.append(nn.WithLossCell(logit, nn.BCEWithLogitsLoss()))
    makers = [ours if target != "DEVICE" else theirs, theirs]
    steps = [
        nn.TrainOneStepCell(net, make(net.trainable_params())).set_train()
        for net, make in zip(nets, makers, strict=True)
    ]
    for _ in range(6):
        keys = rng.integers(0, VOCABULARY, (BATCH, FIELDS)).astype(np.int32)
        if all_rows:
            keys.ravel()[:VOCABULARY] = np.arange(VOCABULARY)
        label = rng.integers(0, 2, (BATCH, 1)).astype(np.float32)
        losses = [float(step(Tensor(keys), Tensor(label))) for step in steps]
        np.testing.assert_allclose(losses[0], losses[1], rtol=2e-5)
    table = embedding.embedding_table
    trained = table.read_rows(np.arange(VOCABULARY)) if target == "hash" else table.asnumpy()
    np.testing.assert_allclose(trained, dense.embedding_table.asnumpy(), rtol=2e-4, atol=2e-5)


# ---------------------------------------------------------------- many tables


class ManyTables(nn.Cell):
    def __init__(self, prefix: str, tables: int) -> None:
        super().__init__()
        self.embeddings = nn.CellList(
            [HashEmbeddingLookup(4, name=f"{prefix}.{i}") for i in range(tables)]
        )
        self.head = nn.Dense(4 * tables, 1)
        self.n = tables

    def construct(self, keys):
        rows: tuple = ()
        for i in range(self.n):
            rows += (self.embeddings[i](keys[:, i]),)
        return self.head(ops.concat(rows, 1))


@pytest.mark.parametrize("how", ["TrainOneStepCell", "Model.train"])
def test_a_list_of_26_tables_learns(mode, unique, how) -> None:
    """The label is a function of the keys: the loss falls, and every table got its keys."""
    rng = np.random.default_rng(2)
    net = ManyTables(unique(), 26)
    keys = rng.integers(0, 50, (128, 26)).astype(np.int32)
    label = (keys[:, :1] % 2).astype(np.float32)
    loss = nn.BCEWithLogitsLoss()
    optimizer = optim.Adam(net.trainable_params(), 0.05)
    assert len(tables_of(net)) == 26 and len(optimizer.parameters) == 28
    before = float(loss(net.set_train(False)(Tensor(keys)), Tensor(label)))
    steps = 8
    if how == "Model.train":
        data = GeneratorDataset([(keys, label)] * steps, ["keys", "label"], shuffle=False)
        Model(net, loss, optimizer).train(1, data, dataset_sink_mode=False)
    else:
        step = nn.TrainOneStepCell(nn.WithLossCell(net, loss), optimizer).set_train()
        for _ in range(steps):
            step(Tensor(keys), Tensor(label))
    after = float(loss(net.set_train(False)(Tensor(keys)), Tensor(label)))
    assert after < 0.5 * before
    for i, table in enumerate(tables_of(net)):
        assert sorted(table.row_keys().tolist()) == sorted(set(keys[:, i].tolist()))
        assert table.step == steps


def test_a_lookup_in_a_static_table_has_no_coefficient(unique) -> None:
    config = TableConfig(4, name=unique(), vocab_size=9)
    hashed = TableConfig(4, name=unique())
    lookups = [
        lambda: TableLookup(config, faae_coefficient=2),
        lambda: TableLookup(table=StaticParameter(config=config), faae_coefficient=2),
        lambda: GroupedEmbedding(config=[hashed, config], faae_coefficient=2),
        lambda: GroupedEmbedding([StaticParameter(config=config)], faae_coefficient=[2]),
    ]
    for make in lookups:
        with pytest.raises(ValueError, match="faae_coefficient is for hash tables"):
            make()
    assert TableLookup(config, faae_coefficient=1).embedding_table.name == config.name
    both = TableConfig(4, name=unique(), vocab_size=9)
    assert len(GroupedEmbedding(config=[hashed, both], faae_coefficient=[2, 1]).tables) == 2
