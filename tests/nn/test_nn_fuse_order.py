# SPDX-License-Identifier: Apache-2.0
"""A fused network does what its `construct` does, in its order, or cannot be fused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec.nn import MLP, fuse
from tests.nn.fused_cells import fused_pair

A, B = np.random.default_rng(5).standard_normal((2, 8, 6)).astype(np.float32)


class Two(nn.Cell):
    """Two perceptrons and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = MLP(6, (8,), out_features=4), MLP(6, (8,), out_features=4)
        self.out = nn.Dense(8, 1)
        self.norm = nn.BatchNorm1d(4)
        self.scale = 1.0
        self.count = Parameter(np.zeros(1, np.float32), requires_grad=False)
        self.seen: list[Any] = []


class Names(Two):
    """Its arguments are named as values might be."""

    def construct(self, v1: Tensor, value_2: Tensor) -> Tensor:
        first = self.one(v1 * 2.0)
        return self.out(ops.concat((first, self.two(value_2)), 1))


class TwiceNormalized(Two):
    """Its layer with a state reads a layer first, an input afterwards."""

    def construct(self, a: Tensor, b: Tensor) -> Tensor:
        first = self.norm(self.one(a))
        second = self.norm(b[:, :4])
        return self.out(ops.concat((first, self.two(b) + second), 1))


class Scaled(Two):
    """An attribute is a factor."""

    def construct(self, a: Tensor, b: Tensor) -> Tensor:
        return self.out(ops.concat((self.one(a * self.scale), self.two(b)), 1))


class Counting(Two):
    """It counts its calls in a Parameter."""

    def construct(self, a: Tensor, b: Tensor) -> Tensor:
        ops.assign_add(self.count, Tensor(np.ones(1, np.float32)))
        return self.out(ops.concat((self.one(a), self.two(b)), 1))


class Drawing(Two):
    """It draws numbers."""

    def construct(self, a: Tensor, b: Tensor) -> Tensor:
        return self.out(ops.concat((self.one(a * ops.rand(6)), self.two(b)), 1))


class Keeping(Two):
    """It keeps what it computes in a list."""

    def construct(self, a: Tensor, b: Tensor) -> Tensor:
        first = self.one(a)
        self.seen.append(first)
        return self.out(ops.concat((first, self.two(b)), 1))


class InPlace(Two):
    """`+=` changes a Tensor that is read later."""

    def construct(self, a: Tensor, b: Tensor) -> Tensor:
        first = self.one(a)
        total = first
        total += b[:, :4]
        return self.out(ops.concat((first, self.two(b)), 1))


class Added(Two):
    """`+=` makes a Tensor that alone is read later."""

    def construct(self, a: Tensor, b: Tensor) -> Tensor:
        total = self.one(a)
        total += self.two(b)
        return self.out(ops.concat((total, self.two(a)), 1))


def equal(fused: Any, plain: Any) -> None:
    """Compare outputs in both modes, and the parameters afterwards."""
    for training in (True, True, False):
        outputs = (net.set_train(training)(Tensor(A), Tensor(B)) for net in (fused, plain))
        one, other = (each.asnumpy() for each in outputs)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    for mine, other in zip(fused.get_parameters(), plain.get_parameters(), strict=True):
        np.testing.assert_allclose(mine.asnumpy(), other.asnumpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [Names, TwiceNormalized, Added])
def test_it_computes_what_it_says_in_its_order(mode, kind):
    fused, plain = fused_pair(kind)
    assert fused.runs_as_operator and fused.fused_graph.is_fused
    equal(fused, plain)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Counting, "it reads the Parameter 'count'"),
        (Drawing, "it calls ops.rand on something else than its inputs"),
        (Keeping, "it changes a list, dict or set of a cell in construct"),
        (InPlace, r"it reads a Tensor after \+= or the like"),
    ],
)
def test_what_would_be_done_once_cannot_be_fused(kind, reason):
    net = kind()
    with pytest.raises(ValueError, match=f"{kind.__name__} cannot be fused: {reason}"):
        fuse(net)
    assert net.count.asnumpy() == 0 and net.seen == [] and type(net) is kind


def test_a_number_that_changes_is_seen(pynative):
    fused, plain = fused_pair(Scaled)
    equal(fused, plain)
    fused.scale = plain.scale = 3.0
    with pytest.warns(RuntimeWarning, match="'scale' has another value than it had: call fuse"):
        equal(fused, plain)
    fuse(fused)
    assert fused.runs_as_operator
    equal(fused, plain)
