# SPDX-License-Identifier: Apache-2.0
"""Read text files in blocks of whole lines, by random access or from front to back."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

import pyarrow as pa

from mindspore_rec.common.data.file_rows import Cursor
from mindspore_rec.common.data.sources import DataFile

__all__ = ["BLOCK", "TextBlocks"]

BLOCK = 4 << 20  # bytes
_FIRST = 4 << 20
_LOOK = 64 << 10
_LONGEST = 256 << 20  # bytes of a line


class TextBlocks:
    """Blocks of a text file, re-encoded as UTF-8. Each block consists of whole records.

    Block k of an uncompressed file contains the records that begin in the file's bytes ``k *
    BLOCK`` to ``(k + 1) * BLOCK - 1``. Compressed files, and files whose records may contain line
    breaks, are read from front to back.

    Args:
        file: the file.
        encoding: encoding of the file, in which a line break must be one byte.
        quote: quote character; a line break between two quotes does not end a record. Default: "",
            which means no quote character.
    """

    def __init__(self, file: DataFile, encoding: str, quote: str = "") -> None:
        self._file = file
        self._encoding = "" if _is_utf8(encoding) else encoding
        self._quote = quote.encode()
        self.sequential = bool(file.codec or quote)
        self._cursor = Cursor(self._stream)
        self._count: int | None = None

    @property
    def count(self) -> int:
        """Number of blocks; a file without random access is read once to count its blocks."""
        if self._count is None:
            if self.sequential:
                self._count = sum(1 for _ in self._stream())
            else:
                self._count = -(-self._file.size // BLOCK)
        return self._count

    def first(self, size: int = _FIRST) -> bytes:
        """Return whole records from the beginning of the file, about `size` bytes.

        Default: 4 MiB.
        """
        data = b""
        with self._file.stream() as opened:
            while len(data) < _LONGEST and (more := self._next(opened, size)):
                data += more
                if end := self._end(data):
                    return self._utf8(data[:end], 0)
        return self._utf8(data, 0)

    def read(self, number: int) -> bytes:
        """Return a block."""
        if self.sequential:
            return self._cursor.get(number)
        with self._file.open() as opened:
            begin = number * BLOCK
            at = max(begin - 1, 0)
            opened.seek(at)
            data = opened.read(begin + BLOCK - at)
            first = 0 if number == 0 else data.find(b"\n") + 1
            if number and not first:
                return b""  # a line that began before goes on to after
            if len(data) == begin + BLOCK - at and not data.endswith(b"\n"):
                data += self._rest_of_line(opened)
        return self._utf8(data[first:], number)

    def line_of(self, number: int) -> int:
        """Return the number of the first line of a block, from 1."""
        lines = 1
        with self._file.stream() as opened:
            if self.sequential:
                for _, block in zip(range(number), self._stream(), strict=False):
                    lines += block.count(b"\n")
                return lines
            left = number * BLOCK - 1
            while left > 0:
                data = opened.read(min(left, BLOCK))
                if not data:
                    break
                lines += data.count(b"\n")
                left -= len(data)
            if number:
                lines += 1  # the line with the byte before the block ends in it
        return lines

    def _stream(self) -> Iterator[bytes]:
        kept, number = b"", 0
        with self._file.stream() as opened:
            while data := self._next(opened, BLOCK):
                kept += data
                end = self._end(kept)
                if end:
                    yield self._utf8(kept[:end], number)
                    kept, number = kept[end:], number + 1
                elif len(kept) > _LONGEST:
                    raise ValueError(f"{self._file.name} has a line of over {_LONGEST} bytes")
        if kept:
            yield self._utf8(kept, number)

    def _next(self, opened: pa.NativeFile, size: int) -> bytes:
        try:
            return opened.read(size)
        except (OSError, pa.ArrowException) as error:
            if not self._file.codec:
                raise
            shown = " ".join(str(error).split())
            raise ValueError(f"{self._file.name} cannot be decompressed: {shown}") from error

    def _end(self, data: bytes) -> int:
        """Return the end of the last whole record."""
        end = data.rfind(b"\n") + 1
        if self._quote:
            while end and data.count(self._quote, 0, end) % 2:
                end = data.rfind(b"\n", 0, end - 1) + 1
        return end

    def _rest_of_line(self, opened: pa.NativeFile) -> bytes:
        rest = b""
        while data := opened.read(_LOOK):
            end = data.find(b"\n") + 1
            if end:
                return rest + data[:end]
            rest += data
            if len(rest) > _LONGEST:
                raise ValueError(f"{self._file.name} has a line of over {_LONGEST} bytes")
        return rest

    def _utf8(self, data: bytes, number: int) -> bytes:
        if number == 0:
            data = data.removeprefix(codecs.BOM_UTF8)
        if not self._encoding:
            return data
        try:
            return data.decode(self._encoding).encode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self._file.name} is no text in the encoding {self._encoding}: {error.reason}"
            ) from error


def _is_utf8(encoding: str) -> bool:
    return codecs.lookup(encoding).name in ("utf-8", "utf_8_sig", "utf-8-sig")
