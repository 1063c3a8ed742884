# SPDX-License-Identifier: Apache-2.0
"""A file system that is soon full."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.missing import missing


def mount(path: Path, mebibytes: int) -> str:
    """Mounts one in memory at a directory that is made; "", or why that is not allowed."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip() or "failed" if done.returncode else ""


def fill_up(filler: Path, left: int) -> None:
    """Leaves so many bytes of the disk."""
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            file.truncate(max(0, file.tell() - left))


@contextlib.contextmanager
def mounted(path: Path, mebibytes: int) -> Iterator[Path]:
    """One in memory at a directory that is made; skips the test where mounting is not allowed."""
    reason = mount(path, mebibytes)
    if reason:
        missing("root", f"mounting a small file system is not allowed: {reason}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
