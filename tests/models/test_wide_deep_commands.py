# SPDX-License-Identifier: Apache-2.0
"""Wide & Deep from the command line: train, save, evaluate; and its promise on Census-Income."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from models.common.commands import evaluate_command, train_command
from models.wide_deep.config import MODEL
from tests.support.missing import missing
from tests.support.nightly import NIGHTLY

ROOT = Path(__file__).parents[2]

SMALL = """
data:
  kind: synthetic
  rows: 60000
  test_rows: 8000
  max_cardinality: 200
  pair_cardinality: 50
embedding:
  embedding_dim: 4
model:
  hidden: [16]
optimizer:
  learning_rate: 0.01
  wide:
    learning_rate: 0.1
train:
  batch_size: 500
  epochs: 1
  evaluations: 2
"""


def run(module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )


def train(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run("models.wide_deep.train", *arguments)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wide_deep")
    config = directory / "small.yaml"
    config.write_text(SMALL)
    out = directory / "figures.json"
    done = train("--config", config, "--json", out, "--save", directory / "saved")
    assert done.returncode == 0, done.stderr
    return directory, done.stdout + done.stderr, json.loads(out.read_text())


def test_auc_rises_towards_bayes(trained):
    _, _, figures = trained
    aucs = [point["auc"] for point in figures["history"]]
    assert len(aucs) >= 2
    assert 0.6 < aucs[0] < figures["metrics"]["auc"] < figures["bayes_auc"]


def test_summary_names_tables_and_speed(trained):
    _, text, figures = trained
    assert re.search(r"[\d,]+ samples/s", text)
    assert {table["name"] for table in figures["tables"]} == {"wide_deep.wide", "wide_deep.deep"}
    assert all(table["rows"] > 100 for table in figures["tables"])
    assert figures["samples"] == 60_000


def test_eval_of_the_saved_model_gives_the_trained_auc(trained):
    directory, _, figures = trained
    out = directory / "eval.json"
    done = run(
        "models.wide_deep.eval", "--config", directory / "small.yaml",
        "--load", directory / "saved", "--json", out,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["auc"] == figures["metrics"]["auc"]


def test_the_same_seed_gives_the_same_figures(trained):
    directory, _, figures = trained
    out = directory / "again.json"
    assert train("--config", directory / "small.yaml", "--json", out).returncode == 0
    again = json.loads(out.read_text())
    assert again["history"] == figures["history"]
    assert again["loss"] == figures["loss"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("embedding:\n  dims: 4", "dims"),
        ("optimizer:\n  wide:\n    learning_rate: -1", "wide.learning_rate"),
        ("train:\n  batch_size: 0", "batch_size"),
    ],
)
def test_bad_configurations_are_refused_by_name(tmp_path, capsys, graph_mode, change, message):
    section = change.split(":")[0]
    text = re.sub(rf"{section}:\n(  .*\n)+", change + "\n", SMALL.lstrip("\n"))
    config = tmp_path / "bad.yaml"
    config.write_text(text)
    assert train_command(MODEL, ["--config", str(config)]) == 1
    assert message in capsys.readouterr().err


def test_help_of_both_commands(capsys):
    for command in (train_command, evaluate_command):
        with pytest.raises(SystemExit) as stop:
            command(MODEL, ["--help"])
        assert stop.value.code == 0
        assert "--json" in capsys.readouterr().out


@pytest.mark.skipif(not NIGHTLY, reason="30 s; MMoE reads these files too")
def test_census_income_auc(tmp_path):
    if "MINDSPORE_REC_CENSUS_DIR" not in os.environ:
        missing("census", "MINDSPORE_REC_CENSUS_DIR does not name the Census-Income files")
    out = tmp_path / "census.json"
    done = train("--config", "census.yaml", "--json", out)
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())
    assert figures["metrics"]["auc"] >= 0.953
