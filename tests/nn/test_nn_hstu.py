# SPDX-License-Identifier: Apache-2.0
"""HSTU against MindSpore's operators over a padded block, and by its properties."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

import mindspore_rec as mr
from mindspore_rec.nn import HSTU
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


def made(**arguments: Any) -> HSTU:
    """A block whose parameters are all random."""
    block = HSTU(8, 12, **arguments)
    draw_parameters(block)
    return block


def padded(block: HSTU, lengths: list[int], heads: int, times: Any = None) -> Any:
    """The block's formula over a padded block, as a function of values [N, 8]."""
    padding = Padding(lengths)
    longest = padding.longest
    causal = np.tril(np.ones((longest, longest), np.float32))
    allowed = Tensor(causal) * padding.mask.reshape((-1, 1, 1, longest))
    rows = np.arange(longest)
    distance = np.clip(rows[:, None] - rows, 0, 11).astype(np.int32)
    bucket = None
    if times is not None:
        when = padding.pad(Tensor(times.astype(np.float64)[:, None])).asnumpy()[..., 0]
        bucket = buckets(when[:, :, None] - when[:, None], block.time_buckets).astype(np.int32)

    def formula(values: Any) -> Any:
        x = padding.pad(values)
        projected = ops.silu(dense(block.projection.layers[0], norm(block.norm, x)))
        q, k, v = (heads_of(projected[..., 8 * i : 8 * i + 8], heads) for i in range(3))
        scores = ops.matmul(q, k.transpose((0, 1, 3, 2)))
        scores = scores + ops.gather(block.by_distance, Tensor(distance), 0)
        if bucket is not None:
            scores = scores + ops.gather(block.by_time, Tensor(bucket), 0).expand_dims(1)
        weights = ops.silu(scores) / 12 * allowed
        joined = ops.matmul(weights, v).transpose((0, 2, 1, 3)).reshape((-1, longest, 8))
        gated = norm(block.attention_norm, joined) * projected[..., 24:]
        return padding.unpad(x + dense(block.output.layers[0], gated))

    return formula


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("timed", [False, True])
def test_is_the_padded_block(lengths, timed):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    heads = 1 if timed else 2
    block = made(heads=heads, time_buckets=14 if timed else 0)
    values, offsets, times = drawn(sum(lengths), 8), offsets_of(lengths), drawn_times(lengths)
    parameters = block.trainable_params()

    def run(x: Any) -> Any:
        return block(x, offsets, times) if timed else block(x, offsets)

    found = values_and_gradients(run, [values], parameters)
    formula = padded(block, lengths, heads, times.asnumpy() if timed else None)
    check_equal(found, values_and_gradients(formula, [values], parameters), 2e-5)


def test_gradient_by_differences(mode):
    block = made(heads=2)
    values, offsets = drawn(23, 8), offsets_of([4, 0, 19])
    weights = drawn(23, 8, seed=3)

    def loss(x: Any) -> Any:
        return (block(x, offsets) * weights).sum()

    gradient = ms.grad(loss)(values).asnumpy()
    step = drawn(23, 8, seed=1).asnumpy()
    ends = [
        (block(Tensor(values.asnumpy() + h * step), offsets).asnumpy().astype(np.float64) * weights)
        .sum()
        .item()
        for h in (-5e-3, 5e-3)
    ]
    np.testing.assert_allclose((ends[1] - ends[0]) / 1e-2, (gradient * step).sum(), rtol=2e-2)


def test_lists_and_later_values_change_nothing(mode):
    block = made(heads=2)
    values = drawn(15, 8).asnumpy()
    whole = block(Tensor(values), offsets_of([6, 0, 9])).asnumpy()
    second = block(Tensor(values[6:12]), offsets_of([6])).asnumpy()
    np.testing.assert_allclose(whole[6:12], second, atol=1e-5)


@pytest.mark.parametrize("lists", [0, 3])
def test_batches_without_values(mode, lists):
    empty = Tensor(np.zeros((0, 8), np.float32))
    assert made(heads=2)(empty, offsets_of([0] * lists)).shape == (0, 8)


def test_batches_of_any_size_compile_few_graphs():
    class Loss(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.block = made(heads=2, dropout=0.2)

        def construct(self, values: Tensor, offsets: Tensor) -> Tensor:
            return (self.block(values, offsets) ** 2).sum()

    ms.set_context(mode=ms.GRAPH_MODE)
    net = Loss()
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 1e-4))
    caller = CellCaller(step)
    for k in range(20):
        lengths = [k, 3, 0, 2 * k]
        loss = caller(True, drawn(sum(lengths), 8, seed=k), offsets_of(lengths))
        assert np.isfinite(loss.asnumpy())
    assert len(step.compile_cache) == 3


def test_threads_change_no_bit():
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    lengths = [int(n) for n in np.random.default_rng(1).integers(0, 90, 40)]
    block = made(heads=2, time_buckets=9)
    values, offsets, times = drawn(sum(lengths), 8), offsets_of(lengths), drawn_times(lengths)
    before = mr.get_num_threads()
    found = []

    def run(x: Any) -> Any:
        return block(x, offsets, times)

    try:
        for threads in (1, 5):
            mr.set_num_threads(threads)
            found.append(values_and_gradients(run, [values], block.trainable_params()))
    finally:
        mr.set_num_threads(before)
    for a, b in zip(*found, strict=True):
        assert a.tobytes() == b.tobytes()


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="heads must be a divisor"):
        HSTU(8, 12, heads=3)
    with pytest.raises(ValueError, match="max_length must be in"):
        HSTU(8, 0)
    with pytest.raises(ValueError, match="times must be given"):
        made(time_buckets=3)(drawn(6, 8), offsets_of([6]))
