# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in training: the step in hand is finished, a second one ends at once."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interruption"]


class Interruption:
    """A context in which the first SIGINT asks for a stop, and the second raises KeyboardInterrupt.

    While the loop waits for data (`waiting` is True) there is no step to finish, and the first
    SIGINT too raises, so that a source that is silent does not hold it up. Outside the main thread,
    where Python delivers no signals, nothing is changed.

    Attributes:
        requested: whether SIGINT has come.
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
        self._before: Any = None

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.getsignal(signal.SIGINT)
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again = self.requested
        self.requested = True
        if again or self.waiting:
            raise KeyboardInterrupt
        print("\nInterrupted: finishing this step; once more to abort", file=sys.stderr, flush=True)
