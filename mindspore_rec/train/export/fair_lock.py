# SPDX-License-Identifier: Apache-2.0
"""The graph lock, first come first served."""

from __future__ import annotations

import threading
from collections import deque

from mindspore_rec.train.graph.lock import graph_lock

__all__ = ["FairLock"]


class FairLock:
    """Lock over `graph_lock` in order of arrival, so that an update gets it among predictions.

    A plain lock goes to the quickest thread: one that releases it and asks again at once.
    The thread that has `graph_lock` already takes it again without waiting.

    Example:
        >>> lock = FairLock()
        >>> with lock, graph_lock, lock:
        ...     print("alone")
        alone
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()
        self._inside = threading.local()

    def reading(self) -> FairLock:
        """Return the lock itself: MindSpore answers one at a time."""
        return self

    def writing(self) -> FairLock:
        """Return the lock itself."""
        return self

    def __enter__(self) -> None:
        # The first in the queue may be waiting for the lock that this thread has.
        waits = not graph_lock._is_owned()  # type: ignore[attr-defined]
        if waits:
            self._wait()
        try:
            graph_lock.acquire()
        except BaseException:  # Ctrl-C
            if waits:
                self._pass_on()
            raise
        self._inside.__dict__.setdefault("waited", []).append(waits)

    def __exit__(self, *error: object) -> None:
        graph_lock.release()
        if self._inside.waited.pop():
            self._pass_on()

    def _wait(self) -> None:
        with self._lock:
            if not self._held:
                self._held = True
                return
            gate = threading.Lock()
            gate.acquire()
            self._waiting.append(gate)
        gate.acquire()

    def _pass_on(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()  # it stays held, by another thread
            else:
                self._held = False
