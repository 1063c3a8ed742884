# SPDX-License-Identifier: Apache-2.0
"""Lock of a run's directory, and removal of old checkpoints."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from mindspore_rec._native import FileLock
from mindspore_rec.checkpoint.chain import Entry, entries
from mindspore_rec.checkpoint.manifest import TEMPORARY

__all__ = ["lock", "remove", "remove_left_over", "remove_old"]


def lock(root: Path) -> FileLock:
    """Return a lock that makes this process the only writer until it is closed.

    Child processes forked meanwhile, such as a data set's workers, do not share the lock.

    Raises:
        RuntimeError: another process has the lock.
    """
    try:
        return FileLock(root / ".lock")
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        raise RuntimeError(f"another process writes checkpoints to {root}") from None


def remove(old: Iterable[Entry]) -> None:
    """Remove checkpoints, the newest first, so that no delta remains without its parent."""
    for entry in sorted(old, key=lambda each: -each.step):
        # Renamed first, so that a half removed directory is never taken for a checkpoint.
        hidden = entry.path.with_name(f"{TEMPORARY}{entry.path.name}.removed")
        os.rename(entry.path, hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def remove_old(root: Path, keep: int) -> None:
    """Remove all checkpoints older than the newest `keep` full ones."""
    found = entries(root)
    fulls = [entry.step for entry in found if entry.kind == "full"]
    if len(fulls) <= keep:
        return
    oldest = (fulls[-keep], "full")  # a delta of the same step comes before it
    remove(entry for entry in found if (entry.step, entry.kind) < oldest)


def remove_left_over(root: Path) -> None:
    """Remove the temporary directories of a process that was killed."""
    for path in root.glob(f"{TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)
