# SPDX-License-Identifier: Apache-2.0
"""Temporary directories of a server; the next server removes the directories of a killed server."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["OwnDirectory"]

_PREFIX = "mindspore_rec_serving."
_TRIES = 100


class OwnDirectory:
    """New directory in the system's temporary directory, locked until this object is closed.

    The directory stays locked as long as a forked process still runs. A new object removes the same
    user's unlocked directories, which belonged to servers that were killed.

    Attributes:
        path: path of the directory.

    Raises:
        OSError: no directory can be created and locked.

    Example:
        >>> with OwnDirectory() as path:
        ...     (path / "file").write_text("text")
        4
        >>> path.exists()
        False
    """

    def __init__(self) -> None:
        parent = Path(tempfile.gettempdir())
        for left in parent.glob(f"{_PREFIX}*"):
            _remove_if_left(left)
        for _ in range(_TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            try:
                self._lock = _locked(self.path)
            except OSError:  # another server took it for one that is left, before it was locked
                continue
            if self.path.exists():
                return
            os.close(self._lock)
        raise OSError(f"no directory in {parent} can be locked")

    def close(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.close()


def _locked(path: Path) -> int:
    """Open and lock a directory of this user, and return the descriptor.

    Raises:
        OSError: the path is missing, is no directory, belongs to another user, or is locked by
            another process.
    """
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(opened).st_uid != os.geteuid():
            raise PermissionError(f"{path} is another user's")
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(opened)
        raise
    return opened


def _remove_if_left(path: Path) -> None:
    try:
        lock = _locked(path)
    except OSError:
        return
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)
