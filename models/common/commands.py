# SPDX-License-Identifier: Apache-2.0
"""Commands of all models: training with one or several seeds, and evaluation."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import mindspore as ms

from mindspore_rec import RecModel, load_checkpoint, save_checkpoint, tables_of
from mindspore_rec.parallel import worker_group
from models.common.cli import (
    check_training_options,
    parser,
    save_json,
    show_log,
    training_parser,
)
from models.common.data import Data
from models.common.evaluation import evaluate
from models.common.figures import mean_and_deviation
from models.common.model import ZooModel, build, figures, open_run, read_config, train
from models.common.remote import check_remote
from models.common.report import write_report
from models.common.switches import add_switches, with_switches
from models.common.task_lines import mean_lines, result_lines
from models.common.training import with_changes

__all__ = ["evaluate_command", "train_command"]


def train_command(model: ZooModel, arguments: list[str] | None = None) -> int:
    """Train a model and return the exit code: 0, 1 after an error, or 130 after Ctrl-C.

    Args:
        model: model to train.
        arguments: arguments of the command line. Default: the process's arguments.
    """
    made = training_parser(f"{model.package}.train", f"Train {model.title}.", model.configs)
    add_switches(made)
    options = made.parse_args(arguments)
    show_log()
    ms.set_context(mode=ms.GRAPH_MODE)
    runs: list[dict[str, Any]] = []
    try:
        check_training_options(options)
        config = with_switches(read_config(model, options.config), options)
        check_remote(config)
        for seed in options.seeds or [options.seed]:
            config = with_changes(config, epochs=options.epochs, seed=seed)
            data = open_run(config, options.data)
            runs.append(_train_once(model, config, data, options))
            if runs[-1]["interrupted"]:
                break
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before or after the training, which ends with its step
        print("interrupted", file=sys.stderr)
        return 130
    _report(runs, data, options)
    return 130 if runs[-1]["interrupted"] else 0


def evaluate_command(model: ZooModel, arguments: list[str] | None = None) -> int:
    """Evaluate a saved model on the test rows, and return the exit code as `train_command` does.

    Args:
        model: model to evaluate.
        arguments: arguments of the command line. Default: the process's arguments.
    """
    made = parser(f"{model.package}.eval", f"Evaluate a saved {model.title}.", model.configs)
    made.add_argument("--load", type=Path, required=True, help="directory that train --save made")
    add_switches(made)
    options = made.parse_args(arguments)
    show_log()
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        config = with_switches(read_config(model, options.config), options)
        check_remote(config)
        config = with_changes(config, seed=options.seed)
        data = open_run(config, options.data)
        built = build(model, config, data)
        load_checkpoint(built, options.load)
        metrics = evaluate(built, data).metrics
        _close_tables(built)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    if worker_group().rank != 0:
        return 0
    print(result_lines(data, f"saved in {options.load}", metrics))
    record = {"model": model.name, "data": data.name, **metrics, "metrics": metrics}
    save_json(options.json, record)
    return 0


def _train_once(
    model: ZooModel, config: Any, data: Data, options: argparse.Namespace
) -> dict[str, Any]:
    run = train(model, config, data, operators=options.report is not None)
    record = figures(model, config, data, run)
    first = worker_group().rank == 0  # one worker of several reports
    if run.evaluation is not None and first:
        what = f"training seed {config.train.seed}"
        print(result_lines(data, what, run.evaluation.metrics), flush=True)
    if options.save is not None:
        save_checkpoint(run.model, options.save)
    if options.report is not None and first:
        curves = {} if run.evaluation is None else run.evaluation.curves
        title = f"{model.title} on {data.name}"
        write_report(options.report, title, record, run.recorder.points, curves, run.operators)
    _close_tables(run.model)
    return record


def _close_tables(model: RecModel) -> None:
    """Close a model's tables, so that the next model's tables can use the same names.

    Initial values depend on a table's name, so every run must use the same names.
    """
    for table in tables_of(model.train_network):
        table.close()


def _report(runs: list[dict[str, Any]], data: Data, options: argparse.Namespace) -> None:
    """Print the means over several seeds, and write the file of `--json`.

    The file contains the figures of the runs and the means over the runs. Without `--seeds`, the
    figures of the only run are also at the file's top level.
    """
    if worker_group().rank != 0:
        return
    whole = [run["evaluation"] for run in runs if run["evaluation"] is not None]
    means = mean_and_deviation(whole) if whole else {"mean": {}, "deviation": None}
    if options.seeds and whole:
        print(mean_lines(data, len(whole), means["mean"], means["deviation"]))
    last = runs[-1]
    shared = {name: last[name] for name in ("model", "data", "bayes_auc", "config")}
    save_json(options.json, {**(shared if options.seeds else last), **means, "runs": runs})
