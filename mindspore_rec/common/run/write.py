# SPDX-License-Identifier: Apache-2.0
"""Write a checkpoint's directory with one worker, or with several workers together.

Worker 0 makes a directory under a temporary name. Each worker writes, syncs and describes its own
files in the directory. After all workers have written their files, worker 0 writes the manifest and
renames the directory, without reading the files. Even if a worker dies at any time, the directory
is complete or absent.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mindspore_rec.common.run.manifest import (
    MANIFEST,
    TEMPORARY,
    describe_files,
    new_directory,
    put_in_place,
    remove_beside,
    sync_files,
    write_manifest,
)
from mindspore_rec.common.run.share import total
from mindspore_rec.common.run.team import ALONE, Team
from mindspore_rec.common.sync import sync

__all__ = ["joined_tables", "summary", "write_checkpoint"]

_OF_A_PART = ("file", "rows", "deleted", "deleted_rows", "counters", "digest")

Described = dict[str, Any]


def write_checkpoint(
    target: Path,
    fields: Callable[[], dict[str, Any]],
    write: Callable[[Path], Described],
    team: Team = ALONE,
    add: Callable[[Path], object] = lambda directory: None,
) -> dict[str, Any]:
    """Write a checkpoint. All workers must call `write_checkpoint` at the same time.

    Args:
        target: the directory to make.
        fields: function that returns the manifest's fields except `tables` and `files`. Only worker
            0 calls `fields`.
        write: function that writes this worker's files into a directory, and returns the manifest's
            entries for the tables.
        team: the workers. Default: one worker.
        add: function that writes further files into the directory; the manifest has no entries for
            these files. Only worker 0 calls `add`, before the directory is renamed to `target`.
            Default: no function.

    Returns: The manifest's fields, but with the totals `rows` and `bytes` instead of `files` and
    `tables`.

    Raises:
        FileExistsError: `target` exists already.
        OSError: a worker cannot write a file.
        RuntimeError: a table's state differs between workers.
    """
    if team.workers == 1:
        with new_directory(target) as directory:
            manifest = write_manifest(directory, {**fields(), "tables": write(directory)})
            add(directory)
        return summary(manifest)
    beside = target.parent / team.first(lambda: _begin(target))
    try:
        parts = team.all(lambda: _write_part(beside, write, team.worker))
        return team.first(lambda: _finish(beside, target, fields(), parts, add))
    except BaseException:
        if team.worker == 0:
            remove_beside(beside)
        raise


def _begin(target: Path) -> str:
    if target.exists():
        raise FileExistsError(f"path {target} exists already; a checkpoint is never overwritten")
    return Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{target.name}.", dir=target.parent)).name


def _write_part(beside: Path, write: Callable[[Path], Described], worker: int) -> dict[str, Any]:
    """Write this worker's files, and return descriptions of the files and the worker's tables."""
    if not beside.is_dir():
        raise OSError(
            f"{beside}, which worker 0 made, is not there: the directory of checkpoints must be "
            "in a file system that all workers share"
        )
    own = beside / f"worker_{worker}"
    own.mkdir()
    tables = write(own)
    files = describe_files(own)
    sync_files(own)
    for name in files:
        os.rename(own / name, beside / name)
    own.rmdir()
    sync(beside)
    return {"files": files, "tables": tables}


def _finish(
    beside: Path,
    target: Path,
    fields: dict[str, Any],
    parts: list[dict[str, Any]],
    add: Callable[[Path], object],
) -> dict[str, Any]:
    """Write the manifest with the parts of all workers, and rename the directory."""
    files = {name: file for part in parts for name, file in part["files"].items()}
    tables = joined_tables([part["tables"] for part in parts])
    made = write_manifest(beside, {**fields, "workers": len(parts), "tables": tables}, files)
    os.chmod(beside / MANIFEST, 0o644)
    sync(beside / MANIFEST)
    add(beside)
    os.chmod(beside, 0o755)
    sync(beside)
    put_in_place(beside, target)
    return summary(made)


def joined_tables(described: list[Described]) -> Described:
    """Combine the table entries of all workers into the manifest's table entries.

    Raises:
        RuntimeError: a table does not have the same state on all workers.
    """
    names = dict.fromkeys(name for tables in described for name in tables)
    joined = {}
    for name in names:
        holders = [worker for worker, tables in enumerate(described) if name in tables]
        if len(holders) not in (1, len(described)):
            raise RuntimeError(f"table '{name}' is on workers {holders} of {len(described)} only")
        parts = [described[worker][name] for worker in holders]
        shared = {what: value for what, value in parts[0].items() if what not in _OF_A_PART}
        for worker, part in zip(holders, parts, strict=True):
            _check_same(name, shared, part, holders[0], worker)
        of_parts = [{what: part[what] for what in _OF_A_PART if what in part} for part in parts]
        joined[name] = {**shared, "parts": of_parts}
    return joined


def _check_same(name: str, shared: Described, part: Described, first: int, worker: int) -> None:
    for what, value in shared.items():
        if part[what] != value:
            raise RuntimeError(
                f"table '{name}' has {what} {value!r} on worker {first} and {part[what]!r} on "
                f"worker {worker}: all workers must be in the same state"
            )


def summary(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest without `tables` and `files`, but with the totals `rows` and `bytes`."""
    fields = {key: value for key, value in manifest.items() if key not in ("files", "tables")}
    rows = sum(total(table, "rows") for table in manifest["tables"].values())
    size = sum(file["size"] for file in manifest["files"].values())
    return {**fields, "rows": rows, "bytes": size}
