# SPDX-License-Identifier: Apache-2.0
"""Command-line options, logging and output files of the models' commands."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import Any

from mindspore_rec.parallel import worker_group

__all__ = [
    "check_training_options",
    "config_path",
    "parser",
    "save_json",
    "seed_list",
    "show_log",
    "training_parser",
]


def parser(program: str, description: str, configs: Path) -> argparse.ArgumentParser:
    """Return a parser with the options of every command: configuration, data, result file, seed.

    Args:
        program: name of the module, for the usage line.
        description: one sentence for the help text.
        configs: folder of the model's configurations. The help text lists the files in this folder.
    """
    made = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    names = ", ".join(sorted(str(p.name) for p in configs.glob("*.yaml")))
    made.add_argument(
        "--config",
        type=Path,
        required=True,
        help=f"YAML file, or the name of one of the model's own: {names}",
    )
    made.add_argument("--data", type=Path, help="directory of the data, where it is not synthetic")
    made.add_argument("--seed", type=int, help="instead of the configuration's")
    made.add_argument("--json", type=Path, metavar="PATH", help="write the figures to PATH")
    return made


def training_parser(program: str, description: str, configs: Path) -> argparse.ArgumentParser:
    """Return a parser with the options of `parser` and the options of training.

    Args: as for `parser`.
    """
    made = parser(program, description, configs)
    made.add_argument(
        "--seeds", type=seed_list, metavar="0,1,...", help="train once with each, instead of --seed"
    )
    made.add_argument("--epochs", type=int, help="instead of the configuration's")
    made.add_argument("--save", type=Path, metavar="DIR", help="save the model to DIR, a new one")
    made.add_argument(
        "--report",
        type=Path,
        metavar="PATH",
        help="write curves and operators' times to PATH, a page",
    )
    return made


def config_path(given: Path, configs: Path) -> Path:
    """Return the path of a configuration file; `given` is a path or a name in `configs`.

    Example:
        >>> config_path(Path("nowhere.yaml"), Path("configs")).as_posix()
        'nowhere.yaml'
    """
    own = configs / given.name
    return own if not given.exists() and len(given.parts) == 1 and own.exists() else given


def seed_list(text: str) -> list[int]:
    """Parse an option's text as a list of seeds; a function for argparse's argument `type`.

    Raises: argparse.ArgumentTypeError: a seed is not a whole number of at least 0, or occurs twice.

    Example:
        >>> seed_list("0,1,5")
        [0, 1, 5]
    """
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(
            f"must be different whole numbers of at least 0, as in 0,1,2, got {text!r}"
        )
    return seeds


def check_training_options(options: argparse.Namespace) -> None:
    """Check that training options do not contradict each other; make folders for output files.

    Args:
        options: parsed options, among them `seed`, `seeds`, `save`, `json` and `report`.

    Raises:
        ValueError: `seeds` is set together with `seed`, `save` or `report`; or the directory `save`
            exists.

    Example:
        >>> check_training_options(argparse.Namespace(seed=1, seeds=[1, 2]))
        Traceback (most recent call last):
        ...
        ValueError: --seed and --seeds must not be given together
    """
    if options.seeds and options.seed is not None:
        raise ValueError("--seed and --seeds must not be given together")
    if options.save is not None and options.seeds:
        raise ValueError("--save is for one model: give --seed, not --seeds")
    if options.report is not None and options.seeds:
        raise ValueError("--report is for one run: give --seed, not --seeds")
    if options.save is not None and options.save.exists():
        raise ValueError(f"--save {options.save} exists already")
    for path in (options.save, options.json, options.report):
        if path is not None:  # now, not after hours of training
            path.parent.mkdir(parents=True, exist_ok=True)


class _Beside(logging.Handler):
    """Log handler that prints lines without breaking a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm

        tqdm.write(self.format(record), file=sys.stderr)


def show_log() -> None:
    """Write the log, which includes evaluations during training, to standard error."""
    logger = logging.getLogger("mindspore_rec")
    if not any(isinstance(each, _Beside) for each in logger.handlers):
        logger.addHandler(_Beside())
    logger.setLevel(logging.INFO if worker_group().rank == 0 else logging.WARNING)


def save_json(path: Path | None, figures: dict[str, Any]) -> None:
    """Write figures as JSON to `path`; do nothing if `path` is None."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
