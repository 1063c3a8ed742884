# SPDX-License-Identifier: Apache-2.0
"""Settings of `train` change the training as they say: schedules of the learning rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mindspore.train import Callback

from mindspore_rec import load
from mindspore_rec.command.fitting import Fitted, Place, close_tables, fit
from mindspore_rec.command.main import main
from mindspore_rec.command.opened import open_parts, schema_of
from mindspore_rec.command.settings import read_settings
from mindspore_rec.train.callbacks.plateau import EarlyStopping
from mindspore_rec.train.optim.tables import table_of
from tests.command.click_table import YAML, click_table, write_clicks

STEPS = 13  # of an epoch: 800 training rows


class Seen(Callback):
    """The rates of each step, and the early stop."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: list[float] = []
        self.stopping: EarlyStopping | None = None

    def on_train_step_end(self, run_context: Any) -> None:
        run = run_context.original_args()
        rates = run.optimizer.learning_rate
        self.rates.append(float((rates[-1] if run.optimizer.is_group_lr else rates).asnumpy()))
        found = [each for each in run.list_callback if isinstance(each, EarlyStopping)]
        self.stopping = found[0] if found else None


def trained(folder: Path, train: str, close: bool = True) -> tuple[Fitted, Seen]:
    """Train on 1000 rows with further settings of `train`."""
    yaml = write_clicks(
        folder,
        1000,
        YAML.replace(
            "epochs: 3, batch_size: 64, learning_rate: 0.03",
            f"epochs: 3, batch_size: 64, learning_rate: 0.03, {train}",
        ),
    )
    settings = read_settings(yaml)
    schema, seen = schema_of(settings), Seen()
    parts = open_parts(settings, schema)
    fitted = fit(settings, schema, parts, Place(), progress=False, further=[seen])
    if close:
        close_tables(fitted.model)
    return fitted, seen


def test_a_cosine_falls_to_zero_after_a_warm_up(tmp_path: Path) -> None:
    _, seen = trained(tmp_path, "schedule: cosine, warm_up: 0.3, early_stopping: {patience: 99}")
    assert len(seen.rates) == 3 * STEPS
    assert seen.rates[:4] == pytest.approx([0.0075, 0.015, 0.0225, 0.03])
    assert seen.rates[4:] == sorted(seen.rates[4:], reverse=True)
    assert seen.rates[4] == pytest.approx(0.03) and 0 < seen.rates[-1] < 1e-3 * 0.03 * STEPS


def test_a_plateau_goes_back_and_then_ends(tmp_path: Path) -> None:
    settings = "schedule: plateau, evaluations: 13, early_stopping: {metric: log_loss}"
    fitted, seen = trained(tmp_path, settings)
    stopping = seen.stopping
    assert stopping is not None and (stopping.patience, stopping.cuts) == (1, 1)
    cuts = [k for k in range(1, len(seen.rates)) if seen.rates[k] < seen.rates[k - 1]]
    assert len(cuts) == 1 and fitted.summary.stop_reason.startswith("log_loss no better")
    assert seen.rates[0] == pytest.approx(0.03) and seen.rates[-1] == pytest.approx(0.006)
    values = [metrics["log_loss"] for _, metrics in fitted.curves.evaluations]
    assert values[cuts[0] - 1] >= min(values[: cuts[0] - 1])  # no gain, so the rate was cut
    assert sum(steps for steps, _ in stopping.path) < len(seen.rates) == len(values)


def test_a_plateau_needs_validation_rows(tmp_path: Path) -> None:
    without = "schedule: plateau}\nsplit: {valid: 0.0"
    with pytest.raises(ValueError, match=r"'train\.schedule' is plateau, which needs validation"):
        trained(tmp_path, without)


def test_a_topic_has_no_schedule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = YAML.replace("epochs: 3", "epochs: 3, warm_up: 0.5")
    yaml = write_clicks(
        tmp_path, 10, text.replace("clicks.parquet", "{kafka: {servers: a, topic: b}}")
    )
    assert main(["train", str(yaml)]) == 1
    assert "'train.warm_up' is for files, and the source is a topic" in capsys.readouterr().err


def test_tables_have_a_rate_of_their_own(tmp_path: Path) -> None:
    fitted, seen = trained(tmp_path, "table_rate: 0.5, warm_up: 0.5", close=False)
    optimizer = fitted.model.train_network.optimizer
    rates = dict(zip(optimizer.parameters, optimizer.learning_rate, strict=True))
    for parameter, rate in rates.items():
        expected = 0.03 if table_of(parameter) is None else 0.015
        assert float(rate.asnumpy()) == pytest.approx(expected)
    assert sum(table_of(each) is not None for each in rates) == 1 < len(rates)
    assert seen.rates[0] == pytest.approx(0.03 / 6) and seen.rates[-1] == pytest.approx(0.03)
    rows = click_table(50)
    answers = fitted.model.predict(rows)
    fitted.model.save(tmp_path / "model")
    close_tables(fitted.model)
    loaded = load(tmp_path / "model")
    assert (loaded.predict(rows) == answers).all()
    loaded.train(1, rows, progress=False)
    close_tables(loaded)


def test_a_constant_rate_has_no_callback(tmp_path: Path) -> None:
    _, seen = trained(tmp_path, "schedule: constant, warm_up: 0.0")
    assert set(seen.rates) == {seen.rates[0]} and seen.rates[0] == pytest.approx(0.03)
