# SPDX-License-Identifier: Apache-2.0
"""WeightAverage: the average corrects its bias; evaluations, best weights and restarts have it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback

from mindspore_rec import (
    EarlyStopping,
    EvalCallback,
    RecCheckpoint,
    RecModel,
    save_checkpoint,
)
from mindspore_rec.metrics import LogLoss
from mindspore_rec.train import RateSchedule, WeightAverage
from tests.train.test_train_plateau import Scripted, batch, make_model, same_files, weights
from tests.train.test_train_rates import EPOCHS, Batches, Crash, rows_and_weights, train

DATA = [batch(k) for k in range(6)]


class Dense(Callback):
    """The dense weights after each step, and the losses."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[np.ndarray] = []
        self.losses: list[float] = []

    def on_train_step_end(self, run_context: Any) -> None:
        run = run_context.original_args()
        self.weights.append(run.network.dense.weight.asnumpy().copy())
        self.losses.append(float(run.net_outputs.asnumpy()))


def dense(model: RecModel) -> np.ndarray:
    net: Any = model._network
    return net.dense.weight.asnumpy().copy()


def expected(seen: list[np.ndarray], decay: float) -> np.ndarray:
    """The average, by its definition as a sum."""
    factors = decay ** np.arange(len(seen) - 1, -1, -1, dtype=np.float64)
    total = sum(f * w.astype(np.float64) for f, w in zip(factors, seen, strict=True))
    return total / factors.sum()


@pytest.mark.parametrize("decay", [0.1, 0.9, 0.999])
def test_the_average_corrects_its_bias_and_the_training_is_unchanged(
    mode: Any, unique: Any, decay: float
) -> None:
    name = unique()
    plain, seen = make_model(name, []), Dense()
    plain.train(2, DATA, seen, progress=False)
    rows = weights(plain, np.arange(200))[0]
    model, again = make_model(name, []), Dense()
    model.train(2, DATA, [again, WeightAverage(model, decay)], progress=False)
    assert again.losses == seen.losses
    np.testing.assert_allclose(dense(model), expected(seen.weights, decay), rtol=2e-5, atol=1e-7)
    assert (weights(model, np.arange(200))[0] == rows).all()  # rows are not averaged
    assert (dense(plain) != dense(model)).any()


def test_a_constant_weight_is_its_own_average(unique: Any) -> None:
    model = make_model(unique(), [])
    before = dense(model)
    average = WeightAverage(model, 0.99)
    averages: Any = average._averages
    for _ in range(5):
        averages.update(0.99)
        averages.apply(0.99)
        np.testing.assert_allclose(dense(model), before, rtol=1e-5)


def test_evaluations_have_the_averages(mode: Any, unique: Any) -> None:
    name = unique()
    for steps in (2, 4, 6):
        one = evaluated(name, steps)
        np.testing.assert_allclose(one[0], one[1], rtol=1e-5)


def evaluated(name: str, steps: int) -> tuple[float, float]:
    """The metric of an evaluation in the training, and of the model after the training."""
    model = make_model(name, [])
    model._metric_fns = {"log_loss": LogLoss(from_logits=True)}
    callbacks = [EvalCallback(model, DATA, steps), WeightAverage(model, 0.5)]
    summary = model.train(1, DATA, callbacks, max_steps=steps, progress=False)
    after = model.eval(DATA, progress=False)
    return summary.history[-1][1]["log_loss"], after["log_loss"]


def test_the_best_weights_are_the_averages_of_the_best_evaluation(unique: Any) -> None:
    name = unique()
    model, seen = make_model(name, [0.5, 0.9, 0.6, 0.7]), Dense()
    stopping = EarlyStopping("m", patience=2)
    train(model, EPOCHS, WeightAverage(model, 0.8), stopping, seen)
    assert (stopping.best_step, len(seen.weights)) == (6, 12)
    np.testing.assert_allclose(dense(model), expected(seen.weights[:6], 0.8), rtol=2e-5, atol=1e-7)


def test_a_cut_goes_back_with_the_averages(unique: Any) -> None:
    name = unique()
    model = make_model(name, [0.5, 0.6, 0.4, 0.7, 0.1])
    average, stopping = WeightAverage(model, 0.8), EarlyStopping("m", patience=1, cuts=1)
    train(model, EPOCHS, average, stopping)
    cut = rows_and_weights(model)
    replayed = make_model(name, [])
    callbacks = [WeightAverage(replayed, 0.8), RateSchedule(cuts=[(6, 0.2)])]
    data = Batches([EPOCHS[0], EPOCHS[1], EPOCHS[3]])
    replayed.train(3, data, callbacks, progress=False)
    assert stopping.path == [(6, 1.0), (3, 0.2)] and cut == rows_and_weights(replayed)


def test_a_training_restarts_bit_for_bit(unique: Any, tmp_path: Path) -> None:
    values = [0.5, 0.9, 0.8, 0.95, 0.7, 0.96]

    def run(folder: Path, name: str, *crashes: int) -> list[np.ndarray]:
        for step in [*crashes, 100]:
            data = [batch(k) for k in range(6)]
            model = make_model(name, [])
            scripted = model._metric_fns["m"] = Scripted([])
            average = WeightAverage(model, 0.9)
            checkpoint = RecCheckpoint(folder, every_steps=100, delta_every_steps=1)
            done = checkpoint.restore(model, data) or 0
            scripted._values = iter(values[done // 3 :])
            callbacks = [
                *(EvalCallback(model, [batch(0)], 3), EarlyStopping("m", patience=1, cuts=1)),
                *(checkpoint, average, Crash(step)),
            ]
            with suppress(ConnectionError):
                model.train(3, data, callbacks, progress=False)
        save_checkpoint(model, folder.with_name(f"{folder.name}_end"))
        return weights(model, np.arange(200))

    name = unique()
    whole = run(tmp_path / "whole", name)
    for number, crashes in enumerate([(2,), (8, 11), (10, 16)]):
        parts = run(tmp_path / f"parts{number}", name, *crashes)
        assert all((a == b).all() for a, b in zip(whole, parts, strict=True))
        assert same_files(tmp_path / "whole_end", tmp_path / f"parts{number}_end")


def test_a_second_training_begins_afresh_and_nothing_is_left(unique: Any) -> None:
    model = make_model(unique(), [])
    names = [each.name for each in model.train_network.get_parameters()]
    average = WeightAverage(model, 0.9)
    model.train(1, DATA, average, progress=False)
    assert [each.name for each in model.train_network.get_parameters()] == names
    seen = Dense()
    model.train(1, DATA, [seen, average], progress=False)
    np.testing.assert_allclose(dense(model), expected(seen.weights, 0.9), rtol=2e-5, atol=1e-7)
    assert [each.name for each in model.train_network.get_parameters()] == names


def test_what_is_refused(unique: Any, tmp_path: Path) -> None:
    model = make_model(unique(), [])
    for decay in (0, 1, 1.5, "a"):
        with pytest.raises((TypeError, ValueError), match="decay"):
            WeightAverage(model, decay)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="model must be a Model that can be trained"):
        WeightAverage(nn.ReLU())
    checkpoint = RecCheckpoint(tmp_path / "run", every_steps=2)
    model.train(1, DATA, [checkpoint, WeightAverage(model)], max_steps=3, progress=False)
    checkpoint.restore(model, data := list(DATA))
    with pytest.raises(ValueError, match="make the WeightAverage before RecCheckpoint.restore"):
        model.train(1, data, [checkpoint, WeightAverage(model)], progress=False)
