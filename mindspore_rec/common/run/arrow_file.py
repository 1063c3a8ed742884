# SPDX-License-Identifier: Apache-2.0
"""Reader of Arrow IPC files: every part of a file is checked before Arrow decodes the part.

A file is read and never mapped into memory: if another program truncates a mapped file, the next
access to the file ends the process (SIGBUS). A file with compressed buffers is refused, because it
could decode to any size. The flatbuffers of the footer and of the batches state the length of each
buffer, and whether buffers are compressed. The package pyarrow does not expose the flatbuffers, so
this module reads the few fields that it needs.

Source: https://arrow.apache.org/docs/format/Columnar.html, File.fbs, Message.fbs; for the encoding,
https://flatbuffers.dev/internals.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from mindspore_rec.common.run.errors import CheckpointError, reading

__all__ = ["read_batches"]

_MAGIC = b"ARROW1"
_VERSION = 4  # V5; older versions may declare compression elsewhere
_RECORD_BATCH = 3  # of the union MessageHeader
_BLOCK_BYTES = 24  # offset, length of metadata, length of body
_MOST_METADATA = 1 << 20


def read_batches(
    path: Path, schema: pa.Schema, rows: int | None = None, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a file, after validation of all values in `columns`.

    Args:
        path: the file.
        schema: schema that the file must have.
        rows: number of rows that the file must have. Default: None, which accepts any number of
            rows.
        columns: names of the columns to read and to validate. For the other columns, only the
            headers of the batches are checked. Default: all columns.

    Raises:
        CheckpointError: the file is damaged or compressed, or has another schema or number of rows
            than required.
        OSError: the file cannot be read.
    """
    with reading(path), pa.OSFile(str(path), "rb") as source:
        yield from _batches(source, path, schema, rows, columns)


def _batches(
    source: pa.NativeFile,
    path: Path,
    schema: pa.Schema,
    rows: int | None,
    columns: Sequence[str] | None,
) -> Iterator[pa.RecordBatch]:
    own = pa.ipc.open_file(source).schema
    if not own.equals(schema):
        raise CheckpointError(
            f"{path} is damaged: its columns are {_columns(own)}, they must be {_columns(schema)}"
        )
    lengths = _lengths(path, source, schema)
    if rows is not None and sum(lengths) != rows:
        raise CheckpointError(f"{path} is damaged: it has {sum(lengths)} rows of {rows}")
    fields = None if columns is None else [schema.get_field_index(name) for name in columns]
    reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields))
    if reader.num_record_batches != len(lengths):
        raise CheckpointError(f"{path} is damaged: its footer contradicts itself")
    for number, length in enumerate(lengths):
        batch = reader.get_batch(number)
        batch.validate(full=True)
        if batch.num_rows != length:
            raise CheckpointError(f"{path} is damaged: batch {number} changed while it was read")
        yield batch
    # If Arrow reads only some of the columns, it does not notice the end of a truncated file.
    _part(source, source.size() - 1, 1, source.size())


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)[:200]


def _arrays(kind: pa.DataType, width: int) -> Iterator[tuple[int, int]]:
    """For each array of a column, yield the values per row and the bytes per value.

    An array of lists has no values, so its bytes per value are 0.
    """
    kind = kind.storage_type if isinstance(kind, pa.ExtensionType) else kind
    if pa.types.is_fixed_size_list(kind):
        yield width, 0
        yield from _arrays(kind.value_type, width * kind.list_size)
    else:
        yield width, kind.bit_width // 8


def _lengths(path: Path, file: pa.NativeFile, schema: pa.Schema) -> list[int]:
    """Check the headers of the record batches, and return the number of rows of each batch."""
    layout = [each for field in schema for each in _arrays(field.type, 1)]
    size = file.size()
    tail = _part(file, size - 10, 10, size)
    if tail[4:] != _MAGIC:
        raise CheckpointError(f"{path} is damaged: it does not end as an Arrow file")
    length = _number("<i", tail, 0)
    footer = _part(file, size - 10 - length, length, size)
    root = _number("<I", footer, 0)
    if _vector(footer, root, 2)[1]:
        raise CheckpointError(f"{path} is damaged: it has dictionaries")
    first, count = _vector(footer, root, 3)
    lengths = []
    for number in range(count):
        at = first + number * _BLOCK_BYTES
        offset, metadata = _number("<q", footer, at), _number("<i", footer, at + 8)
        if metadata > _MOST_METADATA:
            raise CheckpointError(f"{path} is damaged: the header of a batch is too long")
        message = _part(file, offset, metadata, size)
        rows, body = _batch_length(path, message, layout)
        if body > size - offset - metadata:
            raise CheckpointError(f"{path} is damaged: batch {number} ends outside the file")
        lengths.append(rows)
    return lengths


def _batch_length(path: Path, message: bytes, layout: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Check the header of a record batch; return the numbers of rows and of bytes of the body."""
    if _number("<I", message, 0) != 0xFFFFFFFF:
        raise CheckpointError(f"{path} is damaged: the header of a batch is in an old form")
    message = message[8:]
    root = _number("<I", message, 0)
    version = _field(message, root, 0)
    if version is None or _number("<h", message, version) != _VERSION:
        raise CheckpointError(f"{path} is damaged: it is of another version of Arrow's format")
    kind = _field(message, root, 1)
    at = _field(message, root, 2)
    if kind is None or at is None or _number("<B", message, kind) != _RECORD_BATCH:
        raise CheckpointError(f"{path} is damaged: a block is no record batch")
    batch = at + _number("<I", message, at)
    if _field(message, batch, 3) is not None or _field(message, root, 4) is not None:
        raise CheckpointError(f"{path} is damaged: it is compressed, which checkpoints are not")
    rows, body = _integer(message, batch, 0), _integer(message, root, 3)
    if rows < 0:
        raise CheckpointError(f"{path} is damaged: a batch has {rows} rows")
    arrays = [(rows * width, 0) for width, _ in layout]  # without nulls
    sizes = [size for each in layout for size in _sizes(rows, *each)]
    if _pairs(message, batch, 1, len(arrays)) != arrays or not all(
        0 <= at <= at + length <= body and at % 8 == 0 and length >= size
        for (at, length), size in zip(_pairs(message, batch, 2, len(sizes)), sizes, strict=True)
    ):
        raise CheckpointError(f"{path} is damaged: the header of a batch contradicts itself")
    return rows, body


def _sizes(rows: int, width: int, number: int) -> list[int]:
    """Return the least bytes of an array's buffers: its validity, and the values if it has any."""
    return [0, rows * width * number] if number else [0]


def _part(file: pa.NativeFile, offset: int, length: int, size: int) -> bytes:
    if offset < 0 or length < 0 or offset + length > size:
        raise ValueError("a part is outside the file")
    data = bytes(file.read_at(length, offset))
    if len(data) < length:
        raise ValueError("the file was truncated while it was read")
    return data


# ---- flatbuffers


def _number(form: str, data: bytes, at: int) -> int:
    if at < 0:
        raise ValueError("an offset is negative")
    return int(struct.unpack_from(form, data, at)[0])


def _field(data: bytes, table: int, number: int) -> int | None:
    """Return the position of a field in a flatbuffers table; None if the table lacks the field."""
    entries = table - _number("<i", data, table)
    place = 4 + 2 * number
    if place + 2 > _number("<H", data, entries):
        return None
    offset = _number("<H", data, entries + place)
    return table + offset if offset else None


def _vector(data: bytes, table: int, number: int) -> tuple[int, int]:
    """Return the position and the length of a vector's elements."""
    at = _field(data, table, number)
    if at is None:
        return 0, 0
    at += _number("<I", data, at)
    return at + 4, _number("<I", data, at)


def _integer(data: bytes, table: int, number: int) -> int:
    """Return a field of 64 bits; 0 if the table lacks the field."""
    at = _field(data, table, number)
    return 0 if at is None else _number("<q", data, at)


def _pairs(data: bytes, table: int, number: int, count: int) -> list[tuple[int, int]]:
    """Return the elements of a vector of `count` elements, each two numbers of 64 bits.

    Raises:
        ValueError: the vector has another number of elements.
    """
    at, length = _vector(data, table, number)
    if length != count:
        raise ValueError(f"a vector has {length} elements of {count}")
    return [struct.unpack_from("<qq", data, at + 16 * each) for each in range(count)]
