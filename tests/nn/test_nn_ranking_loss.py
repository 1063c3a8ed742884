# SPDX-License-Identifier: Apache-2.0
"""SoftmaxLoss, SampledSoftmaxLoss and BPRLoss: formulas in float64, differences, both modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec.nn import BPRLoss, SampledSoftmaxLoss, SoftmaxLoss

Formula = Callable[..., float]


def drawn(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def log_sum(logits: np.ndarray) -> np.ndarray:
    most = logits.max(-1)
    return most + np.log(np.exp(logits - most[..., None]).sum(-1))


def softmax(user, item, target, bias=None, temperature=1.0) -> float:
    logits = (user @ item.T + (0 if bias is None else bias)) / temperature
    return float((log_sum(logits) - logits[np.arange(len(user)), target]).mean())


def sampled(user, target, negative, ids=None, log_q=None, temperature=1.0) -> float:
    shared = negative.ndim == 2
    losses = []
    for b in range(len(user)):
        positive = user[b] @ target[b] / temperature
        others = (negative if shared else negative[b]) @ user[b] / temperature
        if log_q is not None:
            positive -= log_q[0][b]
            others = others - (log_q[1] if shared else log_q[1][b])
        if ids is not None:
            others = others[(ids[1] if shared else ids[1][b]) != ids[0][b]]
        losses.append(log_sum(np.append(others, positive)) - positive)
    return float(np.mean(losses))


def bpr(positive, negative) -> float:
    gaps = positive.reshape(-1, 1) - negative.reshape(len(positive), -1)
    return float(np.logaddexp(0, -gaps).mean())


def slopes(formula: Formula, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Derivatives of a formula by central differences in float64."""
    found = []
    for array in arrays:
        slope = np.zeros(array.shape)
        for place in np.ndindex(array.shape):
            before, sides = array[place], []
            for step in (1e-5, -1e-5):
                array[place] = before + step
                sides.append(formula(*arrays))
            array[place] = before
            slope[place] = (sides[0] - sides[1]) / 2e-5
        found.append(slope)
    return found


def check(loss: nn.Cell, formula: Formula, arrays: list[np.ndarray], *others: Any) -> None:
    """Compare value and gradients with the formula of the arrays."""
    tensors = [Tensor(each) for each in arrays]
    places = tuple(range(len(arrays)))
    value, gradients = ms.value_and_grad(loss, places)(*tensors, *others)
    wide = [each.astype(np.float64) for each in arrays]
    assert float(value.asnumpy()) == pytest.approx(formula(*wide), rel=2e-5, abs=1e-6)
    for found, expected in zip(gradients, slopes(formula, wide), strict=True):
        np.testing.assert_allclose(found.asnumpy(), expected, rtol=2e-4, atol=2e-6)


TARGET = np.array([4, 0, 4, 2, 6], np.int32)


@pytest.mark.parametrize("temperature", [1.0, 0.2])
@pytest.mark.parametrize("with_bias", [False, True])
def test_softmax_over_all_items(mode, temperature, with_bias) -> None:
    arrays = [drawn(5, 3), drawn(7, 3, seed=1)]
    if not with_bias:
        check(
            SoftmaxLoss(temperature),
            lambda user, item: softmax(user, item, TARGET, None, temperature),
            arrays,
            Tensor(TARGET),
        )
        return
    loss = SoftmaxLoss(temperature)

    class WithBias(nn.Cell):
        def construct(self, user, item, bias):
            return loss(user, item, Tensor(TARGET), bias)

    check(
        WithBias(),
        lambda user, item, bias: softmax(user, item, TARGET, bias, temperature),
        [*arrays, drawn(7, seed=2)],
    )


@pytest.mark.parametrize(
    ("shared", "with_ids", "with_log_q"),
    [(True, False, False), (True, True, True), (False, True, False), (False, False, True)],
)
def test_sampled_softmax(mode, shared, with_ids, with_log_q) -> None:
    rows = (6,) if shared else (5, 6)
    arrays = [drawn(5, 3), drawn(5, 3, seed=1), drawn(*rows, 3, seed=2)]
    rng = np.random.default_rng(4)
    ids = (TARGET, rng.integers(0, 7, rows).astype(np.int32)) if with_ids else None
    log_q = (drawn(5, seed=5), drawn(*rows, seed=6)) if with_log_q else None
    check(
        SampledSoftmaxLoss(0.5),
        lambda user, target, negative: sampled(user, target, negative, ids, log_q, 0.5),
        arrays,
        *(map(Tensor, ids) if ids else (None, None)),
        *(map(Tensor, log_q) if log_q else (None, None)),
    )


def test_targets_of_other_rows_as_negatives() -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    user, target = drawn(5, 3), drawn(5, 3, seed=1)
    ids = Tensor(TARGET)  # rows 0 and 2 have one target, which is no negative of theirs
    value = SampledSoftmaxLoss()(Tensor(user), Tensor(target), Tensor(target), ids, ids)
    expected = sampled(user, target, target, (TARGET, TARGET))
    assert float(value.asnumpy()) == pytest.approx(expected, rel=1e-5)


def test_all_items_as_negatives_give_the_softmax_over_all_items() -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    user, item = drawn(5, 3), drawn(7, 3, seed=1)
    ids = Tensor(np.arange(7, dtype=np.int32))
    found = SampledSoftmaxLoss()(
        Tensor(user), Tensor(item[TARGET]), Tensor(item), Tensor(TARGET), ids
    )
    expected = SoftmaxLoss()(Tensor(user), Tensor(item), Tensor(TARGET))
    assert float(found.asnumpy()) == pytest.approx(float(expected.asnumpy()), rel=1e-5)


def test_log_q_leads_to_the_softmax_over_all_items() -> None:
    # The mean gradient over draws by a skewed Q is nearly the gradient over all items.
    ms.set_context(mode=ms.PYNATIVE_MODE)
    rng = np.random.default_rng(0)
    user, item = drawn(1, 3), drawn(20, 3, seed=1)
    share = np.linspace(1, 30, 20)
    share /= share.sum()
    target = np.array([3], np.int32)
    negative = rng.choice(20, 20_000, p=share)
    log_q = np.log(share).astype(np.float32)
    # Many negatives: the target's own term is one of 20,000, as its share is of the sum.
    arguments = [Tensor(user), Tensor(item[target]), Tensor(item[negative])]
    loss, no_ids = SampledSoftmaxLoss(), (None, None)
    corrected = loss(*arguments, *no_ids, Tensor(log_q[target]), Tensor(log_q[negative]))
    expected = softmax(user, item, target) + np.log(20_000)
    assert float(corrected.asnumpy()) == pytest.approx(expected + log_q[3], abs=0.05)
    plain = loss(*arguments, *no_ids)
    assert abs(float(plain.asnumpy()) - expected) > 0.05


@pytest.mark.parametrize("shape", [(5,), (5, 4)])
def test_bpr(mode, shape) -> None:
    check(BPRLoss(), bpr, [drawn(5), drawn(*shape, seed=1)])
    check(BPRLoss(), bpr, [drawn(5, 1, scale=30.0), drawn(*shape, seed=1, scale=30.0)])


def test_equal_scores_have_a_gradient(mode) -> None:
    # Networks begin with scores near 0.
    zeros = [Tensor(np.zeros(2, np.float32)) for _ in range(2)]
    slope = ms.grad(BPRLoss())(*zeros).asnumpy()
    np.testing.assert_allclose(slope, [-0.25, -0.25])


@pytest.mark.parametrize("scale", [1e-20, 30.0, 1e4])
def test_large_and_small_scores_stay_finite(scale) -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    user, item = drawn(5, 3, scale=scale), drawn(7, 3, seed=1)
    loss = SoftmaxLoss()
    value, (slope, _) = ms.value_and_grad(loss, (0, 1))(Tensor(user), Tensor(item), Tensor(TARGET))
    expected = softmax(user.astype(np.float64), item.astype(np.float64), TARGET)
    assert float(value.asnumpy()) == pytest.approx(expected, rel=1e-5)
    assert np.isfinite(slope.asnumpy()).all()


def test_wrong_arguments_are_named() -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    for kind in (SoftmaxLoss, SampledSoftmaxLoss):
        with pytest.raises(ValueError, match="temperature must be a finite number > 0"):
            kind(0.0)
    user = Tensor(drawn(2, 3))
    with pytest.raises(ValueError, match="target_id and negative_id must be given together"):
        SampledSoftmaxLoss()(user, user, user, Tensor([1, 2]))
    with pytest.raises(ValueError, match="target_log_q and negative_log_q must be given together"):
        SampledSoftmaxLoss()(user, user, user, None, None, user[:, 0])
