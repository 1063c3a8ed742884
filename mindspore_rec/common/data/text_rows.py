# SPDX-License-Identifier: Apache-2.0
"""Read rows of text files, a block at a time. A block with bad rows is parsed in halves."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from mindspore_rec.common.data.bad_rows import BadRow, BadRowCount, good_rows, shortened
from mindspore_rec.common.data.file_rows import FileRows, Part
from mindspore_rec.common.data.text_blocks import BLOCK, TextBlocks

__all__ = ["TextRows"]

_BYTES_A_ROW = 128  # of the estimate how many rows a block has
_MOST_BAD = 10_000  # bad rows of a block after which the rest of it is not read
_CONVERSION = re.compile(
    r"CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to ([^:]+): (.*)$", re.DOTALL
)
_ROW = re.compile(r" in row \d+|Row #\d+: ")
_COMMA = re.compile(r"'-?\d+,\d+'")


class TextRows(FileRows):
    """Rows of one text file.

    Args:
        name: name of the file in error messages.
        blocks: the file's blocks, from `TextBlocks`.
        bad: counter of bad rows.
    """

    header_lines = 0

    def __init__(self, name: str, blocks: TextBlocks, bad: BadRowCount) -> None:
        self.name = name
        self.sequential = blocks.sequential
        self._blocks = blocks
        self._bad = bad

    def parts(self) -> list[Part]:
        """Return the blocks."""
        rows = BLOCK // _BYTES_A_ROW
        return [Part(number, None, rows, number << 32) for number in range(self._blocks.count)]

    def first_row(self, number: int) -> int:
        """Return the index in the file of a block's first row; blank lines count as rows."""
        return self._blocks.line_of(number) - 1 - (self.header_lines if number else 0)

    def fetch(self, number: int) -> Any:
        """Return the bytes of a block."""
        return self._blocks.read(number)

    def decode(self, number: int, fetched: Any, columns: Sequence[str]) -> pa.Table:
        """Return a block's readable rows, and count all other rows."""
        skipped, body = self.without_header(number, fetched)
        try:
            table = self.parse(body, columns)
        except (pa.ArrowInvalid, pa.ArrowKeyError, UnicodeDecodeError):
            return self._decode_good(number, skipped, body, columns)
        self._bad.add((self.name, number), table.num_rows, ())
        return table

    @abstractmethod
    def parse(self, body: bytes, columns: Sequence[str]) -> pa.Table:
        """Return the rows of whole records; raise ArrowInvalid if a record is bad."""

    @abstractmethod
    def records(self, body: bytes) -> list[bytes]:
        """Split a block into records."""

    def without_header(self, number: int, data: bytes) -> tuple[int, bytes]:
        """Return the number of header lines of a block, and the bytes after the header."""
        return 0, data

    def reason(self, error: Exception, columns: Sequence[str]) -> str:
        """Return the reason why a record is bad, including the column and the value."""
        if isinstance(error, UnicodeDecodeError):  # of pyarrow's own message
            return "it is not UTF-8 text: name the encoding in format="
        text = " ".join(str(error).split())
        if "Invalid UTF8" in text:
            return "it is not UTF-8 text: name the encoding in format="
        match = _CONVERSION.search(text)
        if match is None:
            return _ROW.sub("", text)
        number, kind, rest = int(match[1]), match[2], match[3]
        names = self.schema.names
        name = names[number] if number < len(names) else f"#{number}"
        if "UTF8" in rest or "UTF-8" in rest:
            return (
                f"column {name!r} is not UTF-8 text: name the encoding, as in "
                "format=CsvFormat(encoding='latin-1')"
            )
        value = rest.removeprefix("invalid value ")
        hint = ""
        if _COMMA.fullmatch(value):
            hint = "; for a decimal comma say format=CsvFormat(decimal=',')"
        elif kind.startswith(("int", "uint", "double", "null", "bool", "timestamp", "date")):
            hint = (
                f"; the type comes from the first rows of the first file, and "
                f"format=CsvFormat(types={{{name!r}: ...}}) names another"
            )
        return f"column {name!r} has the value {value}, and must be {kind}{hint}"

    def _decode_good(
        self, number: int, skipped: int, body: bytes, columns: Sequence[str]
    ) -> pa.Table:
        records = self.records(body)
        most = 1 if not self._bad.settings.most_share else _MOST_BAD
        tables, refused = good_rows(records, lambda some: self.parse(b"".join(some), columns), most)
        first = self._blocks.line_of(number) + skipped
        bad, line, at = [], first, 0
        for place, error in refused:
            for each in records[at:place]:
                line += each.count(b"\n")
            at = place
            reason = self.reason(error, columns)
            bad.append(BadRow(self.name, f"line {line}", reason, shortened(records[place])))
        if len(bad) == _MOST_BAD:
            raise ValueError(
                f"{bad[-1]}; {_MOST_BAD} rows of one block cannot be read, so the file may have "
                "another format than the first"
            )
        self._bad.add((self.name, number), sum(map(len, tables)) + len(bad), bad)
        return pa.concat_tables(tables) if tables else self.parse(b"", columns)
