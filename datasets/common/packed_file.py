# SPDX-License-Identifier: Apache-2.0
"""One data file of a packed data set: a MindRecord or Parquet file of blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datasets.common.blocks import Batch, check_batch, rebatch, row_count
from datasets.common.manifest import Column

__all__ = ["FORMATS", "arrow_schema", "arrow_table", "write_file"]

FORMATS = ("mindrecord", "parquet")
_MINDRECORD_PAGE_LIMIT = 256 << 20
_MINDRECORD_DEFAULT_PAGE = 32 << 20


def write_file(
    blocks: Iterable[Batch],
    path: Path,
    format: str,
    block_rows: int,
    fields: Mapping[str, Sequence[str]] | None = None,
) -> tuple[int, tuple[Column, ...]]:
    """Write batches to one file, in blocks of one size.

    Args:
        blocks: batches with the same columns, of any sizes.
        path: file to make; MindRecord's index is written beside it.
        format: of `FORMATS`.
        block_rows: rows per record or row group, at least 1.
        fields: for each column with several values per row, the names of these values.

    Returns:
        Rows and columns. If there are no rows, no file is written, and the result is ``0, ()``.

    Raises:
        ValueError: the blocks' columns differ, `fields` does not fit the columns, or `block_rows`
            is too large for MindRecord.
    """
    stream = _checked(rebatch(_checked(blocks), block_rows))
    first = next(stream, None)
    if first is None:
        return 0, ()
    columns = _columns(first, fields or {})
    return _write(stream, first, columns, path, format, block_rows), columns


def _checked(blocks: Iterable[Batch]) -> Iterator[Batch]:
    shape: dict[str, int] | None = None
    for block in blocks:
        check_batch(block)
        widths = {name: array.shape[1] for name, array in block.items()}
        if shape is not None and widths != shape:
            raise ValueError(f"blocks must have the same columns, got {widths} after {shape}")
        shape = widths
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
    """Write each block as one row group of a Parquet file."""

    def __init__(self, path: Path, columns: tuple[Column, ...]) -> None:
        self._schema = arrow_schema(columns)
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
            write_statistics=False,
        )

    def write(self, block: Batch) -> None:
        table = arrow_table(block, self._schema)
        self._writer.write_table(table, row_group_size=table.num_rows)

    def close(self) -> None:
        self._writer.close()


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of a table in which each column has lists of a fixed length."""
    elements = [pa.from_numpy_dtype(column.dtype) for column in columns]
    lists = [
        pa.list_(pa.field("element", element, nullable=False), column.width)
        for element, column in zip(elements, columns, strict=True)
    ]
    names = [column.name for column in columns]
    return pa.schema([pa.field(*each, nullable=False) for each in zip(names, lists, strict=True)])


def arrow_table(block: Batch, schema: pa.Schema) -> pa.Table:
    """Convert a block to a table without copying contiguous arrays."""
    arrays = [
        pa.FixedSizeListArray.from_arrays(
            pa.array(np.ascontiguousarray(block[field.name]).reshape(-1)), type=field.type
        )
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


class _MindRecordWriter:
    """One record per block."""

    def __init__(self, path: Path, columns: tuple[Column, ...], block_rows: int) -> None:
        # imported here, because importing mindspore takes 1.5 seconds, and Parquet does not need it
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
    """Return MindRecord's page size for the largest block; each block is one record."""
    need = 4096 + block_rows * sum(np.dtype(c.dtype).itemsize * c.width for c in columns)
    page = _MINDRECORD_DEFAULT_PAGE
    while page < need:
        page *= 2
    if page > _MINDRECORD_PAGE_LIMIT:
        limit = block_rows * _MINDRECORD_PAGE_LIMIT // need
        raise ValueError(f"block_rows must be at most {limit} for these columns in MindRecord")
    return page
