# SPDX-License-Identifier: Apache-2.0
"""Function `read`, which reads the rows of files and data frames."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.common.data.bad_rows import BadRowCount
from mindspore_rec.common.data.csv_rows import CsvRows
from mindspore_rec.common.data.data_parts import DataParts
from mindspore_rec.common.data.file_rows import FileRows
from mindspore_rec.common.data.ipc_rows import TableRows, ipc_rows
from mindspore_rec.common.data.json_rows import JsonRows
from mindspore_rec.common.data.parquet_rows import ParquetRows
from mindspore_rec.common.data.rows import Rows
from mindspore_rec.common.data.selection import Selection
from mindspore_rec.common.data.settings import BadRows, CsvFormat, JsonLinesFormat, Sample
from mindspore_rec.common.data.sources import DataFile, find_files, is_frame

__all__ = ["read"]

_FORMATS = ("parquet", "csv", "jsonl", "ipc")


def read(
    source: Any,
    schema: Any = None,
    *,
    columns: Sequence[str] | None = None,
    where: Any = None,
    format: str | CsvFormat | JsonLinesFormat | None = None,
    filesystem: Any = None,
    bad_rows: BadRows | None = None,
    sample: Sample | None = None,
) -> Rows:
    """Return the rows of files or of a data frame.

    Files may be larger than memory, because rows are read only when they are needed. Only the
    needed columns are read.

    Args:
        source: files, or rows in memory. Name files by a path, a glob such as ``"logs/*.parquet"``
            or ``"logs/**/*.csv.gz"``, a folder, a URI such as ``"s3://bucket/logs"``, or a list of
            these. Files are Parquet, CSV, TSV, Arrow IPC or JSON lines, and text files may be
            compressed as gz, zst, bz2 or lz4. Rows in memory are a data frame of pandas or Polars,
            an Arrow table, or another object with ``__arrow_c_stream__``. To read files of another
            format, pass an object of your own subclass of `FileRows`. If a path contains folders
            such as ``day=3``, the rows get a column `day`.
        schema: the `Schema` of the columns. Only the columns of the schema are read, and their
            values are checked. Columns of CSV files that the schema reads as texts are texts, even
            if all their values are digits; see `Schema.text_columns`. Rows that are read for
            prediction may lack label, weight, time and group. Default: None, which means that all
            columns are read, without checks.
        columns: names of the columns that are read. Default: None, which means the columns of the
            schema, or all columns if `schema` is None.
        where: filter, as for `Rows.where`. Default: None.
        format: "parquet", "csv", "jsonl" or "ipc", or the settings of text files, a `CsvFormat` or
            `JsonLinesFormat`. For rows in memory, `format` and `filesystem` are ignored. Default:
            None, which means that the suffix of each file's name determines the format.
        filesystem: file system of `pyarrow.fs` or fsspec that contains the paths. Default: None,
            which means the file system of the URI, or the local file system if a path is no URI.
        bad_rows: treatment of rows that cannot be read. Default: None, which means that the first
            row that cannot be read raises an error.
        sample: settings that thin the rows with label 0. Default: None, which means that all rows
            are read.

    Raises:
        FileNotFoundError: no file matches `source`.
        TypeError: an argument has a wrong type.
        ValueError: a file is empty or broken, a file's format is unknown, or a column is missing.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"user": [7, 8, 9], "click": [0, 1, 0]})
        >>> read(frame, columns=["click"]).to_table().to_pydict()
        {'click': [0, 1, 0]}
    """
    for name, value, kind in (("bad_rows", bad_rows, BadRows), ("sample", sample, Sample)):
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} must be {kind.__name__}(...), got {value!r:.100}")
    bad = BadRowCount(bad_rows or BadRows())
    if isinstance(source, FileRows):
        data = DataParts(source.name, [], _no_file, bad, source)
    elif is_frame(source):
        name = f"the {type(source).__name__}"
        needed = columns if schema is None or columns is not None else schema.raw_columns
        data = DataParts(name, [], _no_file, bad, TableRows(source, name, needed))
    else:
        files = find_files(source, _format_name(format), filesystem)
        data = DataParts(_shown(source), files, _opener(format, bad), bad)
    selection = Selection(data, schema, sample=sample)
    rows = Rows(selection if schema is None else selection.with_texts(schema))
    if columns is not None:
        rows = rows.select(columns)
    elif schema is not None:
        rows = rows.select(_columns_in(schema, data))
    if sample is not None:
        rows.arrow_schema  # noqa: B018  - the label must be there
    return rows if where is None else rows.where(where)


def _columns_in(schema: Any, data: DataParts) -> list[str]:
    """Return the schema's columns that the data contain; only the features are required."""
    names = data.schema.names
    for name in schema.feature_names:
        if name not in names:
            raise ValueError(
                f"{data.source} has no column {name!r}, which the schema has: its columns are "
                f"{names}"
            )
    return [name for name in schema.raw_columns if name in names]


def _format_name(format: Any) -> str | None:
    if format is None:
        return None
    if isinstance(format, CsvFormat):
        return "csv"
    if isinstance(format, JsonLinesFormat):
        return "jsonl"
    return check_one_of("format", format, _FORMATS)


def _opener(format: Any, bad: BadRowCount) -> Any:
    csv = format if isinstance(format, CsvFormat) else CsvFormat()
    json = format if isinstance(format, JsonLinesFormat) else JsonLinesFormat()

    def opened(file: DataFile, types: pa.Schema | None) -> FileRows:
        if file.format == "parquet":
            return ParquetRows(file)
        if file.format == "ipc":
            return ipc_rows(file)
        if file.format == "csv":
            return CsvRows(file, csv, bad, types)
        return JsonRows(file, json, bad, types)

    return opened


def _no_file(file: DataFile, types: pa.Schema | None) -> FileRows:
    raise AssertionError("rows in memory have no files")


def _shown(source: Any) -> str:
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    shown = ", ".join(os.fspath(each) for each in source[:2])
    return shown if len(source) <= 2 else f"{shown} and {len(source) - 2} more"
