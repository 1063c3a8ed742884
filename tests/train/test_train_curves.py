# SPDX-License-Identifier: Apache-2.0
"""Curves keeps few points of long trainings, over restarts too; Decision ends a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from mindspore_rec import EvalCallback, LazyAdam, RecCheckpoint, RecModel
from mindspore_rec.metrics import AUC
from mindspore_rec.train.callbacks.curves import Curves
from mindspore_rec.train.callbacks.decision import Decision


@pytest.fixture(autouse=True)
def graph_mode() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)


def new_model() -> RecModel:
    ms.set_seed(1)
    net = nn.Dense(2, 1)
    optimizer = LazyAdam(net.trainable_params(), 0.01)
    return RecModel(net, nn.BCEWithLogitsLoss(), optimizer, {"auc": AUC(from_logits=True)})


def batches(steps: int) -> list[Any]:
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(steps, 4, 2)).astype(np.float32)
    return [(each, (each[:, :1] > 0).astype(np.float32)) for each in numbers]


def test_points_of_a_long_training_are_joined(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    curves = Curves(tmp_path / "events")
    new_model().train(1, batches(900), curves, progress=False)
    steps = [step for step, _, _ in curves.points]
    assert len(steps) < 400 and steps == list(range(steps[0], 900 + 1, steps[0]))
    assert curves.points[0][1] > curves.points[-1][1]
    written = events.EventAccumulator(str(tmp_path / "events"), size_guidance={"scalars": 0})
    written.Reload()
    assert written.Scalars("loss")[-1].step == 900


def test_curves_continue_after_a_restart(tmp_path: Path) -> None:
    data = batches(30)
    for epochs in (1, 2):
        model = new_model()
        curves = Curves()
        checkpoint = RecCheckpoint(tmp_path / "run", every_steps=10)
        checkpoint.restore(model)
        callbacks = [curves, EvalCallback(model, data[:5]), checkpoint]
        model.train(epochs, data, callbacks, progress=False)
    assert [step for step, _, _ in curves.points] == list(range(1, 61))
    assert [step for step, _ in curves.evaluations] == [30, 60]


def test_the_number_of_steps_can_be_told() -> None:
    seen: list[Any] = []

    class Seen(ms.train.Callback):
        def on_train_step_end(self, run_context: Any) -> None:
            seen.append(run_context.original_args().total_steps)

    new_model().train(1, (each for each in batches(3)), [Curves(steps=3), Seen()], progress=False)
    assert seen == [3, 3, 3]


def test_a_decision_ends_the_training() -> None:
    model, data = new_model(), batches(10)
    found: list[float] = []

    def ends(metrics: Any) -> bool:
        found.append(metrics["auc"])
        return len(found) == 2

    callbacks = [Decision(ends, "hopeless"), EvalCallback(model, data, every_steps=4)]
    summary = model.train(3, data, callbacks, progress=False)
    assert (summary.steps, summary.stop_reason, len(found)) == (8, "hopeless", 2)
