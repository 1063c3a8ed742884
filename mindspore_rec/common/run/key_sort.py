# SPDX-License-Identifier: Apache-2.0
"""KeySort: sort rows by key in bounded memory, through files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

__all__ = ["KeySort"]

_PART_BYTES = 256 << 20


class KeySort:
    """External sort of rows by ascending key.

    If the rows do not fit into one part, they are written to files, one file per range of keys. The
    files are sorted one by one. The ranges are chosen from the first rows added.

    Args:
        directory: directory for the sort's temporary files. `KeySort` makes the directory when it
            needs files, and `close` removes the directory.
        dtype: structured dtype of a row, with a field `key`.
        rows: approximate number of rows that will be added.
        part_bytes: bytes of rows that are sorted in memory at a time. Default: 256 MiB.

    Example:
        >>> import tempfile
        >>> kind = np.dtype([("key", "<i8")])
        >>> sort = KeySort(Path(tempfile.mkdtemp()) / "sort", kind, 4, part_bytes=16)
        >>> for keys in ([5, 1], [3, -2]):
        ...     sort.add(np.array([(key,) for key in keys], kind))
        >>> [int(row["key"]) for part in sort.sorted_parts() for row in part]
        [-2, 1, 3, 5]
        >>> sort.close()
    """

    def __init__(
        self, directory: Path, dtype: np.dtype, rows: int, part_bytes: int = _PART_BYTES
    ) -> None:
        self._directory = directory
        self._dtype = dtype
        self._parts = max(1, -(-rows * dtype.itemsize // part_bytes))
        self._bounds: np.ndarray | None = None
        self._held: list[np.ndarray] = []

    def add(self, rows: np.ndarray) -> None:
        """Add the rows of an array. The caller may change the array afterwards.

        Raises:
            OSError: a file cannot be written.
        """
        if len(rows) == 0:
            return
        if self._parts == 1:
            self._held.append(rows.copy())
            return
        if self._bounds is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            at = np.linspace(0, len(rows) - 1, self._parts + 1).astype(np.int64)[1:-1]
            self._bounds = np.sort(rows["key"])[at]
        part = np.searchsorted(self._bounds, rows["key"], side="right")
        order = np.argsort(part, kind="stable")
        cuts = np.searchsorted(part[order], np.arange(self._parts + 1))
        for number in range(self._parts):
            mine = rows[order[cuts[number] : cuts[number + 1]]]
            if len(mine):
                with open(self._file(number), "ab") as file:
                    file.write(mine.tobytes())

    def sorted_parts(self) -> Iterator[np.ndarray]:
        """Yield all rows in order, a part at a time. The yielded arrays are never changed later."""
        for number in range(self._parts):
            if self._parts == 1:
                rows = np.concatenate(self._held) if self._held else np.empty(0, self._dtype)
                self._held = []
            elif self._file(number).is_file():
                rows = np.fromfile(self._file(number), self._dtype)
                self._file(number).unlink()
            else:
                continue
            yield rows[np.argsort(rows["key"], kind="stable")]

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def _file(self, number: int) -> Path:
        return self._directory / f"part_{number}"
