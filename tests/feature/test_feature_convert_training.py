# SPDX-License-Identifier: Apache-2.0
"""Networks that know nothing of tables train after a conversion as they did before, and go back."""

from __future__ import annotations

import functools
import warnings

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, mint, nn

from mindspore_rec import convert, optim, revert, tables_of

pytestmark = pytest.mark.usefixtures("graph_mode")

VOCAB, DIM, FIELDS, BATCH = 40, 4, 3, 32


def mindspores(vocab, dim, values, kind):
    if kind == "nn.Embedding":
        return nn.Embedding(vocab, dim, embedding_table=Tensor(values))
    if kind == "mint.nn.Embedding":
        return mint.nn.Embedding(vocab, dim, _weight=Tensor(values))
    if kind == "nn.EmbeddingLookup":
        return nn.EmbeddingLookup(vocab, dim, Tensor(values), target="DEVICE", sparse=False)
    assert kind == "nn.EmbeddingLookup CPU"
    return nn.EmbeddingLookup(vocab, dim, Tensor(values))


KINDS = (
    "nn.Embedding",
    "mint.nn.Embedding",
    "nn.EmbeddingLookup",
    "nn.EmbeddingLookup CPU",
)
# MindSpore on CPU has no gradient of mint.nn.Embedding, and its optimizers for dense gradients
# cannot take the sparse ones of nn.EmbeddingLookup on CPU: the plain embedding is their model.
TRAINS_AS = {"mint.nn.Embedding": "nn.Embedding", "nn.EmbeddingLookup CPU": "nn.Embedding"}


def values_of(rng, *shape):
    return rng.normal(0, 0.3, shape).astype(np.float32)


class DeepFM(nn.Cell):
    """As a third party would write it: first order, factorization machine and MLP on one table."""

    def __init__(self, kind):
        super().__init__()
        rng = np.random.default_rng(0)
        self.first_order = mindspores(VOCAB, 1, values_of(rng, VOCAB, 1), kind)
        self.embedding = mindspores(VOCAB, DIM, values_of(rng, VOCAB, DIM), kind)
        width = FIELDS * DIM
        self.mlp = nn.SequentialCell(
            nn.Dense(width, 16, weight_init=Tensor(values_of(rng, 16, width)), bias_init="zeros"),
            nn.ReLU(),
            nn.Dense(16, 1, weight_init=Tensor(values_of(rng, 1, 16)), bias_init="zeros"),
        )

    def construct(self, ids):
        linear = self.first_order(ids).sum(1)
        rows = self.embedding(ids)
        total = rows.sum(1)
        second = 0.5 * (total * total - (rows * rows).sum(1)).sum(1, keepdims=True)
        return linear + second + self.mlp(rows.reshape((-1, rows.shape[1] * rows.shape[2])))


class Tower(nn.Cell):
    def __init__(self, items, rng):
        super().__init__()
        self.items = items
        self.fc = nn.Dense(
            DIM, DIM, weight_init=Tensor(values_of(rng, DIM, DIM)), bias_init="zeros"
        )

    def construct(self, ids):
        return self.fc(self.items(ids).sum(1))


class TwoTower(nn.Cell):
    """A user is the items they saw: both towers hold the same embedding."""

    def __init__(self, kind):
        super().__init__()
        rng = np.random.default_rng(1)
        items = mindspores(VOCAB, DIM, values_of(rng, VOCAB, DIM), kind)
        self.towers = nn.CellList([Tower(items, rng), Tower(items, rng)])

    def construct(self, ids):
        return (self.towers[0](ids[:, 1:]) * self.towers[1](ids[:, :1])).sum(1, keepdims=True)


def batches(steps, every_id):
    rng = np.random.default_rng(2)
    for _ in range(steps):
        ids = rng.integers(0, VOCAB, (BATCH, FIELDS))
        if every_id:  # each row has a gradient: the lazy form of a rule is then the dense one
            ids.flat[:VOCAB] = rng.permutation(VOCAB)
            ids[:, 1:].flat[:VOCAB] = rng.permutation(VOCAB)
        label = ((ids[:, :1] < 20) == (ids[:, 1:2] < 20)).astype(np.float32)
        yield Tensor(ids.astype(np.int32)), Tensor(label)


def losses_of(net, optimizer, steps, every_id=False):
    loss = nn.WithLossCell(net, nn.BCEWithLogitsLoss())
    cell = nn.TrainOneStepCell(loss, optimizer)
    cell.set_train()
    losses = [float(cell(*batch).asnumpy()) for batch in batches(steps, every_id)]
    net.set_train(False)
    return losses


RULES = {
    "SGD": (nn.SGD, optim.SGD, {"learning_rate": 0.5}, False),
    "Adagrad": (nn.Adagrad, optim.Adagrad, {"learning_rate": 0.2, "accum": 0.1}, False),
    "Adam": (nn.Adam, optim.Adam, {"learning_rate": 0.02, "eps": 1e-6}, True),
}


@functools.cache
def plain_training(model, kind, rule):
    """Losses and final predictions of the ordinary network; and that it learns at all."""
    theirs, _, arguments, every_id = RULES[rule]
    plain = model(kind)
    ids = next(batches(1, False))[0]
    first = plain(ids).asnumpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of MindSpore: all its optimizers are deprecated
        optimizer = theirs(plain.trainable_params(), **arguments)
    losses = losses_of(plain, optimizer, 50, every_id)
    last = plain(ids).asnumpy()
    assert np.abs(last - first).max() > 0.05
    return losses, last


PAIRS = ((DeepFM, "hash"), (TwoTower, "static"))
SGD_CASES = [(*pair, kind, "SGD") for pair in PAIRS for kind in KINDS]
OTHER_PAIRS = [
    (DeepFM, "static", "nn.Embedding", "SGD"),
    (TwoTower, "hash", "nn.Embedding", "SGD"),
    (DeepFM, "hash", "nn.Embedding", "Adagrad"),
    (TwoTower, "static", "nn.Embedding", "Adagrad"),
    (DeepFM, "static", "nn.Embedding", "Adam"),
    (TwoTower, "hash", "nn.Embedding", "Adam"),
]


@pytest.mark.parametrize(("model", "table_kind", "kind", "rule"), [*SGD_CASES, *OTHER_PAIRS])
def test_trains_with_the_loss_curve_of_the_ordinary_network(model, kind, rule, table_kind, unique):
    losses, predictions = plain_training(model, TRAINS_AS.get(kind, kind), rule)
    _, ours, arguments, every_id = RULES[rule]
    net = model(kind)
    convert(net, kind=table_kind, prefix=f"{unique()}.")
    got = losses_of(net, ours(net.trainable_params(), **arguments), 50, every_id)
    np.testing.assert_allclose(got, losses, rtol=0, atol=1e-5)
    ids = next(batches(1, False))[0]
    trained = net(ids).asnumpy()
    np.testing.assert_allclose(trained, predictions, rtol=0, atol=1e-4)
    revert(net)
    assert not tables_of(net)
    np.testing.assert_allclose(net(ids).asnumpy(), trained, rtol=0, atol=1e-6)


def test_a_frozen_embedding_is_a_frozen_table(unique):
    net = DeepFM("nn.Embedding")
    net.first_order.embedding_table.requires_grad = False
    before = net.first_order.embedding_table.asnumpy().copy()
    convert(net, prefix=f"{unique()}.")
    assert [t.requires_grad for t in tables_of(net)] == [False, True]
    losses_of(net, optim.SGD(net.trainable_params(), 0.1), 3)
    revert(net)
    assert not net.first_order.embedding_table.requires_grad
    np.testing.assert_array_equal(net.first_order.embedding_table.asnumpy(), before)


def test_the_padding_row_of_mint_is_never_trained(unique):
    """Against a network that masks its gradient, for MindSpore on CPU has none for mint."""

    class Masked(nn.Cell):
        def __init__(self, values):
            super().__init__()
            self.embedding = nn.Embedding(VOCAB, DIM, embedding_table=Tensor(values))

        def construct(self, ids):
            return self.embedding(ids) * (ids != 3).astype(ms.float32).expand_dims(-1)

    class Sums(nn.Cell):
        def __init__(self, embedding):
            super().__init__()
            self.embedding = embedding

        def construct(self, ids):
            return (self.embedding(ids).sum(1) ** 3).sum(1, keepdims=True)

    values = values_of(np.random.default_rng(3), VOCAB, DIM)
    values[3] = 0
    plain = Sums(Masked(values))
    expected = losses_of(plain, nn.SGD(plain.trainable_params(), 0.1), 20)
    for padding in (3, 3 - VOCAB):
        for table_kind in ("hash", "static"):
            net = Sums(mint.nn.Embedding(VOCAB, DIM, padding_idx=padding, _weight=Tensor(values)))
            convert(net, kind=table_kind, prefix=f"{unique()}.")
            got = losses_of(net, optim.SGD(net.trainable_params(), 0.1), 20)
            np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)
            revert(net)
            assert not net.embedding.weight.asnumpy()[3].any()


def test_the_padding_row_of_nn_embedding_is_trained_as_before(unique):
    def model():
        cell = nn.Embedding(VOCAB, DIM, embedding_table="ones", padding_idx=0)
        return nn.SequentialCell(cell, nn.Flatten(), nn.Dense(FIELDS * DIM, 1, "ones", "zeros"))

    plain, net = model(), model()
    convert(net, prefix=f"{unique()}.")
    optimizer = nn.SGD(plain.trainable_params(), 0.1)
    expected = losses_of(plain, optimizer, 5)
    got = losses_of(net, optim.SGD(net.trainable_params(), 0.1), 5)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)
    revert(net)
    row = net[0].embedding_table.asnumpy()[0]
    assert row.any()
    np.testing.assert_allclose(row, plain[0].embedding_table.asnumpy()[0], atol=1e-6)


def test_two_embeddings_with_one_weight_are_one_table(unique):
    class Tied(nn.Cell):
        def __init__(self):
            super().__init__()
            rng = np.random.default_rng(4)
            self.user = nn.Embedding(VOCAB, DIM, embedding_table=Tensor(values_of(rng, VOCAB, DIM)))
            self.item = nn.Embedding(VOCAB, DIM)
            self.item.embedding_table = self.user.embedding_table

        def construct(self, ids):
            return (self.user(ids[:, 1:]).sum(1) * self.item(ids[:, 0])).sum(1, keepdims=True)

    plain = Tied()
    expected = losses_of(plain, nn.SGD(plain.trainable_params(), 0.5), 20)
    for table_kind in ("hash", "static"):
        net = Tied()
        conversion = convert(net, kind=table_kind, prefix=f"{unique()}.")
        assert len(tables_of(net)) == 1
        assert [change.bytes for change in conversion.changes] == [VOCAB * DIM * 4, 0]
        got = losses_of(net, optim.SGD(net.trainable_params(), 0.5), 20)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)
        revert(net)
        assert net.item.embedding_table is net.user.embedding_table
        np.testing.assert_allclose(
            net.user.embedding_table.asnumpy(), plain.user.embedding_table.asnumpy(), atol=1e-6
        )


def test_works_in_pynative(pynative, unique):
    net = TwoTower("nn.Embedding")
    ids = next(batches(1, False))[0]
    before = net(ids).asnumpy()
    convert(net, prefix=f"{unique()}.")
    np.testing.assert_array_equal(net(ids).asnumpy(), before)
    losses_of(net, optim.LazyAdam(net.trainable_params(), 0.1), 2)
    trained = net(ids).asnumpy()
    assert np.abs(trained - before).max() > 1e-3
    revert(net)
    np.testing.assert_allclose(net(ids).asnumpy(), trained, atol=1e-6)
