# SPDX-License-Identifier: Apache-2.0
"""The graph lock, given in the order in which it was asked for."""

from __future__ import annotations

import threading
from collections import deque

from mindspore_rec.graph.lock import graph_lock

__all__ = ["Turns"]


class Turns:
    """`graph_lock`, first come first served: among many who predict, an update finds its turn.

    By itself a lock goes to whoever is quickest, and a thread that lets it go and asks again at
    once is.

    Example:
        >>> turns = Turns()
        >>> with turns, graph_lock, turns:  # whoever has the lock need not wait for a turn
        ...     print("alone")
        alone
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()
        self._inside = threading.local()

    def __enter__(self) -> None:
        # Someone with a turn may be waiting for the lock that this thread has.
        waits = not graph_lock._is_owned()  # type: ignore[attr-defined]
        if waits:
            self._wait()
        try:
            graph_lock.acquire()
        except BaseException:  # Ctrl-C
            if waits:
                self._pass_on()
            raise
        self._inside.__dict__.setdefault("turns", []).append(waits)

    def __exit__(self, *error: object) -> None:
        graph_lock.release()
        if self._inside.turns.pop():
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
                self._waiting.popleft().release()  # who holds it changes, that it is held does not
            else:
                self._held = False
