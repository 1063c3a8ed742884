# SPDX-License-Identifier: Apache-2.0
"""Name buckets, and pack commands of Redis' protocol with NumPy.

Every field has 8 bytes. Every value of a table has the same length: a row and its checksum.
Because fields and values have fixed lengths, NumPy can pack a command as a matrix of bytes, without
a Python object per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

import numpy as np

from mindspore_rec import _native

BUCKETS = 64  # few and large: 5,000 keys are 64 commands of about 80 fields
MOST_FIELDS = 1024  # of a command, the fields of the marker included
MOST_COMMAND_BYTES = 8 << 20
TOKEN = b"t"  # field of the marker: token of the tier that owns the bucket
SEQUENCE = b"s"  # field of the marker: number of the last command that wrote to the bucket
MARKER_FIELDS = 2  # never fields of keys, which have 8 bytes
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing: the upper bits of the product
_SHIFT = np.uint64(64 - 6)

Packed = tuple[bytes | memoryview, ...]  # parts of one command, joined when they are sent


class Piece(NamedTuple):
    """Piece: the rows of one command, which are rows `start` to `stop` - 1 in bucket order."""

    bucket: int
    start: int
    stop: int


def bucket_names(
    table: str, generation: int, row_bytes: int, worker: int = 0, workers: int = 1
) -> list[bytes]:
    """Return the names of a table's buckets on the server; each worker has its own buckets.

    The part in braces is a hash tag: a cluster computes the slot from this part only. Generation
    and row length are part of the name, so rows of another layout are not found. With several
    workers, the name also contains the worker's number and the number of workers, because both
    numbers determine which rows the worker owns.

    Example:
        >>> bucket_names("user id", 0, 212)[5]
        b'emb{user%20id/g0r212/p5}v'
        >>> bucket_names("item", 0, 212, worker=1, workers=4)[5]
        b'emb{item/w1of4/g0r212/p5}v'
    """
    place = f"w{worker}of{workers}/" if workers > 1 else ""
    stem = f"{quote(table, safe='')}/{place}g{generation}r{row_bytes}"
    return [f"emb{{{stem}/p{number}}}v".encode() for number in range(BUCKETS)]


def bucket_of(keys: np.ndarray) -> np.ndarray:
    """Return the bucket of each int64 key, as uint8."""
    return ((keys.view(np.uint64) * _SPREAD) >> _SHIFT).astype(np.uint8)


def pack(*words: bytes) -> bytes:
    """Encode a command of a few words in Redis' protocol.

    Example:
        >>> pack(b"PING")
        b'*1\\r\\n$4\\r\\nPING\\r\\n'
    """
    return b"*%d\r\n%b" % (len(words), _words(*words))


def _words(*words: bytes) -> bytes:
    return b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


class Packer:
    """Pack the commands that read, write and delete rows of a table.

    Args:
        names: keys of the buckets on the server.
        row_bytes: bytes of a row.
    """

    def __init__(self, names: list[bytes], row_bytes: int) -> None:
        self.names = names
        self.value_bytes = row_bytes + _native.CHECK_BYTES
        most = MOST_COMMAND_BYTES // self.value_bytes
        self._most = max(1, min(MOST_FIELDS - MARKER_FIELDS, most))
        self._head = np.frombuffer(b"$8\r\n", np.uint8)
        self._middle = np.frombuffer(b"\r\n$%d\r\n" % self.value_bytes, np.uint8)
        self._end = np.frombuffer(b"\r\n", np.uint8)
        self._read_words = [_words(b"HMGET", name, TOKEN, SEQUENCE) for name in names]
        self._write_words = [_words(b"HSET", name, SEQUENCE) for name in names]
        self._erase_words = [_words(b"HDEL", name) for name in names]

    def pieces(self, keys: np.ndarray) -> tuple[np.ndarray, list[Piece]]:
        """Return a stable order of the keys by bucket, and the range of keys of each command."""
        buckets = bucket_of(keys)
        order = np.argsort(buckets, kind="stable")
        ends = np.cumsum(np.bincount(buckets, minlength=BUCKETS)).tolist()
        pieces, start = [], 0
        for bucket, end in enumerate(ends):
            while start < end:
                stop = min(end, start + self._most)
                pieces.append(Piece(bucket, start, stop))
                start = stop
        return order, pieces

    def _fields(self, keys: np.ndarray, order: np.ndarray, width: int) -> np.ndarray:
        """Return a byte matrix with one line per key.

        The first 12 bytes of a line are the field and its length in Redis' protocol.
        """
        lines = np.empty((len(keys), width), np.uint8)
        lines[:, :4] = self._head
        # On every machine, a field is the key as 8 little-endian bytes.
        lines[:, 4:12] = keys[order].astype("<i8", copy=False).view(np.uint8).reshape(-1, 8)
        lines[:, -2:] = self._end
        return lines

    def reads(self, keys: np.ndarray, order: np.ndarray, pieces: list[Piece]) -> Iterator[Packed]:
        """Yield one HMGET command per piece, to read the marker and the rows of the keys."""
        text = self._fields(keys, order, 14).reshape(-1).data
        for bucket, start, stop in pieces:
            count = stop - start + 2 + MARKER_FIELDS
            yield b"*%d\r\n" % count, self._read_words[bucket], text[start * 14 : stop * 14]

    def writes(
        self,
        keys: np.ndarray,
        rows: np.ndarray,
        order: np.ndarray,
        pieces: list[Piece],
        numbers: list[int],
    ) -> Iterator[Packed]:
        """Yield one HSET command per piece, with rows and the marker's sequence number."""
        middle = 12 + len(self._middle)
        width = middle + self.value_bytes + 2
        lines = self._fields(keys, order, width)
        lines[:, 12:middle] = self._middle
        _native.pack_checked_rows(keys, np.ascontiguousarray(rows), order, lines, middle)
        text = lines.reshape(-1).data
        for (bucket, start, stop), number in zip(pieces, numbers, strict=True):
            yield (
                b"*%d\r\n" % (2 * (stop - start) + 4),
                self._write_words[bucket],
                b"$8\r\n%b\r\n" % sequence_bytes(number),
                text[start * width : stop * width],
            )

    def erases(self, keys: np.ndarray, order: np.ndarray, pieces: list[Piece]) -> Iterator[Packed]:
        """Yield one HDEL command per piece, to delete the rows of the keys."""
        text = self._fields(keys, order, 14).reshape(-1).data
        for bucket, start, stop in pieces:
            count = stop - start + 2
            yield b"*%d\r\n" % count, self._erase_words[bucket], text[start * 14 : stop * 14]


def sequence_bytes(sequence: int) -> bytes:
    """Return a write's sequence number as the 8 bytes that the marker stores."""
    return sequence.to_bytes(8, "little")
