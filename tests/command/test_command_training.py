# SPDX-License-Identifier: Apache-2.0
"""Settings of `train` change the training as they say: schedules of the learning rate, a refit."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from mindspore.train import Callback

from mindspore_rec import load
from mindspore_rec.command.fitting import Fitted, Place, close_tables, fit
from mindspore_rec.command.json_file import read_json
from mindspore_rec.command.main import main
from mindspore_rec.command.opened import open_for_refit, open_parts, schema_of
from mindspore_rec.command.ordering import in_time_order, training_batches
from mindspore_rec.command.refitting import scaled_path
from mindspore_rec.command.run_folder import RunFolder
from mindspore_rec.command.settings import read_settings
from mindspore_rec.train.callbacks.plateau import EarlyStopping
from mindspore_rec.train.callbacks.rates import RateSchedule
from mindspore_rec.train.optim.tables import table_of
from tests.command.click_table import YAML, click_table, write_clicks
from tests.support.processes import run_program, start_python
from tests.support.waiting import wait_until

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
    said = capsys.readouterr().err
    assert "leave out 'train.warm_up', for files only: the source is a topic" in said


def test_averages_of_weights_are_evaluated_and_saved(tmp_path: Path) -> None:
    fitted, _ = trained(tmp_path, "ema: 0.9, early_stopping: false", close=False)
    plain, _ = trained(tmp_path, "early_stopping: false")
    assert [each for *each, _ in fitted.curves.points] == [each for *each, _ in plain.curves.points]
    assert fitted.curves.evaluations != plain.curves.evaluations
    close_tables(fitted.model)


@pytest.mark.parametrize("format", ["timestamp", "text", "number"])
def test_rows_in_the_order_of_time(tmp_path: Path, format: str) -> None:
    table = click_table(3000).drop(columns="tags")
    unit = ""
    if format == "text":
        table["time"] = table["time"].dt.strftime("%Y-%m-%dT%H:%M:%S")
        unit = ", format: iso"
    elif format == "number":
        table["time"] = table["time"].astype("datetime64[s]").astype("int64")
    table.sample(frac=1, random_state=1).to_csv(tmp_path / "mixed.csv", index=False)
    table.to_csv(tmp_path / "sorted.csv", index=False)
    text = YAML.replace("  tags: {kind: list, length: 3}\n", "")
    text = text.replace("parts: [hour]", f"parts: [hour]{unit}")
    text = text.replace("learning_rate", "order: time, learning_rate")
    passes = []
    for name in ("mixed", "sorted"):
        (tmp_path / f"{name}.yaml").write_text(text.replace("clicks.parquet", f"{name}.csv"))
        settings = read_settings(tmp_path / f"{name}.yaml")
        schema = schema_of(settings)
        train = open_parts(settings, schema).train
        assert (in_time_order(train, schema) is train) == (name == "sorted")
        batches = training_batches(train, schema, settings.train)
        both = [[str(t) for b in batches for t in b["time"].to_pylist()] for _ in range(2)]
        passes.append(both)
        window = 32 * 64
        for each in both:
            assert len(each) == 2400 and sorted(each) != each
            assert max(each[:window]) < min(each[window:])
        assert both[0] != both[1]
    assert [sorted(each) for each in passes[0]] == [sorted(each) for each in passes[1]]
    again = read_settings(tmp_path / "mixed.yaml")
    fitted = fit(again, schema_of(again), open_parts(again, schema_of(again)), Place(), 5)
    assert fitted.summary.steps == 5
    close_tables(fitted.model)


def test_an_order_of_time_needs_a_time_and_rows_that_can_be_sorted(tmp_path: Path) -> None:
    click_table(400).sample(frac=1, random_state=1).to_parquet(tmp_path / "mixed.parquet")
    text = YAML.replace("clicks.parquet", "mixed.parquet")
    for change, pattern in [
        (("time: {kind: time, parts: [hour]}", "time: ignored"), "no column is of kind time"),
        (("train:", "sample: {negatives: 0.5}\ntrain:"), "sort the source by this column, because"),
    ]:
        (tmp_path / "clicks.yaml").write_text(text.replace(*change))
        settings = read_settings(tmp_path / "clicks.yaml")
        schema = schema_of(settings)
        with pytest.raises(ValueError, match=pattern):
            in_time_order(open_parts(settings, schema).train, schema)


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


# ---- refit


@pytest.mark.parametrize(
    "split", ["{by: time}", "{by: random, seed: 3}", "{valid: 0.25, test: 0.15}", "{train: 0.7}"]
)
def test_a_refit_has_training_and_validation_rows(tmp_path: Path, split: str) -> None:
    yaml = write_clicks(tmp_path, 1000, f"{YAML}split: {split}\n")
    settings = read_settings(yaml)
    schema = schema_of(settings)
    parts, both = open_parts(settings, schema), open_for_refit(settings, schema)
    assert parts.valid is not None and parts.test is not None
    every = [sorted(rows.to_table()["time"].to_pylist()) for rows in (parts.train, parts.valid)]
    assert sorted(both.to_table()["time"].to_pylist()) == sorted([*every[0], *every[1]])
    assert both.count() + parts.test.count() == 1000 and min(map(len, every)) > 50


def test_a_refit_reads_validation_files_too(tmp_path: Path) -> None:
    click_table(70, seed=1).to_parquet(tmp_path / "valid.parquet")
    text = f"{YAML}split: {{valid: valid.parquet, test: valid.parquet}}\n"
    settings = read_settings(write_clicks(tmp_path, 1000, text))
    assert open_for_refit(settings, schema_of(settings)).count() == 1070
    settings = read_settings(
        write_clicks(tmp_path, 1000, text.replace(", test: valid.parquet", ""))
    )
    with pytest.raises(ValueError, match=r"'train\.refit' needs validation rows that are a share"):
        open_for_refit(settings, schema_of(settings))
    settings = read_settings(write_clicks(tmp_path, 1000, f"{YAML}split: {{valid: 0.0}}\n"))
    with pytest.raises(ValueError, match=r"'train\.refit' needs validation rows: set"):
        open_for_refit(settings, schema_of(settings))


@given(
    st.lists(st.tuples(st.integers(1, 50), st.sampled_from([1.0, 0.5, 0.2])), min_size=1),
    st.floats(1, 1.5),
)
def test_a_scaled_path_has_the_rates_of_the_path(
    path: list[tuple[int, float]], scale: float
) -> None:
    steps, cuts = scaled_path(path, scale)
    assert steps == round(sum(each for each, _ in path) * scale)
    factor = RateSchedule(cuts=cuts).factor
    done = 0
    for length, expected in path:
        low, high = done * scale, (done + length) * scale
        for step in range(round(low) + 1, round(high) + 1):
            assert factor(step) == pytest.approx(expected)
        done += length
    assert scaled_path(path, 1.0)[0] == done


def test_a_refit_replaces_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schedule = "refit: true, schedule: plateau, early_stopping: {metric: log_loss}, evaluations: 4"
    yaml = write_clicks(tmp_path, 1000, YAML.replace("epochs: 3", f"epochs: 3, {schedule}"))
    assert main(["train", str(yaml), "--no-baseline"]) == 0
    run = RunFolder(yaml)
    training = read_json(run.training)
    refit = training["refit"]
    assert refit["steps"] == scaled_path(refit["path"], 15 / 13)[0]  # 900 rows, and 800
    assert refit["stop_reason"].startswith("refit") and not refit["interrupted"]
    assert "Then a refit on training and validation rows" in run.report.read_text()
    figures = read_json(run.metrics)["test"]["metrics"]
    assert list(figures) == ["dcn_v2", "dcn_v2 before the refit", "base rate"]
    answers = []
    for path in (run.model, run.first_model):
        model = load(path)
        answers.append(model.predict(click_table(50)))
        close_tables(model)
    assert (answers[0] != answers[1]).any()
    assert main(["eval", str(yaml)]) == 0
    auc = figures["dcn_v2"]["clicked"]["auc"]
    assert f"{auc:.4f}" in capsys.readouterr().out
    # A finished training does no step when it is continued, and ends with the same files.
    assert main(["train", str(yaml), "--no-baseline", "--resume"]) == 0
    assert read_json(run.metrics)["test"]["metrics"] == figures
    again = read_json(run.training)
    assert (again["steps"], again["refit"]["steps"]) == (training["steps"], refit["steps"])


def test_a_killed_refit_continues_with_the_same_bits(tmp_path: Path) -> None:
    linear = YAML.replace("dcn_v2, hidden: [32], layers: 1", "logistic_regression")
    more = "refit: true, warm_up: 0.5, early_stopping: false, checkpoint_seconds: 0.2"
    yaml = write_clicks(tmp_path, yaml=linear.replace("epochs: 3", f"epochs: 12, {more}"))
    train: list[str | Path] = ["train", yaml, "--no-baseline"]
    killed = start_python("-m", "mindspore_rec", *train, stderr=subprocess.DEVNULL)
    checkpoints = tmp_path / "clicks.run" / "refit_checkpoints"
    wait_until(lambda: list(checkpoints.glob("*.delta")), 120)
    killed.kill()
    killed.communicate()
    assert not (tmp_path / "clicks.run" / "model").exists()
    found = []
    for further in (["--resume"], ["--run", tmp_path / "whole.run"]):
        done = run_program("-m", "mindspore_rec", *train, *further)
        assert done.returncode == 0, done.stderr
        run = RunFolder(yaml, None if further == ["--resume"] else tmp_path / "whole.run")
        training = read_json(run.training)
        tables = (run.model / "table_0.arrow").read_bytes()
        found.append((training["steps"], training["refit"]["steps"], tables))
    assert found[0] == found[1] and found[0][:2] == (12 * 38, round(12 * 38 * 43 / 38))


def test_a_constant_rate_has_no_callback(tmp_path: Path) -> None:
    _, seen = trained(tmp_path, "schedule: constant, warm_up: 0.0")
    assert set(seen.rates) == {seen.rates[0]} and seen.rates[0] == pytest.approx(0.03)
