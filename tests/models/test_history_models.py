# SPDX-License-Identifier: Apache-2.0
"""The zoo's models over histories, from the command line; what their rows promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets.synthetic.histories import ITEMS, KINDS, LONGEST, TASKS, draw
from mindspore_rec.metrics import functional
from models.bst.config import MODEL as BST
from models.common.config import read_yaml
from models.common.history_model import HistoryModel, evaluate_command, train_command
from models.din.config import MODEL as DIN
from models.hstu.config import MODEL as HSTU
from models.sasrec.config import MODEL as SASREC
from tests.support.nightly import nightly

SMALL = """
data: {task: seen, rows: 3000, test_rows: 1000}
model: SETTINGS
train: {epochs: 3, learning_rate: 0.01}
"""

SETTINGS = {
    "din": {"hidden": [16]},
    "bst": {"hidden": [16]},
    "sasrec": {"heads": 2},
    "hstu": {"heads": 2, "time_buckets": 8},
}


@pytest.mark.parametrize("model", [DIN, *nightly(BST, SASREC, HSTU)], ids=lambda model: model.name)
def test_trained_saved_and_evaluated(
    model: HistoryModel, graph_mode: Any, tmp_path: Path, capsys: Any
) -> None:
    config, out, saved = (tmp_path / name for name in ("small.yaml", "out.json", "saved"))
    config.write_text(SMALL.replace("SETTINGS", json.dumps(SETTINGS[model.name])))
    given = ["--config", str(config), "--json", str(out)]
    assert train_command(model, [*given, "--epochs", "2", "--save", str(saved)]) == 0
    (run,) = json.loads(out.read_text())["runs"]
    assert len(run["valid_auc"]) == 2 and 0.5 < run["auc"] < run["bayes_auc"] < 0.9
    assert evaluate_command(model, [*given, "--load", str(saved)]) == 0
    assert json.loads(out.read_text())["auc"] == pytest.approx(run["auc"], abs=1e-6)
    assert train_command(model, [*given, "--save", str(saved)]) == 1
    assert "--save must be a new directory" in capsys.readouterr().err
    other = BST if model is DIN else DIN
    seen = ["--config", str(other.configs / "seen.yaml"), "--load", str(saved)]
    assert evaluate_command(other, seen) == 1
    expected = f"--load must be a saved {other.title}, got a saved {model.network.__name__}"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "option", "message"),
    [
        (1, "--epochs=1", "'data.test_rows' must be at least 2, got 1"),
        (2, "--seed=1", "'data.test_rows' must be so large that both labels occur, got 2 and "),
        (1000, "--epochs=0", "'train.epochs' must be at least 1, got 0"),
    ],
)
def test_illegal_sizes_are_refused(
    rows: int, option: str, message: str, tmp_path: Path, capsys: Any
) -> None:
    config = tmp_path / "small.yaml"
    text = SMALL.replace("test_rows: 1000", f"test_rows: {rows}")
    config.write_text(text.replace("SETTINGS", "{}"))
    assert train_command(DIN, ["--config", str(config), option]) == 1
    assert message in capsys.readouterr().err


def test_rows_of_all_seeds_are_checked_before_a_training(tmp_path: Path, capsys: Any) -> None:
    config = tmp_path / "small.yaml"
    text = SMALL.replace("test_rows: 1000", "test_rows: 5").replace("rows: 3000", "rows: 20")
    config.write_text(text.replace("SETTINGS", "{}").replace("epochs: 3", "epochs: 1"))
    assert train_command(DIN, ["--config", str(config), "--seeds", "0,7"]) == 1
    captured = capsys.readouterr()
    assert "both labels occur, got 5 and seed 7" in captured.err and not captured.out


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model", [DIN, BST, SASREC, HSTU], ids=lambda model: model.name)
def test_configurations_are_read(model: HistoryModel, task: str) -> None:
    config: Any = read_yaml(model.configs / f"{task}.yaml", model.config)
    name, value = ("heads", 2) if model in (SASREC, HSTU) else ("hidden", (64, 32))
    assert config.data.task == task and config.settings()[name] == value


def test_a_task_that_is_unknown_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("data: {task: other}")
    with pytest.raises(ValueError, match=r"'data.task' must be one of seen, interest, got 'other'"):
        read_yaml(path, DIN.config)


@pytest.mark.parametrize("task", TASKS)
def test_probabilities_follow_from_the_rows(task: str) -> None:
    """The documented formula, row by row, gives the probabilities; labels have their rate."""
    made = draw(task, 4000, 7)
    constants = np.random.default_rng(0).normal(0, 0.5, ITEMS)
    rows = made.rows.to_pylist()
    odds = []
    for row in rows:
        assert len(row["seen"]) <= LONGEST
        same = [event % KINDS == row["item"] % KINDS for event in row["seen"]]
        if task == "seen":
            term = 1.5 if row["item"] in row["seen"] else -1.5
        else:
            term = 0.9 * min(sum(same), 4) - 1.5
        odds.append(constants[row["item"]] + term)
    np.testing.assert_allclose(made.probability, 1 / (1 + np.exp(-np.array(odds))), rtol=1e-12)
    label = made.rows["label"].to_numpy()
    assert abs(label.mean() - made.probability.mean()) < 0.03
    assert functional.auc(label, made.probability) > 0.8
    assert {len(row["seen"]) for row in rows} == set(range(LONGEST + 1))
    assert draw(task, 4000, 7).rows.equals(made.rows)
