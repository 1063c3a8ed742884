# SPDX-License-Identifier: Apache-2.0
"""Train Wide & Deep: ``python -m models.wide_deep.train --help``."""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import argparse
import dataclasses
import sys
from pathlib import Path

import mindspore as ms

from mindspore_rec import save_checkpoint
from models.common.cli import config_path, parser, save_json, show_log
from models.common.data import Data, open_data
from models.wide_deep.config import Config, read_config
from models.wide_deep.run import Run, train

CONFIGS = Path(__file__).parent / "configs"


def _parser() -> argparse.ArgumentParser:
    made = parser("models.wide_deep.train", "Train Wide & Deep.", CONFIGS)
    made.add_argument("--epochs", type=int, help="instead of the configuration's")
    made.add_argument("--save", type=Path, metavar="DIR", help="save the model to DIR, a new one")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    show_log()
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        config = read_config(config_path(options.config, CONFIGS))
        changed = {
            name: value
            for name in ("epochs", "seed")
            if (value := getattr(options, name)) is not None
        }
        config = dataclasses.replace(config, train=dataclasses.replace(config.train, **changed))
        if options.save is not None and options.save.exists():
            raise ValueError(f"--save {options.save} exists already")
        data = open_data(config.data, options.data, config.train.seed)
        run = train(config, data)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    report(config, data, run)
    if options.save is not None:
        save_checkpoint(run.model, options.save)
    save_json(options.json, figures(config, data, run))
    return 130 if run.summary.interrupted else 0


def report(config: Config, data: Data, run: Run) -> None:
    """Print what counts: the AUC, beside the best possible where that is known."""
    auc = run.summary.metrics.get("auc")
    if auc is not None:
        best = "" if data.bayes_auc is None else f", Bayes AUC {data.bayes_auc:.5f}"
        print(f"AUC {auc:.5f}{best} ({data.name}, training seed {config.train.seed})")


def figures(config: Config, data: Data, run: Run) -> dict:
    """What `--json` writes."""
    return {
        "model": "wide_deep",
        "data": data.name,
        "bayes_auc": data.bayes_auc,
        **run.summary.to_json(),
        "config": dataclasses.asdict(config),
    }


if __name__ == "__main__":
    sys.exit(main())
