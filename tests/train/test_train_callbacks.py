# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback, Metric

from mindspore_rec import EarlyStopping, EvalCallback, HashEmbeddingLookup, RecModel
from mindspore_rec.metrics import AUC
from mindspore_rec.optim import LazyAdam
from mindspore_rec.train import ProgressBar, StopOnNaN, TimeMonitor
from tests.support.native_table import native_of
from tests.support.networks import SumOfRows

pytestmark = pytest.mark.usefixtures("graph_mode")


class Scripted(Metric):
    """A metric whose values are given."""

    def __init__(self, values):
        super().__init__()
        self.values = iter(values)

    def clear(self):
        pass

    def update(self, *inputs):
        pass

    def eval(self):
        return next(self.values)


IDS = np.array([[1], [2], [3], [4]])
LABEL = np.array([[1], [0], [1], [0]], np.float32)
BATCH = (IDS, LABEL)


def make_model(name, metrics=None):
    net = SumOfRows(HashEmbeddingLookup(1, ms.int64, "zeros", name=name))
    optimizer = LazyAdam(net.trainable_params(), 0.1)
    return RecModel(net, nn.BCEWithLogitsLoss(), optimizer, metrics)


def test_evaluations_on_the_way_see_the_model_of_their_step(unique):
    model = make_model(unique(), {"auc": AUC(from_logits=True)})
    callback = EvalCallback(model, [BATCH], every_steps=4)
    summary = model.train(1, [BATCH] * 10, callback, progress=False)
    assert [step for step, _ in callback.history] == [4, 8, 10]
    assert summary.history == callback.history
    assert summary.metrics == callback.history[-1][1] == {"auc": 1.0}
    # evaluating on the way changes nothing in what is learnt
    other = make_model(unique())
    assert other.train(1, [BATCH] * 10, progress=False).loss == summary.loss


def test_evaluations_at_the_ends_of_epochs(unique):
    model = make_model(unique(), {"auc": AUC(from_logits=True)})
    callback = EvalCallback(model, [BATCH])
    model.train(3, [BATCH] * 2, callback, progress=False)
    assert [step for step, _ in callback.history] == [2, 4, 6]


@pytest.mark.parametrize(
    ("values", "arguments", "steps"),
    [
        ([0.5, 0.6, 0.6, 0.59, 0.7, 0.7], {"patience": 2}, 4),
        ([0.5, 0.6, 0.7, 0.8, 0.9, 1.0], {"patience": 1}, 6),
        ([0.5, 0.6, 0.7, 0.8, 0.9, 1.0], {"patience": 1, "min_delta": 0.2}, 2),
        ([0.5, 0.4, 0.3, 0.4, 0.2, 0.1], {"patience": 1, "mode": "min"}, 4),
        ([math.nan, math.nan, 0.5, 0.6, 0.7, 0.8], {"patience": 3}, 6),
        ([0.5, math.nan, math.nan, math.nan, 0.9, 1.0], {"patience": 3}, 4),
    ],
)
def test_early_stopping(unique, values, arguments, steps):
    model = make_model(unique(), {"m": Scripted(values)})
    callbacks = [EvalCallback(model, [BATCH], every_steps=1), EarlyStopping("m", **arguments)]
    summary = model.train(1, [BATCH] * 6, callbacks, progress=False)
    assert summary.steps == steps
    assert bool(summary.stop_reason) == (steps < 6)
    assert ("Stopped" in str(summary)) == (steps < 6)


def test_early_stopping_names_a_metric_that_is_not_there(unique):
    model = make_model(unique(), {"m": Scripted([1.0])})
    callbacks = [EvalCallback(model, [BATCH], every_steps=1), EarlyStopping("auc")]
    with pytest.raises(KeyError, match="auc"):
        model.train(1, [BATCH], callbacks, progress=False)


def test_a_loss_that_is_not_a_number_stops(unique):
    class Poison(Callback):
        def on_train_step_begin(self, run_context):
            if run_context.original_args().cur_step_num == 3:
                table = native_of(model._network.embedding.embedding_table)
                table.put(np.array([1]), np.full((1, 1), np.nan, np.float32))

    model = make_model(unique(), {"auc": AUC(from_logits=True)})
    callbacks = [EvalCallback(model, [BATCH], 100), Poison(), StopOnNaN()]
    summary = model.train(1, [BATCH] * 9, callbacks, progress=False)
    assert summary.steps == 3
    assert "step 3" in summary.stop_reason


def test_time_monitor_on_data_without_end(unique):
    model = make_model(unique())
    monitor = TimeMonitor(every_steps=5)
    summary = model.online_train(iter([BATCH] * 17), monitor, progress=False)
    assert [step for step, _, _ in monitor.lines] == [5, 10, 15]
    for _, milliseconds, speed in monitor.lines:
        assert speed == pytest.approx(4 * 1e3 / milliseconds)
    assert sum(5e-3 * line[1] for line in monitor.lines) < summary.seconds
    assert 0 < summary.compile_seconds < summary.seconds - summary.step_seconds


def test_progress_lines_where_there_is_no_terminal(unique, capsys):
    model = make_model(unique(), {"auc": AUC(from_logits=True)})
    callbacks = [EvalCallback(model, [BATCH], every_steps=2), ProgressBar(every_seconds=1e-9)]
    model.train(1, [BATCH] * 4, callbacks, progress=False)
    lines = [line for line in capsys.readouterr().err.splitlines() if "/4: " in line]
    assert len(lines) == 4
    assert lines[0].startswith("step 1/4: ") and "auc" not in lines[0]
    assert "samples/s, loss 0." in lines[3] and lines[3].endswith("auc 1.0000")
    model.train(1, [BATCH] * 4)
    text = capsys.readouterr().err
    assert "Trained: 4 steps, 16 samples" in text and "4 rows of 1 floats" in text
    model.train(1, [BATCH] * 4, progress=False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TimeMonitor(0), "every_steps"),
        (lambda: EvalCallback(None, [], 0), "every_steps"),
        (lambda: EarlyStopping(patience=0), "patience"),
        (lambda: EarlyStopping(min_delta=-1), "min_delta"),
        (lambda: EarlyStopping(mode="up"), "mode"),
        (lambda: ProgressBar(0), "every_seconds"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
