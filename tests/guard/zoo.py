# SPDX-License-Identifier: Apache-2.0
"""Runs of the guard that train the models of the zoo, small and on planted data."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from models.common.config import from_mapping
from models.common.model import open_run, train
from tests.guard.digests import hex_of, of_model
from tests.models.census_file import write_census

__all__ = ["MODELS", "OVER_HISTORIES", "model"]

_HIDDEN: dict[str, Any] = {"hidden": [16, 8], "dropout": 0.1}
MODELS: dict[str, dict[str, Any]] = {
    "dcn": _HIDDEN,
    "dcn_v2": {**_HIDDEN, "cross": "mixture", "rank": 4, "numbers": "embed"},
    "deepfm": {**_HIDDEN, "batch_norm": True},
    "dlrm": {"bottom": [8], "top": [16, 8]},
    "mmoe": {"experts": 3, "input_dropout": 0.1},
    "wide_deep": _HIDDEN,
}
"""The section `model` of each model's configuration, by the name of its folder."""

OVER_HISTORIES = {"bst", "din", "hstu", "sasrec"}
"""Folders of models with code of their own, which have no run here."""


def model(folder: Path, name: str) -> dict[str, str]:
    """Train a model of the zoo, evaluated twice on the way."""
    kind = importlib.import_module(f"models.{name}.config").MODEL
    synthetic = name != "mmoe"  # which has two tasks, as Census-Income has
    source = _synthetic() if synthetic else _census(folder)
    config = from_mapping(kind.config, {"data": source, **_settings(name)})
    data = open_run(config, None if synthetic else folder)
    run = train(kind, config, data, progress=False)
    batch = next(iter(data.test))
    inputs = [batch[each] for each in ("ids", "dense") if each in batch]
    metrics = np.array([run.metrics[each] for each in sorted(run.metrics)])
    return {"metrics": hex_of(metrics), **of_model(run.model, *inputs)}


def _synthetic() -> dict[str, Any]:
    sizes = {"rows": 1500, "test_rows": 500, "max_cardinality": 100, "pair_cardinality": 30}
    return {"kind": "synthetic", **sizes}


def _census(folder: Path) -> dict[str, Any]:
    write_census(folder, train=1000, test=500)
    return {"kind": "census_income", "tasks": ["income", "never_married"]}


def _settings(name: str) -> dict[str, Any]:
    return {
        "embedding": {"dim": 4, "std": 0.1},
        "model": MODELS[name],
        "optimizer": {"learning_rate": 0.02, "learning_rate_end": 0.001},
        "train": {"batch_size": 100, "epochs": 1, "evaluations": 2},
    }
