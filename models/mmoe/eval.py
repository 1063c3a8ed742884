# SPDX-License-Identifier: Apache-2.0
"""Evaluate a saved MMoE: ``python -m models.mmoe.eval --help``."""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import sys
from pathlib import Path

import mindspore as ms

from mindspore_rec import load_checkpoint
from models.common.cli import config_path, parser, save_json, show_log
from models.common.training import with_changes
from models.mmoe.config import read_config
from models.mmoe.report import report
from models.mmoe.run import build, evaluate, open_run
from models.mmoe.switches import add_switches, with_switches

CONFIGS = Path(__file__).parent / "configs"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser("models.mmoe.eval", "Evaluate a saved MMoE on the test rows.", CONFIGS)
    made.add_argument("--load", type=Path, required=True, help="directory that train --save made")
    add_switches(made)
    options = made.parse_args(arguments)
    show_log()
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        config = with_switches(read_config(config_path(options.config, CONFIGS)), options)
        config = with_changes(config, seed=options.seed)
        data, vocabulary = open_run(config, options.data)
        model = build(config, data, vocabulary=vocabulary)
        load_checkpoint(model, options.load)
        metrics = evaluate(model, data)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(report(data, f"saved in {options.load}", metrics))
    save_json(options.json, {"model": "mmoe", "data": data.name, "metrics": metrics})
    return 0


if __name__ == "__main__":
    sys.exit(main())
