# SPDX-License-Identifier: Apache-2.0
"""Evaluate a saved Wide & Deep: ``python -m models.wide_deep.eval --help``."""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import dataclasses
import sys
from pathlib import Path

import mindspore as ms

from mindspore_rec import load_checkpoint
from models.common.cli import config_path, parser, save_json, show_log
from models.common.data import open_data
from models.wide_deep.config import read_config
from models.wide_deep.run import build

CONFIGS = Path(__file__).parent / "configs"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser(
        "models.wide_deep.eval", "Evaluate a saved Wide & Deep on the test rows.", CONFIGS
    )
    made.add_argument("--load", type=Path, required=True, help="directory that train --save made")
    options = made.parse_args(arguments)
    show_log()
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        config = read_config(config_path(options.config, CONFIGS))
        if options.seed is not None:
            train = dataclasses.replace(config.train, seed=options.seed)
            config = dataclasses.replace(config, train=train)
        data = open_data(config.data, options.data, config.train.seed)
        model = build(config, data)
        load_checkpoint(model, options.load)
        metrics = model.eval(data.test)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    best = "" if data.bayes_auc is None else f", Bayes AUC {data.bayes_auc:.5f}"
    print(f"AUC {metrics['auc']:.5f}, log loss {metrics['log_loss']:.5f}{best} ({data.name})")
    save_json(options.json, {"model": "wide_deep", "data": data.name, **metrics})
    return 0


if __name__ == "__main__":
    sys.exit(main())
