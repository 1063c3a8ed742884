# SPDX-License-Identifier: Apache-2.0
"""Changes to the directory of a run besides its growth: who may write, and what goes."""

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
    """Makes this process the only one that writes there, until the lock is closed.

    A child that is forked meanwhile, as a data set's workers are, has no part in it.

    Raises:
        RuntimeError: another process does.
    """
    try:
        return FileLock(root / ".lock")
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        raise RuntimeError(f"another process writes checkpoints to {root}") from None


def remove(old: Iterable[Entry]) -> None:
    """Removes checkpoints, the newest first, so that no delta is left whose parent is gone."""
    for entry in sorted(old, key=lambda each: -each.step):
        # By one step out of sight: what is half removed must not be taken for a checkpoint.
        hidden = entry.path.with_name(f"{TEMPORARY}{entry.path.name}.removed")
        os.rename(entry.path, hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def remove_old(root: Path, keep: int) -> None:
    """Removes all from before the newest `keep` full checkpoints."""
    found = entries(root)
    fulls = [entry.step for entry in found if entry.kind == "full"]
    if len(fulls) <= keep:
        return
    oldest = (fulls[-keep], "full")  # a delta of that step comes before it
    remove(entry for entry in found if (entry.step, entry.kind) < oldest)


def remove_left_over(root: Path) -> None:
    """Removes what a process left that was killed."""
    for path in root.glob(f"{TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)
