# SPDX-License-Identifier: Apache-2.0
"""Rows of Parquet files: a part is a row group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from mindspore_rec.common.data.file_rows import FileRows, Part, check_names
from mindspore_rec.common.data.sources import DataFile

__all__ = ["ParquetRows"]


class ParquetRows(FileRows):
    """Rows of one Parquet file."""

    def __init__(self, file: DataFile) -> None:
        self.name = file.name
        self._file = file
        try:
            with self._open(None) as opened:
                self._metadata = opened.metadata
                self._schema = opened.schema_arrow
        except pa.ArrowInvalid as error:
            raise ValueError(f"{file.name} is no complete Parquet file: {_line(error)}") from error
        check_names(self._schema.names, file.name)

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self._schema

    def parts(self) -> list[Part]:
        """Return the row groups."""
        made, place = [], 0
        for number in range(self._metadata.num_row_groups):
            rows = self._metadata.row_group(number).num_rows
            made.append(Part(number, rows, rows, place))
            place += rows
        return made

    def decode(self, number: int, fetched: Any, columns: Sequence[str]) -> pa.Table:
        """Return the rows of a row group."""
        try:
            with self._open(self._metadata) as opened:
                return opened.read_row_group(number, columns=list(columns), use_threads=False)
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(
                f"{self.name} cannot be read in row group {number}: {_line(error)}"
            ) from error

    def matching(self, expression: pc.Expression) -> set[int] | None:
        """Return the row groups whose statistics allow rows of the filter."""
        partition = None
        for name, text in self._file.partition.items():
            field = pc.field(name)
            value = int(text) if text is not None and _whole(text) else text
            each = field.is_null() if value is None else field == value
            partition = each if partition is None else partition & each
        fragment = ds.ParquetFileFormat().make_fragment(
            self._file.path,
            self._file.filesystem,
            **({} if partition is None else {"partition_expression": partition}),
        )
        fields = list(self._schema)
        for name, text in self._file.partition.items():
            kind = pa.int64() if text is not None and _whole(text) else pa.string()
            fields.append(pa.field(name, kind))
        try:
            kept = fragment.split_by_row_group(filter=expression, schema=pa.schema(fields))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            return None  # the filter itself reports what is wrong with it
        return {each.row_groups[0].id for each in kept}

    def _open(self, metadata: Any) -> pq.ParquetFile:
        source = self._file.open()
        try:
            return pq.ParquetFile(source, metadata=metadata, pre_buffer=True)
        except BaseException:
            source.close()
            raise


def _whole(text: str) -> bool:
    return text.lstrip("-").isdigit() and str(int(text)) == text


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
