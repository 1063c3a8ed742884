# SPDX-License-Identifier: Apache-2.0
"""Reader of Arrow IPC files: every part of a file is checked before Arrow decodes the part.

Files of checkpoints are not compressed, so a batch is a mapped part of the file and takes no
memory. A file with compressed buffers is refused, because it could decode to any size. The
flatbuffers of the footer and of the batches state whether buffers are compressed. The package
pyarrow does not expose the flatbuffers, so this module reads the few fields that it needs.

Source: https://arrow.apache.org/docs/format/Columnar.html, File.fbs, Message.fbs; for the encoding,
https://flatbuffers.dev/internals.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
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
    path: Path, schema: pa.Schema, rows: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a file, each fully validated.

    Args:
        path: the file.
        schema: schema that the file must have.
        rows: number of rows that the file must have. Default: None, which accepts any number of
            rows.

    Raises:
        CheckpointError: the file is damaged or compressed, or has another schema or number of rows
            than required.
        OSError: the file cannot be read.
    """
    with reading(path), pa.memory_map(str(path)) as source:
        yield from _batches(source, path, schema, rows)


def _batches(
    source: pa.NativeFile, path: Path, schema: pa.Schema, rows: int | None
) -> Iterator[pa.RecordBatch]:
    lengths = _lengths(path, source)
    if rows is not None and sum(lengths) != rows:
        raise CheckpointError(f"{path} is damaged: it has {sum(lengths)} rows of {rows}")
    reader = pa.ipc.open_file(source)
    if not reader.schema.equals(schema):
        raise CheckpointError(
            f"{path} is damaged: its columns are {_columns(reader.schema)}, they must be "
            f"{_columns(schema)}"
        )
    if reader.num_record_batches != len(lengths):
        raise CheckpointError(f"{path} is damaged: its footer contradicts itself")
    for number, length in enumerate(lengths):
        batch = reader.get_batch(number)
        batch.validate(full=True)
        if batch.num_rows != length or any(_has_nulls(each) for each in batch.columns):
            raise CheckpointError(f"{path} is damaged: batch {number} contradicts itself")
        yield batch


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)[:200]


def _has_nulls(column: pa.Array) -> bool:
    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    if pa.types.is_fixed_size_list(column.type):
        return bool(column.null_count or column.values.null_count)
    return bool(column.null_count)


def _lengths(path: Path, file: pa.NativeFile) -> list[int]:
    """Read the number of rows of each record batch from the headers that Arrow uses."""
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
        lengths.append(_batch_length(path, _part(file, offset, metadata, size)))
    return lengths


def _batch_length(path: Path, message: bytes) -> int:
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
    length = _field(message, batch, 0)
    rows = 0 if length is None else _number("<q", message, length)
    if rows < 0:
        raise CheckpointError(f"{path} is damaged: a batch has {rows} rows")
    return rows


def _part(file: pa.NativeFile, offset: int, length: int, size: int) -> bytes:
    if offset < 0 or length < 0 or offset + length > size:
        raise ValueError("a part is outside the file")
    return bytes(file.read_at(length, offset))


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
