# SPDX-License-Identifier: Apache-2.0
"""The NumPy functions against scikit-learn and against the definitions, pair by pair."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import log_loss as sklearn_log_loss, roc_auc_score

from mindspore_rec.metrics import functional as F

# Few distinct values make ties; the neighbours of 0.5 are distinct in float64 only.
SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, 0.25, 0.5, np.nextafter(0.5, 1), 1.0]),
    st.floats(0, 1),
)
ROWS = st.lists(st.tuples(st.booleans(), SCORES), min_size=1, max_size=40)
GROUPS = st.sampled_from([0, 1, -1, 7, 2**63 - 1, -(2**63)])
GROUPED_ROWS = st.lists(st.tuples(st.booleans(), SCORES, GROUPS), min_size=1, max_size=40)


def pairwise_auc(label: np.ndarray, score: np.ndarray) -> float:
    """The definition: every positive against every negative."""
    won = [(p > n) + 0.5 * (p == n) for p in score[label == 1] for n in score[label == 0]]
    return sum(won) / len(won) if won else math.nan


def columns(rows: list) -> list[np.ndarray]:
    return [np.array(column) for column in zip(*rows, strict=True)]


@given(ROWS)
def test_auc_is_the_share_of_pairs_in_order(rows: list) -> None:
    label, score = columns(rows)
    assert F.auc(label, score) == pytest.approx(pairwise_auc(label, score), abs=1e-15, nan_ok=True)
    if 0 < label.sum() < len(label):
        assert F.auc(label, score) == pytest.approx(roc_auc_score(label, score), abs=1e-12)


@given(ROWS, st.randoms(use_true_random=False))
def test_auc_does_not_depend_on_order_by_one_bit(rows: list, random) -> None:
    before = F.auc(*columns(rows))
    random.shuffle(rows)
    np.testing.assert_equal(F.auc(*columns(rows)), before)


@given(ROWS)
def test_auc_of_turned_scores_and_of_turned_labels_is_the_complement(rows: list) -> None:
    label, score = columns(rows)
    value = F.auc(label, score)
    assert F.auc(label, -score) == pytest.approx(1 - value, abs=1e-15, nan_ok=True)
    assert F.auc(~label, score) == pytest.approx(1 - value, abs=1e-15, nan_ok=True)


@given(GROUPED_ROWS)
def test_gauc_is_the_weighted_mean_over_groups_of_both_classes(rows: list) -> None:
    label, score, group = columns(rows)
    total = weight = 0.0
    for key in set(group.tolist()):
        own = group == key
        value = pairwise_auc(label[own], score[own])
        if not math.isnan(value):
            total += value * own.sum()
            weight += own.sum()
    expected = total / weight if weight else math.nan
    assert F.gauc(label, score, group) == pytest.approx(expected, abs=1e-12, nan_ok=True)


@given(ROWS)
def test_gauc_of_one_group_is_the_auc(rows: list) -> None:
    label, score = columns(rows)
    value = F.gauc(label, score, np.full(len(label), -1))
    assert value == pytest.approx(F.auc(label, score), abs=1e-15, nan_ok=True)


@given(GROUPED_ROWS, st.randoms(use_true_random=False))
def test_gauc_does_not_depend_on_order_by_one_bit(rows: list, random) -> None:
    before = F.gauc(*columns(rows))
    random.shuffle(rows)
    np.testing.assert_equal(F.gauc(*columns(rows)), before)


@given(st.lists(st.tuples(st.booleans(), st.floats(1e-6, 1 - 1e-6)), min_size=1, max_size=40))
def test_log_loss_equals_sklearn(rows: list) -> None:
    label, p = columns(rows)
    assert F.log_loss(label, p) == pytest.approx(
        sklearn_log_loss(label, p, labels=[0, 1]), rel=1e-9
    )


def test_log_loss_clips_a_certain_mistake() -> None:
    assert F.log_loss([1], [0.0]) == pytest.approx(-math.log(F.PROBABILITY_EPS))
    assert F.log_loss([0], [np.float32(1)]) == pytest.approx(-math.log(F.PROBABILITY_EPS))
    assert F.log_loss([1, 0], [1, 0]) == pytest.approx(0, abs=2e-7)


@given(st.lists(st.tuples(st.booleans(), st.floats(-15, 15)), min_size=1, max_size=40))
def test_logits_give_what_their_probabilities_give(rows: list) -> None:
    label, z = columns(rows)
    p = 1 / (1 + np.exp(-z))
    for function in (F.log_loss, F.normalized_entropy, F.calibration):
        assert function(label, z, from_logits=True) == pytest.approx(
            function(label, p), rel=1e-6, abs=1e-6, nan_ok=True
        )


def test_extreme_logits_cost_what_they_are_and_do_not_overflow() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert F.log_loss([1, 0], [-1000.0, 1000.0], from_logits=True) == 1000.0
        assert F.log_loss([0, 1], [-1000.0, 1000.0], from_logits=True) == 0.0
        assert F.calibration([1, 0], [1000.0, -1000.0], from_logits=True) == 1.0


@given(st.lists(st.tuples(st.booleans(), st.floats(0.01, 0.99)), min_size=2, max_size=40))
def test_normalized_entropy_is_relative_to_predicting_the_rate(rows: list) -> None:
    label, p = columns(rows)
    rate = label.mean()
    if rate in (0, 1):
        assert math.isnan(F.normalized_entropy(label, p))
        return
    constant = np.full(len(label), rate)
    assert F.normalized_entropy(label, constant) == pytest.approx(1)
    expected = sklearn_log_loss(label, p) / sklearn_log_loss(label, constant)
    assert F.normalized_entropy(label, p) == pytest.approx(expected)


@given(ROWS)
def test_calibration_is_the_ratio_of_the_means(rows: list) -> None:
    label, p = columns(rows)
    expected = p.mean() / label.mean() if label.any() else math.nan
    assert F.calibration(label, p) == pytest.approx(expected, nan_ok=True)


@given(ROWS, st.integers(1, 7))
def test_reliability_curve_equals_sklearn_and_counts_every_row(rows: list, bins: int) -> None:
    label, p = columns(rows)
    curve = F.reliability_curve(label, p, bins=bins)
    observed, predicted = calibration_curve(label.astype(int), p, n_bins=bins, pos_label=1)
    some = curve.rows > 0
    np.testing.assert_allclose(curve.observed[some], observed)
    np.testing.assert_allclose(curve.predicted[some], predicted)
    assert np.isnan(curve.predicted[~some]).all() and np.isnan(curve.observed[~some]).all()
    assert curve.rows.sum() == len(label)
    np.testing.assert_array_equal(curve.lower[1:], curve.upper[:-1])


def test_reliability_curve_takes_edges() -> None:
    curve = F.reliability_curve([0, 1, 0, 1], [0.0, 0.01, 0.02, 1.0], bins=[0, 0.01, 0.1, 1])
    np.testing.assert_array_equal(curve.rows, [2, 1, 1])
    np.testing.assert_array_equal(curve.observed, [0.5, 0, 1])


@pytest.mark.parametrize(
    "bins", [0, -1, [0.1, 1], [0, 0.9], [0, 0.5, 0.5, 1], [0], [0, math.nan, 1]]
)
def test_bad_bins_are_refused(bins) -> None:
    with pytest.raises(ValueError, match="bins must"):
        F.reliability_curve([0, 1], [0.1, 0.2], bins=bins)


@pytest.mark.parametrize(
    ("label", "prediction", "error", "words"),
    [
        ([], [], ValueError, "label must have at least one row"),
        ([0, 1], [0.5], ValueError, "one length.*label 2, prediction 1"),
        ([0, 2], [0.5, 0.5], ValueError, "label must be 0 or 1, got 2 at row 1"),
        ([0, math.nan], [0.5, 0.5], ValueError, "label must be 0 or 1, got nan at row 1"),
        ([0, 1], [0.5, math.nan], ValueError, "prediction must be finite, got nan at row 1"),
        ([0, 1], [math.inf, 0.5], ValueError, "prediction must be finite, got inf at row 0"),
        ([0, 1], [0.5, 1.5], ValueError, "prediction must be probabilities.*1.5 at row 1"),
        ([0, 1], [-0.5, 0.5], ValueError, "prediction must be probabilities.*-0.5 at row 0"),
        ([0, 1], np.zeros((2, 1, 1)), ValueError, "prediction must have the shape"),
        ([0, 1], np.zeros((2, 2)), ValueError, "prediction must have the shape"),
        ([[0, 1]], [0.5], ValueError, "label must have the shape"),
        (0, 0.5, ValueError, "label must have the shape"),
        ([0, 1], ["a", "b"], TypeError, "prediction must be real numbers"),
        ([0, 1], [1j, 0], TypeError, "prediction must be real numbers"),
    ],
)
def test_bad_input_names_the_argument_and_the_row(label, prediction, error, words) -> None:
    for function in (F.log_loss, F.normalized_entropy, F.calibration, F.reliability_curve):
        with pytest.raises(error, match=words):
            function(label, prediction)


def test_auc_and_gauc_refuse_nan_scores_and_take_any_finite_ones() -> None:
    assert F.auc([0, 1], [-1e30, 1e30]) == 1.0
    assert F.gauc([0, 1], [-1e30, 1e30], [1, 1]) == 1.0
    with pytest.raises(ValueError, match="score must be finite, got nan at row 1"):
        F.auc([0, 1], [0.5, math.nan])
    with pytest.raises(ValueError, match="score must be finite"):
        F.gauc([0, 1], [0.5, math.nan], [1, 1])
    with pytest.raises(TypeError, match="group must be integers"):
        F.gauc([0, 1], [0.5, 0.5], [1.0, 2.0])
    with pytest.raises(ValueError, match="group 1"):
        F.gauc([0, 1], [0.5, 0.5], [1])


COUNTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8)


@given(COUNTS)
def test_counts_give_the_auc_of_scores_tied_within_their_bin(counts: list) -> None:
    positive, negative = columns(counts)
    bins = np.arange(len(counts))
    score = np.concatenate([np.repeat(bins, positive), np.repeat(bins, negative)])
    label = np.repeat([1, 0], [positive.sum(), negative.sum()])
    expected = F.auc(label, score) if len(label) else math.nan
    value = F.auc_from_counts(positive, negative)
    assert value == pytest.approx(expected, abs=1e-12, nan_ok=True)


@given(COUNTS)
def test_error_bound_is_reached_when_bins_are_ordered_inside(counts: list) -> None:
    positive, negative = columns(counts)
    bins = np.arange(len(counts))
    label = np.repeat([1, 0], [positive.sum(), negative.sum()])
    if not 0 < label.sum() < len(label):
        assert math.isnan(F.auc_error_bound(positive, negative))
        return
    score = np.concatenate([np.repeat(bins + 0.5, positive), np.repeat(bins, negative)])
    distance = F.auc(label, score) - F.auc_from_counts(positive, negative)
    assert F.auc_error_bound(positive, negative) == pytest.approx(distance, abs=1e-12)
