# SPDX-License-Identifier: Apache-2.0
"""`SharedRows`: rows by key that one process writes and other processes read."""

from __future__ import annotations

import os

import numpy as np

from mindspore_rec import _native
from mindspore_rec.common.old_arguments import Renamed, takes_old
from mindspore_rec.common.rows.quantise import BITS, check_rows

__all__ = ["SharedRows"]


class SharedRows:
    """Rows in shared memory: one process publishes versions, and other processes look up rows.

    Readers never wait for the writer. Each lookup reads only one version: the version that is
    newest when the lookup begins. A row is freed when no reader needs the row any more. The worker
    processes of a server with `--workers` share the rows of their tables in the format of this
    class.

    Args:
        fd: descriptor from `os.memfd_create`, which all processes that share the rows inherit. The
            first `SharedRows` object initializes the empty file; later objects open the same file.
        embedding_dim: number of values in a row, 1 to 8192.
        rows: type in which the values are stored, 'float32', 'int8' or 'int4'. Default: 'float32'.
        readers: indexes, from 0 to 511, of the reader slots that this process may use. Each running
            lookup occupies one slot. Two processes must not use the same slot. Default: 0 to 3.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> rows = SharedRows(os.memfd_create("doc"), 2)
        >>> rows.upsert(np.array([7]), np.ones((1, 2), np.float32))
        >>> rows.publish(b"first")
        >>> rows.lookup(np.array([7, 8]))[0].tolist(), rows.version()
        ([[1.0, 1.0], [0.0, 0.0]], b'first')
    """

    @takes_old(Renamed("dim", "embedding_dim"))
    def __init__(
        self, fd: int, embedding_dim: int, rows: str = "float32", readers: range = range(4)
    ) -> None:
        check_rows(rows)
        if not _native.SharedMemory.is_created(fd):
            spec = {
                **{"dim": embedding_dim, "bits": BITS.get(rows, 32), "vocabulary": 0},
                **{"max_idle_steps": -1, "max_idle_seconds": -1, "outside_zeros": False},
            }
            most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            _native.SharedMemory.create(fd, [spec], most)
        self._memory = _native.SharedMemory(fd, write=True)
        self._reader = _native.SharedReader(self._memory, readers.start, len(readers))
        self._unknown = np.zeros(embedding_dim, np.float32)
        self._made: _native.SharedWriter | None = None

    @property
    def _writer(self) -> _native.SharedWriter:
        if self._made is None:
            self._made = _native.SharedWriter(self._memory)
        return self._made

    # ---- for the writing process

    def clear(self, reserved: int = 0) -> None:
        """In the next version, drop all rows and reserve an index for `reserved` rows."""
        self._writer.clear(0)
        self._writer.reserve(0, reserved)

    def upsert(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Set rows: keys int32 or int64 `[n]`, values float32 `[n, dim]`."""
        self._writer.upsert(0, keys, values)

    def erase(self, keys: np.ndarray) -> None:
        """Drop rows."""
        self._writer.erase(0, keys)

    def publish(self, version: bytes) -> None:
        """Publish to readers, in one step, all changes since the last version.

        Args:
            version: name of the new version.

        Raises:
            RuntimeError: a reader's lookup, in an earlier version of the rows, has run for 10 s.
        """
        self._writer.publish(version, b"")

    def settle(self) -> None:
        """Free the rows that no reader needs; `publish` also frees these rows, before it publishes.

        Raises:
            RuntimeError: a reader's lookup has run for 10 s.
        """
        self._writer.settle()

    # ---- for all processes

    def ready(self) -> bool:
        """Return True if a version is published."""
        return self._memory.sequence > 0

    def version(self) -> bytes:
        """Return the name of the newest version, as `publish` received it.

        Raises:
            RuntimeError: no version is published.
        """
        place = self._reader.enter()
        try:
            return self._reader.blob(place)
        finally:
            self._reader.leave(place)

    def lookup(self, ids: np.ndarray) -> tuple[np.ndarray, int]:
        """Return rows, float32 `[*ids.shape, dim]`, and the number of the rows' version.

        For a key without a row, the lookup returns zeros. Each version has a greater number than
        the versions before it.

        Args:
            ids: int32 or int64 array of any shape.

        Raises:
            RuntimeError: no version is published.
        """
        place = self._reader.enter()
        try:
            rows = self._reader.lookup(place, 0, ids, None, self._unknown, "shared rows")
            return rows, self._reader.state(place)
        finally:
            self._reader.leave(place)

    def bytes_held(self) -> int:
        """Return the number of bytes of memory that the file uses."""
        return self._memory.bytes_held()
