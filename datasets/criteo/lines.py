# SPDX-License-Identifier: Apache-2.0
"""Read a text file, plain or gzip, in large pieces of whole lines."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

__all__ = ["Piece", "is_gzip", "pieces"]

_GZIP_MAGIC = b"\x1f\x8b"
_LONGEST_LINE = 16 << 20


class Piece(NamedTuple):
    """Whole lines.

    Args:
        first_line: Line number of the piece's first line in the file, from 1.
        lines: Number of lines.
        text: The bytes of the piece; every line ends with a line feed.
        crlf: Number of lines that ended with CR LF in the file; in `text`, these lines end with LF.
        file_offset: Number of bytes read so far from the file on disk, for a progress bar.
    """

    first_line: int
    lines: int
    text: bytes
    crlf: int
    file_offset: int


def is_gzip(path: str | os.PathLike[str]) -> bool:
    """True if a file begins with the first two bytes of gzip, whatever the file's name is."""
    with open(path, "rb") as raw:
        return raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC


def pieces(
    path: str | os.PathLike[str],
    piece_bytes: int = 16 << 20,
    span: tuple[int, int] | None = None,
) -> Iterator[Piece]:
    """Yield a file in pieces of whole lines.

    Args:
        path: The file; gzip is recognised by its first two bytes, not by the name.
        piece_bytes: Approximate number of bytes (after decompression) per piece, at least 1.
        span: For a plain file, a range of bytes (end not included). The reader yields only lines
            whose first byte is in the range, and numbers these lines from 1. If ranges cover the
            file without overlap, each line is in exactly one range. Default: all.

    Yields:
        Pieces, in order. If the last line has no line feed, a line feed is added. This also applies
        if the last line ends with a carriage return, so the line then ends with CR LF. A byte order
        mark at the start of the file is left out.

    Raises:
        ValueError: gzip data are truncated or damaged, or a line exceeds 16 MiB.
        OSError: the file cannot be read.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write(b"a\\r\\nb\\nc") and file.flush()
        ...     [(piece.first_line, piece.text, piece.crlf) for piece in pieces(file.name, 4)]
        [(1, b'a\\n', 1), (2, b'b\\n', 0), (3, b'c\\n', 0)]
    """
    if piece_bytes < 1:
        raise ValueError(f"piece_bytes must be at least 1, got {piece_bytes}")
    line, rest = 1, b""
    at_start = span is None or span[0] == 0
    with open(path, "rb") as raw:
        for data in _chunks(path, raw, piece_bytes, span):
            if at_start and line == 1 and not rest:
                data = data.removeprefix(b"\xef\xbb\xbf")
            whole, feed, tail = data.rpartition(b"\n")
            if not feed:
                rest += data
                _check_length(path, line, rest)
                continue
            piece = _piece(line, rest + whole + feed, raw.tell())
            yield piece
            line, rest = line + piece.lines, tail
        if rest:
            yield _piece(line, rest + b"\n", raw.tell())


def _chunks(
    path: str | os.PathLike[str], raw: BinaryIO, size: int, span: tuple[int, int] | None
) -> Iterator[bytes]:
    if span is not None:
        start, stop = (_line_start(path, raw, offset) for offset in span)
        raw.seek(start)
        while left := stop - raw.tell():
            yield raw.read(min(left, max(size, 3)))
        return
    if not is_gzip(path):
        # read at least 3 bytes, so that the first chunk contains a whole byte order mark
        while data := raw.read(max(size, 3)):
            yield data
        return
    done = 0
    try:
        with gzip.GzipFile(fileobj=raw) as unpacked:
            while data := unpacked.read(max(size, 3)):
                yield data
                done += len(data)
    except EOFError as error:
        raise ValueError(f"{path} is truncated: its gzip data ends after {done} bytes") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged gzip data after {done} bytes: {error}") from error


def _piece(first_line: int, text: bytes, file_offset: int) -> Piece:
    crlf = text.count(b"\r\n")
    if crlf:
        text = text.replace(b"\r\n", b"\n")
    return Piece(first_line, text.count(b"\n"), text, crlf, file_offset)


def _line_start(path: str | os.PathLike[str], raw: BinaryIO, offset: int) -> int:
    """Return the start of the first line that begins at `offset` or later."""
    if offset == 0:
        return 0
    raw.seek(offset - 1)
    line = raw.readline(_LONGEST_LINE + 1)
    if len(line) > _LONGEST_LINE:
        raise ValueError(f"{path}, the line at byte {offset} is longer than {_LONGEST_LINE} bytes")
    return raw.tell()


def _check_length(path: str | os.PathLike[str], line: int, rest: bytes) -> None:
    if len(rest) > _LONGEST_LINE:
        raise ValueError(f"{path}, line {line} is longer than {_LONGEST_LINE} bytes")
