# SPDX-License-Identifier: Apache-2.0
"""A wall clock of a process that can be moved while it runs."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

__all__ = ["Clock"]

_SOURCE = Path(__file__).with_name("clock.c")


class Clock:
    """The clock of processes that are started with its environment.

    Args:
        path: file that is made, which says by how many seconds the clock is moved.
        library: `clock.c`, compiled by `compiled`.
    """

    def __init__(self, path: Path, library: Path) -> None:
        self._path, self._library = path, library
        path.write_bytes(struct.pack("q", 0))

    @property
    def environment(self) -> dict[str, str]:
        """Variables of processes that have this clock."""
        return {"LD_PRELOAD": str(self._library), "HISTORY_CLOCK": str(self._path)}

    def move(self, seconds: int) -> None:
        """Set by how many seconds the clock differs from the machine's."""
        with open(self._path, "r+b", buffering=0) as file:  # in one piece, as it is mapped
            os.pwrite(file.fileno(), struct.pack("q", seconds), 0)


def compiled(directory: Path) -> Path | None:
    """Compile `clock.c` into a directory; return the library, or None without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    library = directory / "clock.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library
