# SPDX-License-Identifier: Apache-2.0
"""Run the commands `mindspore-rec init`, `train` and `predict` on a task, as a user does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from benchmarks.trees.rivals import Scores
from benchmarks.trees.tasks import LABEL, TIME, Parts

__all__ = ["Run", "run_command"]

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Run:
    """One run of the command `mindspore-rec` on a task.

    Attributes:
        scores: probabilities of the validation and test rows.
        seconds: wall times of `init`, of `tune` and of the whole `train`. The other entries are
            parts of the time of `train`: imports, compiling, `steps` (the steps of the first
            training), and the refit's steps.
        training: results of the training, from a file that `train` wrote.
        tuned: results of the trials, from a file that `tune` wrote, or None.
    """

    scores: Scores
    seconds: Mapping[str, float]
    training: Mapping[str, Any]
    tuned: Mapping[str, Any] | None = None


def run_command(
    parts: Parts, seed: int, folder: Path, changes: Mapping[str, Any], trials: int = 0
) -> Run:
    """Train by the command.

    Args:
        parts: the training, validation and test rows of the task.
        seed: seed of the training.
        folder: empty directory for the files of the run.
        changes: settings of the YAML file that replace the settings from `init`, such as
            `{"train": {"epochs": 5}}`; mappings are merged.
        trials: number of trials of `tune`; the network is then trained with the best settings.
            Default: 0, no trials.
    """
    for name in ("train", "valid", "test"):
        frame: pd.DataFrame = getattr(parts, name)
        frame.to_parquet(folder / f"{name}.parquet", index=False, row_group_size=1 << 15)
    when = ["--split", "time" if parts.by_time else "random"]
    when += ["--time", TIME] if TIME in parts.train else []
    began = time.perf_counter()
    proposal = _call(folder, "init", "train.parquet", "--label", LABEL, *when)
    after_init = time.perf_counter()
    settings = _merged(
        {**yaml.safe_load(proposal), "split": {"valid": "valid.parquet", "test": 0.0}},
        {"train": {"seed": seed}},
    )
    settings = _merged(settings, changes)
    (folder / "task.yaml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    name, tuned = "task.yaml", None
    if trials:
        _call(folder, "tune", name, "--trials", str(trials), "--json", "tuned.json")
        tuned = json.loads((folder / "tuned.json").read_text(encoding="utf-8"))
        name = "task.tuned.yaml"
    after_tune = time.perf_counter()
    _call(folder, "train", name, "--json", "figures.json", "--no-baseline")
    after_train = time.perf_counter()
    training = json.loads((folder / "figures.json").read_text(encoding="utf-8"))["training"]
    scores = {}
    for part in ("valid", "test"):
        _call(folder, "predict", name, f"{part}.parquet", "-o", f"{part}_scores.parquet")
        scored = pd.read_parquet(folder / f"{part}_scores.parquet")
        scores[part] = np.asarray(scored["probability"], np.float64)
    refit = training.get("refit", {"compile_seconds": 0.0, "step_seconds": 0.0})
    seconds = {
        "init": after_init - began,
        "tune": after_tune - after_init,
        "train": after_train - after_tune,
        "import": _import_seconds(folder),
        "compile": training["compile_seconds"] + refit["compile_seconds"],
        "steps": training["step_seconds"],
        "refit_steps": refit["step_seconds"],
    }
    return Run(scores, seconds, training, tuned)


def _import_seconds(folder: Path) -> float:
    began = time.perf_counter()
    _python(folder, "-c", "import mindspore_rec.command.fitting")
    return time.perf_counter() - began


def _call(folder: Path, *arguments: str) -> str:
    return _python(folder, "-m", "mindspore_rec", *arguments)


def _python(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "GLOG_v": "3"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"python {' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def _merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed settings; a change to None removes a setting."""
    made = dict(settings)
    for name, value in changes.items():
        if value is None:
            made.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(made.get(name), Mapping):
            made[name] = _merged(made[name], value)
        else:
            made[name] = value
    return made
