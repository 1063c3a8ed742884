# SPDX-License-Identifier: Apache-2.0
"""FairLock: threads acquire the graph lock in their order of arrival."""

from __future__ import annotations

import threading
from collections import deque

from mindspore_rec.train.graph.lock import graph_lock

__all__ = ["FairLock"]


class FairLock:
    """Lock that threads acquire in order of arrival, so that predictions cannot block updates.

    A plain lock often goes to the thread that has just released the lock. A thread that already
    holds `graph_lock` acquires this lock without waiting.

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
        """Return the lock itself; MindSpore can run only one prediction at a time."""
        return self

    def writing(self) -> FairLock:
        """Return the lock itself."""
        return self

    def __enter__(self) -> None:
        # A thread that already holds `graph_lock` does not enter the queue, because the first
        # thread in the queue may be waiting for `graph_lock`.
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
                self._waiting.popleft().release()  # the next thread now holds the lock
            else:
                self._held = False
