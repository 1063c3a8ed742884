# SPDX-License-Identifier: Apache-2.0
"""A readers-writer lock: many threads read at the same time, or one thread writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["SharedLock"]


class SharedLock:
    """Lock of many readers or one writer. New readers wait until a waiting writer has finished.

    Example:
        >>> lock = SharedLock()
        >>> with lock.reading(), lock.reading():
        ...     print("two readers")
        two readers
        >>> with lock.writing():
        ...     print("alone")
        alone
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._readers = 0
        self._writers = 0  # which have it or wait for it
        self._writing = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the lock as a reader, possibly at the same time as other readers."""
        with self._changed:
            self._changed.wait_for(lambda: not self._writers)
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                if self._readers == 0 and self._writers:
                    self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock alone."""
        with self._changed:
            self._writers += 1
            try:
                self._changed.wait_for(lambda: not (self._readers or self._writing))
            except BaseException:  # Ctrl-C
                self._writers -= 1
                self._changed.notify_all()
                raise
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._writers -= 1
                self._changed.notify_all()
