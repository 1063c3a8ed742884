# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and SIGTERM in training: the step in hand is finished, a second one ends at once."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interruption"]


class Interruption:
    """A context in which the first SIGINT or SIGTERM asks for a stop, and the second raises.

    While the loop waits for data (`waiting` is True) there is no step to finish, and the first one
    too raises KeyboardInterrupt, so that a source that is silent does not hold it up (a MindSpore
    data pipeline does: inside it Python hears no signal before the next batch). Outside the
    main thread, where Python delivers no signals, nothing is changed.

    MindSpore 2.10 puts a SIGINT handler of its own in place with every graph it compiles or runs,
    and leaves it there; that handler sends the process SIGTERM. So SIGTERM, which nobody replaces,
    stands for SIGINT during a step, and `restore` takes SIGINT back after it.

    Attributes:
        requested: whether a signal has come.
        waiting: set by the loop around its wait for the next batch.

    Example:
        >>> with Interruption() as interruption:
        ...     signal.raise_signal(signal.SIGINT)
        ...     interruption.requested
        True
    """

    def __init__(self) -> None:
        self.requested = False
        self.waiting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def restore(self) -> None:
        """Takes SIGINT back; to be called after a call of a cell."""
        if self._before:
            signal.signal(signal.SIGINT, self._handle)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            # None stands for a handler that was not set from Python
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again = self.requested
        self.requested = True
        if again or self.waiting:
            raise KeyboardInterrupt
        print("\nInterrupted: finishing this step; once more to abort", file=sys.stderr, flush=True)
