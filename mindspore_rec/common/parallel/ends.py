# SPDX-License-Identifier: Apache-2.0
"""Handle the end of a worker's program: success, an exception or the launcher's signal."""

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

# Seconds within which a program must end after an uncaught exception. Without this limit, threads
# that wait for other workers would delay the end of the program and the end of all other workers.
_GRACE = 10.0


class ProgramEnds:
    """Object that observes the end of a worker's program.

    Attributes:
        failed: True if an uncaught exception has ended the main thread.
    """

    def __init__(self) -> None:
        self.failed = False

    def install(self, at_exit: Callable[[], None]) -> None:
        """Call `at_exit` at the end of the program, and record an uncaught exception.

        The launcher's stop signal becomes SIGTERM, and a crash prints Python's stacks.
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
        # Finalizers close tables, and must run after `at_exit`, because other workers may need this
        # worker's rows until all workers have ended. Functions that are registered with atexit run
        # in reverse order, so finalizers are registered first.
        weakref.finalize(self, lambda: None)
        atexit.register(at_exit)
        if not faulthandler.is_enabled() and sys.stderr is sys.__stderr__:
            faulthandler.enable()
        on_main = threading.current_thread() is threading.main_thread()
        if on_main and signal.getsignal(STOP_SIGNAL) is signal.SIG_DFL:
            signal.signal(STOP_SIGNAL, _stop)


def _stop(_number: int, _frame: FrameType | None) -> None:
    """Raise SIGTERM in this process."""
    signal.raise_signal(signal.SIGTERM)
