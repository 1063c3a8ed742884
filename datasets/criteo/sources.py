# SPDX-License-Identifier: Apache-2.0
"""The files of a conversion, split into sources that processes read independently."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datasets.common.blocks import Batch
from datasets.common.parts import PartRows, Summary
from datasets.criteo.lines import Piece, is_gzip, pieces
from datasets.criteo.parse import BAD_REASONS, Columns
from datasets.criteo.reader import BadRowError, ReadReport, encode, read_pieces
from datasets.criteo.schema import COUNT_FIELDS, PARQUET_FIELDS

__all__ = ["find_files", "sources_of", "summary_of"]

PIECE_BYTES = 16 << 20
PARQUET_ROWS = 65536  # read at a time
_DAY = re.compile(r"day_(\d+)(\.gz)?")
_PARQUET_MAGIC = b"PAR1"


def find_files(inputs: Sequence[Path]) -> list[Path]:
    """Return the files to convert. The files of a directory are sorted by day or by path.

    Args:
        inputs: files and directories. A directory contains either files ``day_0`` to ``day_23``,
            plain or ``.gz``, or files ``*.parquet`` in any subfolders.

    Raises:
        ValueError: there is no input; a directory has no data files, or has both kinds of data
            files; or a file is named twice.
        FileNotFoundError: an input does not exist.
    """
    if not inputs:
        raise ValueError("input must name at least one file")
    files: list[Path] = []
    for place in inputs:
        if not place.exists():
            raise FileNotFoundError(f"{place} does not exist")
        files += _files_of(place) if place.is_dir() else [place]
    times = Counter(path.resolve() for path in files)
    most = max(times, key=lambda path: times[path])
    if times[most] > 1:
        raise ValueError(f"input must not name a file twice, got {most}")
    return files


def _files_of(directory: Path) -> list[Path]:
    days = [path for path in directory.iterdir() if _DAY.fullmatch(path.name)]
    tables = sorted(directory.rglob("*.parquet"))
    if bool(days) == bool(tables):
        what = "both" if days else "neither"
        raise ValueError(
            f"{directory} must have files day_0, day_1, ... or *.parquet, it has {what}"
        )
    return tables or sorted(days, key=_day_number)


def _day_number(path: Path) -> int:
    match = _DAY.fullmatch(path.name)
    return int(match.group(1)) if match else -1


def sources_of(
    files: Sequence[Path], part_bytes: int, strict: bool, counts_as_categories: bool
) -> list[_File]:
    """Return a source for each Parquet file, each gzip file, and each range of a plain text file.

    Args:
        files: the input files, text or Parquet, in the order of their rows.
        part_bytes: bytes of text per part, at least 1.
        strict: True raises an error at the first bad row; False only counts bad rows.
        counts_as_categories: add keys for the 13 binned counts, as in `CriteoReader`.
    """
    if part_bytes < 1:
        raise ValueError(f"part_bytes must be at least 1, got {part_bytes}")
    sources: list[_File] = []
    for k, path in enumerate(files):
        name, size = f"part-{k:05d}", path.stat().st_size
        if _is_parquet(path):
            sources.append(_ParquetFile(f"{name}-00000", path, size, strict, counts_as_categories))
        elif is_gzip(path):
            sources.append(_GzipFile(name, path, size, strict, counts_as_categories, part_bytes))
        else:
            for number, start in enumerate(range(0, max(size, 1), part_bytes)):
                span = (start, min(start + part_bytes, size))
                sources.append(
                    _TextRange(
                        f"{name}-{number:05d}",
                        path,
                        span[1] - start,
                        strict,
                        counts_as_categories,
                        span,
                    )
                )
    return sources


def summary_of(files: Sequence[Path], sources: Sequence[_File]) -> Summary:
    """Return a function that computes the manifest's ``source`` from the reports of the parts.

    Args:
        files: the input files, in order.
        sources: result of `sources_of`.
    """
    numbers = {path: k for k, path in enumerate(files)}
    of_file = [numbers[each.path] for each in sources]

    def summary(reports: list[list[dict[str, Any]]]) -> dict[str, Any]:
        by_file = [ReadReport() for _ in files]
        for k, of_source in zip(of_file, reports, strict=True):
            for each in of_source:
                by_file[k].add(ReadReport(**each))
        if len(files) == 1:
            return {"file": files[0].name, **by_file[0].to_json()}
        total = ReadReport()
        where = []
        for path, report in zip(files, by_file, strict=True):
            where += [(path.name, *each) for each in report.first_bad]
            total.add(report)
        return {
            "files": [path.name for path in files],
            **total.to_json(),
            "first_bad": where[: len(total.first_bad)],
        }

    return summary


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as raw:
        return raw.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC


@dataclass(frozen=True)
class _File:
    """All rows of a file, or a range of its rows, converted by one process."""

    name: str
    path: Path
    bytes: int
    strict: bool
    counts_as_categories: bool

    def parts(self, done: Container[int], on_bytes: Callable[[int], object]) -> Iterator[PartRows]:
        raise NotImplementedError

    def _bad_row(self, line: int, reason: str) -> ValueError:
        return ValueError(f"{os.fspath(self.path)}, line {line}: bad {reason}")


@dataclass(frozen=True)
class _TextRange(_File):
    """One part of a plain text file: the lines that begin in a range of bytes."""

    span: tuple[int, int]

    def parts(self, done: Container[int], on_bytes: Callable[[int], object]) -> Iterator[PartRows]:
        if 0 not in done:
            report = ReadReport()
            yield PartRows(0, self._blocks(report, on_bytes), partial(asdict, report))

    def _blocks(self, report: ReadReport, on_bytes: Callable[[int], object]) -> Iterator[Batch]:
        if self.strict and self.bytes == 0 and self.span[0] == 0:
            raise ValueError(f"{os.fspath(self.path)} is empty")
        stream = _counted(pieces(self.path, PIECE_BYTES, self.span), self.span[0], on_bytes)
        try:
            yield from read_pieces(stream, report, self.strict, self.counts_as_categories)
        except BadRowError as error:
            raise self._bad_row(self._lines_before() + error.line, error.reason) from error

    def _lines_before(self) -> int:
        before = (0, self.span[0])
        return sum(piece.lines for piece in pieces(self.path, PIECE_BYTES, before))


@dataclass(frozen=True)
class _GzipFile(_File):
    """A gzip file with several parts; one process must read the file from the beginning."""

    part_bytes: int

    def parts(self, done: Container[int], on_bytes: Callable[[int], object]) -> Iterator[PartRows]:
        stream = _counted(pieces(self.path, min(PIECE_BYTES, self.part_bytes)), 0, on_bytes)
        number, piece = 0, next(stream, None)
        if piece is None and self.strict:
            raise ValueError(f"{os.fspath(self.path)} is empty")
        while piece is not None:
            cut = _Cut(piece, stream, self.part_bytes)
            if number in done:
                for _ in cut:
                    pass
            else:
                report = ReadReport()
                yield PartRows(number, self._blocks(cut, report), partial(asdict, report))
            number, piece = number + 1, cut.following

    def _blocks(self, cut: _Cut, report: ReadReport) -> Iterator[Batch]:
        first = cut.first.first_line
        try:
            yield from read_pieces(cut, report, self.strict, self.counts_as_categories, first)
        except BadRowError as error:
            raise self._bad_row(first + error.line - 1, error.reason) from error


class _Cut:
    """Yield pieces until a part has `most` bytes; `following` is the next part's first piece."""

    def __init__(self, first: Piece, stream: Iterator[Piece], most: int) -> None:
        self.first = first
        self.following: Piece | None = None
        self._given, self._most = stream, most

    def __iter__(self) -> Iterator[Piece]:
        size, piece = 0, self.first
        while True:
            size += len(piece.text)
            yield piece
            following = next(self._given, None)
            if following is None or size >= self._most:
                self.following = following
                return
            piece = following


@dataclass(frozen=True)
class _ParquetFile(_File):
    """A Parquet file of the terabyte set. The file is one part, and each row counts as a line."""

    def parts(self, done: Container[int], on_bytes: Callable[[int], object]) -> Iterator[PartRows]:
        if 0 not in done:
            report = ReadReport()
            yield PartRows(0, self._blocks(report, on_bytes), partial(asdict, report))

    def _blocks(self, report: ReadReport, on_bytes: Callable[[int], object]) -> Iterator[Batch]:
        told, line = 0, 1
        with pq.ParquetFile(self.path) as file:
            missing = set(PARQUET_FIELDS) - set(file.schema_arrow.names)
            if missing:
                raise ValueError(
                    f"{os.fspath(self.path)} is not of the terabyte set: it has no columns "
                    f"{sorted(missing)}"
                )
            rows = file.metadata.num_rows
            for batch in file.iter_batches(PARQUET_ROWS, columns=list(PARQUET_FIELDS)):
                columns = _columns(batch)
                try:
                    report.record(columns, line, 0, self.strict)
                except BadRowError as error:
                    raise self._bad_row(error.line, error.reason) from error
                line += batch.num_rows
                read = self.bytes * (line - 1) // rows
                on_bytes(read - told)
                told = read
                yield encode(columns, self.counts_as_categories)


def _columns(batch: pa.RecordBatch) -> Columns:
    """Convert rows of a Parquet file to the form that `parse` returns."""
    label = batch.column("label").cast(pa.float64()).to_numpy(zero_copy_only=False)
    counts = np.stack(
        [_floats(batch.column(name)) for name in PARQUET_FIELDS[1 : 1 + len(COUNT_FIELDS)]], axis=1
    )
    bad = np.full(len(label), -1, np.int8)
    bad[np.isinf(counts).any(axis=1)] = BAD_REASONS.index("number")
    bad[~np.isin(label, (0.0, 1.0))] = BAD_REASONS.index("label")
    good = pa.array(bad < 0)
    categories = [
        _texts(batch.column(name)).filter(good) for name in PARQUET_FIELDS[1 + len(COUNT_FIELDS) :]
    ]
    return Columns(label[bad < 0].astype(np.float32), counts[bad < 0], categories, bad)


def _floats(column: pa.Array) -> np.ndarray:
    """Return float64 values; null becomes NaN."""
    return pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False)


def _texts(column: pa.Array) -> pa.Array:
    """Return a dictionary array of texts; an empty text becomes null, as for text files."""
    texts = column.cast(pa.string())
    return pc.if_else(pc.equal(texts, ""), None, texts).dictionary_encode()


def _counted(
    stream: Iterator[Piece], start: int, on_bytes: Callable[[int], object]
) -> Iterator[Piece]:
    for piece in stream:
        on_bytes(piece.file_offset - start)
        start = piece.file_offset
        yield piece
