# SPDX-License-Identifier: Apache-2.0
"""Compute the decoded size of an Arrow IPC stream from its metadata, before decoding it.

A small stream may decode to many bytes for three reasons: a message's body may be compressed;
dictionaries and views may repeat a text many times; null columns may have any length. This
module reads the metadata of every message (flatbuffers, as defined in Apache Arrow's Message.fbs
and Schema.fbs) and adds up the decoded sizes. Arrow decodes the stream only if the decoded size is
within the limit. Arrow also verifies the metadata.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "MOST_COLUMNS",
    "MOST_DEPTH",
    "TooLargeError",
    "decoded_bytes",
    "may_repeat",
    "written_out_bytes",
]

MOST_COLUMNS = 16_384  # fields, including fields inside other fields
MOST_DEPTH = 16
_A_NODE = 256  # bytes that an array costs beside its buffers
_A_ROW = 4  # bytes that a row counts for at least

_CONTINUATION = b"\xff\xff\xff\xff"
_OLD_COMPRESSION = b"ARROW:experimental_compression"
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_REFUSED_TYPES = {14: "union", 22: "run-end encoded", 25: "list view", 26: "large list view"}


class TooLargeError(ValueError):
    """Raised if a complete stream decodes to more bytes than allowed."""


class _Table:
    """A flatbuffers table. A read outside the table's data raises an error."""

    def __init__(self, data: memoryview, at: int) -> None:
        self.data, self.at = data, at
        self._vtable = at - self._read("<i", at)
        self._size = self._read("<H", self._vtable)

    def _read(self, kind: str, at: int) -> int:
        if at < 0:
            raise ValueError("an offset before its beginning")
        return int(struct.unpack_from(kind, self.data, at)[0])

    def _place(self, field: int) -> int:
        """Return the offset of a field; 0 if the field is absent."""
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return 0
        offset = self._read("<H", self._vtable + entry)
        return self.at + offset if offset else 0

    def number(self, field: int, kind: str) -> int:
        place = self._place(field)
        return self._read(kind, place) if place else 0

    def table(self, field: int) -> _Table | None:
        place = self._place(field)
        return _Table(self.data, place + self._read("<I", place)) if place else None

    def vector(self, field: int, size: int) -> tuple[int, int]:
        """Return the offset and length of a vector's elements; 0, 0 if the vector is missing."""
        place = self._place(field)
        if not place:
            return 0, 0
        at = place + self._read("<I", place)
        count = self._read("<I", at)
        if at + 4 + count * size > len(self.data):
            raise ValueError("a vector beyond its end")
        return at + 4, count

    def tables(self, field: int) -> list[_Table]:
        at, count = self.vector(field, 4)
        places = (at + 4 * i for i in range(count))
        return [_Table(self.data, place + self._read("<I", place)) for place in places]

    def pairs(self, field: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Split a vector of number pairs; return all first numbers and all second numbers."""
        at, count = self.vector(field, 16)
        numbers = struct.unpack_from(f"<{2 * count}q", self.data, at)
        return numbers[::2], numbers[1::2]


def decoded_bytes(stream: bytes, most: int, known: set[bytes] | None = None) -> int:
    """Return the approximate number of bytes of memory needed to read an Arrow IPC stream.

    Args:
        stream: one whole stream, with its end marker.
        most: maximum number of bytes of memory for the decoded stream.
        known: metadata of schemas that passed an earlier check. `decoded_bytes` adds new schemas to
            `known`. Default: none.

    Returns:
        The number of bytes, at most `most`.

    Raises:
        ValueError: the stream needs more than `most` bytes, has more than 16,384 columns, or has
            columns that are nested deeper than 16. ValueError is also raised if a column has
            unions, run ends or list views, if the bytes are not an Arrow IPC stream, or if bytes
            follow the stream's end.

    Example:
        >>> rows = pa.table({"x": pa.array([0] * 100_000)})
        >>> sink = pa.BufferOutputStream()
        >>> options = pa.ipc.IpcWriteOptions(compression="zstd")
        >>> with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        ...     writer.write(rows)
        >>> stream = sink.getvalue().to_pybytes()
        >>> len(stream) < 2000, decoded_bytes(stream, 1 << 20)
        (True, 800256)
        >>> try:
        ...     decoded_bytes(stream, 500_000)
        ... except ValueError as error:
        ...     print(error)
        it decodes to 800256 bytes or more, at most 500000 are taken
    """
    try:
        return _walk(memoryview(stream), most, set() if known is None else known)
    except (struct.error, IndexError) as error:
        raise ValueError(f"damaged metadata of Arrow: {error}") from error


def _walk(stream: memoryview, most: int, known: set[bytes]) -> int:
    total, at = 0, 0
    while True:
        if stream[at : at + 4] != _CONTINUATION:
            raise ValueError("no message of Arrow where one must begin")
        size = struct.unpack_from("<i", stream, at + 4)[0]
        at += 8
        if size == 0:
            if at != len(stream):
                raise ValueError(f"{len(stream) - at} bytes behind the end of an Arrow stream")
            return total
        if size < 8 or at + size > len(stream):
            raise ValueError("metadata of Arrow beyond the end")
        data = stream[at : at + size]
        message = _Table(data, struct.unpack_from("<I", data, 0)[0])
        at += size
        body = message.number(3, "<q")
        if not 0 <= body <= len(stream) - at:
            raise ValueError("a body of Arrow beyond the end")
        total += _message_bytes(message, stream[at : at + body], most, known)
        if total > most:
            raise TooLargeError(f"it decodes to {total} bytes or more, at most {most} are taken")
        at += body


def _message_bytes(message: _Table, body: memoryview, most: int, known: set[bytes]) -> int:
    kind, header = message.number(1, "<B"), message.table(2)
    if header is None or kind not in (_SCHEMA, _DICTIONARY, _BATCH):
        raise ValueError(f"a message of kind {kind} in an Arrow stream")
    if kind == _SCHEMA:
        metadata = bytes(message.data)
        if metadata not in known:
            _check_fields(header, 1, [0])
            if len(known) < 64:
                known.add(metadata)
        return 0
    if message.vector(4, 4)[1] and _OLD_COMPRESSION in bytes(message.data):
        raise ValueError("a compression that only Arrow 0.17 has")
    if kind == _DICTIONARY:
        header = header.table(1)
        if header is None:
            raise ValueError("a dictionary of Arrow without data")
    return _batch_bytes(header, body, most)


def _check_fields(parent: _Table, depth: int, seen: list[int]) -> None:
    """Count the fields.

    A few bytes can declare many fields, because several fields may refer to the same flatbuffers
    table.
    """
    fields = parent.tables(1 if depth == 1 else 5)
    if fields and depth > MOST_DEPTH:
        raise ValueError(f"columns nested deeper than {MOST_DEPTH}")
    seen[0] += len(fields)
    if seen[0] > MOST_COLUMNS:
        raise ValueError(f"more than {MOST_COLUMNS} columns")
    for field in fields:
        kind = field.number(2, "<B")
        if kind in _REFUSED_TYPES:
            raise ValueError(f"a column of type {_REFUSED_TYPES[kind]}")
        _check_fields(field, depth + 1, seen)


def _batch_bytes(batch: _Table, body: memoryview, most: int) -> int:
    lengths, _ = batch.pairs(1)
    offsets, sizes = batch.pairs(2)
    rows = max(batch.number(0, "<q"), *lengths, 0)
    if min(*lengths, 0, 0) < 0 or rows * _A_ROW > most:
        raise TooLargeError(f"{rows} rows, at most {most // _A_ROW} are taken")
    total = _A_NODE * len(lengths)
    if not sizes:
        return total
    if min(sizes) < 0 or min(offsets) < 0:
        raise ValueError("a buffer of Arrow before its body")
    if batch.table(3) is None:
        return total + sum(sizes)
    for offset, size in zip(offsets, sizes, strict=True):
        if offset + size > len(body):
            raise ValueError("a buffer of Arrow beyond its body")
        if size:
            declared = struct.unpack_from("<q", body, offset)[0]
            size = size - 8 if declared == -1 else declared
            if size < 0:
                raise ValueError(f"a buffer of Arrow of {size} bytes")
        total += size
    return total


def may_repeat(kind: pa.DataType) -> bool:
    """Return True if a column of this type may store a text once and refer to it many times.

    Example:
        >>> may_repeat(pa.string()), may_repeat(pa.list_(pa.dictionary(pa.int8(), pa.string())))
        (False, True)
    """
    if pa.types.is_dictionary(kind) or pa.types.is_string_view(kind):
        return True
    if pa.types.is_binary_view(kind):
        return True
    if not pa.types.is_nested(kind):
        return False
    return any(may_repeat(kind.field(i).type) for i in range(kind.num_fields))


def written_out_bytes(column: pa.Array) -> int:
    """Return the total bytes of a column's texts. A repeated text is counted each time.

    Example:
        >>> written_out_bytes(pa.array(["a" * 1000] * 1000).dictionary_encode())
        1000000
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _indexed_bytes(column)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        lengths = _lengths(column)
        return 0 if lengths is None else int(lengths.sum())
    if pa.types.is_struct(kind):
        return sum(written_out_bytes(part) for part in column.flatten())
    if pa.types.is_nested(kind):  # lists of some kind
        return written_out_bytes(column.values)
    return 0


def _indexed_bytes(column: pa.DictionaryArray) -> int:
    values = column.dictionary
    if pa.types.is_nested(values.type) or pa.types.is_dictionary(values.type):
        return int(values.nbytes) * len(column)
    lengths = _lengths(values)
    if lengths is None or not len(lengths):
        return 0
    longest = int(lengths.max())
    if longest * len(column) < 1 << 20:  # not worth the looking up
        return longest * len(column)
    return int(lengths[column.indices.drop_null().to_numpy(zero_copy_only=False)].sum())


def _lengths(texts: pa.Array) -> np.ndarray | None:
    """Return the lengths of texts, as int64; None if the values are not texts."""
    kind = texts.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        if not len(texts):
            return np.zeros(0, np.int64)
        words = np.frombuffer(texts.buffers()[1], np.int32).reshape(-1, 4)  # the first is it
        return words[texts.offset : texts.offset + len(texts), 0].astype(np.int64)
    try:
        return pc.fill_null(pc.binary_length(texts), 0).to_numpy().astype(np.int64)
    except pa.ArrowNotImplementedError:  # numbers
        return None
