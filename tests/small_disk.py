# SPDX-License-Identifier: Apache-2.0
"""A file system that is soon full."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.missing import missing


@contextlib.contextmanager
def mounted(path: Path, mebibytes: int) -> Iterator[Path]:
    """One in memory at a directory that is made; skips the test where mounting is not allowed."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(path)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        missing("root", f"mounting a small file system is not allowed: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
