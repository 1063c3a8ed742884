# SPDX-License-Identifier: Apache-2.0
"""The commands of the click models: train with one seed or several, and evaluate."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import mindspore as ms

from mindspore_rec import RecModel, load_checkpoint, save_checkpoint, tables_of
from models.common.cli import (
    check_training_options,
    parser,
    save_json,
    show_log,
    training_parser,
)
from models.common.click import ClickModel, build, figures, read_config, train
from models.common.data import Data, open_data
from models.common.evaluation import Evaluation, evaluate
from models.common.figures import mean_and_deviation
from models.common.report import write_report
from models.common.training import with_changes

__all__ = ["evaluate_command", "train_command"]


def train_command(model: ClickModel, arguments: list[str] | None = None) -> int:
    """Train: returns the exit code, 130 after Ctrl-C.

    Args:
        model: which.
        arguments: of the command line. Default: those of the process.
    """
    made = training_parser(f"models.{model.name}.train", f"Train {model.title}.", model.configs)
    options = made.parse_args(arguments)
    show_log()
    ms.set_context(mode=ms.GRAPH_MODE)
    runs: list[dict[str, Any]] = []
    try:
        check_training_options(options)
        config = read_config(model, options.config)
        for seed in options.seeds or [options.seed]:
            config = with_changes(config, epochs=options.epochs, seed=seed)
            data = open_data(config.data, options.data, config.train.seed)
            runs.append(_train_once(model, config, data, options))
            if runs[-1]["interrupted"]:
                break
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    _report(runs, options)
    return 130 if runs[-1]["interrupted"] else 0


def evaluate_command(model: ClickModel, arguments: list[str] | None = None) -> int:
    """Evaluate a saved model on the test rows: returns the exit code.

    Args:
        model: which.
        arguments: of the command line. Default: those of the process.
    """
    made = parser(f"models.{model.name}.eval", f"Evaluate a saved {model.title}.", model.configs)
    made.add_argument("--load", type=Path, required=True, help="directory that train --save made")
    options = made.parse_args(arguments)
    show_log()
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        config = with_changes(read_config(model, options.config), seed=options.seed)
        data = open_data(config.data, options.data, config.train.seed)
        built = build(model, config, data)
        load_checkpoint(built, options.load)
        evaluation = evaluate(built, data)
        _close_tables(built)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(_line(evaluation, data))
    save_json(options.json, {"model": model.name, "data": data.name, **evaluation.metrics})
    return 0


def _train_once(
    model: ClickModel, config: Any, data: Data, options: argparse.Namespace
) -> dict[str, Any]:
    run = train(model, config, data, operators=options.report is not None)
    found = figures(model, config, data, run)
    if run.evaluation is not None:
        print(f"{_line(run.evaluation, data)}, training seed {config.train.seed}", flush=True)
    if options.save is not None:
        save_checkpoint(run.model, options.save)
    if options.report is not None:
        curves = {} if run.evaluation is None else {"": run.evaluation.curve}
        title = f"{model.title} on {data.name}"
        write_report(options.report, title, found, run.recorder.points, curves, run.operators)
    _close_tables(run.model)
    return found


def _close_tables(model: RecModel) -> None:
    """First values depend on a table's name: the next model's table must be free to have it."""
    for table in tables_of(model.train_network):
        table.close()


def _line(evaluation: Evaluation, data: Data) -> str:
    found = evaluation.metrics
    users = f", GAUC by user {found['gauc']:.5f}" if "gauc" in found else ""
    best = "" if data.bayes_auc is None else f", Bayes AUC {data.bayes_auc:.5f}"
    return f"AUC {found['auc']:.5f}, log loss {found['log_loss']:.5f}{users}{best} ({data.name})"


def _report(runs: list[dict[str, Any]], options: argparse.Namespace) -> None:
    if not options.seeds:
        save_json(options.json, runs[0])
        return
    whole = [run["evaluation"] for run in runs if run["evaluation"] is not None]
    together = mean_and_deviation(whole) if whole else {"mean": {}, "deviation": None}
    mean, deviation = together["mean"], together["deviation"]
    for name, value in mean.items():
        spread = "" if deviation is None else f" ({deviation[name]:.5f})"
        print(f"{name}: mean (standard deviation) of {len(whole)} seeds {value:.5f}{spread}")
    save_json(options.json, {**together, "runs": runs})
