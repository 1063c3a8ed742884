# SPDX-License-Identifier: Apache-2.0
"""Measure for a few seconds how fast an SSD tier could read from a folder's disk."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from mindspore_rec.command.doctor.line import BROKEN, MISSING, OK, SLOW, Asked, Line

__all__ = ["disk"]

_PIECE = 1 << 20  # bytes of a sequential read or write
_PAGE = 4096  # bytes of a random read
_MOST_PIECES = 256
_WRITE_SECONDS, _RANDOM_SECONDS, _SEQUENTIAL_SECONDS = 1.5, 2.0, 1.0
_IN_FLIGHT, _STREAMS = 32, 4  # threads that read at random, and in sequence
# Hard disks do about 200 random reads per second, SATA SSDs 50,000, and NVMe SSDs more.
_FEW_READS = 20_000
_ELSEWHERE = "Name a folder on another disk by --directory, such as the one for the SSD tier."


def disk(asked: Asked) -> Line:
    """Measure a folder's disk with a nameless file of up to 256 MiB."""
    folder = Path(asked.directory).absolute()
    if not folder.is_dir():
        return Line(MISSING, f"{folder} is no folder, so no disk was measured", _ELSEWHERE)
    free = shutil.disk_usage(folder).free
    pieces = min(_MOST_PIECES, free // 10 // _PIECE)
    if pieces == 0:
        return Line(MISSING, f"{folder} has no room for a file to read", _ELSEWHERE)
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            return _measured(file.fileno(), pieces, folder, free)
    except OSError as error:
        why = error.strerror or str(error)
        state = BROKEN if error.errno == errno.EIO else MISSING
        return Line(state, f"no file can be written and read in {folder} ({why})", _ELSEWHERE)


def _measured(fd: int, pieces: int, folder: Path, free: int) -> Line:
    written, megabytes = _write(fd, pieces)
    is_direct = _bypass_page_cache(fd)
    size = written * _PIECE
    draw = [random.Random(thread) for thread in range(_IN_FLIGHT)]
    reads = _reads_per_second(
        fd, _PAGE, _IN_FLIGHT, _RANDOM_SECONDS, lambda k, _: draw[k].randrange(size // _PAGE)
    )
    places = [written * thread // _STREAMS for thread in range(_STREAMS)]
    stream = _reads_per_second(
        fd, _PIECE, _STREAMS, _SEQUENTIAL_SECONDS, lambda k, count: (places[k] + count) % written
    )
    figures = {
        "directory": str(folder),
        "free": free,
        "direct": is_direct,
        "random_reads_per_second": round(reads),
        "read_megabytes_per_second": round(stream * _PIECE / 1e6),
        "write_megabytes_per_second": round(megabytes),
    }
    meaning = (
        f"{folder}: {reads:,.0f} random reads of 4 KiB per second, {stream * _PIECE / 1e6:,.0f} "
        f"MB/s in sequence, {free / 1e9:,.0f} GB free"
    )
    if not is_direct:
        return Line(
            SLOW,
            f"{meaning}, all through the page cache, since the file system has no O_DIRECT: the "
            "figures may be the memory's",
            "Put an SSD tier on ext4 or XFS, or set SsdConfig(direct=False).",
            figures,
        )
    if reads < _FEW_READS:
        return Line(
            SLOW,
            f"{meaning}, so a step whose rows are on this disk waits long",
            "Put an SSD tier on a local SSD, and name its folder by --directory.",
            figures,
        )
    return Line(OK, meaning, "", figures)


def _write(fd: int, pieces: int) -> tuple[int, float]:
    """Write at most `pieces` pieces in a limited time; return the number written, and the MB/s."""
    data = os.urandom(_PIECE)  # no disk compresses random bytes
    start = time.monotonic()
    written = 0
    while written < pieces and (not written or time.monotonic() - start < _WRITE_SECONDS):
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        written += 1
    os.fsync(fd)
    return written, written * _PIECE / 1e6 / (time.monotonic() - start)


def _bypass_page_cache(fd: int) -> bool:
    """Let reads of a file bypass the page cache; return False if the file system cannot do so."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
        os.preadv(fd, [mmap.mmap(-1, _PAGE)], 0)
        return True
    except OSError:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_DIRECT)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return False


def _reads_per_second(
    fd: int, size: int, threads: int, seconds: float, place: Callable[[int, int], int]
) -> float:
    """Read pieces of a file on several threads; return the number of reads per second.

    Each thread reads at least one piece, even if a busy machine starts the thread late.

    Args:
        fd: file descriptor of the file.
        size: bytes per piece.
        threads: number of threads.
        seconds: duration of the reads.
        place: function that takes a thread's index and the thread's number of earlier reads, and
            returns the index of the piece to read next.
    """
    counts = [0] * threads
    errors: list[OSError] = []
    start = time.monotonic()

    def read(thread: int) -> None:
        buffer = mmap.mmap(-1, size)  # O_DIRECT needs aligned memory
        try:
            while not counts[thread] or time.monotonic() - start < seconds:
                os.preadv(fd, [buffer], place(thread, counts[thread]) * size)
                counts[thread] += 1
        except OSError as error:
            errors.append(error)

    running = [threading.Thread(target=read, args=(k,), daemon=True) for k in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    if errors:
        raise errors[0]
    return sum(counts) / (time.monotonic() - start)
