# SPDX-License-Identifier: Apache-2.0
"""Interruption: Ctrl-C and SIGTERM end a training or a feature worker after the current step."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from mindspore_rec.common.stream.read_watch import signals_deferred

__all__ = ["Interruption"]


class Interruption:
    """Handler of SIGINT and SIGTERM.

    The first signal requests a stop, and a second signal raises KeyboardInterrupt.

    While the loop waits for data (`waiting` is True), there is no step to finish. During the wait,
    the first signal raises KeyboardInterrupt at once, even if a source has no data for a long time.
    A MindSpore data pipeline still delays the stop, because Python handles a signal only when the
    pipeline returns the next batch. A stream raises KeyboardInterrupt only at its next check
    (`without_signals`), because the stream shares locks with its threads.

    Outside the main thread, where Python delivers no signals, the context changes nothing.

    MindSpore 2.10 installs its own SIGINT handler with every graph that it compiles or runs, and
    leaves the handler installed. MindSpore's SIGINT handler only sends SIGTERM to the process; the
    SIGTERM handler stays as it was. Because of MindSpore's handler, this class treats a SIGTERM
    during a step like SIGINT, and `restore` reinstalls the SIGINT handler after the step.

    Args:
        work: name of the unfinished work, for the message that is printed after the first signal
            (default "this step").

    Attributes:
        requested: whether a signal has arrived.
        waiting: True while the loop waits for the next batch; the loop sets this attribute.

    Example:
        >>> with Interruption() as interruption:
        ...     signal.raise_signal(signal.SIGINT)
        ...     interruption.requested
        True
    """

    def __init__(self, work: str = "this step") -> None:
        self._work = work
        self.requested = False
        self.waiting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def restore(self) -> None:
        """Reinstall the SIGINT handler.

        Call this method after each call of a MindSpore cell.
        """
        if self._before:
            signal.signal(signal.SIGINT, self._handle)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            # None means a handler that was not set from Python
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again = self.requested
        self.requested = True
        if again or (self.waiting and not signals_deferred()):
            raise KeyboardInterrupt
        # Use os.write, because if the signal has interrupted a print(), another print() would raise
        # an error.
        with contextlib.suppress(OSError):
            os.write(2, f"\nInterrupted: finishing {self._work}; once more to abort\n".encode())
