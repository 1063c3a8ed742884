# SPDX-License-Identifier: Apache-2.0
"""Sync files and directories to disk."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync"]


def sync(path: Path) -> None:
    """Write a file's contents, or a directory's file names, to disk (fsync).

    Raises:
        OSError: the path cannot be opened or written.

    Example:
        >>> sync(Path("."))
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
