# SPDX-License-Identifier: Apache-2.0
"""StreamingAUC against the exact AUC of the rows that count, within the bound it states."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from mindspore_rec.metrics import StreamingAUC, functional

PROBABILITIES = st.one_of(
    st.floats(0, 1),
    st.sampled_from([0.0, 1.0, 0.5, np.nextafter(0.5, 1), 1e-9, 1 - 1e-9, 1e-3, 1.01e-3]),
)
ROWS = st.lists(st.tuples(st.booleans(), PROBABILITIES), min_size=1, max_size=60)
LOGIT_ROWS = st.lists(
    st.tuples(st.booleans(), st.floats(-20, 20) | st.floats(-1e30, 1e30)), min_size=1, max_size=60
)
CUTS = st.lists(st.integers(0, 60), max_size=5)


def columns(rows: list) -> tuple[np.ndarray, np.ndarray]:
    label, prediction = zip(*rows, strict=True)
    return np.array(label), np.array(prediction)


def fed(metric: StreamingAUC, label: np.ndarray, prediction: np.ndarray, cuts: list[int]):
    for part in np.split(np.arange(len(label)), sorted(cuts)):
        metric.update(prediction[part], label[part])
    return metric


def check_bound(metric: StreamingAUC, exact: float) -> None:
    if math.isnan(exact):
        assert math.isnan(metric.eval()) and math.isnan(metric.error_bound())
    else:
        assert 0 <= metric.error_bound() <= 0.5
        assert abs(metric.eval() - exact) <= metric.error_bound() + 1e-12


@given(ROWS, CUTS, st.sampled_from([3, 4, 50, 16384]))
def test_within_the_bound_of_the_exact_auc(rows: list, cuts: list[int], num_bins: int) -> None:
    label, prediction = columns(rows)
    metric = fed(StreamingAUC(num_bins=num_bins), label, prediction, cuts)
    check_bound(metric, functional.auc(label, prediction))


@given(LOGIT_ROWS, CUTS, st.sampled_from([3, 4, 50, 16384]))
def test_within_the_bound_with_logits(rows: list, cuts: list[int], num_bins: int) -> None:
    label, logits = columns(rows)
    metric = fed(StreamingAUC(num_bins=num_bins, from_logits=True), label, logits, cuts)
    check_bound(metric, functional.auc(label, logits))


@given(ROWS, CUTS, st.integers(1, 70))
def test_window_counts_exactly_the_last_rows(rows: list, cuts: list[int], window: int) -> None:
    label, prediction = columns(rows)
    metric = fed(StreamingAUC(num_bins=50, window=window), label, prediction, cuts)
    last = fed(StreamingAUC(num_bins=50), label[-window:], prediction[-window:], [])
    np.testing.assert_equal(metric.eval(), last.eval())
    np.testing.assert_equal(metric.error_bound(), last.error_bound())
    check_bound(metric, functional.auc(label[-window:], prediction[-window:]))


def weighted_pairwise_auc(label: np.ndarray, score: np.ndarray, weight: np.ndarray) -> float:
    difference = np.sign(score[label][:, None] - score[~label][None, :])
    pair_weight = weight[label][:, None] * weight[~label][None, :]
    if not pair_weight.size:
        return math.nan
    return float(((difference + 1) / 2 * pair_weight).sum() / pair_weight.sum())


@given(ROWS, CUTS, st.floats(1, 1000))
def test_half_life_weighs_rows_by_age(rows: list, cuts: list[int], half_life: float) -> None:
    label, prediction = columns(rows)
    weight = 0.5 ** (np.arange(len(label))[::-1] / half_life)
    metric = fed(StreamingAUC(half_life=half_life), label, prediction, cuts)
    check_bound(metric, weighted_pairwise_auc(label, prediction, weight))
    whole = fed(StreamingAUC(half_life=half_life), label, prediction, [])
    assert metric.eval() == pytest.approx(whole.eval(), abs=1e-12, nan_ok=True)


@given(ROWS)
def test_clear_forgets_window_and_weights(rows: list) -> None:
    label, prediction = columns(rows)
    for arguments in ({}, {"window": 5}, {"half_life": 3.0}):
        metric = StreamingAUC(num_bins=50, **arguments)
        metric.update(1 - prediction, label)
        metric.clear()
        metric.update(prediction, label)
        fresh = fed(StreamingAUC(num_bins=50, **arguments), label, prediction, [])
        np.testing.assert_equal(metric.eval(), fresh.eval())


def test_default_bins_are_fine_enough_for_click_rates() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(-4, 1.5, 200_000)
    prediction = (1 / (1 + np.exp(-logits))).astype(np.float32)
    label = rng.random(200_000) < prediction
    metric = fed(StreamingAUC(), label, prediction, [70_000])
    assert metric.error_bound() < 3e-4
    assert abs(metric.eval() - functional.auc(label, prediction)) < 1e-5


def test_a_window_follows_a_model_that_turned_bad() -> None:
    prediction, label = np.array([0.2, 0.8] * 100), np.array([0, 1] * 100)
    metrics = [StreamingAUC(window=200), StreamingAUC(half_life=20), StreamingAUC()]
    for metric in metrics:
        metric.update(prediction, label)
        metric.update(prediction, 1 - label)
    window, fading, total = (metric.eval() for metric in metrics)
    assert window == 0.0 and fading < 0.01 and total == 0.5


def test_float32_predictions_of_one_value_share_a_bin_in_both_classes() -> None:
    value = np.float32(0.1)
    metric = StreamingAUC()
    metric.update(np.array([value, value]), np.array([0, 1]))
    assert metric.eval() == 0.5


@given(st.integers(1, 10), st.lists(st.integers(0, 25), min_size=1, max_size=30))
def test_memory_of_a_window_does_not_grow(window: int, sizes: list[int]) -> None:
    assume(sum(sizes) > 0)
    metric = StreamingAUC(num_bins=3, window=window)
    for size in sizes:
        metric.update(np.full(size, 0.5), np.ones(size))
    counts = metric._counter.counts
    assert counts.sum() == min(window, sum(sizes)) and (counts >= 0).all()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"num_bins": 2}, ValueError, "num_bins must be at least 3, got 2"),
        ({"num_bins": 10.0}, TypeError, "num_bins must be an int"),
        ({"window": 0}, ValueError, "window must be at least 1, got 0"),
        ({"window": 1.5}, TypeError, "window must be an int"),
        ({"half_life": 0}, ValueError, "half_life must be a finite number of rows above 0"),
        ({"half_life": math.nan}, ValueError, "half_life must be a finite"),
        ({"half_life": math.inf}, ValueError, "half_life must be a finite"),
        ({"half_life": "1"}, TypeError, "half_life must be a number"),
        ({"window": 1, "half_life": 1.0}, ValueError, "window and half_life exclude each other"),
    ],
)
def test_bad_arguments_of_the_stream_are_refused(arguments, error, words) -> None:
    with pytest.raises(error, match=words):
        StreamingAUC(**arguments)
