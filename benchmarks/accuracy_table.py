# SPDX-License-Identifier: Apache-2.0
"""AUC and log loss of all models, logistic regression and boosted trees on the same rows.

    python -m benchmarks.accuracy_table --set movielens --data DIR --seeds 0,1,2,3,4 --json OUT

Each model trains with its own configuration for the data set, once per seed. All models use the
same split of the rows. The baselines need scikit-learn. The output is a Markdown table. If the best
possible AUC is known, the table also shows each model's gain over logistic regression, as a share
of the best possible gain. With `--twins`, a PyTorch twin of each model is trained with one seed.
The twin has the model's initial weights, batches and learning rates. The table shows the twin's
AUC. If the best possible AUC is known, the table also shows the ratio of the model's gain to the
twin's gain, where a gain is the AUC minus the AUC of logistic regression. `--known` reads the
baselines' results from an earlier result file, and fits no baselines.
"""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import argparse
import dataclasses
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import mindspore as ms

from benchmarks import bench_common
from mindspore_rec import tables_of
from models.common.baselines import BASELINES, of_data
from models.common.cli import seed_list
from models.common.data import open_data
from models.common.figures import mean_and_deviation
from models.common.model import ZooModel, read_config, train
from models.common.precision import COMPUTE_DTYPES
from models.common.training import with_changes

MODELS = ("wide_deep", "dcn", "dcn_v2", "deepfm", "dlrm")
SETS = ("movielens", "census", "synthetic")


def model_of(name: str) -> ZooModel:
    """Return the model that a folder of models/ defines."""
    return importlib.import_module(f"models.{name}.config").MODEL


def config_of(name: str, options: argparse.Namespace) -> Any:
    """Return the configuration of a model for the chosen data, with `--rows` rows.

    Raises:
        ValueError: `--rows` is set for data that are not synthetic.
    """
    config = read_config(model_of(name), f"{options.set}.yaml")
    if options.rows is None:
        return config
    if options.set != "synthetic":
        raise ValueError(f"--rows is for synthetic data, not for {options.set}")
    data = dataclasses.replace(config.data, rows=options.rows, test_rows=max(1, options.rows // 5))
    return dataclasses.replace(config, data=data)


def measure(
    model: ZooModel, config: Any, directory: Path | None, seeds: list[int]
) -> dict[str, Any]:
    """Train with each seed; return the metrics of each run and their means."""
    runs = []
    for seed in seeds:
        chosen = with_changes(config, seed=seed, evaluations=1)
        data = open_data(chosen.data, directory, seed)
        begin = time.perf_counter()
        run = train(model, chosen, data, progress=sys.stderr.isatty())
        for table in tables_of(run.model.train_network):
            table.close()
        if run.summary.interrupted:
            raise KeyboardInterrupt
        metrics = {name: float(run.summary.metrics[name]) for name in ("auc", "log_loss")}
        runs.append({"seed": seed, **metrics, "seconds": round(time.perf_counter() - begin, 1)})
        print(f"{model.name}: {runs[-1]}", file=sys.stderr, flush=True)
    together = mean_and_deviation([{k: run[k] for k in ("auc", "log_loss")} for run in runs])
    return {"title": model.title, **together, "runs": runs}


def measure_types(name: str, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return the metrics of a model for each compute type.

    For float32, the key of the result is the model's name, such as 'dcn'. For another type, the key
    also contains the type, such as 'dcn bfloat16'.
    """
    results: dict[str, dict[str, Any]] = {}
    for dtype in options.compute_dtype:
        config = dataclasses.replace(config_of(name, options), compute_dtype=dtype)
        result = measure(model_of(name), config, options.data, options.seeds)
        if dtype == "float32":
            results[name] = result
        else:
            results[f"{name} {dtype}"] = {**result, "title": f"{result['title']}, {dtype}"}
    if options.twins and name in results:
        seed = options.seeds[0]
        results[name]["twin"] = measure_twin(name, config_of(name, options), options.data, seed)
    return results


def measure_twin(name: str, config: Any, directory: Path | None, seed: int) -> dict[str, Any]:
    """Train the PyTorch twin of a model with one seed."""
    from benchmarks.accuracy_twin import train_twin

    chosen = with_changes(config, seed=seed)
    begin = time.perf_counter()
    metrics = train_twin(name, chosen, open_data(chosen.data, directory, seed))
    print(f"{name}'s twin: {metrics}", file=sys.stderr, flush=True)
    return {"seed": seed, **metrics, "seconds": round(time.perf_counter() - begin, 1)}


def table(found: dict[str, dict[str, Any]], bayes: float | None) -> list[str]:
    """Return lines of Markdown: one table row per model and baseline.

    Example:
        >>> one = {"mean": {"auc": 0.75, "log_loss": 0.5}, "deviation": None, "title": "X"}
        >>> print(*table({"x": one}, None), sep="\\n")
        | model | AUC | log loss |
        |---|---|---|
        | X | 0.75000 | 0.50000 |
    """
    base = found.get("logistic regression", {}).get("mean", {}).get("auc")
    shares = bayes is not None and base is not None
    twins = any("twin" in each for each in found.values())
    head = ["model", "AUC", "log loss"] + (["share of the gap to Bayes"] if shares else [])
    head += ["AUC of the twin"] * twins + ["share by the twin's"] * (twins and shares)
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for each in found.values():
        mean, deviation = each["mean"], each["deviation"]
        cells = [
            f"{mean[k]:.5f}" + ("" if deviation is None else f" ({deviation[k]:.5f})")
            for k in ("auc", "log_loss")
        ]
        if shares and bayes is not None:
            cells.append(f"{(mean['auc'] - base) / (bayes - base):.1%}")
        twin = each.get("twin")
        if twins:
            cells.append("" if twin is None else f"{twin['auc']:.5f}")
        if twins and shares:
            ours = each["runs"][0]["auc"] if twin else 0.0
            cells.append(f"{(ours - base) / (twin['auc'] - base):.1%}" if twin else "")
        lines.append("| " + " | ".join([each["title"], *cells]) + " |")
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy_table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--set", choices=SETS, required=True, help="which data")
    parser.add_argument("--data", type=Path, help="directory of the data, where not synthetic")
    parser.add_argument("--seeds", type=seed_list, default=[0, 1, 2, 3, 4], metavar="0,1,...")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument(
        "--baselines", nargs="*", choices=tuple(BASELINES), default=list(BASELINES)[:2]
    )
    parser.add_argument("--twins", action="store_true", help="train the PyTorch twins too")
    parser.add_argument(
        "--known", type=Path, metavar="JSON", help="baselines as an earlier --json of the set has"
    )
    parser.add_argument("--rows", type=int, help="of synthetic data, instead of a configuration's")
    parser.add_argument(
        "--compute-dtype",
        nargs="+",
        choices=COMPUTE_DTYPES,
        default=["float32"],
        help="types of the products' factors: each model is trained once with each",
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures to PATH")
    return parser


def known(path: Path, data: str) -> dict[str, dict[str, Any]]:
    """Return the baselines' results from an earlier result file.

    Raises:
        ValueError: the result is for a different data set than `data`.
    """
    earlier = json.loads(path.read_text(encoding="utf-8"))
    if earlier["data"] != data:
        raise ValueError(f"--known is of {earlier['data']}, not of {data}")
    return {name: each for name, each in earlier["results"].items() if name in BASELINES}


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code."""
    options = _parser().parse_args(arguments)
    ms.set_context(mode=ms.GRAPH_MODE)
    results: dict[str, dict[str, Any]] = {}
    try:
        data = open_data(config_of("wide_deep", options).data, options.data, options.seeds[0])
        if options.known is not None:
            results.update(known(options.known, data.name))
        for name in () if options.known is not None else options.baselines:
            result = of_data(name, data)
            mean = {k: float(result.pop(k)) for k in ("auc", "log_loss")}
            results[name] = {"title": name, "mean": mean, "deviation": None, **result}
            print(f"{name}: {results[name]}", file=sys.stderr, flush=True)
        for name in options.models:
            results.update(measure_types(name, options))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"{data.name}; mean (standard deviation) of {len(options.seeds)} seeds")
    print(*table(results, data.bayes_auc), sep="\n")
    figures = {"data": data.name, "bayes_auc": data.bayes_auc, "results": results}
    bench_common.save(options.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
