# SPDX-License-Identifier: Apache-2.0
"""Rows of Arrow IPC files and streams (a part is a record batch), and of tables in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from mindspore_rec.common.columns.arrow_columns import values_array
from mindspore_rec.common.data.file_rows import Cursor, FileRows, Part, check_names
from mindspore_rec.common.data.sources import DataFile

__all__ = ["IpcFileRows", "IpcStreamRows", "TableRows", "ipc_rows"]

_TABLE_PART = 65_536  # rows


def ipc_rows(file: DataFile) -> FileRows:
    """Return the rows of an IPC file or an IPC stream; the first bytes tell the format."""
    if file.codec:
        return IpcStreamRows(file)
    with _damage_named(file.name, "file"), file.open() as opened:
        whole = opened.read(6) == b"ARROW1"
    return IpcFileRows(file) if whole else IpcStreamRows(file)


@contextmanager
def _damage_named(name: str, what: str) -> Iterator[None]:
    """Replace errors of Arrow and of the system by a ValueError that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        shown = " ".join(str(error).split())
        raise ValueError(f"{name} is no complete Arrow {what}: {shown}") from error


class IpcFileRows(FileRows):
    """Rows of an Arrow IPC file, also called Feather 2, with random access."""

    def __init__(self, file: DataFile) -> None:
        self.name = file.name
        self._file = file
        with _damage_named(file.name, "file"), file.open() as opened:
            self.schema = pa.ipc.open_file(opened).schema
        check_names(self.schema.names, file.name)

    def parts(self) -> list[Part]:
        """Return the record batches."""
        made, place = [], 0
        with _damage_named(self.name, "file"), self._file.open() as opened:
            reader = pa.ipc.open_file(opened, options=pa.ipc.IpcReadOptions(included_fields=[0]))
            for number in range(reader.num_record_batches):
                rows = reader.get_batch(number).num_rows
                made.append(Part(number, rows, rows, place))
                place += rows
        return made

    def decode(self, number: int, fetched: Any, columns: Sequence[str]) -> pa.Table:
        """Return the rows of a record batch."""
        places = [self.schema.get_field_index(each) for each in columns] or [0]
        options = pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)
        with _damage_named(self.name, "file"), self._file.open() as opened:
            batch = pa.ipc.open_file(opened, options=options).get_batch(number)
            batch.validate(full=True)  # offsets of a damaged file may point anywhere
        return pa.Table.from_batches([batch]).select(list(columns))


class IpcStreamRows(FileRows):
    """Rows of an Arrow IPC stream, which is read from front to back."""

    sequential = True

    def __init__(self, file: DataFile) -> None:
        self.name = file.name
        self._file = file
        self._cursor = Cursor(self._batches)
        with _damage_named(file.name, "stream"), file.stream() as opened:
            self.schema = pa.ipc.open_stream(opened).schema
        check_names(self.schema.names, file.name)
        self._parts: list[Part] | None = None

    def parts(self) -> list[Part]:
        """Return one part for each record batch; the first call reads the whole stream."""
        if self._parts is None:
            made, place = [], 0
            for number, batch in enumerate(self._batches()):
                made.append(Part(number, batch.num_rows, batch.num_rows, place))
                place += batch.num_rows
            self._parts = made
        return self._parts

    def fetch(self, number: int) -> Any:
        """Return a record batch."""
        return self._cursor.get(number)

    def decode(self, number: int, fetched: Any, columns: Sequence[str]) -> pa.Table:
        """Return the rows of a record batch."""
        table = pa.Table.from_batches([fetched]).select(list(columns))
        with _damage_named(self.name, "stream"):
            table.validate(full=True)  # offsets of a damaged file may point anywhere
        return table

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with _damage_named(self.name, "stream"), self._file.stream() as opened:
            yield from pa.ipc.open_stream(opened)


class TableRows(FileRows):
    """Rows of a table or data frame in memory, in parts of 65,536 rows.

    Args:
        frame: the table or data frame.
        name: name of the table for error messages.
        needed: names of columns that are read. Other columns of a pandas frame are left out if
            Arrow has no type for their values. Default: None, which means that all columns are
            read.
    """

    def __init__(self, frame: Any, name: str, needed: Sequence[str] | None = None) -> None:
        self.name = name
        self._table = _table_of(frame, name, needed)
        self.schema = self._table.schema
        check_names(self.schema.names, name)

    def parts(self) -> list[Part]:
        """Return the parts, which are ranges of rows."""
        total = self._table.num_rows
        return [
            Part(number, rows, rows, at)
            for number, at in enumerate(range(0, total, _TABLE_PART))
            for rows in [min(_TABLE_PART, total - at)]
        ]

    def decode(self, number: int, fetched: Any, columns: Sequence[str]) -> pa.Table:
        """Return a range of rows, without a copy."""
        return self._table.slice(number * _TABLE_PART, _TABLE_PART).select(list(columns))


def _table_of(frame: Any, name: str, needed: Sequence[str] | None) -> pa.Table:
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    try:
        if type(frame).__module__.startswith("pandas"):
            check_names([str(each) for each in frame.columns], name)
            return _table_of_pandas(frame, needed)
        if not hasattr(frame, "__arrow_c_stream__"):
            raise TypeError(f"{name} must have __arrow_c_stream__, got {type(frame).__name__}")
        return pa.table(frame)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        shown = " ".join(str(error).split())
        raise ValueError(f"{name} has a column with values of several types: {shown}") from error
    except OverflowError:
        for place, each in enumerate(frame.columns):
            if needed is None or str(each) in needed:
                values_array(f"{name}: column {str(each)!r} must", frame.iloc[:, place])
        raise


def _table_of_pandas(frame: Any, needed: Sequence[str] | None) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        if needed is None:
            raise
        chosen = [place for place, each in enumerate(frame.columns) if str(each) in needed]
        return pa.Table.from_pandas(frame.iloc[:, chosen], preserve_index=False)
