# SPDX-License-Identifier: Apache-2.0
"""graph_mode: a context that sets MindSpore's graph mode."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import mindspore as ms

__all__ = ["graph_mode"]

_lock = threading.Lock()
_inside = 0
_mode_before = ms.GRAPH_MODE


@contextmanager
def graph_mode() -> Iterator[None]:
    """Inside the context, set MindSpore's graph mode; afterwards, restore the previous mode.

    The mode applies to the whole process. If several threads use this context at the same time, the
    previous mode is restored when the last thread leaves the context.

    Example:
        >>> ms.set_context(mode=ms.PYNATIVE_MODE)
        >>> with graph_mode():
        ...     ms.get_context("mode") == ms.GRAPH_MODE
        True
        >>> ms.get_context("mode") == ms.PYNATIVE_MODE
        True
        >>> ms.set_context(mode=ms.GRAPH_MODE)
    """
    global _inside, _mode_before
    with _lock:
        if not _inside:
            _mode_before = ms.get_context("mode")
            if _mode_before != ms.GRAPH_MODE:
                ms.set_context(mode=ms.GRAPH_MODE)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _mode_before != ms.GRAPH_MODE:
                ms.set_context(mode=_mode_before)
