# SPDX-License-Identifier: Apache-2.0
"""Files that prometheus_client maps; all processes of one server keep their counts in the files.

A process that writes to a mapped page of a full disk is killed by SIGBUS, so each process reserves
the space of its files before it begins to count. If the disk lacks space for the files, the process
raises OSError. A write to reserved space cannot fail. The reserved space suffices for about a
hundred models.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path

__all__ = ["give_back", "reserve"]

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_BYTES = {"counter": 1 << 16, "histogram": 1 << 18, "gauge_livesum": 1 << 16}
"""Bytes for the series of about a hundred models, by prometheus_client's names of the files."""


def reserve() -> None:
    """Reserve the space of this process's files, if PROMETHEUS_MULTIPROC_DIR is set.

    Raises:
        OSError: the disk is full.
    """
    directory = os.environ.get(_VARIABLE)
    if directory is None:
        return
    for name, size in _BYTES.items():
        with (Path(directory) / f"{name}_{os.getpid()}.db").open("ab") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                file.truncate(0)
                words = f"no room to count in: {error.strerror}"
                raise OSError(error.errno, words, directory) from None


def give_back(pid: int) -> None:
    """Free the unused file space of a process that has ended; the process's counts stay."""
    from prometheus_client.multiprocess import mark_process_dead

    directory = os.environ.get(_VARIABLE)
    if directory is None:
        return
    with suppress(OSError):
        mark_process_dead(pid)  # type: ignore[no-untyped-call]
    for name in _BYTES:
        with (
            suppress(OSError, struct.error),
            (Path(directory) / f"{name}_{pid}.db").open("r+b") as file,
        ):
            (used,) = struct.unpack("i", file.read(4))
            file.truncate(max(used, 8))
