# SPDX-License-Identifier: Apache-2.0
"""Work in several processes with one progress bar; all processes stop when one fails."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

from tqdm import tqdm

__all__ = ["Work", "run_all"]

_POLL_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1  # of Linux's prctl


class Work(Protocol):
    """One part of a job. The part may run in another process."""

    @property
    def size(self) -> int:
        """Bytes to read."""
        ...

    def is_done(self) -> bool:
        """True if an earlier run has already finished this part."""
        ...

    def run(self, on_bytes: Callable[[int], object]) -> None:
        """Do the work. Call `on_bytes` with the number of bytes read since the last call."""
        ...


class _StoppedError(Exception):
    """Another process failed, or the user stopped the work."""


def run_all(works: Sequence[Work], workers: int | None = None) -> None:
    """Run all unfinished parts of the work.

    Args:
        works: works to do.
        workers: number of processes, at least 1; with 1, this process does the work. Default: one
            process per core that this process may use.

    Raises:
        ValueError: ``workers`` is below 1.
        RuntimeError: a process was killed, perhaps by the system for lack of memory.
        Exception: the exception of the first part that failed; all other parts are stopped.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    left = [work for work in works if not work.is_done()]
    count = min(len(left), workers or len(os.sched_getaffinity(0)))
    total = sum(work.size for work in works)
    done = total - sum(work.size for work in left)
    with tqdm(total=total, initial=done, unit="B", unit_scale=True, desc="read") as bar:
        if count > 1:
            _run_in_processes(left, count, bar)
        else:
            for work in left:
                work.run(bar.update)


def _run_in_processes(works: Sequence[Work], count: int, bar: Any) -> None:
    # not fork, because MindSpore and Arrow have threads
    context = multiprocessing.get_context("spawn")
    read, stop = context.Value("q", 0), context.Event()
    with ProcessPoolExecutor(count, context, _start, (os.getpid(), read, stop)) as pool:
        try:
            waiting: set[Future[None]] = {pool.submit(_run, work) for work in works}
            while waiting:
                finished, waiting = wait(waiting, _POLL_SECONDS, FIRST_EXCEPTION)
                if news := read.value - (bar.n - bar.initial):
                    bar.update(news)
                for each in finished:
                    each.result()
        except BrokenProcessPool as error:
            raise RuntimeError("a process of the conversion was killed") from error
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


_shared: Any = None


def _start(parent: int, read: Any, stop: Any) -> None:
    """Set up a new process, which ends when its parent ends, even if the parent is killed."""
    global _shared
    _shared = read, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    import pyarrow as pa

    pa.set_cpu_count(1)  # every core has a process


def _run(work: Work) -> None:
    read, stop = _shared

    def on_bytes(count: int) -> None:
        with read.get_lock():
            read.value += count
        if stop.is_set():
            raise _StoppedError

    work.run(on_bytes)
