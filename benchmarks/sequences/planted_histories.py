# SPDX-License-Identifier: Apache-2.0
"""AUC of DIN and BST on synthetic histories, compared with DeepFM and the best possible AUC.

    python -m benchmarks.sequences.planted_histories --seeds 0,1,2 --json OUT

The rows are from `datasets/synthetic/histories.py`, whose formula gives each row's true
probability. The best possible AUC is the AUC of the true probabilities. A network's share is (AUC -
DeepFM's AUC) / (best AUC - DeepFM's AUC). DIN and BST are trained with the settings in their
configuration files in `models`. For each network, the epoch with the best AUC on validation rows is
chosen; the figures are from test rows.
"""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import mindspore as ms
import numpy as np

from benchmarks import bench_common
from datasets.synthetic.histories import TASKS
from mindspore_rec.models import DeepFM
from models.bst.config import MODEL as BST
from models.common.cli import seed_list
from models.common.config import read_yaml, to_json
from models.common.history_model import HistoryModel, HistoryRun, train
from models.din.config import MODEL as DIN


@dataclass(frozen=True)
class Perceptron:
    """Settings of DeepFM."""

    hidden: tuple[int, ...] = (64, 32)


@dataclass(frozen=True)
class DeepFMRun(HistoryRun):
    """A run of DeepFM, without histories."""

    model: Perceptron = field(default_factory=Perceptron)


MODELS = (HistoryModel("deepfm", "DeepFM", DeepFMRun, DeepFM), DIN, BST)

Runs = dict[str, list[dict[str, Any]]]


def configured(model: HistoryModel, task: str, seed: int, options: Any) -> Any:
    """Return the configuration of a run, changed by the command's options."""
    config: Any = read_yaml(DIN.configs / f"{task}.yaml", DIN.config)
    if model.name == "deepfm":
        config = DeepFMRun(config.data, config.train)
    else:
        config = read_yaml(model.configs / f"{task}.yaml", model.config)
    data, length = {"rows": options.rows, "test_rows": options.rows}, {"epochs": options.epochs}
    data, length = ({k: v for k, v in each.items() if v is not None} for each in (data, length))
    return dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, **data),
        train=dataclasses.replace(config.train, seed=seed, **length),
    )


def shares(runs: Runs) -> dict[str, list[float]]:
    """For each network and seed, return (AUC - DeepFM's AUC) / (best AUC - DeepFM's AUC)."""
    return {
        name: [
            (each["auc"] - low["auc"]) / (each["bayes_auc"] - low["auc"])
            for each, low in zip(of, runs["deepfm"], strict=True)
        ]
        for name, of in runs.items()
        if name != "deepfm"
    }


def main() -> None:
    """Measure and print."""
    parser = bench_common.parser(__doc__ or "")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="rows")
    parser.add_argument("--seeds", type=seed_list, default=[0], help="of rows and networks")
    parser.add_argument("--rows", type=int, help="of each part, instead of the configurations'")
    parser.add_argument("--epochs", type=int, help="instead of the configurations'")
    options = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    results: dict[str, Any] = {}
    for task in options.tasks:
        runs: Runs = {model.name: [] for model in MODELS}
        configs = {}
        for seed in options.seeds:
            for model in MODELS:
                config = configured(model, task, seed, options)
                configs[model.name] = to_json(config)
                runs[model.name].append(train(model, config))
                line = "{auc:.4f} of {bayes_auc:.4f}".format(**runs[model.name][-1])
                print(f"{task}, seed {seed}, {model.title}: AUC {line}", flush=True)
        by_network = shares(runs)
        results[task] = {"configs": configs, "runs": runs, "shares": by_network}
        for name, each in by_network.items():
            print(f"{task}, {name}: share {np.mean(each):.3f}, lowest {min(each):.3f}", flush=True)
        bench_common.save(options.json, {"seeds": options.seeds, "tasks": results})


if __name__ == "__main__":
    main()
