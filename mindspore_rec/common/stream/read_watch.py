# SPDX-License-Identifier: Apache-2.0
"""ReadWatch: detect a stream that a training reads but that no checkpoint saves.

A data object that only passes on a stream's batches can hide the stream: the training does not know
the stream, and checkpoints do not save the stream's position. `ReadWatch` detects a hidden stream
when the training reads from the stream.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = [
    "ReadGivenUpError",
    "ReadLaterError",
    "ReadWatch",
    "check_read",
    "reading",
    "signals_deferred",
    "still_waiting",
    "waiting",
    "without_signals",
]

_local = threading.local()
_watches: list[ReadWatch] = []


class ReadGivenUpError(Exception):
    """Error that ends a stream's wait for messages because the training ends."""


class ReadLaterError(Exception):
    """Error that interrupts a wait for messages; the reader can request the same batch later.

    The stream keeps the rows of the unfinished batch. Raise ReadLaterError only if the `reads_on`
    attribute of the source is True.
    """


class ReadWatch:
    """Object that raises an error if the training reads a stream whose position is not saved.

    Args:
        known: streams whose position is saved.
        pipelines: True if the training reads in the threads of MindSpore's pipelines.
        refusal: text of the ValueError that `check_read` raises.
    """

    def __init__(self, known: list[Any], pipelines: bool, refusal: str) -> None:
        self._known = known
        self._pipelines = pipelines
        self._refusal = refusal

    def begin(self) -> None:
        """Switch the watch on."""
        _watches.append(self)

    def end(self) -> None:
        """Switch the watch off."""
        if self in _watches:
            _watches.remove(self)

    def check(self, stream: Any) -> None:
        """Raise ValueError if the training reads `stream` without saving the stream's position."""
        if any(stream is each for each in self._known):
            return
        if getattr(_local, "reading", False) or (self._pipelines and _in_pipeline()):
            raise ValueError(self._refusal)


@contextmanager
def reading(on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Return a context in which all reads of this thread count as reads by the training.

    Args:
        on_wait: function that a stream calls several times per second while the stream waits for
            messages. `on_wait` may raise `ReadGivenUpError`, `ReadLaterError` or KeyboardInterrupt.
            Default: None.
    """
    before = getattr(_local, "reading", False)
    _local.reading = True
    try:
        with waiting(on_wait):
            yield
    finally:
        _local.reading = before


@contextmanager
def waiting(on_wait: Callable[[], None] | None) -> Iterator[None]:
    """Inside the context, let a stream call `on_wait` while the stream waits for messages.

    Args:
        on_wait: as for `reading`.
    """
    before = getattr(_local, "on_wait", None)
    _local.on_wait = on_wait
    try:
        yield
    finally:
        _local.on_wait = before


def still_waiting() -> None:
    """Call this thread's `on_wait`, if any.

    A stream calls this function while the stream waits for messages.

    Raises:
        ReadGivenUpError: the reader no longer needs the batch. After a `ReadGivenUpError`, the
            stream returns to the end of its last batch.
        ReadLaterError: the reader has other work to do first, and requests the batch again later.
            After a `ReadLaterError`, the stream keeps its position.
    """
    on_wait = getattr(_local, "on_wait", None)
    if on_wait is not None:
        on_wait()


@contextmanager
def without_signals() -> Iterator[None]:
    """Defer the KeyboardInterrupt of a signal that arrives while the training waits for data.

    Use `without_signals` for code that takes locks. A KeyboardInterrupt between acquiring a lock
    and the beginning of the `with` block would leave the lock locked, and other threads would wait
    forever. Code in the context must call `still_waiting` while the code waits. `still_waiting`
    raises the exception of a received signal.
    """
    before = signals_deferred()
    _local.deferred = True
    try:
        yield
    finally:
        _local.deferred = before


def signals_deferred() -> bool:
    """Return True if this thread is inside `without_signals`."""
    return bool(getattr(_local, "deferred", False))


def check_read(stream: Any) -> None:
    """Raise ValueError if a training reads this stream and cannot save the stream's position.

    A stream calls `check_read` before it reads a batch.

    Raises:
        ValueError: the checkpoints of the training do not save the stream's position.

    Example:
        >>> watch = ReadWatch([], False, "its place would be lost")
        >>> watch.begin()
        >>> check_read("a stream")  # read by someone else
        >>> try:
        ...     with reading():
        ...         check_read("a stream")
        ... except ValueError as error:
        ...     error
        ValueError('its place would be lost')
        >>> watch.end()
    """
    for watch in list(_watches):
        watch.check(stream)


def _in_pipeline() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("mindspore.dataset."):
            return True
        frame = frame.f_back
    return False
