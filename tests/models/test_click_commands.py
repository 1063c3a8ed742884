# SPDX-License-Identifier: Apache-2.0
"""The commands that all click models share: several seeds, metrics by user, the report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from models.common.commands import evaluate_command, train_command
from models.dlrm.config import MODEL

CONFIG = """
data:
  kind: movielens
embedding:
  embedding_dim: 4
  std: 0.1
model:
  bottom: [8]
  top: [16]
optimizer:
  learning_rate: 0.02
train:
  batch_size: 200
  epochs: 2
  evaluations: 3
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Ratings that users' and movies' parities decide together."""
    directory = tmp_path_factory.mktemp("ratings")
    rng = np.random.default_rng(0)
    movies = [f"{m},Film {m} ({1980 + m % 20}),{'Comedy|Drama' if m % 3 else 'War'}"
              for m in range(40)]  # fmt: skip
    (directory / "movies.csv").write_text("\n".join(["movieId,title,genres", *movies]) + "\n")
    lines = ["userId,movieId,rating,timestamp"]
    for k in range(4000):
        user, movie = rng.integers(0, 30), rng.integers(0, 40)
        liked = rng.random() < (0.85 if (user + movie) % 2 else 0.15)
        lines.append(f"{user},{movie},{4.5 if liked else 2.0},{k}")
    (directory / "ratings.csv").write_text("\n".join(lines) + "\n")
    (directory / "config.yaml").write_text(CONFIG)
    return directory


def command(data: Path, *more: object) -> list[str]:
    return ["--config", str(data / "config.yaml"), "--data", str(data), *map(str, more)]


def test_a_saved_model_has_the_metrics_of_the_training(graph_mode, data, tmp_path, capsys):
    out, page, saved = tmp_path / "out.json", tmp_path / "page" / "out.html", tmp_path / "saved"
    arguments = ["--json", out, "--report", page, "--save", saved]
    assert train_command(MODEL, command(data, *arguments)) == 0
    figures = json.loads(out.read_text())
    found = figures["evaluation"]
    assert found["auc"] == figures["metrics"]["auc"] > 0.75
    assert found["normalized_entropy"] < 1 and 0.8 < found["calibration"] < 1.2
    assert found["gauc"] > 0.75 and f"GAUC by user {found['gauc']:.5f}" in capsys.readouterr().out

    again = tmp_path / "again.json"
    assert evaluate_command(MODEL, command(data, "--load", saved, "--json", again)) == 0
    assert found.items() <= json.loads(again.read_text()).items()

    text = page.read_text()
    # loss, AUC, rows, memory, calibration, operators
    assert text.count("<svg") == text.count("</svg>") == 6
    assert "<td>table lookup</td><td>forward</td>" in text and "<td>dense layers</td>" in text
    assert not re.search(r"(src|href)=\"http", text)  # it needs nothing from elsewhere
    assert f"<td>auc</td><td>{found['auc']:.5f}</td>" in text


def test_several_seeds_give_mean_and_deviation(graph_mode, data, tmp_path, capsys):
    out = tmp_path / "out.json"
    assert train_command(MODEL, command(data, "--seeds", "3,4", "--epochs", 1, "--json", out)) == 0
    figures = json.loads(out.read_text())
    aucs = [run["evaluation"]["auc"] for run in figures["runs"]]
    assert aucs[0] != aucs[1]
    assert figures["mean"]["auc"] == pytest.approx(np.mean(aucs))
    assert figures["deviation"]["auc"] == pytest.approx(np.std(aucs, ddof=1))
    assert "auc: mean (standard deviation) of 2 seeds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "1,2", "--seed", "3"], "--seed and --seeds"),
        (["--seeds", "1,2", "--save", "x"], "--save"),
        (["--seeds", "1,2", "--report", "x"], "--report"),
        (["--epochs", "0"], "train.epochs"),
    ],
)
def test_options_that_do_not_go_together(data, capsys, arguments, message):
    assert train_command(MODEL, command(data, *arguments)) == 1
    assert message in capsys.readouterr().err
