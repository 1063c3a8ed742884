# SPDX-License-Identifier: Apache-2.0
"""The command trains, evaluates and predicts with each network of the scored item."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from mindspore_rec.command.main import main
from tests.support.nightly import nightly

YAML = """\
source: rows.parquet
columns:
  item: {kind: category, table: items}
  seen: {kind: history, table: items, length: 8}
  seen_at: {kind: history, side_of: seen, values: int64}
  clicked: label
embedding_dim: 8
split: {train: 0.8, valid: 0.1, test: 0.1, by: random}
model: MODEL
train: {epochs: 8, batch_size: 128, learning_rate: 0.02}
"""
MODELS = {
    "din": "{name: din, hidden: [16]}",
    "bst": "{name: bst, hidden: [16]}",
    "sasrec": "{name: sasrec, blocks: 1}",
    "hstu": "{name: hstu, blocks: 1}",
}


def write_rows(path: Path, rows: int = 4000) -> None:
    """Write rows; an item of the group of the history is clicked in 9 of 10 rows."""
    rng = np.random.default_rng(0)
    group, number = rng.integers(0, 2, rows), rng.integers(1, 6, rows)
    seen = [(2 * rng.integers(0, 10, n) + g).tolist() for g, n in zip(group, number, strict=True)]
    item = rng.integers(0, 20, rows)
    likes = (item % 2 == group) == (rng.random(rows) < 0.9)
    pyarrow.parquet.write_table(
        pa.table(
            {
                "item": [f"i{k}" for k in item],
                "seen": pa.array([[f"i{k}" for k in each] for each in seen], pa.list_(pa.string())),
                "seen_at": pa.array([list(range(n)) for n in number], pa.list_(pa.int64())),
                "clicked": likes.astype(np.int8),
            }
        ),
        path,
    )


@pytest.mark.parametrize("name", ["hstu", *nightly("din", "bst", "sasrec")])
def test_the_command_trains_each_network(name: str, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.parquet")
    yaml = tmp_path / "rows.yaml"
    yaml.write_text(YAML.replace("MODEL", MODELS[name]))
    assert main(["train", str(yaml)]) == 0
    metrics = json.loads((tmp_path / "rows.run" / "metrics.json").read_text())["test"]["metrics"]
    assert metrics[name]["clicked"]["auc"] > 0.8  # 0.9 is possible, and 0.5 without the history
    assert main(["eval", str(yaml)]) == 0
    scores = tmp_path / "scores.csv"
    assert main(["predict", str(yaml), str(tmp_path / "rows.parquet"), "-o", str(scores)]) == 0
    assert pyarrow.csv.read_csv(scores).num_rows == 4000
