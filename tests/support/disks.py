# SPDX-License-Identifier: Apache-2.0
"""File systems that are soon full. A test ends where mounting one is not allowed."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.missing import missing

__all__ = ["fill_up", "mount", "mounted", "mounted_ext4", "remount", "unmount"]


def mount(path: Path, mebibytes: int) -> str:
    """Mount one in memory at a directory that is made; return "", or why that is not allowed."""
    path.mkdir()
    return _failure("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(path))


def unmount(path: Path) -> None:
    """Take a file system away, also where a file of it is open."""
    subprocess.run(["umount", "-l", str(path)], check=True)


def remount(path: Path, options: str) -> None:
    """Change options of a file system, as "ro" or "size=20m"."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(path)], check=True)


def fill_up(filler: Path, left: int) -> None:
    """Leave so many bytes of the disk."""
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            file.truncate(max(0, file.tell() - left))


@contextlib.contextmanager
def mounted(path: Path, mebibytes: int) -> Iterator[Path]:
    """Mount one in memory, at a directory that is made, for as long as the context lasts."""
    with _until_the_end(path, mount(path, mebibytes)):
        yield path


@contextlib.contextmanager
def mounted_ext4(directory: Path, mebibytes: int) -> Iterator[Path]:
    """Mount one of the kind ext4, which takes O_DIRECT, for as long as the context lasts.

    It is in a file of the directory, so that a second context there has what the first one wrote.
    """
    path, image = directory / "mount", directory / "image"
    path.mkdir(exist_ok=True)
    reason = ""
    if not image.exists():
        image.write_bytes(b"")
        os.truncate(image, mebibytes << 20)
        reason = _failure("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", str(image))
    with _until_the_end(path, reason or _failure("mount", "-o", "loop", str(image), str(path))):
        yield path


def _failure(*command: str) -> str:
    """Run a command; return "", or why it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return str(error)
    return done.stderr.strip() or "failed" if done.returncode else ""


@contextlib.contextmanager
def _until_the_end(path: Path, reason: str) -> Iterator[None]:
    """Take a file system away at the end; end the test if it could not be mounted."""
    if reason:
        missing("root", f"mounting a small file system is not allowed: {reason}")
    try:
        yield
    finally:
        unmount(path)
