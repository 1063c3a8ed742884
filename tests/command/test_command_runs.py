# SPDX-License-Identifier: Apache-2.0
"""Longer ways of the command: a killed training, workers, a search, a server."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mindspore_rec.command.main import main
from tests.command.click_table import YAML, write_clicks
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
def test_workers_train_together(tmp_path: Path):
    yaml = write_clicks(tmp_path, yaml=LINEAR)
    printed = command("train", yaml, "--workers", "2")
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
    assert found["trials"] == 2 and found["settings"]["train.epochs"] == 1
    assert main(["train", str(tmp_path / "clicks.tuned.yaml"), "--no-baseline"]) == 0
    assert metrics(yaml, "clicks.tuned.run")["dcn_v2"]


def test_the_server_answers_raw_columns_like_predict(tmp_path: Path):
    yaml = write_clicks(tmp_path, 1000)
    assert main(["train", str(yaml), "--epochs", "1", "--no-baseline"]) == 0
    rows = pd.read_parquet(tmp_path / "clicks.parquet")[:5].drop(columns="clicked")
    rows["tags"] = [["new"]] * len(rows)  # a request has lists of one length
    rows.to_parquet(tmp_path / "new.parquet")
    scores = tmp_path / "scores.parquet"
    assert main(["predict", str(yaml), str(tmp_path / "new.parquet"), "-o", str(scores)]) == 0
    server = start_python("-m", "mindspore_rec", "serve", yaml, "--port", "0")
    try:
        assert server.stdout is not None
        listening = re.match(r"listening at (\S+)", server.stdout.readline())
        assert listening and server.stdout.readline().startswith("version ")
        answer = post(f"{listening[1]}/infer", {"columns": json_columns(rows)})
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    expected = pd.read_parquet(scores)["probability"].tolist()
    assert answer["outputs"][0]["data"] == pytest.approx(expected, rel=1e-5)


def json_columns(rows: pd.DataFrame) -> dict[str, list[Any]]:
    """Return the columns of rows as JSON values, times in seconds."""
    made = {name: [each for each in rows[name]] for name in ("user", "item", "price")}
    made["tags"] = [list(each) for each in rows["tags"]]
    made["time"] = [each.timestamp() for each in rows["time"]]
    return made


def post(url: str, body: Any) -> Any:
    """Send a request; return the answer."""
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from error
