# SPDX-License-Identifier: Apache-2.0
"""Convert Criteo's data to a packed data set: ``python -m datasets.criteo.convert --help``.

The command reads train.txt of the Kaggle set. For the terabyte set, the command reads the earlier
day files (day_0 to day_23, plain or gzip), or the Parquet files that Criteo publishes now. Text and
Parquet files have the same 40 columns (the label, 13 counts and 26 categories). The Kaggle set's
test.txt has no label and cannot be converted. Plain text files and Parquet files are read on all
cores, and each gzip file is read on one core.

The same command resumes a conversion that was interrupted or killed: finished parts are kept, and
the result has the same bytes as an uninterrupted conversion.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets.common.cli import PART_BYTES, add_json, add_output, add_parts, report
from datasets.common.packed_file import FORMATS
from datasets.common.parts import Conversion, convert_parts
from datasets.criteo.schema import packed_fields
from datasets.criteo.sources import find_files, sources_of, summary_of

__all__ = ["convert", "main"]

Places = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def convert(
    path: Places,
    output: str | os.PathLike[str],
    format: str = "mindrecord",
    batch_size: int = 4096,
    strict: bool = False,
    counts_as_categories: bool = False,
    overwrite: bool = False,
    *,
    workers: int | None = None,
    part_bytes: int = PART_BYTES,
    restart: bool = False,
) -> dict[str, Any]:
    """Convert files in bounded memory, or resume an interrupted conversion of these files.

    Args:
        path: One or several files; a directory means all day files or Parquet files in it. Text may
            be plain or gzip.
        output: Directory to make; it appears when it is complete.
        format: ``mindrecord`` (default) or ``parquet``.
        batch_size: Rows per block (default 4096); the last block of a part may have fewer rows.
        strict: Refuse a bad row instead of skipping it (default False).
        counts_as_categories: Add keys for the 13 binned counts, as in `CriteoReader` (default
            False).
        overwrite: Replace ``output`` if it exists (default False).
        workers: Number of processes; each process needs a few hundred MB of memory. Default: one
            process per core that this process may use. The result is identical byte for byte for
            any number of workers.
        part_bytes: Bytes of input text per output file (default 256 MiB); each input file in
            Parquet becomes one output file. An interruption loses only unfinished parts.
        restart: Begin an interrupted conversion anew (default False: resume).

    Returns:
        The counts of `ReadReport`; the manifest contains the same counts under ``source``.

    Raises:
        ValueError: there are no good rows; a row is bad and ``strict`` is True; an argument is out
            of range; or ``output`` has an interrupted conversion with different settings.
        FileExistsError: ``output`` exists and ``overwrite`` is False.
        OSError: a file cannot be read.
        RuntimeError: a process was killed.
    """
    places = [path] if isinstance(path, str | os.PathLike) else list(path)
    files = find_files([Path(each) for each in places])
    sources = sources_of(files, part_bytes, strict, counts_as_categories)
    plan = {
        "input": [[str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns] for f in files],
        "counts_as_categories": counts_as_categories,
        "part_bytes": part_bytes,
    }
    fields = packed_fields(counts_as_categories)
    manifest = convert_parts(
        Conversion(Path(output), format, batch_size, fields, plan),
        sources,
        summary_of(files, sources),
        workers,
        overwrite,
        restart,
    )
    return manifest.source


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code: 0, 1 after an error, or 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m datasets.criteo.convert",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--input", required=True, type=Path, nargs="+", help="files, or directories of them"
    )
    add_output(parser, FORMATS)
    parser.add_argument("--strict", action="store_true", help="stop at a bad row")
    parser.add_argument(
        "--counts-as-categories", action="store_true", help="give the 13 counts keys as well"
    )
    add_parts(parser)
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
            workers=options.workers,
            part_bytes=options.part_mib << 20,
            restart=options.restart,
        )
    except (ValueError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return 130
    seconds = time.perf_counter() - begin
    speed = {"seconds": round(seconds, 3), "rows_per_second": round(figures["rows"] / seconds)}
    report({**figures, **speed}, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
