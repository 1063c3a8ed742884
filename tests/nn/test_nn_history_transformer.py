# SPDX-License-Identifier: Apache-2.0
"""HistoryTransformer against MindSpore's operators over a padded block, and by its properties."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

import mindspore_rec as mr
from mindspore_rec.nn import HistoryTransformer
from mindspore_rec.train.graph.cell_caller import CellCaller
from tests.nn.padded_histories import (
    LENGTHS,
    Padding,
    buckets,
    check_equal,
    dense,
    draw_parameters,
    drawn,
    drawn_times,
    heads_of,
    norm,
    offsets_of,
    values_and_gradients,
)


def made(**arguments: Any) -> HistoryTransformer:
    """A block whose parameters are all random."""
    block = HistoryTransformer(8, **arguments)
    draw_parameters(block)
    return block


def padded(block: HistoryTransformer, lengths: list[int], heads: int, times: Any = None) -> Any:
    """The block's formula over a padded block, as a function of values [N, dim]."""
    padding = Padding(lengths)
    longest = padding.longest
    place = np.concatenate([np.arange(n)[::-1] for n in lengths]).astype(np.int32)
    causal = Tensor(np.tril(np.ones((longest, longest), np.float32)))
    allowed = causal * padding.mask.reshape((-1, 1, 1, longest))
    bucket = np.zeros(0)
    if times is not None:
        ends = np.cumsum(lengths)
        newest = np.repeat(times[np.maximum(ends - 1, 0)], lengths)
        bucket = buckets(newest - times, block.time_buckets).astype(np.int32)

    def formula(values: Any) -> Any:
        x = values
        if block.has_positions:
            most = block.positions.shape[0] - 1
            x = x + ops.gather(block.positions, Tensor(np.minimum(place, most)), 0)
        if block.time_buckets:
            x = x + ops.gather(block.time_vectors, Tensor(bucket), 0)
        x = padding.pad(x)
        qkv = dense(block.qkv.layers[0], norm(block.norm, x))
        q, k, v = (heads_of(qkv[..., 8 * i : 8 * i + 8], heads) for i in range(3))
        scores = ops.matmul(q, k.transpose((0, 1, 3, 2))) / (8 // heads) ** 0.5
        weights = ops.softmax(ops.select(allowed > 0, scores, ops.full_like(scores, -1e9)), -1)
        joined = ops.matmul(weights, v).transpose((0, 2, 1, 3)).reshape((-1, longest, 8))
        x = x + dense(block.projection.layers[0], joined)
        hidden = ops.relu(dense(block.mlp.layers[0], norm(block.hidden_norm, x)))
        return padding.unpad(x + dense(block.mlp.layers[2], hidden))

    return formula


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("heads", [1, 2])
def test_is_the_padded_block(lengths, heads):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    block = made(heads=heads, positions=10)
    values, offsets = drawn(sum(lengths), 8), offsets_of(lengths)
    parameters = block.trainable_params()
    found = values_and_gradients(lambda x: block(x, offsets), [values], parameters)
    check_equal(
        found, values_and_gradients(padded(block, lengths, heads), [values], parameters), 2e-5
    )


def test_buckets_of_times():
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    lengths = LENGTHS["mixed"]
    block = made(heads=2, time_buckets=14)
    values, offsets, times = drawn(sum(lengths), 8), offsets_of(lengths), drawn_times(lengths)
    parameters = block.trainable_params()
    found = values_and_gradients(lambda x: block(x, offsets, times), [values], parameters)
    formula = padded(block, lengths, 2, times.asnumpy())
    check_equal(found, values_and_gradients(formula, [values], parameters), 2e-5)


def gradient_step(block: nn.Cell) -> nn.Cell:
    """A cell that trains a block, so that a sum of its outputs falls."""

    class Loss(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.block = block

        def construct(self, values: Tensor, offsets: Tensor) -> Tensor:
            return (self.block(values, offsets) ** 2).sum()

    net = Loss()
    return nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 1e-4)).set_train()


def test_gradient_by_differences(mode):
    lengths = [4, 0, 19]
    block = made(heads=2, positions=5)
    values, offsets = drawn(23, 8), offsets_of(lengths)
    weights = drawn(23, 8, seed=3).asnumpy().astype(np.float64)

    def loss(x: Any) -> Any:
        return (block(x, offsets) * Tensor(weights.astype(np.float32))).sum()

    gradient = ms.grad(loss)(values).asnumpy()
    for seed in range(3):
        step = drawn(23, 8, seed=seed).asnumpy()
        ends = [
            (block(Tensor(values.asnumpy() + h * step), offsets).asnumpy() * weights).sum()
            for h in (-5e-3, 5e-3)
        ]
        np.testing.assert_allclose((ends[1] - ends[0]) / 1e-2, (gradient * step).sum(), rtol=2e-2)


def test_later_values_change_no_earlier_output(mode):
    block = made(heads=2)
    values = drawn(20, 8)
    whole = block(values, offsets_of([20])).asnumpy()
    first = block(Tensor(values.asnumpy()[:13]), offsets_of([13])).asnumpy()
    np.testing.assert_allclose(whole[:13], first, atol=1e-5)


def test_a_long_history():
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    block = made(heads=2)
    values = drawn(5030, 8)
    found = values_and_gradients(
        lambda x: block(x, offsets_of([5000, 30])), [values], block.trainable_params()
    )
    assert all(np.isfinite(each).all() for each in found)
    first = block(Tensor(values.asnumpy()[:300]), offsets_of([300])).asnumpy()
    np.testing.assert_allclose(found[0][:300], first, atol=1e-5)


def test_lists_do_not_see_each_other(mode):
    lengths = [6, 0, 9]
    block = made(heads=2, positions=4)
    values = drawn(15, 8).asnumpy()
    whole = block(Tensor(values), offsets_of(lengths)).asnumpy()
    second = block(Tensor(values[6:]), offsets_of([9])).asnumpy()
    np.testing.assert_allclose(whole[6:], second, atol=1e-5)
    values[0] = np.nan
    others = block(Tensor(values), offsets_of(lengths)).asnumpy()
    assert np.isnan(others[0]).all() and others[6:].tobytes() == whole[6:].tobytes()


@pytest.mark.parametrize("lists", [0, 1, 3])
def test_batches_without_values(mode, lists):
    block = made(heads=2, positions=4)
    empty = Tensor(np.zeros((0, 8), np.float32))
    assert block(empty, offsets_of([0] * lists)).shape == (0, 8)


@pytest.mark.parametrize("declared", [False, True])
def test_batches_of_any_size_compile_few_graphs(declared):
    ms.set_context(mode=ms.GRAPH_MODE)
    step = gradient_step(made(heads=2, positions=6))
    if declared:
        shapes = ([None, 8], ms.float32), ([None], ms.int64)
        step.set_inputs(*(Tensor(shape=shape, dtype=dtype) for shape, dtype in shapes))
    caller = CellCaller(step)
    losses = []
    for k in range(20):
        lengths = [k, 3, 0, 2 * k]
        losses.append(caller(True, drawn(sum(lengths), 8, seed=k), offsets_of(lengths)).asnumpy())
    assert len(step.compile_cache) == (1 if declared else 3)
    assert np.isfinite(losses).all()


def test_threads_change_no_bit(mode):
    lengths = [int(n) for n in np.random.default_rng(1).integers(0, 90, 40)]
    block = made(heads=2, positions=6, time_buckets=9)
    values, offsets, times = drawn(sum(lengths), 8), offsets_of(lengths), drawn_times(lengths)
    before = mr.get_num_threads()
    found = []

    def run(x: Any) -> Any:
        return block(x, offsets, times)

    try:
        for threads in (1, 2, 5):
            mr.set_num_threads(threads)
            found.append(values_and_gradients(run, [values], block.trainable_params()))
    finally:
        mr.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert a.tobytes() == b.tobytes()


def test_dropout_is_in_training_only(mode):
    block = made(dropout=0.5)
    values, offsets = drawn(12, 8), offsets_of([12])
    block.set_train(False)
    still = [block(values, offsets).asnumpy() for _ in range(2)]
    np.testing.assert_array_equal(*still)
    block.set_train()
    assert not np.array_equal(block(values, offsets).asnumpy(), still[0])


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 5], "must end with the number of values, 6, got 5"),
        ([1, 6], "must begin with 0, got 1"),
        ([0, 4, 3, 6], "must not decrease, got 4 and 3"),
    ],
)
def test_wrong_offsets_are_refused(offsets, message):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    with pytest.raises(RuntimeError, match=message):
        made()(drawn(6, 8), Tensor(np.array(offsets, np.int64))).asnumpy()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": 3}, "heads must be a divisor of embedding_dim 8, got 3"),
        ({"time_buckets": 49}, "time_buckets must be in"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"positions": -1}, "positions must be in"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        HistoryTransformer(8, **arguments)


def test_missing_times_are_refused():
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    with pytest.raises(ValueError, match="times must be given"):
        made(time_buckets=3)(drawn(6, 8), offsets_of([6]))
    with pytest.raises(ValueError, match="values must be"):
        made()(drawn(6, 7), offsets_of([6]))


def test_wrong_offsets_raise_each_time_in_pynative_mode():
    """After an error, the operators that follow must not be called without its result."""
    before = ms.get_context("mode")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    try:
        cell = HistoryTransformer(6, heads=2, positions=3)
        values = Tensor(np.ones((4, 6), np.float32))
        for _ in range(10):
            with pytest.raises(RuntimeError, match="offsets must not decrease"):
                cell(values, Tensor(np.array([0, 5, 4]))).asnumpy()
        assert cell(values, Tensor(np.array([0, 2, 4]))).shape == (4, 6)
    finally:
        ms.set_context(mode=before)
