# SPDX-License-Identifier: Apache-2.0
"""Work beside the training."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

__all__ = ["Worker"]


class Worker:
    """A thread that does one thing at a time, and yields to the training.

    Args:
        name: of the thread.

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
        """Whether it is at work."""
        return self._future is not None and not self._future.done()

    def begin(self, work: Callable[[], Any]) -> None:
        """Starts the work; it must be idle."""
        self._future = self._pool.submit(work)

    def wait(self) -> None:
        """Until it is idle; raises what the work raised, once."""
        future, self._future = self._future, None
        if future is not None:
            future.result()

    def close(self) -> None:
        """Ends the thread, after its work."""
        self._pool.shutdown(wait=True)


def _yield_to_training() -> None:
    if sys.platform == "linux":  # where a thread has a priority of its own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 5)
