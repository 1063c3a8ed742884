# SPDX-License-Identifier: Apache-2.0
"""Every model's configuration for the full Criteo_x1 runs as it is, on rows made in its form."""

from __future__ import annotations

import csv
import importlib
import json

import numpy as np
import pytest

from datasets.criteo import bars
from datasets.criteo.schema import FIELDS
from models.common.commands import train_command

ROWS = 3000


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("criteo_x1")
    rng = np.random.default_rng(0)
    for name in bars.SPLITS:
        counts, categories = rng.random((ROWS, 13)).round(6), rng.integers(0, 30, (ROWS, 26))
        label = (counts[:, 0] + (categories[:, 0] % 2) > rng.random(ROWS) * 2).astype(int)
        with (directory / f"{name}.csv").open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(FIELDS)
            out.writerows(
                [one, *map(str, of_row), *map(str, ids)]
                for one, of_row, ids in zip(label, counts, categories, strict=True)
            )
    command = ["--input", directory, "--version", "x1", "--output", directory / "packed"]
    assert bars.main(list(map(str, command))) == 0
    return directory / "packed"


@pytest.mark.parametrize("name", ["wide_deep", "dcn", "dcn_v2", "deepfm", "dlrm"])
def test_the_very_configuration_runs(packed, tmp_path, name):
    model = importlib.import_module(f"models.{name}.config").MODEL
    out = tmp_path / "figures.json"
    command = ["--config", "criteo_x1.yaml", "--data", packed, "--epochs", "2", "--json", out]
    assert train_command(model, list(map(str, command))) == 0
    figures = json.loads(out.read_text())
    assert figures["samples"] == 2 * ROWS
    assert figures["config"]["train"]["batch_size"] == 4096
    assert figures["config"]["embedding"]["embedding_dim"] == 10
    tables = {table["name"]: table["rows"] for table in figures["tables"]}
    assert set(tables.values()) == {26 * 30}  # every value of every field, and nothing else
    assert 0 < figures["metrics"]["log_loss"] < 1
