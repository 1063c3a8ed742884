# SPDX-License-Identifier: Apache-2.0
"""Which streams a training reads: one whose place its checkpoint does not save is found out.

A stream can hide in anything that hands its batches on. What cannot be seen from outside is seen
when the stream is read.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["Watch", "check_read", "reading"]

_local = threading.local()
_watches: list[Watch] = []


class Watch:
    """While it is on, a stream that the training reads must be one that was named.

    Args:
        known: the streams whose place is saved.
        pipelines: whether the training reads through MindSpore's pipelines, in their threads.
        refusal: what to say.
    """

    def __init__(self, known: list[Any], pipelines: bool, refusal: str) -> None:
        self._known = known
        self._pipelines = pipelines
        self._refusal = refusal

    def begin(self) -> None:
        """Switches it on."""
        _watches.append(self)

    def end(self) -> None:
        """Switches it off."""
        if self in _watches:
            _watches.remove(self)

    def check(self, stream: Any) -> None:
        """Refuses a stream that is read and not known."""
        if any(stream is each for each in self._known):
            return
        if getattr(_local, "reading", False) or (self._pipelines and _in_pipeline()):
            raise ValueError(self._refusal)


@contextmanager
def reading() -> Iterator[None]:
    """What is read inside, by this thread, is read for the training."""
    before = getattr(_local, "reading", False)
    _local.reading = True
    try:
        yield
    finally:
        _local.reading = before


def check_read(stream: Any) -> None:
    """To be called by a stream when it is read.

    Raises:
        ValueError: it is read for a training whose checkpoints do not have its place.

    Example:
        >>> watch = Watch([], False, "its place would be lost")
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
