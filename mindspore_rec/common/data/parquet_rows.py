# SPDX-License-Identifier: Apache-2.0
"""Rows of Parquet files: a part is a row group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from mindspore_rec.common.data.file_rows import CHUNK_ROWS, POOL, FileRows, Part, check_names
from mindspore_rec.common.data.sources import DataFile, is_whole_number

__all__ = ["ParquetRows"]


class ParquetRows(FileRows):
    """Rows of one Parquet file."""

    def __init__(self, file: DataFile) -> None:
        self.name = file.name
        self._file = file
        # Bytes of local files are read only when needed; other files are read in large pieces.
        local = isinstance(file.filesystem, pafs.LocalFileSystem)
        self._options = ds.ParquetFragmentScanOptions(pre_buffer=not local)
        format = ds.ParquetFileFormat()
        try:
            self._rows = format.make_fragment(file.path, file.filesystem)
            self._rows.ensure_complete_metadata()
            self.schema = self._rows.metadata.schema.to_arrow_schema()
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(f"{file.name} is no complete Parquet file: {_line(error)}") from error
        check_names(self.schema.names, file.name)

    def parts(self) -> list[Part]:
        """Return the row groups."""
        made, place = [], 0
        for number in range(self._rows.num_row_groups):
            rows = self._rows.metadata.row_group(number).num_rows
            made.append(Part(number, rows, rows, place))
            place += rows
        return made

    def decode(self, number: int, fetched: Any, columns: Sequence[str]) -> pa.Table:
        """Return the rows of a row group."""
        try:
            return self._rows.subset(row_group_ids=[number]).to_table(
                columns=list(columns),
                batch_size=CHUNK_ROWS,
                use_threads=False,
                fragment_scan_options=self._options,
                memory_pool=POOL,
            )
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(
                f"{self.name} cannot be read in row group {number}: {_line(error)}"
            ) from error

    def matching(self, expression: pc.Expression) -> set[int] | None:
        """Return the indexes of the row groups whose statistics allow rows that pass the filter."""
        partition = None
        fields = list(self.schema)
        for name, text in self._file.partition.items():
            whole = text is not None and is_whole_number(text)
            fields.append(pa.field(name, pa.int64() if whole else pa.string()))
            field = pc.field(name)
            value = int(str(text)) if whole else text
            each = field.is_null() if value is None else field == value
            partition = each if partition is None else partition & each
        fragment = ds.ParquetFileFormat().make_fragment(
            self._file.path,
            self._file.filesystem,
            **({} if partition is None else {"partition_expression": partition}),
        )
        try:
            kept = fragment.split_by_row_group(filter=expression, schema=pa.schema(fields))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            return None  # the filter itself reports what is wrong with it
        return {each.row_groups[0].id for each in kept}


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
