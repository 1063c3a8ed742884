# SPDX-License-Identifier: Apache-2.0
"""Ends of a worker's program: success, an exception, a signal of the launcher."""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType, TracebackType

from mindspore_rec.common.parallel.launcher import STOP_SIGNAL

__all__ = ["ProgramEnds"]

# Seconds that a program may take to end after an exception that nothing caught. Threads that wait
# for other workers would keep it for much longer, and the other workers with it.
_GRACE = 10.0


class ProgramEnds:
    """Watches how the program of a worker ends.

    Attributes:
        failed: whether an exception that nothing caught has ended the main thread.
    """

    def __init__(self) -> None:
        self.failed = False

    def install(self, at_exit: Callable[[], None]) -> None:
        """Call `at_exit` at the end of the program, and note an exception that ends it.

        The launcher's signal to stop becomes SIGTERM, and a fault prints stacks of Python.
        """
        before = sys.excepthook

        def hook(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            self.failed = True
            before(kind, error, trace)
            timer = threading.Timer(_GRACE, os._exit, (1,))
            timer.daemon = True
            timer.start()

        sys.excepthook = hook
        # Finalizers close tables, and run as their first one was registered with atexit: only if
        # that was before are this worker's rows there until all workers have ended.
        weakref.finalize(self, lambda: None)
        atexit.register(at_exit)
        if not faulthandler.is_enabled() and sys.stderr is sys.__stderr__:
            faulthandler.enable()
        on_main = threading.current_thread() is threading.main_thread()
        if on_main and signal.getsignal(STOP_SIGNAL) is signal.SIG_DFL:
            signal.signal(STOP_SIGNAL, _stop)


def _stop(_number: int, _frame: FrameType | None) -> None:
    """Do as on SIGTERM."""
    signal.raise_signal(signal.SIGTERM)
