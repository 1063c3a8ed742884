# SPDX-License-Identifier: Apache-2.0
"""Which dense parameters the native step updates, and that the others are updated as well."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec import optim
from mindspore_rec.train.optim.base import SparseOptimizer
from tests.support.networks import SumOf


def parameter(name: str, dtype: Any = ms.float32, shape: tuple[int, ...] = (3, 2)) -> Parameter:
    values = np.random.default_rng(len(name)).normal(0, 1, shape).astype(np.float32)
    return Parameter(Tensor(values).astype(dtype), name=name)


def gradient(dtype: Any = ms.float32, shape: tuple[int, ...] = (3, 2), seed: int = 1) -> Tensor:
    values = np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)
    return Tensor(values).astype(dtype)


def native_names(optimizer: Any) -> list[str]:
    return [optimizer.parameters[i].name for i in optimizer._native_index]


class Plain(optim.SGD):
    """Plain gradient descent by MindSpore's operators."""

    native_dense = False


def test_half_precision_stays_with_mindspore(mode):
    w, half, last = parameter("w"), parameter("half", ms.float16), parameter("last")
    before = [p.asnumpy().astype(np.float32) for p in (w, half, last)]
    optimizer = optim.SGD(
        [w, half, last], 0.5, weight_decay=0.1, loss_scale=2.0, clip_global_norm=3.0
    )
    assert native_names(optimizer) == ["w", "last"]
    grads = (gradient(), gradient(ms.float16, seed=2), gradient(seed=3))
    optimizer(grads)
    g = [each.asnumpy().astype(np.float32) / 2 for each in grads]
    norm = np.sqrt(sum((each**2).sum() for each in g))
    for p, old, each in zip((w, half, last), before, g, strict=True):
        expected = old - 0.5 * (each * min(1, 3 / norm) + 0.1 * old)
        rtol = 4e-3 if p.dtype == ms.float16 else 1e-6
        np.testing.assert_allclose(p.asnumpy(), expected, rtol, rtol)


def test_gradients_of_half_precision(mode):
    """Update a float32 parameter by a float16 gradient, as mixed precision may do."""
    w = parameter("w")
    before, g = w.asnumpy().copy(), gradient(ms.float16)
    optimizer = optim.SGD([w], 0.5, clip_global_norm=100.0)
    assert native_names(optimizer) == ["w"]
    optimizer((g,))
    np.testing.assert_allclose(w.asnumpy(), before - 0.5 * g.asnumpy().astype(np.float32), 1e-6)


def test_centralized_gradients_stay_with_mindspore(mode):
    """Nothing is subtracted here: it is where the second axis divides by 16, and not on the CPU."""
    results = []
    for cls in (optim.SGD, Plain):
        groups = [
            {"params": [parameter("a")], "grad_centralization": True},
            {"params": [parameter("bb")], "lr": 0.25},
        ]
        optimizer = cls(groups, learning_rate=0.5, weight_decay=0.1)
        assert native_names(optimizer) == (["bb"] if cls is optim.SGD else [])
        optimizer((gradient(), gradient(seed=2)))
        results.append([p.asnumpy().copy() for p in optimizer.parameters])
    for got, expected in zip(*results, strict=True):
        np.testing.assert_allclose(got, expected, 1e-6, 1e-6)


class SignDescent(SparseOptimizer):
    """A rule of one's own for dense parameters, gradient descent for tables."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, 0.5, 0.0, 1.0, None, rule="sgd", constants={}, state={})
        self._sub = ops.AssignSub()

    def dense_step(self, j: int, w: Any, g: Any, lr: Any, decay: Any, prepared: Any) -> Any:
        """Go by the sign."""
        return self._sub(w, lr * ops.sign(g))


def test_rule_of_ones_own(mode):
    w = parameter("w")
    before, g = w.asnumpy().copy(), gradient()
    optimizer = SignDescent([w])
    assert native_names(optimizer) == []
    optimizer((g,))
    np.testing.assert_allclose(w.asnumpy(), before - 0.5 * np.sign(g.asnumpy()), 1e-6)


class SignSGD(optim.SGD):
    """Changes the formula of a class that has a native one."""

    def dense_step(self, j: int, w: Any, g: Any, lr: Any, decay: Any, prepared: Any) -> Any:
        """Go by the sign."""
        return super().dense_step(j, w, ops.sign(g), lr, decay, prepared)


class WarmAdam(optim.Adam):
    """Changes the bias correction."""

    def prepare(self, step: Tensor) -> Any:
        """Correct nothing."""
        return self._one, self._one


class NamedAdam(optim.Adam):
    """Changes nothing that counts."""

    nickname = "adam"


class NativeAgain(WarmAdam):
    """Declares that the native rule computes the changed formula, too."""

    native_dense = True


@pytest.mark.parametrize(
    ("cls", "native"),
    [(SignSGD, False), (WarmAdam, False), (NamedAdam, True), (NativeAgain, True)],
)
def test_subclasses(graph_mode, cls, native):
    optimizer = cls([parameter("w")], learning_rate=0.5)
    assert native_names(optimizer) == (["w"] if native else [])
    optimizer((gradient(),))
    assert (optimizer.parameters[0].asnumpy() != parameter("w").asnumpy()).any()


def test_changed_formula_is_the_one_that_runs(graph_mode):
    w, g = parameter("w"), gradient()
    before = w.asnumpy().copy()
    SignSGD([w], learning_rate=0.5)((g,))
    np.testing.assert_allclose(w.asnumpy(), before - 0.5 * np.sign(g.asnumpy()), 1e-6)


def test_other_devices_stay_with_mindspore(monkeypatch):
    real = ms.get_context
    monkeypatch.setattr(
        ms, "get_context", lambda name: "Ascend" if name == "device_target" else real(name)
    )
    optimizer = optim.Adam([parameter("w")], clip_global_norm=1.0)
    assert native_names(optimizer) == []
    monkeypatch.undo()
    optimizer((gradient(),))  # as the CPU has MindSpore's operators too
    assert (optimizer.parameters[0].asnumpy() != parameter("w").asnumpy()).any()


def test_sparse_gradient_is_an_error(graph_mode):
    net = SumOf(nn.EmbeddingLookup(5, 2, target="CPU", sparse=True))
    cell = nn.TrainOneStepCell(net, optim.Adam(net.trainable_params()))
    with pytest.raises(TypeError, match="a dense parameter has a sparse gradient"):
        cell(Tensor(np.array([1, 2], np.int32)))
