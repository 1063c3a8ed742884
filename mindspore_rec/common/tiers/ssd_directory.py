# SPDX-License-Identifier: Apache-2.0
"""The directory of a table's SSD tier: `<path>/<quoted table name>/rows-<generation>`.

Each of several workers has its own directory, `worker-<number>-of-<workers>/rows-<generation>`,
because a worker's rows depend on the worker's index and on the number of workers.

Each generation has one row size. When an optimizer changes the row size, the native core opens the
next generation and moves the rows to this generation.
"""

from __future__ import annotations

import errno
import re
import shutil
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from mindspore_rec._native import FileLock, SsdStore, make_directories
from mindspore_rec.common.tiers.config import CacheConfig

__all__ = ["SsdDirectory"]

MAX_NAME = 255  # bytes of a file's name on Linux
_GENERATION = re.compile(r"rows-(\d+)")
_WORKER = re.compile(r"worker-(\d+)-of-(\d+)")


class _Leftover(NamedTuple):
    """Rows of an earlier run."""

    generation: int
    path: Path
    row_bytes: int


class SsdDirectory:
    """Directory of one table on an SSD, possibly with rows of an earlier run.

    Args:
        table_name: name of the table.
        config: the table's tiers; only `ssd` and `leftover` are read.
        worker: index of this worker. Default: 0.
        workers: number of workers. Default: 1.

    Raises:
        ValueError: the directory contains rows and `leftover` is 'refuse'; or `leftover` is 'keep'
            and a different number of workers wrote the rows; or the table's name is too long.
        OSError: the directory cannot be made or read, or the rows are open in another process.

    Example:
        >>> import tempfile
        >>> from mindspore_rec.cache import SsdConfig
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     config = CacheConfig(host_rows=9, ssd=SsdConfig(directory, direct=False))
        ...     store = SsdDirectory("users/eu", config).open(row_bytes=36, generation=0)
        ...     print(store.path[len(directory):])
        ...     store.close()
        /users%2Feu/rows-0
    """

    def __init__(
        self, table_name: str, config: CacheConfig, worker: int = 0, workers: int = 1
    ) -> None:
        assert config.ssd is not None
        self._table = table_name
        self._ssd = config.ssd
        directory = Path(config.ssd.path) / _file_name(table_name)
        self.path = _of_worker(directory, worker, workers)
        make_directories(self.path)
        leftovers = _leftovers(self.path)
        self._kept: _Leftover | None = None
        # Each old directory is assigned to one worker. Only this worker removes the directory.
        others = [
            (path, count, stale)
            for path, number, count in _workers_of(directory)
            if count != workers and number % workers == worker and (stale := _leftovers(path))
        ]
        if (leftovers or others) and config.leftover == "refuse":
            where = self.path if leftovers else others[0][0]
            raise ValueError(
                f"table '{table_name}': ssd has rows of an earlier run in {where}: give "
                "leftover='keep' to go on with them, 'discard' to drop them, or another path"
            )
        if others and config.leftover == "keep":
            raise ValueError(
                f"table '{table_name}': leftover='keep' asks for the rows in {others[0][0]}, which "
                f"are the rows of {others[0][1]} worker{'s' if others[0][1] > 1 else ''}, and "
                f"there {'are' if workers > 1 else 'is'} {workers}: start as many, or give "
                "leftover='discard' and load a checkpoint"
            )
        for _, _, stale in others:
            for leftover in stale:
                _remove(leftover.path)
        if leftovers and config.leftover == "keep":
            self._kept = max(leftovers)
            leftovers.remove(self._kept)
        for leftover in leftovers:
            _remove(leftover.path)

    def open(self, row_bytes: int, generation: int) -> SsdStore:
        """Open the store of a generation, and remove all generations before `generation - 1`.

        Args:
            row_bytes: bytes of a row.
            generation: number of the generation; the first generation of a run has number 0.

        Raises:
            ValueError: the rows that are kept from an earlier run do not have `row_bytes` bytes.
            OSError: `_native.SsdStore` raises it.
        """
        target = self.path / f"rows-{generation}"
        kept = self._kept
        if kept is not None and kept.row_bytes == row_bytes:
            self._kept = None
            if kept.path != target:
                if target.exists():
                    _remove(target)
                with _lock(kept.path, "renamed"):
                    kept.path.rename(target)
        else:
            if kept is not None and generation >= kept.generation:
                raise ValueError(
                    f"table '{self._table}': leftover='keep' asks for rows of the size of "
                    f"{kept.path}, {kept.row_bytes} bytes, and the table's have {row_bytes}: give "
                    "it the dim and the optimizer of the earlier run, or leftover='discard'"
                )
            if target.exists():
                _remove(target)  # without rows
        for number, path in _generations(self.path):
            if number < generation - 1:
                _remove(path)
        return SsdStore(
            target,
            row_bytes,
            max_bytes=self._ssd.max_bytes or 0,
            direct=self._ssd.direct,
        )


def _file_name(table_name: str) -> str:
    # quote() does not change dots, but "." and ".." cannot be names of directories.
    name = quote(table_name, safe="")
    name = "%2E" + name[1:] if name.startswith(".") else name
    if len(name) > MAX_NAME:
        raise ValueError(
            f"table '{table_name}': with an SSD tier a name must have at most {MAX_NAME} "
            f"characters when it is URL-quoted, got {len(name)}"
        )
    return name


def _of_worker(directory: Path, worker: int, workers: int) -> Path:
    return directory / f"worker-{worker}-of-{workers}" if workers > 1 else directory


def _workers_of(directory: Path) -> list[tuple[Path, int, int]]:
    """Return a tuple (path, worker, number of workers) for each worker's directory of each run."""
    directories = [(directory, 0, 1)] if directory.is_dir() else []
    for each in sorted(directory.glob("worker-*-of-*")):
        match = _WORKER.fullmatch(each.name)
        if match:
            directories.append((each, int(match[1]), int(match[2])))
    return directories


def _generations(path: Path) -> list[tuple[int, Path]]:
    generations = []
    for each in path.iterdir():
        match = _GENERATION.fullmatch(each.name)
        if match and each.is_dir():
            generations.append((int(match[1]), each))
    return generations


def _leftovers(path: Path) -> list[_Leftover]:
    """Return the generations with segments. Generations without segments were never written."""
    return [
        _Leftover(number, each, _row_bytes(each))
        for number, each in _generations(path)
        if any(each.glob("segment-*.seg"))
    ]


def _row_bytes(path: Path) -> int:
    """Return the row size in the manifest; 0 if there is no manifest or no size in the manifest."""
    try:
        text = (path / "MANIFEST").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return 0
    match = re.search(r"^row_bytes (\d+)$", text, re.MULTILINE)
    return int(match[1]) if match else 0


def _remove(path: Path) -> None:
    """Remove a store that is not open in any table or process."""
    if not (path / "LOCK").exists():
        shutil.rmtree(path)
        return
    with _lock(path, "removed"):
        shutil.rmtree(path)


def _lock(path: Path, purpose: str) -> FileLock:
    """Lock the store at `path`, so that no process can open the store.

    Raise OSError if the store is open.
    """
    try:
        return FileLock(path / "LOCK")
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        raise OSError(
            errno.EAGAIN, f"cannot be {purpose}: another table or process has it open", str(path)
        ) from None
