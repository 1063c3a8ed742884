# SPDX-License-Identifier: Apache-2.0
"""The join of matrices has MindSpore's values and gradients, also in mixed precision."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, amp, nn, ops

from mindspore_rec import GroupedEmbedding, LazyAdam, TableConfig
from mindspore_rec.nn import SampledSoftmaxLoss
from mindspore_rec.train.nn.join import join_columns


class Weighted(nn.Cell):
    """Sum of joined matrices times numbers."""

    def __init__(self, join: Callable[..., Tensor]) -> None:
        super().__init__()
        self.join = join

    def construct(self, numbers: Tensor, *matrices: Tensor) -> Tensor:
        """Return the sum."""
        return (self.join(*matrices) * numbers).sum()


class Concatenated(nn.Cell):
    """MindSpore's own join."""

    def construct(self, *matrices: Tensor) -> Tensor:
        """Return the joined matrix."""
        return ops.concat(matrices, -1)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("leading", [(), (3,), (300, 2)])
@pytest.mark.parametrize("widths", [(5,), (1, 4), (2, 3, 1, 7)])
def test_gradients_are_mindspores(
    mode: str, dtype: Any, leading: tuple[int, ...], widths: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(0)
    numbers = Tensor(rng.random((*leading, sum(widths))).astype(dtype))
    matrices = [Tensor(rng.random((*leading, width)).astype(dtype)) for width in widths]
    places = tuple(range(1, len(widths) + 1))
    results = []
    for join in (join_columns(len(widths)), Concatenated()):
        value, gradients = ms.value_and_grad(Weighted(join), places)(numbers, *matrices)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        results.append([value, *gradients])
    for ours, expected in zip(*results, strict=True):
        assert ours.dtype == expected.dtype
        np.testing.assert_array_equal(ours.asnumpy(), expected.asnumpy())


class Scores(nn.Cell):
    """A network over tables with rows of two sizes."""

    def __init__(self, name: str) -> None:
        super().__init__()
        configs = [TableConfig(dim, name=f"{name}.{i}") for i, dim in enumerate((4, 8, 4))]
        self.group = GroupedEmbedding(config=configs)
        self.dense = nn.Dense(16, 1)

    def construct(self, ids: Tensor) -> Tensor:
        """Return the sum of the scores."""
        return self.dense(self.group(ids)).astype(ms.float32).sum()


def test_tables_of_two_sizes_are_evaluated_in_float16(mode: str, unique: Any) -> None:
    net = Scores(unique())
    ids = Tensor([[1, 2, 3], [4, 5, 6]], ms.int64)
    expected = float(net.set_train(False)(ids).asnumpy())
    assert float(net.to_float(ms.float16)(ids).asnumpy()) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
def test_tables_of_two_sizes_train_in_mixed_precision(
    pynative: None, level: str, unique: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # for O1, MindSpore writes the source of the new cell
    monkeypatch.setattr(sys, "path", [*sys.path])
    net = Scores(unique())
    optimizer = LazyAdam(net.trainable_params(), 0.01)
    net = amp.auto_mixed_precision(net, level, ms.float16)
    net.set_train()
    step = ms.value_and_grad(net, None, optimizer.parameters)
    ids = Tensor([[1, 2, 3], [4, 5, 6]], ms.int64)
    losses = []
    for _ in range(3):
        loss, gradients = step(ids)
        optimizer(gradients)
        losses.append(float(loss.asnumpy()))
    assert losses[2] < losses[1] < losses[0]


def test_a_sampled_loss_of_float16_has_gradients(mode: str) -> None:
    rng = np.random.default_rng(0)
    inputs = [Tensor(rng.random((n, 4)).astype(np.float16)) for n in (3, 3, 5)]
    gradients = ms.grad(SampledSoftmaxLoss(), (0, 1, 2))(*inputs)
    wide = [each.astype(ms.float32) for each in inputs]
    expected = ms.grad(SampledSoftmaxLoss(), (0, 1, 2))(*wide)
    for ours, each in zip(gradients, expected, strict=True):
        assert ours.dtype == ms.float16
        np.testing.assert_allclose(ours.asnumpy(), each.asnumpy(), atol=2e-3)
