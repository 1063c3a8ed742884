# SPDX-License-Identifier: Apache-2.0
"""What all metric classes promise: inputs, batches, errors, and their functions' values."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, strategies as st

from mindspore_rec.metrics import (
    AUC,
    GAUC,
    Calibration,
    LogLoss,
    NormalizedEntropy,
    StreamingAUC,
    functional,
)
from mindspore_rec.train.metrics.accuracy import Accuracy
from mindspore_rec.train.metrics.base import BinaryMetric
from mindspore_rec.train.metrics.number_errors import MAE, MSE, RMSE

FUNCTIONS: dict[type[BinaryMetric], Callable[..., float]] = {
    AUC: functional.auc,
    LogLoss: functional.log_loss,
    NormalizedEntropy: functional.normalized_entropy,
    Calibration: functional.calibration,
}
CLASSES: list[type[BinaryMetric]] = [*FUNCTIONS, StreamingAUC, GAUC]

ROWS = st.lists(
    st.tuples(st.booleans(), st.floats(0, 1, width=32), st.integers(-2, 2)),
    min_size=1,
    max_size=40,
)


def batch(kind: type[BinaryMetric], prediction: Any, label: Any, group: Any = None) -> tuple:
    """The inputs of ``kind.update``."""
    if kind is not GAUC:
        return prediction, label
    return prediction, label, np.zeros(len(label), np.int64) if group is None else group


def filled(kind: type[BinaryMetric], *columns: Any, **arguments: Any) -> BinaryMetric:
    metric = kind(**arguments)
    metric.update(*batch(kind, *columns))
    return metric


@pytest.mark.parametrize("kind", CLASSES)
@given(rows=ROWS, cuts=st.lists(st.integers(0, 40), max_size=4))
def test_value_does_not_depend_on_the_batches(kind, rows: list, cuts: list[int]) -> None:
    label, prediction, group = (np.array(c) for c in zip(*rows, strict=True))
    prediction = prediction.astype(np.float32)
    whole = filled(kind, prediction, label, group)
    parts = kind()
    for part in np.split(np.arange(len(label)), sorted(cuts)):  # empty batches included
        parts.update(*batch(kind, prediction[part], label[part], group[part]))
    assert parts.rows == whole.rows == len(label)
    tolerance = 0 if kind in (AUC, GAUC, StreamingAUC) else 1e-9
    assert parts.eval() == pytest.approx(whole.eval(), rel=tolerance, abs=0, nan_ok=True)
    if kind in FUNCTIONS:
        expected = FUNCTIONS[kind](label, prediction)
        assert whole.eval() == pytest.approx(expected, rel=1e-9, abs=0, nan_ok=True)
    if kind is GAUC:
        np.testing.assert_equal(whole.eval(), functional.gauc(label, prediction, group))


@given(rows=ROWS)
def test_calibration_curve_over_batches_is_the_functions_curve(rows: list) -> None:
    label, prediction, _ = (np.array(c) for c in zip(*rows, strict=True))
    metric = Calibration(bins=5)
    for one in range(len(label)):
        metric.update(prediction[one : one + 1], label[one : one + 1])
    expected = functional.reliability_curve(label, prediction, bins=5)
    for got, want in zip(metric.reliability_curve(), expected, strict=True):
        np.testing.assert_allclose(got, want)


@pytest.mark.parametrize("kind", CLASSES)
def test_tensors_arrays_lists_shapes_and_dtypes_give_one_value(kind) -> None:
    prediction = np.array([0.25, 0.5, 0.75, 0.5], np.float32)  # exact in every float type
    label = np.array([0, 1, 1, 0], np.float32)
    value = filled(kind, prediction, label).eval()
    assert math.isfinite(value)
    variants: list[tuple[Any, Any]] = [
        (ms.Tensor(prediction), ms.Tensor(label)),
        (ms.Tensor(prediction[:, None]), ms.Tensor(label.astype(np.int32))),
        (ms.Tensor(prediction, ms.float16), ms.Tensor(label, ms.bool_)),
        (ms.Tensor(prediction, ms.bfloat16), ms.Tensor(label, ms.bfloat16)),
        (prediction.astype(np.float64), label.astype(np.int64)[:, None]),
        (prediction.tolist(), label.astype(bool).tolist()),
    ]
    for variant in variants:
        assert filled(kind, *variant).eval() == value


@pytest.mark.parametrize("kind", CLASSES)
def test_task_takes_one_column(kind) -> None:
    rng = np.random.default_rng(1)
    prediction = rng.random((50, 3), np.float32)
    label = rng.integers(0, 2, (50, 3))
    values = [filled(kind, prediction, label, task=task).eval() for task in range(3)]
    expected = [filled(kind, prediction[:, t], label[:, t]).eval() for t in range(3)]
    assert values == expected
    assert len(set(values)) == 3
    # One column of predictions serves the labels of any task.
    assert filled(kind, prediction[:, :1], label, task=2).eval() == (
        filled(kind, prediction[:, 0], label[:, 2]).eval()
    )
    for task in (3, 4):
        with pytest.raises(ValueError, match=r"task must be in \[0, 3\)"):
            filled(kind, prediction, label, task=task)
    with pytest.raises(ValueError, match="task must be 0"):
        filled(kind, prediction[:, 0], label[:, :1], task=1)


@pytest.mark.parametrize("kind", CLASSES)
def test_nothing_is_kept_by_reference(kind) -> None:
    prediction = np.array([0.2, 0.6, 0.7, 0.1], np.float32)
    label = np.array([False, True, False, True])
    group = np.zeros(4, np.int64)
    value = filled(kind, prediction, label, group).eval()
    metric = filled(kind, prediction, label, group)
    prediction[:], label[:], group[:] = 0.5, True, [1, 2, 3, 4]
    assert metric.eval() == value


@pytest.mark.parametrize("kind", CLASSES)
def test_clear_leaves_nothing_behind(kind) -> None:
    metric = filled(kind, [0.9, 0.1, 0.4], [0, 1, 0])
    metric.clear()
    metric.update(*batch(kind, [0.2, 0.8, 0.9], [0, 1, 0]))
    assert metric.rows == 3
    assert metric.eval() == filled(kind, [0.2, 0.8, 0.9], [0, 1, 0]).eval()


@pytest.mark.parametrize("kind", CLASSES)
def test_bfloat16_keeps_its_range(kind) -> None:
    logits = ms.Tensor([-1e30, 1e30], ms.bfloat16)
    assert math.isfinite(filled(kind, logits, [0, 1], from_logits=True).eval())


@pytest.mark.parametrize("kind", CLASSES)
def test_nothing_seen_is_an_error_before_and_after_clear(kind) -> None:
    metric = kind()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=f"{kind.__name__} has seen no rows"):
            metric.eval()
        metric.update(*batch(kind, np.zeros(0, np.float32), np.zeros(0, np.float32)))
        with pytest.raises(RuntimeError, match="has seen no rows"):
            metric.eval()
        metric.update(*batch(kind, [0.2, 0.8], [0, 1]))
        metric.eval()
        metric.clear()
    for method in (StreamingAUC().error_bound, Calibration().reliability_curve):
        with pytest.raises(RuntimeError, match="has seen no rows"):
            method()


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("label", [0, 1])
def test_one_class_is_nan_where_that_is_undefined_and_recovers(kind, label: int) -> None:
    metric = filled(kind, [0.25, 0.5], [label, label])
    defined = kind is LogLoss or (kind is Calibration and label == 1)
    assert math.isnan(metric.eval()) != defined
    metric.update(*batch(kind, [0.25, 0.75], [0, 1]))
    assert math.isfinite(metric.eval())


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize(
    ("prediction", "label", "error", "words"),
    [
        ([0.5, math.nan], [0, 1], ValueError, "prediction must be finite, got nan at row 1"),
        ([0.5, -3.0], [0, 1], ValueError, "got -3.0 at row 1; for logits pass from_logits=True"),
        ([0.5, 0.5], [0, 2], ValueError, "label must be 0 or 1, got 2 at row 1"),
        ([0.5, 0.5], [0.0, 0.5], ValueError, "label must be 0 or 1, got 0.5 at row 1"),
        ([0.5, 0.5, 0.5], [0, 1], ValueError, "prediction 3, label 2"),
        (np.zeros((2, 2, 2)), [0, 1], ValueError, "prediction must have the shape"),
        (np.zeros((2, 0)), [0, 1], ValueError, "prediction must have the shape"),
        ([0.5, 0.5], np.zeros((2, 1, 1)), ValueError, "label must have the shape"),
        ("ab", [0, 1], TypeError, "must be tensor, list or numpy.ndarray"),
        (["a", "b"], [0, 1], TypeError, "prediction must be real numbers"),
    ],
)
def test_a_refused_batch_names_its_fault_and_changes_nothing(
    kind, prediction, label, error, words
) -> None:
    metric = filled(kind, [0.2, 0.8, 0.3], [0, 1, 1])
    value = metric.eval()
    with pytest.raises(error, match=words):
        metric.update(*batch(kind, prediction, label))
    assert metric.rows == 3
    assert metric.eval() == value


def test_gauc_refuses_bad_groups_and_changes_nothing() -> None:
    metric = filled(GAUC, [0.2, 0.8], [0, 1])
    with pytest.raises(TypeError, match="group must be integers"):
        metric.update([0.2, 0.8], [0, 1], [0.5, 1.5])
    with pytest.raises(ValueError, match="label 2, group 3"):
        metric.update([0.2, 0.8], [0, 1], [1, 2, 3])
    with pytest.raises(ValueError, match=r"takes \(prediction, label, group\), got 2 inputs"):
        metric.update([0.2, 0.8], [0, 1])
    assert metric.rows == 2 and metric.eval() == 1.0


@pytest.mark.parametrize("kind", CLASSES)
def test_bad_arguments_are_refused(kind) -> None:
    with pytest.raises(TypeError, match="from_logits must be a bool"):
        kind(from_logits=1)
    with pytest.raises(TypeError, match="task must be an int"):
        kind(task=True)
    with pytest.raises(ValueError, match="task must be at least 0, got -1"):
        kind(task=-1)


@pytest.mark.parametrize("kind", CLASSES)
def test_set_indexes_chooses_the_inputs(kind) -> None:
    columns = batch(kind, [0.2, 0.8, 0.3, 0.9], [0, 1, 1, 0], np.zeros(4, np.int64))
    metric = kind().set_indexes([3, 1, 2][: len(columns)])
    spread: list[Any] = [np.full(9, math.nan), columns[1], *columns[2:]]
    spread += [None] * (3 - len(spread))
    metric.update(*spread, columns[0])
    assert metric.eval() == filled(kind, *columns).eval()
    with pytest.raises(ValueError, match="set_indexes chooses among more"):
        kind().update(*spread, columns[0])


@pytest.mark.parametrize("kind", FUNCTIONS)
@given(rows=ROWS, data=st.data())
def test_a_weight_of_w_counts_like_w_rows(kind, rows: list, data: st.DataObject) -> None:
    label, prediction, _ = (np.array(c) for c in zip(*rows, strict=True))
    prediction = prediction.astype(np.float32)
    weight = np.array([data.draw(st.integers(0, 3)) for _ in rows])
    metric = kind(weighted=True)
    other = kind(weighted=True)
    metric.update(prediction[::2], label[::2], weight[::2])
    other.update(prediction[1::2], label[1::2], weight[1::2].reshape(-1, 1))
    metric.merge([other])
    assert metric.rows == len(rows)
    values = [metric.eval(), FUNCTIONS[kind](label, prediction, weight)]
    expected = math.nan
    if weight.sum():
        repeated = np.repeat(label, weight), np.repeat(prediction, weight)
        expected = FUNCTIONS[kind](*repeated)
    assert values == pytest.approx([expected] * 2, nan_ok=True)


@pytest.mark.parametrize("kind", [Accuracy, MAE, MSE, RMSE])
def test_further_metrics_weight_rows_and_merge(kind: type[BinaryMetric]) -> None:
    rng = np.random.default_rng(7)
    label, prediction = rng.integers(0, 2, 50), rng.random(50)
    weight = rng.integers(0, 4, 50)
    metric, other, repeated = kind(weighted=True), kind(weighted=True), kind()
    metric.update(prediction[:20], label[:20], weight[:20])
    other.update(prediction[20:], label[20:], weight[20:])
    metric.merge([other])
    repeated.update(np.repeat(prediction, weight), np.repeat(label, weight))
    assert metric.eval() == pytest.approx(repeated.eval())
    errors = np.abs(np.repeat(prediction, weight) - np.repeat(label, weight))
    expected = {Accuracy: (errors < 0.5).mean(), MAE: errors.mean(), MSE: (errors**2).mean()}
    assert repeated.eval() == pytest.approx(expected.get(kind, math.sqrt(expected[MSE])))


def test_each_metric_says_when_it_is_undefined() -> None:
    metric = LogLoss(weighted=True)
    metric.update([0.5, 0.5], [0, 1], [0.0, 0.0])
    assert math.isnan(metric.eval()) and metric.undefined_if == "all weights are 0"
    assert not math.isnan(filled(LogLoss, [0.5], [1]).eval())
    assert math.isnan(filled(NormalizedEntropy, [0.5], [1]).eval())
    assert NormalizedEntropy.undefined_if == "all labels are of one class"


def test_weights_are_checked() -> None:
    metric = LogLoss(weighted=True)
    for weight, words in (
        ([1.0, -1.0], "weight must be at least 0, got -1.0 at row 1"),
        ([1.0, math.nan], "weight must be finite"),
        ([1.0], "one length"),
        ([[1.0, 1.0], [1.0, 2.0]], r"weight must have the shape \[B\] or \[B, 1\]"),
    ):
        with pytest.raises(ValueError, match=words):
            metric.update([0.5, 0.5], [0, 1], weight)
    with pytest.raises(ValueError, match=r"takes \(prediction, label, weight\), got 2 inputs"):
        metric.update([0.5, 0.5], [0, 1])
    with pytest.raises(ValueError, match="GAUC takes no weights"):
        GAUC(weighted=True)
    assert metric.rows == 0
    with pytest.raises(ValueError, match="same settings"):
        metric.merge([filled(LogLoss, [0.5], [1])])


@pytest.mark.parametrize("kind", [AUC, GAUC])
def test_logits_that_saturate_a_float32_sigmoid_still_rank(kind) -> None:
    logits, label = np.array([30.0, 40.0, 50.0, 60.0], np.float32), [0, 1, 0, 1]
    assert filled(kind, logits, label, from_logits=True).eval() == 0.75


def test_auc_of_a_hundred_thousand_rows_takes_less_than_50_ms() -> None:
    """Of a processor: others may be using the machine."""
    rng = np.random.default_rng(0)
    prediction = rng.random(100_000, np.float32)
    label = (rng.random(100_000) < 0.25).astype(np.float32)
    times = []
    for _ in range(7):
        metric = AUC()
        start = time.thread_time()
        for part in range(0, 100_000, 4096):
            metric.update(prediction[part : part + 4096], label[part : part + 4096])
        metric.eval()
        times.append(time.thread_time() - start)
    assert min(times) < 0.05
