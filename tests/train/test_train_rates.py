# SPDX-License-Identifier: Apache-2.0
"""RateSchedule sets the rates of each step; EarlyStopping with cuts goes back and lowers them."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from mindspore.train import Callback

from mindspore_rec import (
    CacheConfig,
    CombinedOptimizer,
    EarlyStopping,
    EvalCallback,
    LazyAdam,
    RecCheckpoint,
    RecModel,
    ReduceLROnPlateau,
    SsdConfig,
    save_checkpoint,
    tables_of,
)
from mindspore_rec.optim import FTRL, SGD
from mindspore_rec.train import RateSchedule
from mindspore_rec.train.callbacks.rates import constant_rates
from mindspore_rec.train.checkpoint import run_writer
from tests.train.test_train_plateau import Scripted, batch, make_model, same_files, weights


class Data:
    """Six batches an epoch, the same in each epoch."""

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Any:
        return iter([batch(k) for k in range(6)])


class Rates(Callback):
    """The rates of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[list[float]] = []

    def on_train_step_end(self, run_context: Any) -> None:
        optimizer = run_context.original_args().optimizer
        rates = optimizer.learning_rate if optimizer.is_group_lr else [optimizer.learning_rate]
        self.seen.append([float(rate.asnumpy()) for rate in rates])


def groups(params: Any, learning_rate: float) -> Any:
    tables = [each for each in params if "dense" not in each.name]
    dense = [each for each in params if "dense" in each.name]
    return LazyAdam(
        [{"params": tables, "lr": 0.5 * learning_rate}, {"params": dense}], learning_rate
    )


@pytest.mark.parametrize("optimizer", [LazyAdam, groups])
def test_each_step_has_the_rate_of_its_factor(mode: Any, unique: Any, optimizer: Any) -> None:
    model = make_model(unique(), [], optimizer)
    schedule, rates = RateSchedule(warm_up=3, total=9, cuts=[(5, 0.5)]), Rates()
    model.train(2, Data(), [rates, schedule], progress=False)
    after = [float(rate.asnumpy()) for rate in constant_rates(model.train_network, "test")]
    assert max(after) == pytest.approx(0.1) and min(after) >= 0.0499
    factors = [schedule.factor(step) for step in range(1, 13)]
    assert factors[:3] == pytest.approx([1 / 3, 2 / 3, 1])
    assert factors[3] == 1 and factors[6] == pytest.approx(0.25) and factors[9:] == [0, 0, 0]
    for seen, factor in zip(rates.seen, factors, strict=True):
        assert seen[-1] == pytest.approx(0.1 * factor, rel=1e-6)
        assert seen[0] == pytest.approx(seen[-1] * (0.5 if len(seen) > 1 else 1), rel=1e-6)


@given(
    st.integers(0, 50),
    st.integers(1, 200),
    st.lists(st.tuples(st.integers(0, 300), st.floats(0, 1)), max_size=3),
)
def test_factors_rise_and_then_fall_to_zero(
    warm_up: int, decay: int, cuts: list[tuple[int, float]]
) -> None:
    schedule = RateSchedule(warm_up, warm_up + decay)
    factors = [schedule.factor(step) for step in range(1, warm_up + decay + 3)]
    assert all(0 <= each <= 1 for each in factors)
    assert factors[:warm_up] == sorted(factors[:warm_up])
    assert factors[warm_up:] == sorted(factors[warm_up:], reverse=True)
    assert factors[warm_up] == 1 and factors[-2:] == pytest.approx([0, 0])
    for step, factor in enumerate(factors, 1):
        cut = math.prod(each for after, each in cuts if step > after)
        got = RateSchedule(warm_up, warm_up + decay, cuts).factor(step)
        assert got == pytest.approx(factor * cut)


def test_a_restart_continues_the_schedule(unique: Any, tmp_path: Path) -> None:
    def run(folder: Path, name: str, *most: int) -> list[list[float]]:
        seen = []
        for steps in most:
            model = make_model(name, [])
            checkpoint = RecCheckpoint(folder, every_steps=100)
            checkpoint.restore(model, data := [batch(k) for k in range(6)])
            rates = Rates()
            left = steps - checkpoint.step
            schedule = RateSchedule(4, 11)
            model.train(2, data, [checkpoint, schedule, rates], max_steps=left, progress=False)
            seen += rates.seen
            save_checkpoint(model, folder.with_name(f"{folder.name}_{steps}"))
        return seen

    name = unique()
    whole = run(tmp_path / "whole", name, 12)
    assert run(tmp_path / "parts", name, 2, 7, 12) == whole
    assert same_files(tmp_path / "whole_12", tmp_path / "parts_12")


def combined(params: Any, learning_rate: float) -> Any:
    tables = [each for each in params if "dense" not in each.name]
    dense = [each for each in params if "dense" in each.name]
    return CombinedOptimizer([LazyAdam(tables, learning_rate), SGD(dense, learning_rate)])


def listed(params: Any, learning_rate: float) -> Any:
    return LazyAdam(params, [learning_rate] * round(200 * learning_rate))


class Lives:
    """Processes that train one run, as far as they can be had within one."""

    def __init__(self, folder: Path, name: str, optimizer: Any, log: Any) -> None:
        self._folder, self._name, self._optimizer, self._log = folder, name, optimizer, log

    def begin(self, rate: float) -> tuple[RecModel, RecCheckpoint, list[float], list[str]]:
        """Return the rates and warnings after a restart that asks for a rate, too."""
        self._log.clear()
        model = make_model(
            self._name,
            [],
            lambda params, learning_rate: self._optimizer(params, learning_rate=rate),
        )
        checkpoint = RecCheckpoint(self._folder, every_steps=100, data_starts_over=True)
        checkpoint.restore(model)
        cell = model.train_network
        rates = [
            float(each.asnumpy().max()) for each in cell.get_parameters() if "_rate" in each.name
        ]
        warnings = [
            each.getMessage() for each in self._log.records if each.name.startswith("mindspore_rec")
        ]  # clients that earlier tests left open may log, too
        return model, checkpoint, rates, warnings

    def train(self, rate: float, factor: float = 1.0) -> None:
        model, checkpoint, *_ = self.begin(rate)
        for each in model.train_network.get_parameters():
            if "_rate" in each.name:
                each.set_data(each * factor)
        model.train(1, Data(), checkpoint, progress=False)


@pytest.mark.parametrize("optimizer", [LazyAdam, groups, combined, listed, FTRL])
def test_a_restart_may_ask_for_other_rates(
    unique: Any, tmp_path: Path, optimizer: Any, caplog: Any, monkeypatch: Any
) -> None:
    lives = Lives(tmp_path, unique(), optimizer, caplog)
    *_, first, _ = lives.begin(0.1)
    lives.train(0.1, factor=0.5)  # as after a ReduceLROnPlateau
    *_, rates, warnings = lives.begin(0.1)
    assert rates == pytest.approx([0.5 * each for each in first], rel=1e-6) and not warnings
    *_, rates, warnings = lives.begin(0.3)
    assert len(warnings) == len(rates)
    if optimizer is FTRL:
        assert rates == pytest.approx([0.05]) and "the saved rate" in warnings[0]
        return
    assert rates == pytest.approx([3 * each for each in first], rel=1e-6)
    texts = ("60 rates", "20 rates") if optimizer is listed else ("is 0.3", "was 0.1")
    assert all(text in warnings[-1] for text in texts)
    with monkeypatch.context() as patched:  # as an earlier version
        patched.setattr(run_writer, "asked_rates", lambda cell: {})
        lives.train(0.3)
    if optimizer is not listed:
        *_, again, warnings = lives.begin(0.1)
        assert again == rates and not warnings


def test_a_schedule_scales_the_new_rate_of_a_restart(unique: Any, tmp_path: Path) -> None:
    name, rates = unique(), Rates()

    def train(rate: float, crash: int) -> float:
        model = make_model(name, [], lambda params, learning_rate: LazyAdam(params, rate))
        checkpoint = RecCheckpoint(tmp_path, every_steps=100, delta_every_steps=1)
        checkpoint.restore(model)
        schedule = RateSchedule(cuts=[(2, 0.5), (14, 0.1)])
        model.train(3, Data(), [schedule, rates, checkpoint, Crash(crash)], progress=False)
        (after,) = constant_rates(model.train_network, "test")
        return float(after.asnumpy())

    with suppress(ConnectionError):
        train(0.1, 9)
    assert train(0.4, 100) == pytest.approx(0.4)
    factors = [0.1] * 2 + [0.05] * 6 + [0.2] * 6 + [0.02] * 4
    assert [each[0] for each in rates.seen] == pytest.approx(factors)


def test_arguments_of_a_schedule_are_checked(unique: Any) -> None:
    with pytest.raises(ValueError, match="warm_up"):
        RateSchedule(-1)
    with pytest.raises(ValueError, match="total"):
        RateSchedule(5, 5)
    with pytest.raises(ValueError, match="cuts"):
        RateSchedule(cuts=[(1, -0.5)])
    model = make_model(unique(), [], lambda params, learning_rate: LazyAdam(params, [0.1] * 9))
    with pytest.raises(ValueError, match="RateSchedule needs a constant learning_rate"):
        model.train(1, Data(), RateSchedule(2), progress=False)


# ---- cuts of EarlyStopping

TIERS = {
    "memory": lambda folder: {},
    "device and SSD": lambda folder: {
        "cache": CacheConfig(device_rows=64, host_rows=32, ssd=SsdConfig(str(folder / "ssd")))
    },
    "prefetch": lambda folder: {
        "cache": CacheConfig(host_rows=32, prefetch=2, ssd=SsdConfig(str(folder / "ssd")))
    },
}


class Batches:
    """Batches with given numbers, as one epoch after the other."""

    def __init__(self, epochs: list[list[int]]) -> None:
        self._epochs = iter(epochs)

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Any:
        return iter([batch(number) for number in next(self._epochs)])


def train(model: RecModel, epochs: list[list[int]], *callbacks: Any) -> Any:
    evaluation = EvalCallback(model, [batch(0)])
    every = [evaluation, *callbacks]
    return model.train(len(epochs), Batches(epochs), every, progress=False)


EPOCHS = [[3 * number + k for k in range(3)] for number in range(7)]


@pytest.mark.parametrize("tier", TIERS)
def test_after_a_cut_the_training_is_one_without_the_lost_steps(
    mode: Any, unique: Any, tmp_path: Path, tier: str
) -> None:
    """A training that replays the path ends with the best weights, bit for bit."""
    name = unique()
    # Gains in epochs 1, 2 and 4; epoch 3 is taken back, epoch 5 ends the training.
    model = make_model(name, [0.5, 0.6, 0.4, 0.7, 0.1, 0.9], **TIERS[tier](tmp_path))
    rates, stopping = Rates(), EarlyStopping("m", patience=1, cuts=1)
    summary = train(model, EPOCHS, stopping, rates)
    assert summary.epochs == 5 and summary.metrics == {"m": 0.7}
    assert (stopping.best_step, stopping.path) == (12, [(6, 1.0), (3, 0.2)])
    assert [each[0] for each in rates.seen] == pytest.approx([0.1] * 9 + [0.02] * 6, rel=1e-6)
    cut = rows_and_weights(model)
    for table in tables_of(model.train_network):
        table.close()
    (tmp_path / "other").mkdir()
    replayed = make_model(name, [], **TIERS[tier](tmp_path / "other"))
    schedule = RateSchedule(cuts=[(6, 0.2)])
    data = Batches([EPOCHS[0], EPOCHS[1], EPOCHS[3]])
    replayed.train(3, data, schedule, progress=False)
    assert cut == rows_and_weights(replayed)


def rows_and_weights(model: RecModel) -> list[Any]:
    """Return all rows that may be there, and the weights."""
    return [each.tolist() for each in weights(model, np.arange(600))]


def test_cuts_without_a_gain_between_them_lower_the_rates_further(unique: Any) -> None:
    model = make_model(unique(), [0.9, 0.8, 0.7, 0.95, 0.6])
    rates, stopping = Rates(), EarlyStopping("m", patience=1, cuts=2, factor=0.5)
    train(model, EPOCHS, stopping, rates)
    assert [each[0] for each in rates.seen[::3]] == pytest.approx([0.1, 0.1, 0.05, 0.025, 0.025])
    assert stopping.path == [(3, 1.0), (3, 0.25)] and stopping.best_step == 12


class Crash(Callback):
    """Raises an error before a step, counted over restarts."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self._step = step

    def on_train_step_begin(self, run_context: Any) -> None:
        run = run_context.original_args()
        if run.steps_before + run.cur_step_num == self._step:
            raise ConnectionError("the power is gone")


def test_a_training_with_a_cut_restarts_bit_for_bit(unique: Any, tmp_path: Path) -> None:
    """With deltas of each step, before and after the cut."""
    values = [0.5, 0.9, 0.8, 0.95, 0.7, 0.6]

    def run(folder: Path, name: str, *crashes: int) -> EarlyStopping:
        for step in [*crashes, 100]:
            data = [batch(k) for k in range(6)]
            stopping = EarlyStopping("m", patience=1, cuts=1, factor=0.3)
            checkpoint = RecCheckpoint(folder, every_steps=100, delta_every_steps=1)
            scripted = Scripted([])
            model = make_model(name, [])
            model._metric_fns["m"] = scripted
            done = checkpoint.restore(model, data) or 0
            scripted._values = iter(values[done // 3 :])
            callbacks = [EvalCallback(model, [batch(0)], 3), stopping, checkpoint, Crash(step)]
            with suppress(ConnectionError):
                model.train(3, data, callbacks, progress=False)
        save_checkpoint(model, folder.with_name(f"{folder.name}_end"))
        return stopping

    name = unique()
    whole = run(tmp_path / "whole", name)
    assert whole.path == [(6, 1.0), (3, 0.3)]
    for number, crashes in enumerate([(8,), (9, 11), (10, 13), (12,)]):
        parts = run(tmp_path / f"parts{number}", name, *crashes)
        assert parts.path == whole.path
        assert same_files(tmp_path / "whole_end", tmp_path / f"parts{number}_end")


def test_cuts_need_best_weights_and_constant_rates(unique: Any) -> None:
    with pytest.raises(ValueError, match="restore_best must be True with cuts"):
        EarlyStopping(cuts=1, restore_best=False)
    with pytest.raises(ValueError, match="factor"):
        EarlyStopping(cuts=1, factor=1.0)
    with pytest.raises(ValueError, match="cuts"):
        EarlyStopping(cuts=-1)
    model = make_model(unique(), [], lambda params, learning_rate: LazyAdam(params, [0.1] * 9))
    with pytest.raises(ValueError, match="EarlyStopping needs a constant learning_rate"):
        train(model, EPOCHS, EarlyStopping("m", cuts=1))
    with pytest.raises(ValueError, match="ReduceLROnPlateau needs a constant"):
        train(model, EPOCHS, ReduceLROnPlateau("m"))
