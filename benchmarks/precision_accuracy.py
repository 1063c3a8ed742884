# SPDX-License-Identifier: Apache-2.0
"""AUC of models whose tables have 16 bits per number in training, or 8 or 4 bits in serving.

    PYTHONPATH=. python benchmarks/precision_accuracy.py --sets movielens synthetic census
        --movielens DIR --census DIR --json OUT

Each model trains with its own configuration for the data set, once per seed and training precision.
All trainings of a model with one seed have the same initial values and batches. The training
precisions are float32, bfloat16 with stochastic rounding (the default), and bfloat16 with rounding
to the nearest. In bfloat16, the tables' values and optimizer states have two bytes per number. The
rows of each float32 model are then quantised to 8 and to 4 bits, as in a server. Each row has its
own scale and offset in float16 (FBGEMM's form). The model is evaluated with the quantised rows. The
output is a table in Markdown. The table shows the AUC in float32 and, for each other precision, the
difference from the AUC in float32. All figures in the table are means over the seeds.
"""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import argparse
import dataclasses
import gc
import json
import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np

from benchmarks import bench_common
from benchmarks.accuracy_table import MODELS, SETS, config_of, model_of
from mindspore_rec import tables_of
from mindspore_rec.serving import QuantizedRows
from models.common.cli import seed_list
from models.common.data import open_data
from models.common.evaluation import evaluate
from models.common.model import Run, train
from models.common.training import with_changes

TRAINING = {
    "float32": {},
    "bfloat16": {"value_dtype": "bfloat16", "state_dtype": "bfloat16"},
    "bfloat16, nearest": {
        "value_dtype": "bfloat16", "state_dtype": "bfloat16", "rounding": "nearest",
    },
}  # fmt: skip
SERVING = {"int8 rows": "int8", "int4 rows": "int4"}
ASKED = {"bfloat16": 0.0005, "int8 rows": 0.0003, "int4 rows": 0.002}  # allowed AUC difference


def quantised(values: np.ndarray, numbers: str) -> np.ndarray:
    """Return rows quantised to int8 or int4 and dequantised, as in a server.

    Args:
        values: float32 `[n, dim]`.
        numbers: 'int8' or 'int4'.

    Example:
        >>> rows = np.array([[0.0, 0.5, 1.0]], np.float32)
        >>> quantised(rows, "int4").astype(float).round(2).tolist()
        [[0.0, 0.47, 1.0]]
    """
    rows = QuantizedRows(values.shape[1], numbers)
    keys = np.arange(len(values))
    rows.upsert(keys, np.ascontiguousarray(values, np.float32))
    return rows.lookup(keys)


def served(run: Run, data: Any) -> dict[str, float]:
    """Return a trained model's AUC with quantised rows; restore the original rows afterwards."""
    aucs = {}
    tables = tables_of(run.model.train_network)
    rows = [[each.asnumpy() for each in table.get_data()] for table in tables]
    for name, numbers in SERVING.items():
        for table, (keys, values) in zip(tables, rows, strict=True):
            narrow = quantised(values.reshape(len(keys), -1), numbers).reshape(values.shape)
            table.put(ms.Tensor(keys), ms.Tensor(narrow))
        aucs[name] = float(evaluate(run.model, data).metrics["auc"])
    for table, (keys, values) in zip(tables, rows, strict=True):
        table.put(ms.Tensor(keys), ms.Tensor(values))
    return aucs


def one_seed(name: str, options: argparse.Namespace, seed: int) -> dict[str, float]:
    """Train a model with one seed in each precision, and return the AUC for each precision."""
    config = with_changes(config_of(name, options), seed=seed, evaluations=1)
    directory = getattr(options, options.set, None)
    aucs = {}
    for precision, changes in TRAINING.items():
        embedding = dataclasses.replace(config.embedding, **changes)
        data = open_data(config.data, directory, seed)
        run = train(
            model_of(name), dataclasses.replace(config, embedding=embedding), data, progress=False
        )
        if run.summary.interrupted:
            raise KeyboardInterrupt
        aucs[precision] = float(run.metrics["auc"])
        if precision == "float32":
            aucs.update(served(run, data))
        for table in tables_of(run.model.train_network):
            table.close()
        gc.collect()
    print(f"{options.set}, {name}, seed {seed}: {aucs}", file=sys.stderr, flush=True)
    return aucs


def summary(title: str, runs: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return a model's mean AUC for each precision, and the difference from float32's mean AUC.

    Args:
        title: the model's display name.
        runs: AUC by precision, for each seed.

    Example:
        >>> summary("X", {"0": {"float32": 0.75, "int8 rows": 0.5}})["difference"]
        {'int8 rows': -0.25}
    """
    each = list(runs.values())
    mean = {p: float(np.mean([run[p] for run in each])) for p in each[0]}
    difference = {p: auc - mean["float32"] for p, auc in mean.items() if p != "float32"}
    within = {p: abs(difference[p]) <= most for p, most in ASKED.items() if p in difference}
    return {"title": title, "mean": mean, "difference": difference, "within": within, "runs": runs}


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return lines of Markdown: one table row per data set and model.

    Example:
        >>> one = {"title": "X", "mean": {"float32": 0.75}, "difference": {"bfloat16": -1e-4}}
        >>> print(*table({"census": {"x": one}}), sep="\\n")
        | data | model | float32 | bfloat16 |
        |---|---|---|---|
        | census | X | 0.75000 | -0.00010 |
    """
    first = next(iter(next(iter(found.values())).values()))
    others = list(first["difference"])
    lines = ["| " + " | ".join(["data", "model", "float32", *others]) + " |"]
    lines.append("|" + "---|" * (3 + len(others)))
    for data, models in found.items():
        for each in models.values():
            cells = [data, each["title"], f"{each['mean']['float32']:.5f}"]
            cells += [f"{each['difference'][p]:+.5f}" for p in others]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["synthetic"])
    parser.add_argument("--movielens", type=Path, help="directory; or MINDSPORE_REC_MOVIELENS_DIR")
    parser.add_argument("--census", type=Path, help="directory; or MINDSPORE_REC_CENSUS_DIR")
    parser.add_argument("--rows", type=int, default=400_000, help="of synthetic data")
    parser.add_argument("--seeds", type=seed_list, default=[0, 1, 2], metavar="0,1,...")
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=["wide_deep", "dcn_v2", "dlrm"]
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures to PATH")
    parser.add_argument("--resume", action="store_true", help="keep the runs that PATH has")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code."""
    options = _parser().parse_args(arguments)
    ms.set_context(mode=ms.GRAPH_MODE)
    rows = options.rows
    results: dict[str, dict[str, Any]] = {}
    if options.resume and options.json is not None and options.json.exists():
        results = json.loads(options.json.read_text(encoding="utf-8"))["results"]
    try:
        for chosen in options.sets:
            options.set = chosen
            options.rows = rows if chosen == "synthetic" else None
            for name in options.models:
                runs = results.setdefault(chosen, {}).get(name, {}).get("runs", {})
                for seed in options.seeds:
                    if str(seed) not in runs:
                        runs[str(seed)] = one_seed(name, options, seed)
                results[chosen][name] = summary(model_of(name).title, runs)
                figures = {"rows": rows, "asked": ASKED, "results": results}
                bench_common.save(options.json, figures)
        print(*table(results), sep="\n", flush=True)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
