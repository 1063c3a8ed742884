# SPDX-License-Identifier: Apache-2.0
"""Convert Census-Income to packed data sets: ``python -m datasets.census_income.convert``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from datasets.census_income.data import CensusData, Split, load
from datasets.census_income.schema import TASKS
from datasets.common.cli import add_json, add_output, positive, report
from datasets.common.packed import FORMATS, new_directory, write_packed

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m datasets.census_income.convert", description=__doc__
    )
    parser.add_argument("--data", required=True, type=Path, help="directory with the two files")
    add_output(parser, FORMATS)
    parser.add_argument(
        "--tasks", nargs="+", choices=TASKS, default=["income"], help="labels (default: income)"
    )
    parser.add_argument(
        "--min-count", type=positive, default=5, help="rows for an amount's own key (default 5)"
    )
    parser.add_argument(
        "--validation", type=float, default=0.0, help="share of training rows held out (default 0)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the held-out rows (default 0)")
    add_json(parser)
    options = parser.parse_args(arguments)
    try:
        data = load(
            options.data,
            options.tasks,
            min_count=options.min_count,
            validation=options.validation,
            seed=options.seed,
        )
        rows = _write(data, options)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    report({"rows": rows, "fields": len(data.id_names), "tasks": list(data.tasks)}, options.json)
    return 0


def _write(data: CensusData, options: argparse.Namespace) -> dict[str, int]:
    splits: dict[str, Split] = {
        name: split for name, split in vars(data).items() if isinstance(split, Split) and len(split)
    }
    fields = {"ids": data.id_names, "dense": data.dense_names, "label": data.tasks}
    with new_directory(options.output, options.overwrite) as directory:
        for name, split in splits.items():
            source = {"dataset": "census_income", "split": name, "seed": options.seed}
            write_packed(
                [split.arrays()],
                directory / name,
                options.format,
                options.batch_size,
                fields,
                source,
            )
    return {name: len(split) for name, split in splits.items()}


if __name__ == "__main__":
    sys.exit(main())
