# SPDX-License-Identifier: Apache-2.0
"""Options and reports of the models' commands."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import Any

__all__ = ["parser", "save_json", "show_log"]


def parser(program: str, description: str, configs: Path) -> argparse.ArgumentParser:
    """A parser with what all models take: configuration, data, result file, seed, epochs.

    Args:
        program: the module, for the usage line.
        description: one sentence.
        configs: folder of the model's configurations, for the help.
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


def config_path(given: Path, configs: Path) -> Path:
    """The file a user means: a path, or the name of one of the model's own configurations.

    Example:
        >>> config_path(Path("nowhere.yaml"), Path("configs")).as_posix()
        'nowhere.yaml'
    """
    own = configs / given.name
    return own if not given.exists() and len(given.parts) == 1 and own.exists() else given


def show_log() -> None:
    """Evaluations on the way are logged: show them on standard error, beside a bar."""
    from tqdm import tqdm

    class Beside(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tqdm.write(self.format(record), file=sys.stderr)

    logger = logging.getLogger("mindspore_rec")
    logger.addHandler(Beside())
    logger.setLevel(logging.INFO)


def save_json(path: Path | None, figures: dict[str, Any]) -> None:
    """Write figures where the user asked for them."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
