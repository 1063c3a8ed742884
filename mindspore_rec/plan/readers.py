# SPDX-License-Identifier: Apache-2.0
"""Read columns of a Parquet, CSV, TSV or JSON lines log as Arrow arrays, block by block."""

from __future__ import annotations

import csv
import gzip
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

__all__ = ["FORMATS", "Block", "is_text", "log_format", "read_blocks"]

FORMATS = ("parquet", "csv", "tsv", "jsonl")
_ENDINGS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
_PARQUET_ROWS = 1 << 16
_BLOCK_BYTES = 1 << 22

# The columns in the requested order, and the number of bytes read from the file so far.
Block = tuple[list[pa.Array], int]


def log_format(path: Path, format: str | None) -> str:
    """Return `format` or, if `format` is None, the format that the file's ending implies.

    Raises:
        ValueError: the ending of the file's name is unknown.

    Example:
        >>> log_format(Path("day_0.tsv.gz"), None)
        'tsv'
    """
    if format is not None:
        return format
    name = path.with_suffix("") if path.suffix == ".gz" else path
    if name.suffix.lower() not in _ENDINGS:
        raise ValueError(
            f"{path}: the format must be given ({', '.join(FORMATS)}), or the name end in one of "
            f"{', '.join(_ENDINGS)} (with or without .gz)"
        )
    return _ENDINGS[name.suffix.lower()]


def is_text(format: str) -> bool:
    """True if the format stores all values as text, numbers included."""
    return format in ("csv", "tsv")


def read_blocks(
    path: Path, format: str, columns: Sequence[str | int], header: bool
) -> Iterator[Block]:
    """Yield the columns of one log block by block.

    Args:
        path: the file; a text file may be compressed by gzip (`.gz`).
        format: one of `FORMATS`.
        columns: names of columns; for CSV and TSV files, also indexes of columns, from 0.
        header: whether the first line of a CSV or TSV file contains the column names.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is damaged or empty, or lacks a column.
    """
    try:
        if format == "parquet":
            yield from _parquet(path, columns)
        elif format == "jsonl":
            yield from _json_lines(path, columns)
        else:
            yield from _delimited(path, columns, header, "\t" if format == "tsv" else ",")
    except (
        pa.ArrowException, UnicodeDecodeError, OverflowError, EOFError, zlib.error
    ) as error:  # fmt: skip
        raise ValueError(f"{path}: is not {format} throughout: {error}") from error
    except OSError as error:  # Arrow raises it of contents too, without a number
        if error.errno is not None:
            raise
        raise ValueError(f"{path}: is not {format} throughout: {error}") from error


def _missing(path: Path, column: str | int, there: Sequence[str]) -> ValueError:
    shown = ", ".join(map(repr, there[:50])) + (", ..." if len(there) > 50 else "")
    return ValueError(f"{path}: there is no column {column!r}; there are {shown}")


def _parquet(path: Path, columns: Sequence[str | int]) -> Iterator[Block]:
    names = [str(column) for column in columns]
    size = os.path.getsize(path)
    with pq.ParquetFile(path) as file:
        there = file.schema_arrow.names
        for name in names:
            if name not in there:
                raise _missing(path, name, there)
        total, done = file.metadata.num_rows, 0
        for batch in file.iter_batches(_PARQUET_ROWS, columns=list(dict.fromkeys(names))):
            done += batch.num_rows
            yield [batch.column(name) for name in names], size * done // total


def _open(path: Path) -> tuple[Any, Any]:
    raw = pa.OSFile(os.fspath(path))
    return raw, pa.CompressedInputStream(raw, "gzip") if path.suffix == ".gz" else raw


def _first_line(path: Path, delimiter: str) -> list[str]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        if delimiter == "\t":
            line = file.readline().rstrip("\r\n").split("\t")
        else:
            line = next(csv.reader(file), [])
    if line in ([], [""]):
        raise ValueError(f"{path}: is empty")
    return line


def _delimited(
    path: Path, columns: Sequence[str | int], header: bool, delimiter: str
) -> Iterator[Block]:
    first = _first_line(path, delimiter)
    numbers = []
    for column in columns:
        if isinstance(column, int):
            if column >= len(first):
                raise ValueError(
                    f"{path}: there is no column {column}; there are {len(first)}, from 0"
                )
            numbers.append(column)
        elif column in first:
            numbers.append(first.index(column))
        else:
            raise _missing(path, column, first)
    # Rename the columns, because several columns in the file may have the same name.
    names = [f"f{i}" for i in range(len(first))]
    raw, stream = _open(path)
    with raw, stream:
        reader = pyarrow.csv.open_csv(
            stream,
            pyarrow.csv.ReadOptions(
                block_size=_BLOCK_BYTES, column_names=names, skip_rows=int(header)
            ),
            pyarrow.csv.ParseOptions(
                delimiter=delimiter, quote_char=False if delimiter == "\t" else '"'
            ),
            pyarrow.csv.ConvertOptions(
                include_columns=list(dict.fromkeys(names[i] for i in numbers)),
                column_types={names[i]: pa.string() for i in numbers},
                strings_can_be_null=True,
                null_values=[""],
            ),
        )
        for batch in reader:
            yield [batch.column(names[i]) for i in numbers], raw.tell()


def _json_lines(path: Path, columns: Sequence[str | int]) -> Iterator[Block]:
    names = [str(column) for column in columns]
    schema: pa.Schema | None = None
    lines = 0
    raw, stream = _open(path)
    with raw, stream:
        for block in _whole_lines(stream):
            if schema is None:
                schema = _schema(path, block, names)
            try:
                table = pyarrow.json.read_json(
                    pa.BufferReader(block),
                    # The parser raises an error for a line that is longer than a block.
                    pyarrow.json.ReadOptions(block_size=max(len(block), 1)),
                    pyarrow.json.ParseOptions(
                        explicit_schema=schema, unexpected_field_behavior="ignore"
                    ),
                ).combine_chunks()
            except pa.ArrowInvalid as error:
                raise ValueError(
                    f"{path}: in a block of lines that begins with line {lines + 1}: {error}"
                ) from error
            lines += block.count(b"\n")
            yield [_one_array(table.column(name)) for name in names], raw.tell()
    if schema is None:
        raise ValueError(f"{path}: is empty")


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _whole_lines(stream: Any) -> Iterator[bytes]:
    rest = b""
    while piece := stream.read(_BLOCK_BYTES):
        cut = piece.rfind(b"\n") + 1
        if cut == 0:
            rest += piece
            continue
        if block := (rest + piece[:cut]).lstrip():
            yield block
        rest = piece[cut:]
    if rest.strip():
        yield rest + b"\n"


def _schema(path: Path, block: bytes, names: Sequence[str]) -> pa.Schema:
    """Return the types of the fields; a field's type is the type of its first value in the log."""
    types: dict[str, pa.DataType] = {}
    seen: dict[str, None] = {}
    for number, line in enumerate(block.splitlines(), 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: line {number} is not JSON: {error}") from error
        if not isinstance(event, dict):
            raise ValueError(f"{path}: line {number} is not an object: {line[:80]!r}")
        seen.update(dict.fromkeys(event))
        for name in names:
            if name not in types and event.get(name) not in (None, []):
                types[name] = pa.array([event[name]]).type
        if len(types) == len(set(names)):
            break
    for name in names:
        if name not in types:
            raise _missing(path, name, list(seen))
    return pa.schema(list(types.items()))
