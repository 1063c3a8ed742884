# SPDX-License-Identifier: Apache-2.0
"""A table of clicks, and its YAML file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["YAML", "click_table", "write_clicks"]

YAML = """\
source: clicks.parquet
columns:
  time: {kind: time, parts: [hour]}
  user: {kind: category, group: true}
  item: category
  tags: {kind: list, length: 3}
  price: number
  clicked: label
embedding_dim: 4
model: {name: dcn_v2, hidden: [32], layers: 1}
train: {epochs: 3, batch_size: 64, learning_rate: 0.03}
"""


def click_table(rows: int, seed: int = 0) -> pd.DataFrame:
    """Return clicks that depend on user and item together, and on the price."""
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, 20, rows), rng.integers(0, 10, rows)
    price = np.exp(rng.normal(3, 1, rows)).round(2)
    score = 3.0 * ((user + item) % 2) - 1.5 + 0.5 * (np.log(price) - 3)
    tags = [["new", "sale"][: k % 3] for k in range(rows)]
    return pd.DataFrame(
        {
            "time": pd.Timestamp("2026-01-01") + pd.to_timedelta(60 * np.arange(rows), unit="s"),
            "user": [f"u{k}" for k in user],
            "item": [f"item-{k}" for k in item],
            "tags": tags,
            "price": price,
            "clicked": (rng.random(rows) < 1 / (1 + np.exp(-score))).astype(int),
        }
    )


def write_clicks(folder: Path, rows: int = 3000, yaml: str = YAML) -> Path:
    """Write `clicks.parquet` and `clicks.yaml`; return the path of the YAML file."""
    click_table(rows).to_parquet(folder / "clicks.parquet", row_group_size=500)
    path = folder / "clicks.yaml"
    path.write_text(yaml)
    return path
