# SPDX-License-Identifier: Apache-2.0
"""Convert BARS's splits of Criteo's data: ``python -m datasets.criteo.bars --help``.

There are two splits of the Kaggle training rows into train.csv, valid.csv and test.csv, with the
header ``label,I1,...,I13,C1,...,C26``; https://github.com/reczoo/Datasets describes where to get
them:

* **Criteo_x1** (Cheng et al., AFN, AAAI 2020): 33,003,326 training, 8,250,124 validation and
  4,587,167 test rows. In Criteo_x1, the counts are real numbers that need no scaling, and the
  categories are numbered. Embeddings of 10.
* **Criteo_x4** (Song et al., AutoInt, CIKM 2019): 36,672,493 training, 4,584,062 validation and
  4,584,062 test rows, split 8:1:1 at random. Criteo_x4 has the unchanged values of Criteo's files.
  BARS bins the counts by ``floor(log(x)**2)`` (above 2) and uses the bins as categories;
  `--counts-as-categories` bins the counts in the same way. BARS also merges rare values: for x4_001
  (embedding size 16), values that occur fewer than 10 times; for x4_002 (embedding size 40), values
  that occur only once. This library does not merge rare values. Instead of merging rare values, use
  admission with `embedding.admission_threshold`. If you train for several epochs, also set
  `train.admission_counts: first_epoch`. Unlike in BARS, the lookup of a rare value returns zeros
  instead of a learned vector.

Like ``datasets.criteo.convert``, the command works on all cores, and the same command resumes an
interrupted conversion.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from datasets.common.blocks import Batch
from datasets.common.cli import PART_BYTES, add_json, add_output, add_parts, report
from datasets.common.manifest import Manifest
from datasets.common.packed_file import FORMATS
from datasets.common.parts import Conversion, PartRows, convert_parts
from datasets.criteo.lines import pieces
from datasets.criteo.reader import count_keys
from datasets.criteo.schema import (
    CATEGORY_FIELDS,
    COUNT_FIELDS,
    FIELDS,
    LABEL,
    packed_fields,
    scale_counts,
)
from mindspore_rec import category_keys

__all__ = ["ROWS", "SPLITS", "blocks", "convert", "main"]

SPLITS = ("train", "valid", "test")
ROWS = {
    "x1": {"train": 33_003_326, "valid": 8_250_124, "test": 4_587_167},
    "x4": {"train": 36_672_493, "valid": 4_584_062, "test": 4_584_062},
}
"""Rows of each file, as published: the manifest says whether a conversion has them all."""

_PIECE = 16 << 20


def blocks(
    path: str | os.PathLike[str],
    version: str,
    counts_as_categories: bool = False,
    span: tuple[int, int] | None = None,
    on_bytes: Callable[[int], object] | None = None,
) -> Iterator[Batch]:
    """Yield the rows of one file, a few megabytes at a time.

    Args:
        path: The CSV file.
        version: With ``x1``, counts are used unchanged. With ``x4``, a count x becomes
            ``log(1 + x)``, or 0 if x is negative. In ``x1`` and ``x4``, a missing count becomes 0,
            and an empty category is treated as missing.
        counts_as_categories: Add keys for the binned counts of ``x4``, as fields I1..I13 after
            C1..C26 (default False).
        span: Range of bytes (end not included); only lines that begin in the range are read
            (default: all lines).
        on_bytes: Function that is called with the number of bytes read since its last call.

    Yields:
        ``ids`` int64 [B, 26] or [B, 39], ``dense`` float32 [B, 13], ``label`` float32 [B, 1].

    Raises:
        ValueError: an argument is out of range, the header is wrong, a row has a wrong number of
            columns, a label is not 0 or 1, or a count is not a number.
        OSError: the file cannot be read.
    """
    _check(version, counts_as_categories)
    start = 0 if span is None else span[0]
    headless = start > 0
    try:
        for piece in pieces(path, _PIECE, span):
            text = piece.text if headless else _behind_header(piece.text)
            headless = True
            if on_bytes is not None:
                on_bytes(piece.file_offset - start)
            start = piece.file_offset
            if text:
                yield _encode(_read(text), version, counts_as_categories)
        if not headless:
            raise ValueError("it is empty")
    except (pa.ArrowInvalid, ValueError) as error:
        raise ValueError(f"{os.fspath(path)} is not a file of Criteo_{version}: {error}") from error


def _behind_header(text: bytes) -> bytes:
    header, _, rows = text.partition(b"\n")
    if header.decode(errors="replace").split(",") != list(FIELDS):
        raise ValueError(f"its header must be {','.join(FIELDS)}")
    return rows


def _read(text: bytes) -> pa.RecordBatch:
    keyed = dict.fromkeys(CATEGORY_FIELDS, pa.string())
    table = csv.read_csv(
        pa.BufferReader(text),
        csv.ReadOptions(column_names=list(FIELDS), block_size=len(text) + 1),
        csv.ParseOptions(),
        csv.ConvertOptions(
            column_types={**keyed, **dict.fromkeys((LABEL, *COUNT_FIELDS), pa.float64())},
            null_values=[""],
            strings_can_be_null=True,
        ),
    )
    (batch,) = table.combine_chunks().to_batches()
    return batch


@dataclass(frozen=True)
class _Range:
    """One part of a file: the lines that begin in a range of bytes."""

    name: str
    path: Path
    bytes: int
    version: str
    counts_as_categories: bool
    span: tuple[int, int]

    def parts(self, done: Container[int], on_bytes: Callable[[int], object]) -> Iterator[PartRows]:
        if 0 not in done:
            rows = blocks(self.path, self.version, self.counts_as_categories, self.span, on_bytes)
            yield PartRows(0, rows, dict)


def convert(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    version: str,
    format: str = "mindrecord",
    batch_size: int = 4096,
    counts_as_categories: bool = False,
    overwrite: bool = False,
    *,
    workers: int | None = None,
    part_bytes: int = PART_BYTES,
    restart: bool = False,
) -> dict[str, Any]:
    """Convert one file in bounded memory, or resume an interrupted conversion of this file.

    Args:
        path: The CSV file.
        output: Directory to make; it appears when it is complete.
        version: ``x1`` or ``x4``, as in `blocks`.
        format: ``mindrecord`` (default) or ``parquet``.
        batch_size: Rows per block (default 4096).
        counts_as_categories: Add keys for the binned counts of ``x4``, as in `blocks` (default
            False).
        overwrite: Replace ``output`` if it exists (default False).
        workers, part_bytes, restart: Number of processes, bytes of input text per output file, and
            whether to begin an interrupted conversion anew, as in
            `datasets.criteo.convert.convert`.

    Returns:
        The number of rows, as a dict with the key ``rows``.

    Raises:
        ValueError, OSError: the file cannot be read, or its contents make `blocks` raise an error.
            ValueError is also raised if the file has no rows, or if ``output`` has an interrupted
            conversion with different settings.
        FileExistsError: ``output`` exists and ``overwrite`` is False.
        RuntimeError: a process was killed.
    """
    _check(version, counts_as_categories)
    if part_bytes < 1:
        raise ValueError(f"part_bytes must be at least 1, got {part_bytes}")
    place, state = Path(path), Path(path).stat()
    sources = [
        _Range(
            f"part-{k:05d}",
            place,
            min(part_bytes, state.st_size - start),
            version,
            counts_as_categories,
            (start, min(start + part_bytes, state.st_size)),
        )
        for k, start in enumerate(range(0, max(state.st_size, 1), part_bytes))
    ]
    plan = {
        "input": [str(place.resolve()), state.st_size, state.st_mtime_ns],
        "version": version,
        "counts_as_categories": counts_as_categories,
        "part_bytes": part_bytes,
    }
    fields = packed_fields(counts_as_categories)
    source = _source(place, version)
    manifest = convert_parts(
        Conversion(Path(output), format, batch_size, fields, plan),
        sources,
        lambda _: source,
        workers,
        overwrite,
        restart,
    )
    return {"rows": manifest.rows}


def _source(path: Path, version: str) -> dict[str, Any]:
    return {"file": path.name, "version": f"Criteo_{version}", "bytes": path.stat().st_size}


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m datasets.criteo.bars",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--input", required=True, type=Path, help="directory of train.csv, valid.csv and test.csv"
    )
    parser.add_argument("--version", required=True, choices=tuple(ROWS), help="which split it is")
    add_output(parser, FORMATS)
    parser.add_argument(
        "--counts-as-categories", action="store_true", help="give the counts of x4 keys as well"
    )
    add_parts(parser)
    add_json(parser)
    options = parser.parse_args(arguments)
    begin = time.perf_counter()
    figures: dict[str, Any] = {}
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        for name in SPLITS:
            rows = _kept(options, name)
            if rows is None:
                rows = convert(
                    options.input / f"{name}.csv",
                    options.output / name,
                    options.version,
                    options.format,
                    options.batch_size,
                    options.counts_as_categories,
                    options.overwrite,
                    workers=options.workers,
                    part_bytes=options.part_mib << 20,
                    restart=options.restart,
                )["rows"]
            figures[f"{name}_rows"] = rows
            figures[f"{name}_complete"] = rows == ROWS[options.version][name]
    except (ValueError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return 130
    report({**figures, "seconds": round(time.perf_counter() - begin, 3)}, options.json)
    return 0


def _kept(options: argparse.Namespace, name: str) -> int | None:
    """Return the number of rows of a split if an earlier run has finished it, else None."""
    whole = [split for split in SPLITS if (options.output / split).exists()]
    if options.overwrite or name not in whole or len(whole) == len(SPLITS):
        return None
    manifest = Manifest.read(options.output / name)
    same = (
        manifest.source == _source(options.input / f"{name}.csv", options.version)
        and (manifest.format, manifest.block_rows) == (options.format, options.batch_size)
        and len(manifest.columns[0].fields)
        == len(packed_fields(options.counts_as_categories)["ids"])
    )
    return manifest.rows if same else None


def _check(version: str, counts_as_categories: bool) -> None:
    if version not in ROWS:
        raise ValueError(f"version must be one of {tuple(ROWS)}, got {version!r}")
    if counts_as_categories and version == "x1":
        raise ValueError("counts_as_categories must be False for x1: its counts are real numbers")


def _encode(piece: pa.RecordBatch, version: str, counts_as_categories: bool) -> Batch:
    label = piece.column(LABEL).to_numpy(zero_copy_only=False)
    counts = np.stack(
        [piece.column(name).to_numpy(zero_copy_only=False) for name in COUNT_FIELDS], axis=1
    )
    if not np.isin(label, (0.0, 1.0)).all():
        raise ValueError("a label must be 0 or 1")
    if np.isinf(counts).any():
        raise ValueError("a count must be a finite number")
    keys = [
        category_keys(name, pc.dictionary_encode(piece.column(name))) for name in CATEGORY_FIELDS
    ]
    if counts_as_categories:
        keys += [count_keys(name, counts[:, j]) for j, name in enumerate(COUNT_FIELDS)]
    return {
        "ids": np.stack(keys, axis=1),
        "dense": scale_counts(counts)
        if version == "x4"
        else np.nan_to_num(counts).astype(np.float32),
        "label": label.astype(np.float32)[:, None],
    }


if __name__ == "__main__":
    sys.exit(main())
