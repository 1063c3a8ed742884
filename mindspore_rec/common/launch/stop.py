# SPDX-License-Identifier: Apache-2.0
"""Ending a job before its time: by signals to the launcher, or since nobody takes its output."""

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

# Seconds that workers without a reader have to stop, and that mpirun has to end its workers.
_STOPPING = 20.0
_ENDING = 5.0


def _processes_of_session(session: int) -> list[int]:
    """Return the ids of this host's processes of a session."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name in parentheses may have spaces and parentheses of its own.
            if int(stat.read_text().rpartition(")")[2].split()[3]) == session:
                members.append(int(stat.parent.name))
    return members


class Stop:
    """Ends mpirun and its workers: first asks for it, then has mpirun end them, then kills all.

    The first Ctrl-C or SIGTERM asks the workers to stop, and waits for as long as they take. The
    second one has mpirun end them. If it has not done so within 5 s, all are killed. If nobody
    takes the output any more, the workers are asked to stop too, and as no second signal can be
    expected, mpirun ends them if they run on for 20 s.

    Attributes:
        asked: number of signals so far.
        lost: error with which writing the output failed first; None if all was written.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.lost: OSError | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()  # a signal may come while this thread holds it

    @property
    def requested(self) -> bool:
        """Whether the job is to end before its time."""
        return self.asked > 0 or self.lost is not None

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Take an mpirun that leads a session of its own as what is to be ended."""
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
        """Take note that writing the output has failed; return whether this is the first time."""
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
        # Its id stays the id of the session until it was waited for.
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
        """Handle Ctrl-C and SIGTERM in a block."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
