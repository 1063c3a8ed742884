# SPDX-License-Identifier: Apache-2.0
"""BCEWithLogitsLoss against MindSpore's own, and against its formula in float64."""

from __future__ import annotations

import copy
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mindspore import Parameter, Tensor, nn

import mindspore_rec as mr
from mindspore_rec.nn import MLP, BCEWithLogitsLoss
from mindspore_rec.train.nn.loss import differentiable


def pair(*shape: int, seed: int = 0, most: float = 3.0) -> tuple[Tensor, Tensor]:
    """Random logits, and labels of 0, 1 and between."""
    rng = np.random.default_rng(seed)
    logits = rng.uniform(-most, most, shape).astype(np.float32)
    labels = np.clip(rng.uniform(-0.5, 1.5, shape), 0, 1).astype(np.float32)
    return Tensor(logits), Tensor(labels)


def value_and_gradients(loss: nn.Cell, logits: Tensor, labels: Tensor) -> list[np.ndarray]:
    """The loss, and its gradients of logits and labels."""
    value, gradients = ms.value_and_grad(loss, (0, 1))(logits, labels)
    return [each.asnumpy() for each in (value, *gradients)]


def check_as_mindspore(reduction: str, logits: Tensor, labels: Tensor) -> None:
    loss = BCEWithLogitsLoss(reduction)
    assert loss.is_fused
    ours = value_and_gradients(loss, logits, labels)
    scale = 1.0 / logits.size if reduction == "mean" else 1.0
    if ms.get_context("mode") == ms.GRAPH_MODE:
        theirs = value_and_gradients(nn.BCEWithLogitsLoss(reduction), logits, labels)
    else:
        # In PyNative MindSpore divides the gradient of a mean by the size of the process's first.
        summed = value_and_gradients(nn.BCEWithLogitsLoss("sum"), logits, labels)
        theirs = [np.float32(scale) * each for each in summed]
    assert [a.shape for a in ours] == [a.shape for a in theirs]
    np.testing.assert_allclose(ours[0], theirs[0], rtol=2e-6, atol=1e-9)
    for found, expected in zip(ours[1:], theirs[1:], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * scale)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("shape", [(1,), (7, 1), (33, 5), (2, 3, 4), (5000, 1)])
def test_is_mindspores(mode, reduction, shape):
    check_as_mindspore(reduction, *pair(*shape))


@given(
    rows=st.integers(1, 300),
    columns=st.integers(1, 4),
    most=st.sampled_from([0.01, 3.0, 90.0]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=20, deadline=None)
def test_is_the_formula(rows, columns, most, seed):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    logits, labels = pair(rows, columns, seed=seed, most=most)
    x, y = (each.asnumpy().astype(np.float64) for each in (logits, labels))
    losses = (1 - y) * x + np.maximum(-x, 0) + np.log1p(np.exp(-np.abs(x)))
    value, slopes, _ = value_and_gradients(BCEWithLogitsLoss(), logits, labels)
    np.testing.assert_allclose(value, losses.mean(), rtol=1e-6)
    np.testing.assert_allclose(slopes * x.size, 1 / (1 + np.exp(-x)) - y, rtol=1e-6, atol=3e-7)


@pytest.mark.parametrize("logit", [np.nan, np.inf, -np.inf, 100.0, -100.0, 0.0, -0.0])
@pytest.mark.parametrize("label", [0.0, 1.0, 0.5, np.nan])
def test_special_numbers_pass(mode, logit, label):
    logits, labels = pair(5, 1)
    some = logits.asnumpy().copy()
    some[2] = logit
    others = labels.asnumpy().copy()
    others[3 if np.isnan(label) else 2] = label
    check_as_mindspore("mean", Tensor(some), Tensor(others))


@pytest.mark.parametrize(("reduction", "expected"), [("mean", np.nan), ("sum", 0.0)])
def test_no_logits(mode, reduction, expected):
    none = Tensor(np.zeros((0, 1), np.float32))
    theirs = nn.BCEWithLogitsLoss(reduction)(none, none)
    found = BCEWithLogitsLoss(reduction)(none, none)
    np.testing.assert_equal(found.asnumpy(), theirs.asnumpy())
    np.testing.assert_equal(found.asnumpy(), np.float32(expected))


def test_threads_change_no_bit(mode):
    logits, labels = pair(40001, 1)
    before = mr.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            mr.set_num_threads(threads)
            found.append(value_and_gradients(BCEWithLogitsLoss(), logits, labels))
    finally:
        mr.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert a.tobytes() == b.tobytes()


def test_the_scale_of_the_result_reaches_the_gradient(mode):
    logits, labels = pair(9, 1)
    loss = BCEWithLogitsLoss()

    def scaled(x: Tensor) -> Any:
        return 1024.0 * loss(x, labels)

    whole = ms.grad(scaled)(logits).asnumpy()
    np.testing.assert_array_equal(whole, 1024 * ms.grad(loss)(logits, labels).asnumpy())


def trained(loss: nn.Cell, batches: list[int], dynamic: bool) -> list[np.ndarray]:
    """The losses of some steps of training, and the weight after them."""
    net = nn.WithLossCell(MLP(3, (4,), out_features=1), loss)
    for k, parameter in enumerate(net.trainable_params()):
        parameter.set_data(pair(*parameter.shape, seed=k, most=0.7)[0])
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.1)).set_train()
    if dynamic:
        step.set_inputs(*(Tensor(shape=[None, w], dtype=ms.float32) for w in (3, 1)))
    found = []
    for k, rows in enumerate(batches):
        x, _ = pair(rows, 3, seed=k)
        found.append(step(x, pair(rows, 1, seed=k)[1]).asnumpy())
    return [*found, net.trainable_params()[0].asnumpy()]


@pytest.mark.parametrize("dynamic", [False, True])
def test_trains_as_mindspores(mode, dynamic):
    batches = [4, 9, 1, 4]
    ours = trained(BCEWithLogitsLoss("sum"), batches, dynamic)
    theirs = trained(nn.BCEWithLogitsLoss("sum"), batches, dynamic)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_second_derivatives_are_refused(mode):
    logits, labels = pair(3, 1)
    loss = BCEWithLogitsLoss()
    gradient = ms.grad(loss)

    def squares(x: Tensor) -> Any:
        return (gradient(x, labels) ** 2).sum()

    assert float(squares(logits).asnumpy()) > 0
    with pytest.raises(NotImplementedError, match="has no second derivatives"):
        ms.grad(squares)(logits).asnumpy()


def mindspores(mode: str, given: Any, reduction: str = "mean", **weights: Any) -> np.ndarray:
    """The loss of MindSpore; in PyNative, where the gradient of its mean is wrong, its losses'."""
    if mode == "pynative" and reduction == "mean":
        return nn.BCEWithLogitsLoss("none", **weights)(*given).mean().asnumpy()
    return nn.BCEWithLogitsLoss(reduction, **weights)(*given).asnumpy()


@pytest.mark.parametrize(
    "settings_of",
    [
        {"reduction": "none"},
        {"weight": Tensor(np.array([[2.0]], np.float32))},
        {"pos_weight": Tensor(np.array([3.0], np.float32))},
    ],
    ids=["none", "weight", "pos_weight"],
)
def test_what_the_operator_does_not_do_is_mindspores(mode, settings_of):
    loss = BCEWithLogitsLoss(**settings_of)
    assert not loss.is_fused
    given = pair(6, 1)
    np.testing.assert_array_equal(loss(*given).asnumpy(), mindspores(mode, given, **settings_of))


def test_half_precision_is_mindspores(mode):
    given = [each.astype(ms.float16) for each in pair(6, 1)]
    found = BCEWithLogitsLoss()(*given)
    assert found.dtype == ms.float16
    np.testing.assert_array_equal(found.asnumpy(), mindspores(mode, given))


def test_a_copy_computes_the_same(mode):
    loss = BCEWithLogitsLoss("sum")
    given = pair(6, 2)
    other = copy.deepcopy(loss)
    assert other.is_fused
    np.testing.assert_array_equal(other(*given).asnumpy(), loss(*given).asnumpy())


def test_an_exported_network_has_mindspores(mode, tmp_path):
    given = pair(6, 1)
    loss = BCEWithLogitsLoss()
    expected = loss(*given).asnumpy()
    ms.export(loss, *given, file_name=str(tmp_path / "loss"), file_format="MINDIR")
    assert b"MsrLogisticLoss" not in (tmp_path / "loss.mindir").read_bytes()
    ms.set_context(mode=ms.GRAPH_MODE)
    graph = nn.GraphCell(ms.load(str(tmp_path / "loss.mindir")))
    np.testing.assert_allclose(graph(*given).asnumpy(), expected, rtol=1e-6)


def test_bad_input(mode):
    with pytest.raises(ValueError, match="reduction"):
        BCEWithLogitsLoss("average")
    with pytest.raises(TypeError, match="weight"):
        BCEWithLogitsLoss(weight=Parameter(Tensor([1.0], ms.float32)))
    logits, _ = pair(3, 1)
    with pytest.raises(ValueError, match="shape"):
        BCEWithLogitsLoss()(logits, pair(3)[1]).asnumpy()
    with pytest.raises(TypeError, match="target"):
        BCEWithLogitsLoss()(logits, logits.astype(ms.int32)).asnumpy()


@pytest.mark.parametrize(
    "make", [lambda: differentiable(nn.BCEWithLogitsLoss()), BCEWithLogitsLoss]
)
def test_the_mean_s_gradient_is_that_of_each_batch_s_size_in_pynative(make) -> None:
    """MindSpore 2.10 alone divides the gradient by the size of the first batch."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    loss, layer = make(), nn.Dense(3, 1)
    gradients = ms.value_and_grad(lambda x, y: loss(layer(x), y), None, layer.trainable_params())
    rng = np.random.default_rng(0)
    for rows in (4, 3, 1, 5):
        x = rng.normal(size=(rows, 3)).astype(np.float32)
        y = rng.integers(0, 2, (rows, 1)).astype(np.float32)
        _, (weight, bias) = gradients(Tensor(x), Tensor(y))
        logits = x @ layer.weight.asnumpy().T + layer.bias.asnumpy()
        of_logits = (1 / (1 + np.exp(-logits)) - y) / rows
        np.testing.assert_allclose(weight.asnumpy(), of_logits.T @ x, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(bias.asnumpy(), of_logits.sum(0), rtol=1e-4, atol=1e-6)
