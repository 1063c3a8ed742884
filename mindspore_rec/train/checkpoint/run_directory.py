# SPDX-License-Identifier: Apache-2.0
"""Directory of a run: its lock, the checkpoint chain for all workers, removal of checkpoints."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mindspore_rec._native import FileLock, make_directories
from mindspore_rec.common.run.chain import Entry, entries, entry_at, newest_chain
from mindspore_rec.common.run.manifest import TEMPORARY
from mindspore_rec.common.run.team import Team
from mindspore_rec.common.sync import sync

__all__ = [
    "chain_of_all",
    "lock",
    "locked",
    "open_to_write",
    "remove_after",
    "remove_old",
]


def lock(root: Path) -> FileLock:
    """Lock the run's directory for this process, and return the lock.

    Child processes made by a fork, such as workers of a data set, do not share the lock.

    Raises:
        RuntimeError: another process has the lock.
    """
    try:
        return FileLock(root / ".lock")
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        raise RuntimeError(f"another process writes checkpoints to {root}") from None


@contextmanager
def locked(root: Path, team: Team) -> Iterator[None]:
    """Lock the directory for all workers; only worker 0 acquires the lock.

    Raises:
        RuntimeError: another process has the lock.
    """
    file_lock = team.each(lambda: lock(root) if team.worker == 0 else None)
    try:
        yield
    finally:
        if file_lock is not None:
            file_lock.close()


def open_to_write(root: Path, newest: int) -> FileLock:
    """Make and lock a run's directory; remove temporary files that ended processes have left.

    Args:
        root: the directory.
        newest: step of the newest checkpoint of the run; -1 for a new run.

    Returns:
        The lock of the directory; see `lock`.

    Raises:
        OSError: the directory cannot be made.
        RuntimeError: another process has the lock.
        ValueError: the step of the newest checkpoint in the directory is not `newest`.
    """
    make_directories(root)
    file_lock = lock(root)
    try:
        if (
            newest < 0
        ):  # the process that made the directory may have died before its name was synced
            with suppress(PermissionError):  # this user may not read the parent directory
                sync(root.absolute().parent)
        _remove_left_over(root)
        checkpoints = entries(root)
        if checkpoints and checkpoints[-1].step != newest:
            raise ValueError(
                f"{root} has checkpoints of a run that is at step {checkpoints[-1].step}: call "
                "restore() first, or give an empty directory"
            )
    except BaseException:
        file_lock.close()
        raise
    return file_lock


def chain_of_all(root: Path, team: Team, step: int | None = None) -> list[Entry]:
    """On all workers, return the checkpoint chain that worker 0 finds; see `newest_chain`."""
    names = team.first(lambda: [each.path.name for each in newest_chain(root, step)])
    return team.each(lambda: [entry_at(root / name) for name in names])


def _remove(old: Iterable[Entry]) -> None:
    """Remove checkpoints, newest first, so that no delta remains without its parent."""
    for entry in sorted(old, key=lambda each: -each.step):
        # A checkpoint is renamed before its removal, so that a half-removed directory is never
        # mistaken for a checkpoint. The rename is synced to the disk before the removal. Without
        # the sync, a power loss could leave a checkpoint with its old name but without some files.
        hidden = entry.path.with_name(f"{TEMPORARY}{entry.path.name}.removed")
        os.rename(entry.path, hidden)
        sync(entry.path.parent)
        shutil.rmtree(hidden, ignore_errors=True)


def remove_after(root: Path, step: int) -> None:
    """Remove all checkpoints of steps after `step`."""
    _remove(entry for entry in entries(root) if entry.step > step)


def remove_old(root: Path, keep: int) -> None:
    """Remove all checkpoints older than the newest `keep` full checkpoints."""
    checkpoints = entries(root)
    fulls = [entry.step for entry in checkpoints if entry.kind == "full"]
    if len(fulls) <= keep:
        return
    oldest = (fulls[-keep], "full")  # a delta of the same step sorts before it
    _remove(entry for entry in checkpoints if (entry.step, entry.kind) < oldest)


def _remove_left_over(root: Path) -> None:
    """Remove the temporary directories of a process that was killed."""
    for path in root.glob(f"{TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)
