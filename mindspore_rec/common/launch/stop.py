# SPDX-License-Identifier: Apache-2.0
"""Stop a job early, because the launcher got a signal, or nobody reads the job's output."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from mindspore_rec.common.parallel.launcher import STOP_SIGNAL

__all__ = ["Stop"]

# `_STOPPING`: seconds in which workers must stop if nobody reads their output. `_ENDING`: seconds
# in which mpirun must end its workers.
_STOPPING = 20.0
_ENDING = 5.0


def _processes_of_session(session: int) -> list[int]:
    """Return the ids of the processes of a session on this host."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The process name, which is in parentheses, may contain spaces and parentheses.
            if int(stat.read_text().rpartition(")")[2].split()[3]) == session:
                members.append(int(stat.parent.name))
    return members


class Stop:
    """Stop mpirun and its workers: first by a request, then through mpirun, then by SIGKILL.

    The first Ctrl-C or SIGTERM asks the workers to stop, without a time limit. The second signal
    makes mpirun end the workers. If mpirun needs more than 5 s to end the workers, all processes
    are killed. The workers are also asked to stop if nobody reads the output any more. If workers
    still run after 20 s, mpirun ends these workers.

    Attributes:
        asked: number of signals so far.
        lost: first error in writing the output; None if there was no error.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.lost: OSError | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()  # a signal may come while this thread holds it

    @property
    def requested(self) -> bool:
        """True if the job was asked to stop early."""
        return self.asked > 0 or self.lost is not None

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Set the mpirun process, which leads a session; a stop of the job ends the session."""
        self._process = process
        if self.requested:
            self._send(signal.SIGTERM)

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        self.asked += 1
        if self.asked == 1 and self.lost is None:
            self._send(STOP_SIGNAL)
        else:
            self._end()

    def lose_output(self, error: OSError) -> bool:
        """Record that writing the output failed. Return True only for the first failure."""
        with self._lock:
            if self.lost is not None:
                return False
            self.lost = error
        if not self.asked:
            self._send(STOP_SIGNAL)
        self._later(_STOPPING, self._end)
        return True

    def _end(self) -> None:
        self._send(signal.SIGTERM)
        self._later(_ENDING, self._kill)

    def _kill(self) -> None:
        process = self._process
        # Until the launcher has reaped mpirun, no new session can get the id of mpirun's session.
        if process is not None and process.poll() is None:
            for member in _processes_of_session(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, what)
        timer.daemon = True
        timer.start()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handle Ctrl-C and SIGTERM while the block runs."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
