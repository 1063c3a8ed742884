# SPDX-License-Identifier: Apache-2.0
"""Write batches as a packed data set: a directory of whole-array blocks that appears atomically.

A block is ``block_rows`` rows. In MindRecord one record is one block and each column one array
``[rows, width]``; in Parquet one row group is one block and each column a fixed-size list. One row
per record would cap a MindSpore pipeline at about 20,000 rows a second; packed, it is millions.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datasets.common.blocks import Batch, check_batch, rebatch, row_count
from datasets.common.manifest import Column, Manifest, digest_files

__all__ = ["DATA_NAMES", "FORMATS", "new_directory", "write_packed"]

DATA_NAMES = {"mindrecord": "data.mindrecord", "parquet": "data.parquet"}
FORMATS = tuple(DATA_NAMES)
_MINDRECORD_PAGE_LIMIT = 256 << 20
_MINDRECORD_DEFAULT_PAGE = 32 << 20


def write_packed(
    blocks: Iterable[Batch],
    output: str | os.PathLike[str],
    format: str = "mindrecord",
    block_rows: int = 4096,
    fields: Mapping[str, Sequence[str]] | None = None,
    source: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Write batches to a directory that a reader sees whole or not at all.

    Args:
        blocks: Batches with the same columns, of any sizes; held one block at a time.
        output: Directory to make. Its parent must exist.
        format: ``mindrecord`` (default) or ``parquet``.
        block_rows: Rows of a record or row group, at least 1 (default 4096).
        fields: For a column's name the names of its values, for the manifest.
        source: What the manifest says of the rows' origin; JSON values. Read after the last
            block, so a caller may fill it while the blocks are made.
        overwrite: Replace ``output`` where it exists (default False).

    Returns:
        The manifest, as written to ``manifest.json``.

    Raises:
        ValueError: unknown format, ``block_rows`` below 1, a column of a wrong dtype or shape,
            columns that change between blocks, names that do not fit a column's width, or no rows.
        FileExistsError: ``output`` exists and ``overwrite`` is False.

    Example:
        >>> import tempfile
        >>> block = {"ids": np.arange(6).reshape(3, 2), "label": np.ones((3, 1), np.float32)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     manifest = write_packed([block, block], folder + "/train", "parquet", block_rows=4)
        ...     sorted(os.listdir(folder + "/train"))
        ['data.parquet', 'manifest.json']
        >>> manifest.rows, manifest.blocks
        (6, 2)
    """
    if format not in FORMATS:
        raise ValueError(f"format must be one of {FORMATS}, got {format!r}")
    with new_directory(output, overwrite) as directory:
        stream = _checked(rebatch(_checked(blocks), block_rows))
        first = next(stream, None)
        if first is None:
            raise ValueError(f"blocks must have at least one row: nothing to write to {output}")
        columns = _columns(first, fields or {})
        rows = _write(stream, first, columns, directory / DATA_NAMES[format], format, block_rows)
        files = digest_files(directory)
        manifest = Manifest(format, rows, block_rows, columns, files, dict(source or {}))
        manifest.write(directory)
    return manifest


@contextmanager
def new_directory(output: str | os.PathLike[str], overwrite: bool = False) -> Iterator[Path]:
    """A directory that is filled beside its place and renamed into it when the block ends well.

    Args:
        output: Where the directory is to appear. Its parent must exist.
        overwrite: Replace what is there (default False).

    Yields:
        The directory to fill, on the same file system. It is removed when the block raises.

    Raises:
        FileExistsError: ``output`` exists and ``overwrite`` is False.
        FileNotFoundError: the parent of ``output`` does not exist.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     with new_directory(parent + "/a") as beside:
        ...         _ = (beside / "x").write_text("1")
        ...         before = os.path.exists(parent + "/a")
        ...     before, os.listdir(parent)
        (False, ['a'])
    """
    place = Path(os.path.abspath(output))
    if place.exists() and not overwrite:
        raise FileExistsError(f"{place} exists: give another output or overwrite")
    beside = place.with_name(f".{place.name}.{os.getpid()}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        yield beside
        _replace(beside, place)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _replace(beside: Path, place: Path) -> None:
    for path in (*beside.iterdir(), beside):
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    old = place.with_name(f".{place.name}.{os.getpid()}.old")
    if place.exists():
        place.rename(old)
    beside.rename(place)
    shutil.rmtree(old, ignore_errors=True)


def _checked(blocks: Iterable[Batch]) -> Iterator[Batch]:
    shape: dict[str, int] | None = None
    for block in blocks:
        check_batch(block)
        found = {name: array.shape[1] for name, array in block.items()}
        if shape is not None and found != shape:
            raise ValueError(f"blocks must have the same columns, got {found} after {shape}")
        shape = found
        yield block


def _columns(block: Batch, fields: Mapping[str, Sequence[str]]) -> tuple[Column, ...]:
    unknown = set(fields) - set(block)
    if unknown:
        raise ValueError(f"fields names {sorted(unknown)}, the columns are {sorted(block)}")
    columns = []
    for name, array in block.items():
        names = tuple(fields.get(name, ()))
        if names and len(names) != array.shape[1]:
            raise ValueError(f"column {name!r} has width {array.shape[1]}, got {len(names)} fields")
        if array.shape[1] > 0:
            columns.append(Column(name, str(array.dtype), array.shape[1], names))
    return tuple(columns)


class _Writer(Protocol):
    def write(self, block: Batch) -> None: ...

    def close(self) -> None: ...


def _write(
    stream: Iterator[Batch],
    first: Batch,
    columns: tuple[Column, ...],
    path: Path,
    format: str,
    block_rows: int,
) -> int:
    writer: _Writer
    if format == "parquet":
        writer = _ParquetWriter(path, columns)
    else:
        writer = _MindRecordWriter(path, columns, block_rows)
    rows = 0
    block: Batch | None = first
    while block is not None:
        writer.write({column.name: block[column.name] for column in columns})
        rows += row_count(block)
        block = next(stream, None)
    writer.close()
    return rows


class _ParquetWriter:
    """One row group per block."""

    def __init__(self, path: Path, columns: tuple[Column, ...]) -> None:
        self._schema = pa.schema([_arrow_field(column) for column in columns])
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
            write_statistics=False,
        )

    def write(self, block: Batch) -> None:
        arrays = [
            pa.FixedSizeListArray.from_arrays(
                pa.array(np.ascontiguousarray(block[name]).reshape(-1)), type=kind
            )
            for name, kind in zip(self._schema.names, self._schema.types, strict=True)
        ]
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        self._writer.write_table(table, row_group_size=table.num_rows)

    def close(self) -> None:
        self._writer.close()


def _arrow_field(column: Column) -> pa.Field:
    element = pa.field("element", pa.from_numpy_dtype(column.dtype), nullable=False)
    return pa.field(column.name, pa.list_(element, column.width), nullable=False)


class _MindRecordWriter:
    """One record per block."""

    def __init__(self, path: Path, columns: tuple[Column, ...], block_rows: int) -> None:
        # imported here: Parquet must not pay the second and a half that mindspore takes
        from mindspore.mindrecord import FileWriter

        self._writer = FileWriter(str(path), shard_num=1, overwrite=True)
        self._writer.set_page_size(_page_size(columns, block_rows))
        schema = {
            column.name: {"type": column.dtype, "shape": [-1, column.width]} for column in columns
        }
        self._writer.add_schema(schema, "packed rows")

    def write(self, block: Batch) -> None:
        arrays = {name: np.ascontiguousarray(array) for name, array in block.items()}
        self._writer.write_raw_data([arrays])

    def close(self) -> None:
        self._writer.commit()


def _page_size(columns: tuple[Column, ...], block_rows: int) -> int:
    """MindRecord stores a record in one page: the page must be able to hold the largest block."""
    need = 4096 + block_rows * sum(np.dtype(c.dtype).itemsize * c.width for c in columns)
    page = _MINDRECORD_DEFAULT_PAGE
    while page < need:
        page *= 2
    if page > _MINDRECORD_PAGE_LIMIT:
        limit = block_rows * _MINDRECORD_PAGE_LIMIT // need
        raise ValueError(f"block_rows must be at most {limit} for these columns in MindRecord")
    return page
