# SPDX-License-Identifier: Apache-2.0
"""Rows of CSV files."""

from __future__ import annotations

import copy
import csv
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from mindspore_rec.common.data.bad_rows import BadRowCount
from mindspore_rec.common.data.file_rows import check_names
from mindspore_rec.common.data.large_numbers import beyond_int64
from mindspore_rec.common.data.settings import CsvFormat
from mindspore_rec.common.data.sources import DataFile
from mindspore_rec.common.data.text_blocks import TextBlocks
from mindspore_rec.common.data.text_rows import TextRows

__all__ = ["CsvRows"]

_HEADER = 64 << 10  # bytes
_SEPARATORS = ",;\t|"
_WHOLE = r"^\s*[+-]?\d{1,18}\s*$"
_DIGITS = r"^\s*[+-]?\d+\s*$"
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"


class CsvRows(TextRows):
    """Rows of one CSV file.

    Args:
        file: the CSV file.
        settings: format of the file.
        bad: counter to which bad rows are reported.
        types: column types found in the first file of the source. Default: None, which means that
            the types are inferred.
    """

    def __init__(
        self, file: DataFile, settings: CsvFormat, bad: BadRowCount, types: pa.Schema | None = None
    ) -> None:
        quote = settings.quote if settings.newlines_in_values else ""
        super().__init__(file.name, TextBlocks(file, settings.encoding, quote), bad)
        self._settings = settings
        self.header_lines = int(settings.names is None)
        block = self._blocks.first() if types is None else self._blocks.first(_HEADER)
        line = block.partition(b"\n")[0].rstrip(b"\r")
        if b"\r" in line:
            raise ValueError(
                f"{self.name} must end lines with a line feed, and ends lines with a carriage "
                "return alone: convert the file, as by tr '\\r' '\\n'"
            )
        self._separator = settings.separator or _separator(line, file.path)
        if settings.names is None:
            self._names = self._header(line)
        else:
            self._names = list(settings.names)
        check_names(self._names, self.name)
        unknown = [each for each in settings.types if each not in self._names]
        if unknown:
            raise ValueError(f"{self.name} has no column {unknown[0]!r}, which types names")
        self._types = dict(settings.types)
        if types is not None:
            self._types = {f.name: f.type for f in types if f.name in self._names}
        else:
            self._infer(block)
        self._types = {name: self._types.get(name, pa.string()) for name in self._names}
        self.schema = pa.schema(list(self._types.items()))

    def with_texts(self, names: Collection[str]) -> CsvRows:
        """Return a reader of the same file that reads the named columns as texts.

        Columns that `CsvFormat.types` names keep their types.
        """
        typed = {name for name in names if name in self._types} - set(self._settings.types)
        made = copy.copy(self)
        made._types = self._types | dict.fromkeys(typed, pa.string())
        made.schema = pa.schema(list(made._types.items()))
        return made

    def parse(self, body: bytes, columns: Sequence[str]) -> pa.Table:
        """Parse text that consists of complete records."""
        # At least one column is read, because the number of rows is the length of a column.
        wanted = list(columns) or self._names[:1]
        if not body.strip(b"\r\n"):
            fields = [self.schema.field(each) for each in wanted]
            return pa.schema(fields).empty_table().select(list(columns))
        table = self._read(body, self._types, wanted)
        self._check_lines(body, table.num_rows)
        return table.select(list(columns))

    def records(self, body: bytes) -> list[bytes]:
        """Return the lines of a block; lines are joined if a quoted value contains line breaks."""
        lines = body.splitlines(keepends=True) if b"\r" not in body else _lines(body)
        if not self._settings.newlines_in_values:
            return lines
        quote, made, kept = self._settings.quote.encode(), [], b""
        for line in lines:
            kept += line
            if kept.count(quote) % 2 == 0:
                made.append(kept)
                kept = b""
        return [*made, kept] if kept else made

    def without_header(self, number: int, data: bytes) -> tuple[int, bytes]:
        """Return the number of header lines of a block, and the bytes after the header."""
        if number or self._settings.names is not None:
            return 0, data
        return 1, data.partition(b"\n")[2]

    def _header(self, line: bytes) -> list[str]:
        if not line:
            raise ValueError(f"{self.name} must begin with a header, got an empty line")
        options = pacsv.ReadOptions(autogenerate_column_names=True, use_threads=False)
        strings = pacsv.ConvertOptions(
            column_types={
                f"f{n}": pa.string() for n in range(line.count(self._separator.encode()) + 1)
            },
            strings_can_be_null=False,
        )
        try:
            table = pacsv.read_csv(
                pa.BufferReader(line + b"\n"), options, self._parse_options(), strings
            )
            return [str(column[0].as_py()) for column in table.columns]
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise ValueError(
                f"{self.name} has a header that is not UTF-8 text: name the encoding, as in "
                "format=CsvFormat(encoding='latin-1')"
            ) from error

    def _parse_options(self) -> pacsv.ParseOptions:
        return pacsv.ParseOptions(
            delimiter=self._separator,
            quote_char=self._settings.quote or False,
            newlines_in_values=self._settings.newlines_in_values,
        )

    def _read(self, body: bytes, types: dict[str, Any], columns: list[str] | None) -> pa.Table:
        missing = self._settings.missing
        convert = pacsv.ConvertOptions(
            column_types=types,
            include_columns=columns,
            strings_can_be_null=missing is not None,
            decimal_point=self._settings.decimal,
            **({} if missing is None else {"null_values": list(missing)}),
        )
        read = pacsv.ReadOptions(
            use_threads=False, column_names=self._names, block_size=len(body) + 1
        )
        source = pa.BufferReader(body)
        table = pacsv.read_csv(source, read, self._parse_options(), convert)
        return table if missing is not None else _with_missing_texts(table)

    def _check_lines(self, body: bytes, rows: int) -> None:
        """Check that each line is a record, because a block may end at any line break."""
        if self._settings.newlines_in_values or not self._settings.quote:
            return
        lines = body.count(b"\n") + (not body.endswith(b"\n"))
        if lines > rows:  # the parser skips blank lines
            lines = sum(bool(line.strip(b"\r")) for line in body.split(b"\n"))
        last = body.rstrip(b"\r\n").rpartition(b"\n")[2]
        if lines <= rows and not self._is_open(last):
            return
        message = (
            f"{self.name} has line breaks between quotes: pass "
            "format=CsvFormat(newlines_in_values=True), or CsvFormat(quote='') if quotes are part "
            "of the values"
        )
        if self._bad.settings.most_share:
            raise pa.ArrowInvalid(message)  # lines that are no records are bad rows
        raise ValueError(message)

    def _is_open(self, line: bytes) -> bool:
        """Return True if a quoted value begins in a line and does not end there."""
        quote = self._settings.quote
        if line.count(quote.encode()) % 2 == 0:
            return False
        text = line.decode("utf-8", "replace")
        return not self._is_record(text) and self._is_record(text + quote)

    def _is_record(self, text: str) -> bool:
        quote = self._settings.quote
        try:
            list(csv.reader([text], delimiter=self._separator, quotechar=quote, strict=True))
        except csv.Error:
            return False
        return True

    def _infer(self, block: bytes) -> None:
        _, body = self.without_header(0, block)
        if not body.strip(b"\r\n"):
            return
        try:
            table = self._read(body, self._types, None)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            # If rows have too few or too many values, infer the types from the other rows.
            lines = [each for each in self.records(body) if self._fits(each)]
            if not lines:
                return
            try:
                table = self._read(b"".join(lines), self._types, None)
            except pa.ArrowInvalid:  # quotes of one line go on in the next
                return
        for field in table.schema:
            kind = field.type
            if pa.types.is_string(kind) and field.name not in self._settings.types:
                # A few bad rows can turn a column of numbers into texts.
                share = self._bad.settings.most_share
                kind = _most(table.column(field.name), share) if share else kind
            if pa.types.is_null(kind) or pa.types.is_binary(kind):
                kind = pa.string()
            if field.name not in self._settings.types and beyond_int64(table.column(field.name)):
                kind = self._type_of_large(field.name, body)
            self._types[field.name] = kind

    def _type_of_large(self, name: str, body: bytes) -> pa.DataType:
        """Return the type of a column of large numbers, which float64 may not tell apart."""
        types = dict.fromkeys(self._names, pa.string())
        for kind in (pa.uint64(), pa.string()):
            try:
                values = self._read(body, types | {name: kind}, [name]).column(0)
            except pa.ArrowInvalid:
                continue
            if kind == pa.uint64() or pc.all(pc.match_substring_regex(values, _DIGITS)).as_py():
                return kind
        return pa.float64()

    def _fits(self, line: bytes) -> bool:
        try:
            self._read(line, dict.fromkeys(self._names, pa.string()), None)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return False
        return True


def _most(texts: pa.ChunkedArray, share: float) -> pa.DataType:
    """Return the first of int64 and float64 that fits the texts, or string if neither fits.

    A type fits if at most a share `share` of the texts does not match it.
    """
    known = len(texts) - texts.null_count
    for kind, pattern in ((pa.int64(), _WHOLE), (pa.float64(), _NUMBER)):
        fit = pc.sum(pc.match_substring_regex(texts, pattern)).as_py() or 0
        if fit and known - fit <= share * known:
            return kind
    return pa.string()


def _with_missing_texts(table: pa.Table) -> pa.Table:
    """Return a table in which empty texts are missing.

    In a column of texts, NA and similar texts are ordinary values, because Parquet files, data
    frames and requests may contain these texts.
    """
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            column = table.column(place)
            known = pc.if_else(pc.equal(column, ""), pa.scalar(None, field.type), column)
            table = table.set_column(place, field, known)
    return table


def _lines(body: bytes) -> list[bytes]:
    """Split at line feeds only: `bytes.splitlines` splits at a carriage return too."""
    lines = body.split(b"\n")
    made = [each + b"\n" for each in lines[:-1]]
    return [*made, lines[-1]] if lines[-1] else made


def _separator(header: bytes, path: str) -> str:
    if path.rpartition("/")[2].lower().split(".", 1)[-1].startswith("tsv"):
        return "\t"
    counts = [header.count(each.encode()) for each in _SEPARATORS]
    return _SEPARATORS[counts.index(max(counts))]
