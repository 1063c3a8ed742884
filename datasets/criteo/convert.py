# SPDX-License-Identifier: Apache-2.0
"""Convert Criteo's text to a packed data set: ``python -m datasets.criteo.convert --help``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from datasets.common.cli import add_json, add_output, report
from datasets.common.packed import FORMATS, write_packed
from datasets.criteo.reader import CriteoReader

__all__ = ["convert", "main"]


def convert(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    format: str = "mindrecord",
    batch_size: int = 4096,
    strict: bool = False,
    counts_as_categories: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Convert one file in memory that does not grow with it.

    Args:
        path: The text, plain or gzip.
        output: Directory to make; it appears when it is complete.
        format: ``mindrecord`` (default) or ``parquet``.
        batch_size: Rows of a block (default 4096).
        strict: Refuse the first bad row instead of leaving it out (default False).
        counts_as_categories: As for `CriteoReader`.
        overwrite: Replace ``output`` where it exists (default False).

    Returns:
        The figures of `ReadReport`, also in the manifest under ``source``.

    Raises:
        ValueError: no good row, a bad row under ``strict``, or an argument out of range.
        FileExistsError: ``output`` exists and ``overwrite`` is False.
        OSError: the text cannot be read.
    """
    with tqdm(total=os.path.getsize(path), unit="B", unit_scale=True, desc="read") as bar:
        reader = CriteoReader(path, batch_size, strict, counts_as_categories, on_bytes=bar.update)
        source: dict[str, Any] = {"file": Path(path).name}

        def blocks() -> Any:
            yield from reader
            # the manifest is written after the last block: by then the report is complete
            source.update(reader.report.to_json())

        write_packed(blocks(), output, format, batch_size, reader.fields, source, overwrite)
    return reader.report.to_json()


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m datasets.criteo.convert", description=__doc__)
    parser.add_argument("--input", required=True, type=Path, help="text, plain or gzip")
    add_output(parser, FORMATS)
    parser.add_argument("--strict", action="store_true", help="stop at the first bad row")
    parser.add_argument(
        "--counts-as-categories", action="store_true", help="give the 13 counts keys as well"
    )
    add_json(parser)
    options = parser.parse_args(arguments)
    begin = time.perf_counter()
    try:
        figures = convert(
            options.input,
            options.output,
            options.format,
            options.batch_size,
            options.strict,
            options.counts_as_categories,
            options.overwrite,
        )
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    seconds = time.perf_counter() - begin
    speed = {"seconds": round(seconds, 3), "rows_per_second": round(figures["rows"] / seconds)}
    report({**figures, **speed}, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
