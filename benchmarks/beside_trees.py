# SPDX-License-Identifier: Apache-2.0
"""AUC of `mindspore-rec train` (with its defaults), LightGBM, CatBoost and logistic regression.

    python -m benchmarks.beside_trees --data DIR --json OUT
    python -m benchmarks.beside_trees --data DIR --tasks movielens_time --seeds 0 --changes \\
        '{"model": {"dropout": 0.1}}'
    python -m benchmarks.beside_trees --data DIR --learners mindspore-rec --tune 30
    python -m benchmarks.beside_trees --data DIR --test --seeds 0,1,2,3,4 --json OUT

The tasks are in `trees/tasks.py`. DIR has three folders: `census-income-kdd` with
`census-income.data.gz` and `census-income.test.gz`, `online-retail` with `online_retail.csv`, and
`movielens-latest-small` with `ratings.csv` and `movies.csv`. CSV files may also be compressed
(`.csv.gz`). Each learner trains on the training rows. All learners but logistic regression stop
when the validation rows show no more gain. LightGBM and CatBoost are run if they are installed.

The test rows are scored only with `--test`. Choose settings by the validation rows, and run
`--test` only once, at the end. The result file contains the commit and the date. Without `--test`,
the network is not trained a second time on training and validation rows together (`train.refit`).
After a second training, the network would score validation rows on which it was trained.
"""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import argparse
import importlib.util
import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks import bench_common
from benchmarks.trees.ours import run_command
from benchmarks.trees.rivals import RIVALS
from benchmarks.trees.tasks import LABEL, TASKS, Parts

OURS = "mindspore-rec"
NEEDS = {
    "LightGBM": "lightgbm",
    "LightGBM-codes": "lightgbm",
    "LightGBM-statistics": "lightgbm",
    "LightGBM-refit": "lightgbm",
    "CatBoost": "catboost",
    "CatBoost-statistics": "catboost",
}


def run(
    learner: str, parts: Parts, seed: int, changes: Mapping[str, Any], test: bool, trials: int = 0
) -> dict[str, Any]:
    """Train a learner on a task, and return its figures."""
    began = time.perf_counter()
    more: dict[str, Any] = {}
    if learner == OURS:
        no_refit = {"train": {**changes.get("train", {}), "refit": False}}
        with tempfile.TemporaryDirectory() as folder:
            chosen = changes if test else {**changes, **no_refit}
            made = run_command(parts, seed, Path(folder), chosen, trials)
        scores, more = made.scores, {"parts_seconds": dict(made.seconds)}
        if made.tuned is not None:
            more["tuned"] = dict(made.tuned)
    else:
        scores = RIVALS[learner](parts, seed)
    figures: dict[str, Any] = {"seconds": time.perf_counter() - began, **more}
    for part in ("valid", "test") if test else ("valid",):
        label = getattr(parts, part)[LABEL]
        predicted = np.clip(scores[part], 1e-7, 1 - 1e-7)
        figures[part] = {
            "auc": float(roc_auc_score(label, predicted)),
            "log_loss": float(log_loss(label, predicted)),
        }
    return figures


def main() -> None:
    """Run the learners on the tasks and print a line for each pair of learner and task."""
    options = _options()
    part = "test" if options.test else "valid"
    record: dict[str, Any] = {"part": part, "changes": options.changes, "tasks": {}}
    print(f"{'task':<18} {'learner':<20} {'AUC':>7} {'spread':>7} {'log loss':>8} {'seconds':>8}")
    for name in options.tasks:
        parts = TASKS[name].cut(options.data)
        sizes = {each: len(getattr(parts, each)) for each in ("train", "valid", "test")}
        record["tasks"][name] = {"rows": sizes, "learners": {}}
        for learner in options.learners:
            runs = [
                run(learner, parts, seed, options.changes, options.test, options.tune)
                for seed in options.seeds
            ]
            record["tasks"][name]["learners"][learner] = runs
            aucs = [each[part]["auc"] for each in runs]
            loss = statistics.mean(each[part]["log_loss"] for each in runs)
            seconds = statistics.median(each["seconds"] for each in runs)
            spread = max(aucs) - min(aucs)
            print(
                f"{name:<18} {learner:<20} {statistics.mean(aucs):7.4f} {spread:7.4f} {loss:8.4f} "
                f"{seconds:8.1f}",
                flush=True,
            )
            if learner == OURS:
                _print_parts([each["parts_seconds"] for each in runs])
            bench_common.save(options.json, record)


def _print_parts(runs: list[Mapping[str, float]]) -> None:
    parts = {name: statistics.median(each[name] for each in runs) for name in runs[0]}
    shown = ", ".join(f"{name} {each:.1f}" for name, each in parts.items())
    print(f"  seconds: {shown}", flush=True)


def _options() -> argparse.Namespace:
    parser = bench_common.parser(__doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, required=True, help="directory of the data sets")
    parser.add_argument("--tasks", type=_names, default=list(TASKS), help="names, with commas")
    parser.add_argument("--learners", type=_learners, default=None, help="names, with commas")
    parser.add_argument("--seeds", type=_seeds, default=[0], help="seeds, with commas; default 0")
    parser.add_argument("--changes", type=json.loads, default={}, help="settings, as JSON")
    parser.add_argument("--tune", type=int, default=0, help="trials of `tune`; default 0: none")
    parser.add_argument("--test", action="store_true", help="score the test rows: once, at the end")
    options = parser.parse_args()
    if options.learners is None:
        installed = [n for n in RIVALS if importlib.util.find_spec(NEEDS.get(n, "sklearn"))]
        options.learners = [OURS, *installed]
    return options


def _names(text: str) -> list[str]:
    return _known(text, tuple(TASKS))


def _learners(text: str) -> list[str]:
    return _known(text, (OURS, *RIVALS))


def _known(text: str, known: tuple[str, ...]) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
    return names


def _seeds(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


if __name__ == "__main__":
    main()
