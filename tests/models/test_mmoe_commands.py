# SPDX-License-Identifier: Apache-2.0
"""MMoE from the command line, on a planted file in Census-Income's form; its promise on the real
one."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from datasets.census_income.schema import FILES
from models.common.commands import evaluate_command, train_command
from models.mmoe.config import MODEL
from tests.models.census_file import write_census
from tests.support.missing import missing

ROOT = Path(__file__).parents[2]

SMALL = """
data:
  kind: census_income
  tasks: [income, never_married]
embedding:
  embedding_dim: 4
  std: 0.05
model:
  input_dropout: 0.1
  expert_dropout: 0.1
optimizer:
  learning_rate: 0.01
train:
  batch_size: 200
  epochs: 3
  evaluations: 2
"""


def run(module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900
    )


def train(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run("models.mmoe.train", *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("mmoe")
    write_census(directory, train=4000, test=2000)
    (directory / "small.yaml").write_text(SMALL)
    return directory


@pytest.fixture(scope="module")
def trained(folder):
    out = folder / "figures.json"
    done = train(
        "--config", folder / "small.yaml", "--data", folder, "--seed", 1, "--json", out,
        "--save", folder / "saved", "--report", folder / "page.html",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr, json.loads(out.read_text())


def test_both_tasks_are_learnt(trained):
    _, _, figures = trained
    metrics = figures["mean"]
    assert metrics["auc.income"] > 0.8 and metrics["auc.never_married"] > 0.9
    assert figures["deviation"] is None and figures["runs"][0]["seed"] == 1
    # without the children, whose labels are constant, both are harder
    for task in ("income", "never_married"):
        assert metrics[f"auc.{task}.adult"] < metrics[f"auc.{task}"]


def test_the_page_shows_both_tasks_and_the_operators(folder, trained):
    page = (folder / "page.html").read_text()
    for title in ("Loss", "AUC", "Rows of tables", "Calibration: observed rate"):
        assert f"<!-- {title} -->" in page
    for name in ("income", "never_married", "observed income", "observed never_married"):
        assert f"<!-- {name} -->" in page
    assert "table lookup" in page and f"{trained[2]['mean']['auc.income']:.5f}" in page


def test_adults_are_the_rows_of_18_years_and_more(folder):
    from models.common.data import CensusIncome, open_data

    data = open_data(CensusIncome(tasks=("never_married", "income")), folder, seed=0)
    text = gzip.decompress((folder / FILES["test"]).read_bytes()).decode()
    ages = [int(line.split(",")[0]) for line in text.splitlines()]
    assert data.groups["adult"].tolist() == [age >= 18 for age in ages]
    assert data.tasks == ("never_married", "income") and (data.fields, data.dense) == (36, 7)
    labels = np.concatenate([batch["label"] for batch in data.test])
    assert labels[:, 0].mean() > labels[:, 1].mean()


def test_the_report_has_each_task_on_all_rows_and_on_adults(trained):
    out, error, figures = trained
    for group, end in (("all", ""), ("adult", ".adult")):
        for task in ("income", "never_married"):
            [auc] = re.findall(rf"^{group} +{task} +(0\.\d+)", out, re.M)
            assert float(auc) == pytest.approx(figures["mean"][f"auc.{task}{end}"], abs=1e-5)
    assert re.search(r"[\d,]+ samples/s", error)


def test_several_seeds_are_what_each_is_alone(folder, trained):
    out = folder / "seeds.json"
    done = train(
        "--config", folder / "small.yaml", "--data", folder, "--seeds", "0,1", "--json", out
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())
    assert [each["seed"] for each in figures["runs"]] == [0, 1]
    first, second = figures["runs"]
    # the same seed gives the same figures, alone or after another
    alone = trained[2]["runs"][0]
    assert second["history"] == alone["history"] and second["metrics"] == alone["metrics"]
    assert first["metrics"] != second["metrics"]
    values = [each["metrics"]["auc.income"] for each in figures["runs"]]
    assert figures["mean"]["auc.income"] == pytest.approx(np.mean(values))
    assert figures["deviation"]["auc.income"] == pytest.approx(np.std(values, ddof=1))
    assert "mean (standard deviation) of 2 seeds" in done.stdout


def test_eval_of_the_saved_model_gives_the_trained_figures(folder, trained):
    out = folder / "eval.json"
    done = run(
        "models.mmoe.eval", "--config", folder / "small.yaml", "--data", folder,
        "--load", folder / "saved", "--json", out,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["metrics"] == trained[2]["runs"][0]["metrics"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seed", "0", "--seeds", "0,1"), "--seeds"),
        (("--seeds", "0,0"), "different whole numbers"),
        (("--seeds", "a"), "different whole numbers"),
        (("--seeds", "0,1", "--save", "anywhere"), "--save"),
        (("--seeds", "0,1", "--report", "page.html"), "--report"),
        (("--host-rows", "100"), "host_rows"),
        (("--epochs", "0"), "epochs"),
        (("--data", "nowhere"), "is not there"),
    ],
)
def test_bad_options_are_refused_by_name(folder, options, message):
    given = ["--config", str(folder / "small.yaml"), "--data", str(folder), *options]
    done = subprocess_like(train_command, given)
    assert done[0] in (1, 2) and message in done[1]


def subprocess_like(command, arguments: list[str]) -> tuple[int, str]:
    """Exit code and standard error of a command, without starting a process."""
    import contextlib
    import io

    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        try:
            code = command(MODEL, arguments)
        except SystemExit as stop:  # argparse's
            code = int(stop.code or 0)
    return code, errors.getvalue()


def test_help_of_both_commands(capsys):
    for command in (train_command, evaluate_command):
        assert subprocess_like(command, ["--help"])[0] == 0
        assert "--json" in capsys.readouterr().out


def test_census_income_auc(tmp_path):
    if "MINDSPORE_REC_CENSUS_DIR" not in os.environ:
        missing("census", "MINDSPORE_REC_CENSUS_DIR does not name the Census-Income files")
    out = tmp_path / "census.json"
    done = train("--config", "reference.yaml", "--json", out)
    assert done.returncode == 0, done.stderr
    metrics = json.loads(out.read_text())["mean"]
    assert metrics["auc.income"] >= 0.953 and metrics["auc.never_married"] >= 0.9940
