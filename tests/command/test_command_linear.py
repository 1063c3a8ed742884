# SPDX-License-Identifier: Apache-2.0
"""The linear models that a training is compared with, beside NumPy's least squares."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mindspore_rec.command.main import main

YAML = """\
source: rows.parquet
columns:
  city: {kind: category, values: text}
  shop: {kind: category, values: text}
  size: {kind: number, transform: standard, buckets: null}
  weight: weight
  LABEL
embedding_dim: 4
split: {train: 0.8, valid: 0.1, test: 0.1, by: random}
model: {name: dcn_v2, hidden: [8], layers: 1}
train: {epochs: 1, batch_size: 256}
"""


def table(rows: int = 6000) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    city, shop = rng.integers(0, 12, rows), rng.integers(0, 5, rows)
    size = rng.normal(40, 10, rows)
    effects = rng.normal(0, 1500, 12), rng.normal(0, 700, 5)
    price = 20_000 + effects[0][city] + effects[1][shop] + 90 * (size - 40)
    return pd.DataFrame(
        {
            "city": [f"c{k}" for k in city],
            "shop": [f"s{k}" for k in shop],
            "size": size,
            "weight": rng.choice([0.5, 2.0], rows),
            "price": price + rng.normal(0, 800, rows),
            "bought": (rng.random(rows) < 0.01 + 0.3 * (city < 3)).astype(int),
        }
    )


def figures(folder: Path, label: str) -> dict[str, dict[str, float]]:
    """Train, and return the metrics of each model on the test rows."""
    (folder / "rows.yaml").write_text(YAML.replace("LABEL", label))
    assert main(["train", str(folder / "rows.yaml"), "--overwrite"]) == 0
    metrics = json.loads((folder / "rows.run" / "metrics.json").read_text())["test"]["metrics"]
    return {model: of_model[label.partition(":")[0]] for model, of_model in metrics.items()}


def test_linear_regression_is_near_least_squares(tmp_path: Path) -> None:
    rows = table()
    rows.to_parquet(tmp_path / "rows.parquet")
    found = figures(tmp_path, "price: {kind: label, binary: false}")
    design = pd.get_dummies(rows[["city", "shop"]]).assign(size=rows["size"], one=1.0)
    matrix = design.to_numpy(np.float64) * np.sqrt(rows.weight.to_numpy())[:, None]
    target = rows.price.to_numpy() * np.sqrt(rows.weight.to_numpy())
    best, *_ = np.linalg.lstsq(matrix, target, rcond=None)
    errors = (design.to_numpy(np.float64) @ best - rows.price) ** 2
    least = np.sqrt(np.average(errors, weights=rows.weight))  # of all rows, about 800
    linear, base = found["linear regression"]["rmse"], found["base rate"]["rmse"]
    assert linear < 0.6 * base
    assert linear == pytest.approx(least, rel=0.08)  # of 600 test rows: 3 standard deviations


def test_logistic_regression_beats_the_base_rate(tmp_path: Path) -> None:
    rows = table()
    rows.to_parquet(tmp_path / "rows.parquet")
    found = figures(tmp_path, "bought: label")
    logistic, base = found["logistic regression"], found["base rate"]
    assert logistic["log_loss"] < 0.95 * base["log_loss"]
    assert logistic["calibration"] == pytest.approx(1, abs=0.39)  # 60 labels: 3 deviations
