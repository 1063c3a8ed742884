# SPDX-License-Identifier: Apache-2.0
"""Changes to the directory of a run besides its growth: who may write, and what goes."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from mindspore_rec.checkpoint.chain import Entry, entries
from mindspore_rec.checkpoint.manifest import TEMPORARY

__all__ = ["lock", "remove", "remove_left_over", "remove_old"]


def lock(root: Path) -> TextIO:
    """Makes this process the only one that writes there, until the file is closed.

    Raises:
        RuntimeError: another process does.
    """
    file = open(root / ".lock", "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise RuntimeError(f"another process writes checkpoints to {root}") from None
    return file


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
