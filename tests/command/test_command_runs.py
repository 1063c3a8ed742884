# SPDX-License-Identifier: Apache-2.0
"""Longer ways of the command: a killed training, workers, a search."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mindspore_rec.command import tune
from mindspore_rec.command.main import main
from mindspore_rec.command.settings import Settings
from mindspore_rec.command.tune_space import suggested
from tests.command.click_table import YAML, click_table, write_clicks
from tests.support.processes import run_program, start_python
from tests.support.waiting import wait_until


def command(*arguments: str | Path) -> str:
    """Run the command in a process; return what it printed."""
    done = run_program("-m", "mindspore_rec", *arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def metrics(yaml: Path, run: str = "clicks.run") -> Any:
    """Return the metrics of the test rows of a finished training."""
    return json.loads((yaml.parent / run / "metrics.json").read_text())["test"]["metrics"]


LINEAR = re.sub("model: .*", "model: logistic_regression", YAML)
LONG = LINEAR.replace(
    "epochs: 3, ", "epochs: 12, checkpoint_seconds: 0.3, early_stopping: {patience: 99}, "
)


def test_a_killed_training_continues_with_the_same_bits(tmp_path: Path):
    yaml = write_clicks(tmp_path, yaml=LONG)
    train: list[str | Path] = ["train", yaml, "--no-baseline"]
    killed = start_python("-m", "mindspore_rec", *train, stderr=subprocess.DEVNULL)
    checkpoints = tmp_path / "clicks.run" / "checkpoints"
    wait_until(lambda: list(checkpoints.glob("*.delta")), 120)
    killed.kill()
    killed.communicate()
    step = max(int(each.name.partition(".")[0]) for each in checkpoints.glob("*.delta"))
    assert 0 < step < 12 * 38
    command(*train, "--resume")
    command(*train, "--run", tmp_path / "whole.run")
    assert metrics(yaml) == metrics(yaml, "whole.run")
    whole, continued = (
        json.loads((tmp_path / run / "training.json").read_text())
        for run in ("whole.run", "clicks.run")
    )
    for name in ("steps", "samples", "evaluations"):
        assert continued[name] == whole[name], name


def test_a_resumed_training_refuses_another_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    yaml = write_clicks(tmp_path, 1000, LINEAR)
    train = ["train", str(yaml), "--no-baseline"]
    assert main([*train, "--max-steps", "5", "--seed", "7"]) == 0
    settings = tmp_path / "clicks.run" / "settings.yaml"
    before = settings.read_text()
    assert "seed: 7" in before
    for text, options, pattern in (
        (LINEAR.replace("clicked: label", "clicked: {kind: label, positive: 0}"), ["--seed", "7"],
         r"'columns\.clicked' was label and is \{'kind': 'label', 'positive': 0\}: --resume"),
        (LINEAR, [], r"'train\.seed' was 7 and is 0: --resume continues"),
        (LINEAR, ["--seed", "7", "--model", "dcn_v2"], "'model.name' was logistic_regression and"),
    ):  # fmt: skip
        yaml.write_text(text)
        assert main([*train, "--resume", *options]) == 1
        assert re.search(pattern, capsys.readouterr().err)
        assert settings.read_text() == before
    yaml.write_text(LINEAR)
    assert main([*train, "--resume", "--seed", "7", "--epochs", "1"]) == 0
    training = json.loads((tmp_path / "clicks.run" / "training.json").read_text())
    assert training["steps"] == 13 and "epochs: 1" in settings.read_text()


def test_one_process_trains_in_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    yaml = write_clicks(tmp_path, yaml=LONG)
    first = start_python("-m", "mindspore_rec", "train", yaml, stderr=subprocess.DEVNULL)
    wait_until(lambda: (tmp_path / "clicks.run" / "checkpoints").is_dir(), 120)
    for option in ("--overwrite", "--resume"):
        assert main(["train", str(yaml), option]) == 1
        assert "another process trains in" in capsys.readouterr().err
    first.kill()
    first.communicate()
    assert main(["train", str(yaml), "--resume", "--no-baseline"]) == 0


def test_evaluations_are_spread_in_each_epoch(tmp_path: Path):
    yaml = write_clicks(
        tmp_path,
        1000,
        LINEAR.replace(
            "epochs: 3, ", "epochs: 3, evaluations: 2, early_stopping: {patience: 99}, "
        ),
    )
    command("train", yaml, "--no-baseline")
    training = json.loads((tmp_path / "clicks.run" / "training.json").read_text())
    steps = training["steps"] // 3
    expected = [epoch * steps + at for epoch in range(3) for at in (round(steps / 2), steps)]
    assert [step for step, _ in training["evaluations"]] == expected


def test_several_labels_and_numbers_to_predict(tmp_path: Path):
    yaml = write_clicks(tmp_path, 1000)
    text = YAML.replace("price: number", "price: {kind: label, binary: false}")
    yaml.write_text(re.sub("model: .*", "model: mmoe", text))
    assert main(["train", str(yaml), "--epochs", "1"]) == 0
    figures = metrics(yaml)
    assert list(figures) == ["mmoe", "base rate"]
    assert list(figures["mmoe"]["price"]) == ["rmse", "mae"]
    assert list(figures["mmoe"]["clicked"])[:2] == ["auc", "log_loss"]
    rows, scores = str(tmp_path / "clicks.parquet"), str(tmp_path / "scores.csv")
    assert main(["predict", str(yaml), rows, "-o", scores]) == 0
    assert list(pd.read_csv(scores).columns) == ["time", "user", "price", "clicked"]
    (tmp_path / "number.yaml").write_text(text.replace("clicked: label", "clicked: ignored"))
    assert main(["train", str(tmp_path / "number.yaml"), "--epochs", "1", "--no-baseline"]) == 0
    assert list(metrics(yaml, "number.run")) == ["dcn_v2", "base rate"]
    assert main(["predict", str(tmp_path / "number.yaml"), rows, "-o", scores]) == 0
    assert list(pd.read_csv(scores).columns) == ["time", "user", "price", "prediction"]


def test_thinned_negatives_leave_probabilities_as_they_are(tmp_path: Path):
    yaml = write_clicks(tmp_path, yaml=YAML + "sample: {negatives: 0.2}\n")
    assert main(["train", str(yaml), "--epochs", "2", "--no-baseline"]) == 0
    training = json.loads((tmp_path / "clicks.run" / "training.json").read_text())
    assert training["samples"] < 0.7 * 2 * 2400
    assert 0.8 < metrics(yaml)["dcn_v2"]["clicked"]["calibration"] < 1.25
    assert metrics(yaml)["base rate"]["clicked"]["calibration"] > 0.9


@pytest.mark.distributed
def test_workers_divide_the_rows_of_one_row_group(tmp_path: Path):
    yaml = write_clicks(tmp_path, yaml=LINEAR)
    click_table(3000).to_parquet(tmp_path / "clicks.parquet")  # one row group for two workers
    printed = command("train", yaml, "--workers", "2", "--no-baseline")
    assert "Test rows: 300" in printed
    assert metrics(yaml)["logistic_regression"]["clicked"]["auc"] > 0.55
    training = json.loads((tmp_path / "clicks.run" / "training.json").read_text())
    assert (training["workers"], training["samples"]) == (2, 7200)


def test_a_search_continues_where_it_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("optuna")
    yaml = write_clicks(tmp_path, 1000)
    for trials in ("1", "2"):
        arguments = ["tune", str(yaml), "--trials", trials, "--epochs", "1"]
        assert main([*arguments, "--json", str(tmp_path / "tune.json")]) == 0
        shown = re.findall(r"trial (\d+) of", capsys.readouterr().err)
        assert shown == [trials]
    found = json.loads((tmp_path / "tune.json").read_text())
    assert found["auc"] >= found["first"] > 0
    assert found["trials"] == 2 and found["settings"]["train.epochs"] == 1
    assert main(["train", str(tmp_path / "clicks.tuned.yaml"), "--no-baseline"]) == 0


def test_a_search_has_the_same_settings_and_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("optuna")
    rates: list[float] = []

    def tried(settings: Settings, trial: Any, defaults: Any) -> tuple[float, bool]:
        """Interrupt the first trial, and return an AUC without a training for the others."""
        places = suggested(trial, settings, defaults)
        trial.set_user_attr("places", places)
        rates.append(places["train.learning_rate"])
        if len(rates) == 1:
            raise KeyboardInterrupt
        return 0.75, False

    monkeypatch.setattr(tune, "_tried", tried)
    yaml = write_clicks(tmp_path, 1000)
    search = ["tune", str(yaml), "--epochs", "1", "--trials"]
    assert main([*search, "1"]) == 130
    assert main([*search, "1"]) == 0
    assert rates == [0.03, 0.03]  # the values of the YAML file, again after the interruption
    assert "the first, with the settings of clicks.yaml: 0.75000" in capsys.readouterr().out
    for text, count, options, pattern in (
        (YAML, 1000, ["--epochs", "2"], r"'train\.epochs' was 1 and is 2: trials of one search"),
        (YAML.replace("0.03", "0.01"), 1000, [], r"'train\.learning_rate' was 0\.03 and is 0\.01"),
        (YAML, 900, [], r"the rows of .*clicks\.yaml differ from the rows of the search"),
    ):
        write_clicks(tmp_path, count, text)
        assert main([*search, "2", *options]) == 1
        assert re.search(pattern, capsys.readouterr().err)
    assert main([*search, "1", "--overwrite"]) == 0
    assert "trial 1 of 1" in capsys.readouterr().err
    write_clicks(tmp_path, 900, YAML.replace("model:", "split: {by: time}\nmodel:"))
    assert main([*search, "1", "--run", str(tmp_path / "other.run")]) == 0
