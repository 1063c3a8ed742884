# SPDX-License-Identifier: Apache-2.0
"""TargetAttention, Dice and PReLU against MindSpore's operators, and by their properties."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

import mindspore_rec as mr
from mindspore_rec.nn import MLP, Dice, HistoryTransformer, PReLU, TargetAttention, fuse
from mindspore_rec.train.graph.cell_caller import CellCaller
from mindspore_rec.train.loop.amp_level import apply_amp_level
from tests.nn.padded_histories import (
    LENGTHS,
    Padding,
    check_equal,
    dense,
    draw_parameters,
    drawn,
    offsets_of,
    values_and_gradients,
)


def made(**arguments: Any) -> TargetAttention:
    """A cell whose parameters are all random, in training."""
    cell = TargetAttention(6, **{"hidden": (9, 5), **arguments})
    draw_parameters(cell)
    return cell.set_train()


def dice(cell: Dice, x: Any, mask: Any, training: bool) -> Any:
    """The formula of Dice over the rows of a padded block that the mask selects."""
    mean, variance = cell.moving_mean, cell.moving_variance
    if training:
        mask = mask.reshape((*mask.shape, *[1] * (x.ndim - mask.ndim)))
        axes = tuple(range(x.ndim - 1))
        mean = (x * mask).sum(axes) / mask.sum()
        variance = ((x - mean) ** 2 * mask).sum(axes) / mask.sum()
    p = ops.sigmoid((x - mean) / ops.sqrt(variance + 1e-8))
    return x * (p + (1 - p) * cell.alpha)


def prelu(cell: PReLU, x: Any) -> Any:
    """The formula of PReLU."""
    return ops.maximum(x, Tensor(0.0)) + cell.alpha * ops.minimum(x, Tensor(0.0))


def padded(cell: TargetAttention, lengths: list[int], softmax: bool) -> Any:
    """The formula over a padded block, as a function of candidates and values."""
    padding = Padding(lengths)

    def activate(layer: Any, x: Any) -> Any:
        if isinstance(layer, PReLU):
            return prelu(layer, x)
        return dice(layer, x, padding.mask, cell.training)

    def formula(candidate: Any, values: Any) -> Any:
        v = padding.pad(values)
        c = ops.broadcast_to(candidate.expand_dims(1), v.shape)
        x = ops.matmul(ops.concat((c, v, c - v, c * v), -1), cell.weight.T) + cell.bias
        x = activate(cell.activation, x)
        x = activate(cell.layers[1], dense(cell.layers[0].layers[0], x))
        scores = dense(cell.layers[2].layers[0], x)[..., 0]
        if softmax:
            scores = ops.select(padding.mask > 0, scores, ops.full_like(scores, -1e9))
            scores = ops.softmax(scores, -1)
        return ((scores * padding.mask).expand_dims(-1) * v).sum(1)

    return formula


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize(
    ("activation", "softmax", "training"),
    [("dice", False, True), ("dice", True, False), ("prelu", True, True)],
)
def test_is_the_padded_block(lengths, activation, softmax, training):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    cell = made(activation=activation, softmax=softmax).set_train(training)
    inputs = [drawn(len(lengths), 6, seed=1), drawn(sum(lengths), 6)]
    offsets = offsets_of(lengths)
    parameters = cell.trainable_params()
    expected = values_and_gradients(padded(cell, lengths, softmax), inputs, parameters)
    found = values_and_gradients(lambda c, v: cell(c, v, offsets), inputs, parameters)
    check_equal(found, expected, 2e-5)


def test_gradient_by_differences(mode):
    lengths = [4, 0, 19]
    cell = made(softmax=True)
    candidate, values, offsets = drawn(3, 6, seed=1), drawn(23, 6), offsets_of(lengths)
    weights = drawn(3, 6, seed=3)

    def loss(x: Any) -> Any:
        return (cell(candidate, x, offsets) * weights).sum()

    gradient = ms.grad(loss)(values).asnumpy()
    step = drawn(23, 6, seed=1).asnumpy()
    ends = [float(loss(Tensor(values.asnumpy() + h * step)).asnumpy()) for h in (-5e-3, 5e-3)]
    np.testing.assert_allclose((ends[1] - ends[0]) / 1e-2, (gradient * step).sum(), rtol=3e-2)


def test_an_empty_history_is_zero(mode):
    cell = made()
    out = cell(drawn(3, 6), drawn(5, 6), offsets_of([2, 0, 3])).asnumpy()
    assert not out[1].any() and out[[0, 2]].any(1).all()
    empty = Tensor(np.zeros((0, 6), np.float32))
    assert not cell(drawn(2, 6), empty, offsets_of([0, 0])).asnumpy().any()
    np.testing.assert_array_equal(
        np.isfinite(cell.activation.moving_mean.asnumpy()), np.ones(9, bool)
    )


def test_moving_moments(mode):
    cell = Dice(3, momentum=0.75).set_train()
    first, second = drawn(40, 3, seed=1, scale=2.0), drawn(7, 3, seed=2)
    mean, variance = np.zeros(3), np.ones(3)
    for x in (first, second):
        cell(x)
        mean = 0.75 * mean + 0.25 * x.asnumpy().mean(0)
        variance = 0.75 * variance + 0.25 * x.asnumpy().var(0)
    np.testing.assert_allclose(cell.moving_mean.asnumpy(), mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(cell.moving_variance.asnumpy(), variance, rtol=1e-5)
    cell(Tensor(np.zeros((0, 3), np.float32)))
    np.testing.assert_allclose(cell.moving_mean.asnumpy(), mean, rtol=1e-5, atol=1e-6)
    found = cell.set_train(False)(second).asnumpy()
    p = 1 / (1 + np.exp(-(second.asnumpy() - mean) / np.sqrt(variance + 1e-8)))
    np.testing.assert_allclose(found, second.asnumpy() * p, atol=1e-5)


def test_activations_are_exact_far_from_zero(mode):
    cell = Dice(2).set_train()
    x = drawn(3000, 2).asnumpy() + np.float32(4000)
    cell(Tensor(x))
    variance = x.astype(np.float64).var(0)
    np.testing.assert_allclose(cell.moving_variance.asnumpy(), 0.9 + 0.1 * variance, rtol=1e-4)


def test_prelu(mode):
    cell = PReLU(5, 0.1)
    draw_parameters(cell)
    x = drawn(300, 5)
    found = values_and_gradients(cell, [x], cell.trainable_params())

    def formula(y: Any) -> Any:
        return prelu(cell, y)

    check_equal(found, values_and_gradients(formula, [x], cell.trainable_params()))


def test_batches_of_any_size_compile_few_graphs():
    class Loss(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.pool = made()

        def construct(self, candidate: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
            return (self.pool(candidate, values, offsets) ** 2).sum()

    ms.set_context(mode=ms.GRAPH_MODE)
    net = Loss()
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 1e-4))
    caller = CellCaller(step)
    for k in range(20):
        lengths = [k, 3, 0, 2 * k]
        values = drawn(sum(lengths), 6, seed=k)
        assert np.isfinite(caller(True, drawn(4, 6), values, offsets_of(lengths)).asnumpy())
    assert len(step.compile_cache) == 3


def test_in_a_network_that_is_fused():
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.pool = HistoryTransformer(6), made().set_train(False)
            self.deep, self.deeper = MLP((6, 6), (8,)), MLP(8, (4,))

        def construct(self, candidate: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
            pooled = self.pool(candidate, self.block(values, offsets), offsets)
            return self.deeper(self.deep(candidate, pooled))

    ms.set_context(mode=ms.GRAPH_MODE)
    net = Net()
    inputs = drawn(3, 6, seed=1), drawn(5, 6), offsets_of([3, 0, 2])
    expected = net(*inputs).asnumpy()
    fuse(net)
    assert net.runs_as_operator
    np.testing.assert_allclose(net(*inputs).asnumpy(), expected, atol=1e-6)


def test_threads_change_no_bit():
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    lengths = [int(n) for n in np.random.default_rng(1).integers(0, 90, 60)]
    cell = made(softmax=True)
    inputs, offsets = [drawn(60, 6, seed=1), drawn(sum(lengths), 6)], offsets_of(lengths)
    before = mr.get_num_threads()
    found = []

    def run(candidate: Any, values: Any) -> Any:
        return cell(candidate, values, offsets)

    try:
        for threads in (1, 5):
            mr.set_num_threads(threads)
            found.append(values_and_gradients(run, inputs, cell.trainable_params()))
    finally:
        mr.set_num_threads(before)
    for a, b in zip(*found, strict=True):
        assert a.tobytes() == b.tobytes()


def test_factors_in_bfloat16_are_rounded():
    """The result is near the result in float32, and differs from it; so are the gradients."""
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    lengths = [40, 0, 300]
    cell, offsets = made(), offsets_of(lengths)
    inputs = [drawn(3, 6, seed=1), drawn(sum(lengths), 6)]
    parameters = cell.trainable_params()

    def run(candidate: Any, values: Any) -> Any:
        return cell(candidate, values, offsets)

    exact = values_and_gradients(run, inputs, parameters)
    cell.set_compute_dtype("bfloat16")
    rounded = values_and_gradients(run, inputs, parameters)
    assert any((a != b).any() for a, b in zip(exact, rounded, strict=True))
    for a, b in zip(exact, rounded, strict=True):
        assert np.abs(a - b).max() <= 0.1 * np.abs(a).max()
    with pytest.raises(ValueError, match="compute_dtype must be one of"):
        cell.set_compute_dtype("float16")
    network = nn.SequentialCell(cell.set_compute_dtype("float32"))
    apply_amp_level(network, "O2")
    assert cell.compute_dtype == "bfloat16"


def test_stays_in_float32_in_a_network_in_float16(mode):
    """After `to_float` of the network, `to_float` of the layers sets them back."""

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.pool = HistoryTransformer(6), made().set_train(False)
            self.deep = nn.Dense(6, 3)

        def construct(self, candidate: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
            pooled = self.pool(candidate, self.block(values, offsets), offsets)
            return ops.cast(self.deep(pooled), ms.float32)

    net, inputs = Net(), (drawn(2, 6, seed=1), drawn(9, 6), offsets_of([4, 5]))
    expected = net(*inputs).asnumpy()
    net.compile_cache.clear()
    net.to_float(ms.float16)
    net.pool.to_float(ms.float32)
    net.block.to_float(ms.float32)
    np.testing.assert_allclose(net(*inputs).asnumpy(), expected, rtol=2e-2, atol=2e-2)


def test_cells_inside_must_be_as_they_were_made(mode):
    inputs = drawn(1, 6, seed=1), drawn(3, 6), offsets_of([3])
    cell = made()
    cell.activation.set_train(False)
    with pytest.raises(RuntimeError, match="type Dice is in another mode"):
        cell(*inputs)
    cell.layers.set_train(False)  # all moments are frozen
    before = cell.activation.moving_mean.asnumpy().copy()
    frozen = cell(*inputs).asnumpy()
    np.testing.assert_array_equal(cell.activation.moving_mean.asnumpy(), before)
    np.testing.assert_array_equal(cell.set_train(False)(*inputs).asnumpy(), frozen)
    watched = made()
    watched.layers[1].register_forward_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match="type Dice has hooks"):
        watched(*inputs)
    other = made()
    other.layers[2] = nn.Identity().set_train()
    with pytest.raises(RuntimeError, match="has taken another one's place"):
        other(*inputs)


def test_wrong_inputs_are_refused():
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    with pytest.raises(RuntimeError, match="candidate must have a row for each of 1 lists"):
        made()(drawn(2, 6), drawn(6, 6), offsets_of([6])).asnumpy()
    with pytest.raises(ValueError, match="candidate must be"):
        made()(drawn(1, 7), drawn(6, 6), offsets_of([6]))
    with pytest.raises(ValueError, match="hidden must have at least one layer"):
        TargetAttention(6, ())
    with pytest.raises(ValueError, match="activation must be one of"):
        TargetAttention(6, activation="relu")
    with pytest.raises(ValueError, match="epsilon must be greater than 0"):
        Dice(3, epsilon=0)
    with pytest.raises(ValueError, match="momentum must be in"):
        Dice(3, momentum=2)
