# SPDX-License-Identifier: Apache-2.0
"""Worker: a background thread with low priority."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

__all__ = ["Worker"]


class Worker:
    """Background thread that runs one function at a time, with lower priority than training.

    Args:
        name: name of the thread.

    Example:
        >>> worker = Worker("doc")
        >>> worker.begin(lambda: 1 / 0)
        >>> worker.wait()
        Traceback (most recent call last):
        ZeroDivisionError: division by zero
        >>> worker.close()
    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=_yield_to_training)
        self._future: Future[Any] | None = None

    @property
    def busy(self) -> bool:
        """True if a function is running."""
        return self._future is not None and not self._future.done()

    def begin(self, work: Callable[[], Any]) -> None:
        """Start a function; the worker must be idle."""
        self._future = self._pool.submit(work)

    def wait(self) -> Any:
        """Wait until the function has ended; return its result, or raise its error once.

        Returns: Result of the function; None if no function has run or its result was returned
            before.
        """
        future, self._future = self._future, None
        return None if future is None else future.result()

    def close(self) -> None:
        """Wait for the function to end, then end the thread."""
        self._pool.shutdown(wait=True)


def _yield_to_training() -> None:
    if sys.platform == "linux":  # on Linux, each thread has its own priority
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 5)
