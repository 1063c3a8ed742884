# SPDX-License-Identifier: Apache-2.0
"""EmbeddingBag: forward and gradient of every mode against NumPy."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mindspore import Tensor, nn

from mindspore_rec import (
    CountAdmission,
    EmbeddingBag,
    HashEmbeddingLookup,
    MapParameter,
    TableConfig,
    optim,
    tables_of,
)
from tests.support.networks import SumOf, SumOfLookups, Weighed

MODES = pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
DIM, VOCABULARY = 3, 9
PADDING = 4
VALUES = np.random.default_rng(0).normal(size=(VOCABULARY, DIM)).astype(np.float32)


def scales(combiner: str, members: list[int], weights: list[float]) -> np.ndarray:
    """What each member of a bag is multiplied by."""
    w = np.array([w for key, w in zip(members, weights, strict=True) if key != PADDING])
    if combiner == "sum" or not len(w):
        return w
    total = w.sum() if combiner == "mean" else np.sqrt((w * w).sum())
    return w / total


def reference(
    combiner: str, bags: list[list[int]], weights: list[list[float]], gradient: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Combined rows of bags, and the gradient of the table for that of the output."""
    out = np.zeros((len(bags), DIM))
    table = np.zeros((VOCABULARY, DIM))
    for b, (members, bag_weights) in enumerate(zip(bags, weights, strict=True)):
        kept = [key for key in members if key != PADDING]
        for key, scale in zip(kept, scales(combiner, members, bag_weights), strict=True):
            out[b] += scale * VALUES[key]
            table[key] += scale * gradient[b]
    return out, table


def make(combiner: str, name: str, static: bool) -> EmbeddingBag:
    vocabulary = VOCABULARY if static else None
    bag = EmbeddingBag(
        TableConfig(DIM, name=name, vocab_size=vocabulary, initializer=0.0),
        combiner,
        padding_key=PADDING,
    )
    bag.embedding_table.write_rows(np.arange(VOCABULARY), VALUES)
    return bag


def check(bag: EmbeddingBag, inputs: list[Any], out: np.ndarray, table: np.ndarray, grad) -> None:
    """Forward in evaluation and, by a step of SGD with rate 1, backward in training."""
    pooled = bag.set_train(False)(*inputs).asnumpy()
    np.testing.assert_allclose(pooled, out, rtol=1e-5, atol=1e-6)
    net = Weighed(bag)
    optimizer = optim.SGD(net.trainable_params(), 1.0)
    step = ms.value_and_grad(net.set_train(), None, optimizer.parameters)
    loss, token = step(*inputs, Tensor(grad))
    np.testing.assert_allclose(float(loss), (out * grad).sum(), rtol=1e-4, atol=1e-5)
    optimizer(token)
    moved = VALUES - bag.embedding_table.read_rows(np.arange(VOCABULARY))
    np.testing.assert_allclose(moved, table, rtol=1e-4, atol=1e-6)


@MODES
@pytest.mark.parametrize("static", [False, True], ids=["hash", "static"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_rows_of_ids(mode, unique, combiner, static, weighted) -> None:
    rng = np.random.default_rng(1)
    ids = rng.integers(0, VOCABULARY, (5, 4)).astype(np.int32)
    ids[1] = PADDING  # a bag without members
    ids[2] = 7  # the same member four times
    weights = rng.uniform(0.5, 2, ids.shape).astype(np.float32)
    grad = rng.normal(size=(5, DIM)).astype(np.float32)
    used = weights if weighted else np.ones_like(weights)
    out, table = reference(combiner, ids.tolist(), used.tolist(), grad)
    inputs = [Tensor(ids), None, Tensor(weights)] if weighted else [Tensor(ids)]
    check(make(combiner, unique(), static), inputs, out, table, grad)


@MODES
@pytest.mark.parametrize("dtype", [ms.int32, ms.int64])
def test_offsets(mode, unique, combiner, dtype) -> None:
    rng = np.random.default_rng(2)
    bags = [[1, 2, 3], [], [PADDING], [5, 5], [], [8]]
    ids = np.array(sum(bags, []), np.int32)
    offsets = np.cumsum([0] + [len(bag) for bag in bags])[:-1]
    weights = rng.uniform(0.5, 2, ids.shape).astype(np.float32)
    grad = rng.normal(size=(len(bags), DIM)).astype(np.float32)
    cut = [weights[o : o + len(bag)].tolist() for o, bag in zip(offsets, bags, strict=True)]
    out, table = reference(combiner, bags, cut, grad)
    inputs = [Tensor(ids), Tensor(offsets, dtype), Tensor(weights)]
    check(make(combiner, unique(), False), inputs, out, table, grad)


MEMBERS = st.tuples(
    st.integers(0, VOCABULARY - 1), st.integers(-8, 8).map(lambda n: (n if n else 1) / 4)
)


@settings(max_examples=40)
@given(
    drawn=st.lists(st.lists(MEMBERS, max_size=6), min_size=1, max_size=8),
    combiner=st.sampled_from(["sum", "mean", "sqrtn"]),
    grad=st.lists(st.integers(-8, 8), min_size=DIM, max_size=DIM),
)
def test_any_bags(drawn, combiner, grad) -> None:
    """Bags of any lengths, weights of any sign; a mean over a sum of weights near 0 is left out."""
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    bags = [[key for key, _ in bag] for bag in drawn]
    cut = [[weight for _, weight in bag] for bag in drawn]
    for members, bag_weights in zip(bags, cut, strict=True):
        kept = [w for key, w in zip(members, bag_weights, strict=True) if key != PADDING]
        if combiner == "mean" and kept and abs(sum(kept)) < 0.1:
            return
    grads = np.tile(np.array(grad, np.float32) / 4, (len(bags), 1))
    out, table = reference(combiner, bags, cut, grads)
    ids = np.array(sum(bags, []), np.int32)
    offsets = np.cumsum([0] + [len(bag) for bag in bags])[:-1].astype(np.int32)
    flat = np.array(sum(cut, []), np.float32)
    bag = make(combiner, "any_bags", False)
    try:
        check(bag, [Tensor(ids), Tensor(offsets), Tensor(flat)], out, table, grads)
    finally:
        bag.embedding_table.close()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_no_ids_at_all(mode, unique, shape) -> None:
    bag = EmbeddingBag(TableConfig(DIM, name=unique(), key_dtype=ms.int32), "mean")
    optim.SGD(bag.trainable_params(), 1.0)
    for training in (False, True):
        out = bag.set_train(training)(Tensor(np.zeros(shape, np.int32)))
        assert out.shape == (shape[0], DIM) and (out.asnumpy() == 0).all()


def test_dynamic_shapes(mode, unique) -> None:
    bag = make("sum", unique(), False)
    bag.set_inputs(Tensor(shape=[None], dtype=ms.int32), Tensor(shape=[None], dtype=ms.int32), None)
    bag.set_train(False)
    for ids, offsets in (([1, 2, 3], [0, 2]), ([5], [0]), ([1, 1, 1, 8], [0, 0, 3])):
        out = bag(Tensor(np.array(ids, np.int32)), Tensor(np.array(offsets, np.int32)), None)
        ends = [*offsets[1:], len(ids)]
        expected = [VALUES[ids[a:b]].sum(0) for a, b in zip(offsets, ends, strict=True)]
        np.testing.assert_allclose(out.asnumpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_bag_is_a_lookup_and_a_sum(mode, unique) -> None:
    """One table under both: equal outputs, and both gradients reach the same row."""
    table = MapParameter(name=unique(), value_shape=DIM, default_value="zeros")
    table.put(Tensor(np.arange(VOCABULARY, dtype=np.int32)), Tensor(VALUES))
    bag = EmbeddingBag(table=table)
    lookup = HashEmbeddingLookup(DIM, table=table)

    net = SumOfLookups(bag, lookup)
    assert tables_of(net) == [table]
    ids = Tensor(np.array([[1, 2], [3, 3]], np.int32))
    net.set_train(False)
    pooled, summed = bag(ids), lookup(ids).sum(1)
    np.testing.assert_allclose(pooled.asnumpy(), summed.asnumpy(), rtol=1e-6)

    nn.TrainOneStepCell(net, optim.SGD(net.trainable_params(), 1.0)).set_train()(ids)
    moved = VALUES - table.read_rows(np.arange(VOCABULARY))
    counts = np.array([0, 2, 2, 4, 0, 0, 0, 0, 0])[:, None] * np.ones(DIM)
    np.testing.assert_allclose(moved, counts, rtol=1e-5, atol=1e-6)


def test_admission_and_freezing(mode, unique) -> None:
    bag = EmbeddingBag(
        TableConfig(
            DIM, name=unique(), key_dtype=ms.int32, initializer=1.0, admission=CountAdmission(2)
        )
    )
    net = SumOf(bag)
    step = nn.TrainOneStepCell(net, optim.SGD(net.trainable_params(), 1.0)).set_train()
    step(Tensor(np.array([[1, 1], [2, 3]], np.int32)))
    assert bag.embedding_table.row_keys().tolist() == [1]
    bag.embedding_table.requires_grad = False
    step(Tensor(np.array([[2, 2], [1, 3]], np.int32)))
    assert bag.embedding_table.row_keys().tolist() == [1]
    assert bag.embedding_table.read_rows(np.array([1])).tolist() == [[-1] * DIM]
