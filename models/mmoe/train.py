# SPDX-License-Identifier: Apache-2.0
"""Train MMoE: ``python -m models.mmoe.train --help``."""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import argparse
import sys
from pathlib import Path
from typing import Any

import mindspore as ms

from mindspore_rec import save_checkpoint, tables_of
from models.common.cli import (
    check_training_options,
    config_path,
    save_json,
    show_log,
    training_parser,
)
from models.common.config import to_json
from models.common.data import Data
from models.common.figures import mean_and_deviation
from models.common.report import write_report
from models.common.training import with_changes
from models.mmoe.config import Config, read_config
from models.mmoe.report import report
from models.mmoe.run import open_run, train
from models.mmoe.switches import add_switches, with_switches

CONFIGS = Path(__file__).parent / "configs"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code, 130 after Ctrl-C."""
    made = training_parser("models.mmoe.train", "Train MMoE.", CONFIGS)
    add_switches(made)
    options = made.parse_args(arguments)
    show_log()
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        config = with_switches(read_config(config_path(options.config, CONFIGS)), options)
        check_training_options(options)
        runs = []
        for seed in options.seeds or [options.seed]:
            config = with_changes(config, seed=seed, epochs=options.epochs)
            data, vocabulary = open_run(config, options.data)
            runs.append(_run(config, data, vocabulary, options))
            if runs[-1]["interrupted"]:
                break
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    figures = {
        "model": "mmoe",
        "data": data.name,
        "config": to_json(config),
        **mean_and_deviation([run["metrics"] for run in runs]),
        "runs": runs,
    }
    if len(runs) > 1:
        what = f"mean (standard deviation) of {len(runs)} seeds"
        print(report(data, what, figures["mean"], figures["deviation"]))
    save_json(options.json, figures)
    return 130 if runs[-1]["interrupted"] else 0


def _run(
    config: Config, data: Data, vocabulary: int | None, options: argparse.Namespace
) -> dict[str, Any]:
    run = train(config, data, vocabulary=vocabulary, operators=options.report is not None)
    print(report(data, f"training seed {config.train.seed}", run.metrics), flush=True)
    figures = {"seed": config.train.seed, **run.summary.to_json(), "metrics": run.metrics}
    if options.save is not None:
        save_checkpoint(run.model, options.save)
    if options.report is not None:
        title, found = f"MMoE on {data.name}", {**figures, "config": to_json(config)}
        points, operators = run.recorder.points, run.operators
        write_report(options.report, title, found, points, run.curves, operators)
    # First values depend on a table's name: the next seed's table must be free to have the same.
    for table in tables_of(run.model.train_network):
        table.close()
    return figures


if __name__ == "__main__":
    sys.exit(main())
