# SPDX-License-Identifier: Apache-2.0
"""DataParts: the parts of all files of a source. The first file decides the column types."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from mindspore_rec.common.columns.arrow_columns import is_text
from mindspore_rec.common.data.bad_rows import BadRowCount
from mindspore_rec.common.data.casts import first_bad
from mindspore_rec.common.data.file_rows import FileRows, Part, check_names
from mindspore_rec.common.data.sources import DataFile, partition_types

__all__ = ["DataParts", "FilePart"]

_OPENERS = 16  # files opened at a time


class FilePart(NamedTuple):
    """A part of a file, and the file's index."""

    file: int
    part: Part


class DataParts:
    """Parts of all files of a source.

    Args:
        source: name of the source, for error messages and for `repr` of the rows.
        files: files of the source; empty for rows in memory.
        open_file: function that opens a file. The arguments are the file, and the schema of the
            source's first file (None when the first file itself is opened).
        bad: counter to which bad rows are reported.
        memory: the rows, if they are in memory and there are no files. Default: None.

    Attributes:
        source, bad: the arguments.
        schema: names and types of the columns: first the columns of the first file, then the
            partitions.
    """

    def __init__(
        self,
        source: str,
        files: Sequence[DataFile],
        open_file: Callable[[DataFile, pa.Schema | None], FileRows],
        bad: BadRowCount,
        memory: FileRows | None = None,
    ) -> None:
        self.source = source
        self.bad = bad
        self._files = list(files)
        self._open_file = open_file
        self._partitions = partition_types(files)
        first = memory if memory is not None else open_file(files[0], None)
        self._opened: list[FileRows] = [first]
        self._parts: list[FilePart] | None = None
        self._checked: set[str] = set()
        self._stamps: list[tuple[int, int]] | None = None
        self.without_faults: set[Any] = set()  # parts of views, all of whose rows fit the schema
        self.schema = self._schema()
        check_names(self.schema.names, first.name)

    def _schema(self) -> pa.Schema:
        partitions = [pa.field(name, kind) for name, kind in self._partitions.items()]
        return pa.schema([*self._opened[0].schema, *partitions])

    def with_texts(self, names: Collection[str]) -> DataParts:
        """Return the same parts; files without types, such as CSV, have texts in these columns."""
        first = self._opened[0].with_texts(names)
        if first.schema == self._opened[0].schema:
            return self
        made = copy.copy(self)
        made._opened = [first]  # the other files are opened with the types of the first
        made._checked = set()
        made.without_faults = set()
        made.schema = made._schema()
        return made

    @property
    def sizes(self) -> list[int]:
        """Size of each file in bytes."""
        return [each.size for each in self._files]

    @property
    def opened(self) -> list[FileRows]:
        """Readers of all files; the files are opened when a reader is first needed."""
        if len(self._opened) < len(self._files):
            types = self._opened[0].schema
            with ThreadPoolExecutor(_OPENERS) as pool:
                rest = list(pool.map(lambda each: self._open_file(each, types), self._files[1:]))
            self._opened += rest
        return self._opened

    @property
    def parts(self) -> list[FilePart]:
        """All parts, in the order of the files."""
        if self._parts is None:
            with ThreadPoolExecutor(_OPENERS) as pool:
                parts = list(pool.map(lambda file: file.parts(), self.opened))
            self._parts = [FilePart(n, part) for n, each in enumerate(parts) for part in each]
        return self._parts

    def sequential(self, file: int) -> bool:
        """Return True if a file should be read from front to back."""
        return self.opened[file].sequential

    def matching(self, expression: pc.Expression) -> list[FilePart]:
        """Return the parts that may have rows for which a filter is true."""
        kept = [each.matching(expression) for each in self.opened]
        return [
            each
            for each in self.parts
            for numbers in [kept[each.file]]
            if numbers is None or each.part.number in numbers
        ]

    def check_unchanged(self) -> None:
        """Raise a ValueError if a file has changed since `check_unchanged` was first called.

        The order and the positions of rows were computed when the files were opened.
        """
        with ThreadPoolExecutor(_OPENERS) as pool:
            stamps = list(pool.map(DataFile.stamp, self._files))
        if self._stamps is None:
            self._stamps = stamps
        for file, before, now in zip(self._files, self._stamps, stamps, strict=True):
            if before != now:
                raise ValueError(
                    f"{file.name} has changed while it was read: read it again, by a new read(), "
                    "and write new rows to new files"
                )

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise a ValueError if a file lacks a column, or has an incompatible type for a column."""
        first = self._opened[0]
        for name in columns:
            if name in self._checked or name in self._partitions:
                continue
            for file in self.opened[1:]:
                if name not in file.schema.names:
                    raise ValueError(
                        f"{file.name} has no column {name!r}, which {first.name} has: its columns "
                        f"are {file.schema.names}"
                    )
                kind, wanted = file.schema.field(name).type, first.schema.field(name).type
                if not _castable(kind, wanted):
                    raise ValueError(
                        f"column {name!r} has the type {kind} in {file.name}, and {wanted} in "
                        f"{first.name}: a column must have one type in all files"
                    )
            self._checked.add(name)

    def fetch(self, which: FilePart) -> Any:
        """Return the stored bytes or rows of a part; pass the result to `decode`."""
        return self.opened[which.file].fetch(which.part.number)

    def decode(self, which: FilePart, fetched: Any, columns: Sequence[str]) -> pa.Table:
        """Return a part's rows: the columns `columns`, converted to the types of `schema`."""
        file = self.opened[which.file]
        stored = [each for each in columns if each not in self._partitions]
        table = file.decode(which.part.number, fetched, stored)
        arrays = []
        for name in columns:
            wanted = self.schema.field(name).type
            if name in self._partitions:
                text = self._files[which.file].partition[name]
                whole = pa.types.is_integer(wanted) and text is not None
                value = pa.scalar(int(str(text)) if whole else text, wanted)
                arrays.append(pa.chunked_array([pa.repeat(value, table.num_rows)], wanted))
                continue
            column = table.column(name)
            if column.type != wanted:
                column = _cast(column, wanted, f"{file.name}: column {name!r}", which.part)
            arrays.append(column)
        if not arrays:
            return table.select([])
        return pa.Table.from_arrays(arrays, names=list(columns))


def _castable(stored: pa.DataType, wanted: pa.DataType) -> bool:
    stored, wanted = _values(stored), _values(wanted)
    if stored == wanted or pa.types.is_null(stored):
        return True
    numbers = (pa.types.is_integer, pa.types.is_floating)
    if any(is_kind(stored) for is_kind in numbers) and any(is_kind(wanted) for is_kind in numbers):
        return True
    for is_kind in (is_text, pa.types.is_timestamp, pa.types.is_date, pa.types.is_decimal):
        if is_kind(stored) and is_kind(wanted):
            return True
    lists = (pa.types.is_list, pa.types.is_large_list)
    if any(is_kind(stored) for is_kind in lists) and any(is_kind(wanted) for is_kind in lists):
        return _castable(stored.value_type, wanted.value_type)
    return False


def _values(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _cast(column: pa.ChunkedArray, wanted: pa.DataType, where: str, part: Part) -> pa.ChunkedArray:
    try:
        if pa.types.is_dictionary(column.type) and not pa.types.is_dictionary(wanted):
            column = column.cast(column.type.value_type)
        if pa.types.is_dictionary(wanted) and not pa.types.is_dictionary(column.type):
            return column.cast(wanted.value_type).dictionary_encode().cast(wanted)
        return column.cast(wanted)
    except pa.ArrowInvalid as error:
        row, value = first_bad(column, wanted)
        raise ValueError(
            f"{where} has the value {value!r} in row {part.place + row}, and must be {wanted} as "
            "in the first file"
        ) from error
