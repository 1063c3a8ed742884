# SPDX-License-Identifier: Apache-2.0
"""Functions shared by the commands of the data sets: options, progress, and the report as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from datasets.common.blocks import Batch, row_count

__all__ = [
    "PART_BYTES",
    "add_json",
    "add_output",
    "add_parts",
    "positive",
    "report",
    "with_progress",
]

PART_BYTES = 256 << 20


def positive(text: str) -> int:
    """Return an option's value as a whole number of at least 1.

    Example:
        >>> positive("4096")
        4096
    """
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def add_output(parser: argparse.ArgumentParser, formats: tuple[str, ...]) -> None:
    """Add the options of a command that writes files; the first of ``formats`` is the default."""
    parser.add_argument(
        "--output", required=True, type=Path, help="directory to make, with its parents"
    )
    parser.add_argument("--format", choices=formats, default=formats[0], help="default %(default)s")
    parser.add_argument(
        "--batch-size", type=positive, default=4096, help="rows of a block (default %(default)s)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the output directory")


def add_parts(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that works in parts on all cores and can be resumed."""
    parser.add_argument("--workers", type=positive, help="processes (default: one a core)")
    parser.add_argument(
        "--part-mib",
        type=positive,
        default=PART_BYTES >> 20,
        help="MiB of text to a file of the output (default %(default)s)",
    )
    parser.add_argument(
        "--restart", action="store_true", help="forget what an interrupted conversion has done"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json PATH``."""
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures to PATH")


def with_progress(blocks: Iterable[Batch], total: int | None, title: str) -> Iterator[Batch]:
    """Yield the blocks unchanged; count their rows in a progress bar on standard error."""
    with tqdm(total=total, unit="row", unit_scale=True, desc=title) as bar:
        for block in blocks:
            yield block
            bar.update(row_count(block))


def report(figures: dict[str, Any], path: Path | None) -> None:
    """Print results as ``name: value`` lines, and write them to ``path`` unless it is None.

    Example:
        >>> report({"rows": 3}, None)
        rows: 3
    """
    for name, value in figures.items():
        print(f"{name}: {value}")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
