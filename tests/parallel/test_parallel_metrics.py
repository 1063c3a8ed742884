# SPDX-License-Identifier: Apache-2.0
"""Metrics that are merged say what one metric says that has seen all rows."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec.metrics import AUC, GAUC, Calibration, LogLoss, NormalizedEntropy, StreamingAUC
from mindspore_rec.train.metrics.base import BinaryMetric

EXACT: dict[str, Callable[[], BinaryMetric]] = {
    "auc": AUC,
    "gauc": GAUC,
    "streaming": lambda: StreamingAUC(num_bins=16),
    "window": lambda: StreamingAUC(num_bins=16, window=7),
}
ROUNDED: dict[str, Callable[[], BinaryMetric]] = {
    "log_loss": LogLoss,
    "entropy": NormalizedEntropy,
    "calibration": Calibration,
    "edges": lambda: Calibration(bins=[0, 0.3, 1]),
    "fading": lambda: StreamingAUC(num_bins=16, half_life=5.0),
}
LOGITS: dict[str, Callable[[], BinaryMetric]] = {
    "auc": lambda: AUC(from_logits=True),
    "log_loss": lambda: LogLoss(from_logits=True),
    "streaming": lambda: StreamingAUC(from_logits=True),
}

# Few different values, so that ties and users on several workers are common.
rows = st.tuples(st.integers(0, 8).map(lambda k: k / 8), st.integers(0, 1), st.integers(0, 3))
# For each worker its batches, which may be empty, as may be the worker's whole part.
parts = st.lists(st.lists(st.lists(rows, max_size=6), max_size=4), min_size=1, max_size=4)


def fed(make: Callable[[], BinaryMetric], batches: list[list[tuple]]) -> BinaryMetric:
    """Return a metric that has seen some batches."""
    metric = make()
    for batch in batches:
        table = np.array(batch, np.float64).reshape(-1, 3)
        inputs = [table[:, 0], table[:, 1], table[:, 2].astype(np.int64)]
        metric.update(*inputs[: len(metric.inputs)])
    return metric


def both(make: Callable[[], BinaryMetric], workers: list) -> tuple[BinaryMetric, BinaryMetric]:
    """Return the merged metric, and one that has seen all rows."""
    merged = fed(make, workers[0])
    merged.merge([fed(make, batches) for batches in workers[1:]])
    return merged, fed(make, [batch for batches in workers for batch in batches])


@pytest.mark.parametrize("name", EXACT)
@settings(max_examples=60, deadline=None)
@given(workers=parts)
def test_exact_metrics_merge_exactly(name: str, workers: list) -> None:
    merged, whole = both(EXACT[name], workers)
    assert merged.rows == whole.rows
    if whole.rows:
        np.testing.assert_equal(merged.eval(), whole.eval())


@pytest.mark.parametrize("name", ROUNDED)
@settings(max_examples=60, deadline=None)
@given(workers=parts)
def test_sums_merge_to_rounding(name: str, workers: list) -> None:
    merged, whole = both(ROUNDED[name], workers)
    assert merged.rows == whole.rows
    if whole.rows:
        np.testing.assert_allclose(merged.eval(), whole.eval(), rtol=1e-12, equal_nan=True)


@settings(max_examples=30, deadline=None)
@given(workers=parts)
def test_reliability_curve_merges(workers: list) -> None:
    merged, whole = both(Calibration, workers)
    assert isinstance(merged, Calibration) and isinstance(whole, Calibration)
    if whole.rows:
        curve, expected = merged.reliability_curve(), whole.reliability_curve()
        np.testing.assert_array_equal(curve.rows, expected.rows)
        np.testing.assert_allclose(curve.predicted, expected.predicted, rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(workers=parts, more=st.lists(rows, max_size=9))
def test_merged_metric_goes_on(workers: list, more: list) -> None:
    """A window that was merged moves on as one that has seen all rows."""
    for make in (EXACT["window"], EXACT["auc"]):
        merged, whole = both(make, workers)
        table = np.array(more, np.float64).reshape(-1, 3)
        for metric in (merged, whole):
            metric.update(table[:, 0], table[:, 1])
        if whole.rows:
            np.testing.assert_equal(merged.eval(), whole.eval())


@pytest.mark.parametrize("make", [*EXACT.values(), *ROUNDED.values()])
def test_states_survive_transport_and_leave_the_other_alone(make: Callable) -> None:
    other = fed(make, [[(0.25, 0, 1), (0.75, 1, 1)], [(0.5, 1, 2)]])
    before = other.eval()
    metric = fed(make, [[(0.5, 0, 1)]])
    metric.merge_states([pickle.loads(pickle.dumps(other.state_dict()))])
    assert metric.rows == 4
    np.testing.assert_equal(other.eval(), before)
    metric.clear()
    assert metric.rows == 0


def test_a_user_on_two_workers_is_one_group() -> None:
    """Each worker alone has one class of the user, so neither could know the AUC."""
    one, other = GAUC(), GAUC()
    one.update(np.array([0.9, 0.2]), np.array([1, 1]), np.array([7, 7]))
    other.update(np.array([0.5]), np.array([0]), np.array([7]))
    assert math.isnan(one.eval()) and math.isnan(other.eval())
    one.merge([other])
    assert one.eval() == 0.5


def test_what_does_not_fit_is_refused_and_nothing_changes() -> None:
    metric = fed(AUC, [[(0.1, 0, 0), (0.9, 1, 0)]])
    good = fed(AUC, [[(0.5, 1, 0)]])
    with pytest.raises(TypeError, match="others must be AUC metrics, got a LogLoss"):
        metric.merge([LogLoss()])
    with pytest.raises(ValueError, match="same settings"):
        metric.merge([good, AUC(from_logits=True)])
    with pytest.raises(ValueError, match="same settings"):
        StreamingAUC(window=5).merge([StreamingAUC(window=6)])
    with pytest.raises(ValueError, match="same settings"):
        Calibration(bins=4).merge([Calibration(bins=5)])
    with pytest.raises(ValueError, match="same settings"):
        metric.merge_states([LogLoss().state_dict()])
    assert metric.rows == 2 and metric.eval() == 1.0


def test_order_matters_where_old_rows_weigh_less() -> None:
    assert not AUC().order_matters and not StreamingAUC().order_matters
    assert StreamingAUC(window=3).order_matters and StreamingAUC(half_life=3.0).order_matters


@pytest.mark.parametrize("name", LOGITS)
def test_logits_merge(name: str) -> None:
    generator = np.random.default_rng(3)
    logit = generator.normal(size=(3, 50)).astype(np.float32)
    label = generator.integers(0, 2, (3, 50))
    metrics = [LOGITS[name]() for _ in range(4)]
    for i in range(3):
        metrics[i].update(logit[i], label[i])
        metrics[3].update(logit[i], label[i])
    metrics[0].merge(metrics[1:3])
    np.testing.assert_allclose(metrics[0].eval(), metrics[3].eval(), rtol=1e-12)
