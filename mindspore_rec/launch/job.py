# SPDX-License-Identifier: Apache-2.0
"""Running a job: mpirun, its output, its end, and starting all workers again."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import IO

from mindspore_rec.launch.mpirun import (
    Job,
    describe_hosts,
    find_mpirun,
    mpirun_command,
    worker_environment,
)
from mindspore_rec.launch.output import End, Lines
from mindspore_rec.parallel.launcher import STOP_SIGNAL
from mindspore_rec.parallel.start import allow_files

__all__ = ["Job", "Outcome", "run"]

# File descriptors of mpirun: its own, and pipes and sockets of each worker.
_OWN_FILES = 64
_FILES_A_WORKER = 8
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Outcome:
    """Outcome of a job.

    Attributes:
        code: exit code of the first worker that failed, 128 plus the signal that ended it; 0 where
            all ended well.
        seconds: from its start to its end.
        end: how the first worker that failed ended; None where none did, or mpirun did not say.
        stopped: whether Ctrl-C or SIGTERM asked the job to stop.
    """

    code: int
    seconds: float
    end: End | None
    stopped: bool

    def summary(self, job: Job) -> str:
        """Return one line on it."""
        plural = "" if job.workers == 1 else "s"
        who = f"{job.workers} worker{plural} {describe_hosts(job.used_hosts())}"
        after = f"after {self.seconds:.1f} s"
        if self.code == 0:
            return f"{who} ended well {after}{', asked to stop' if self.stopped else ''}"
        how = f"mpirun ended with code {self.code}" if self.end is None else str(self.end)
        others = ", which ended the others" if self.end is not None and job.workers > 1 else ""
        return f"{how} {after}{others} ({who}{', asked to stop' if self.stopped else ''})"


class _Stop:
    """Hands Ctrl-C and SIGTERM on to the workers; the second one ends mpirun."""

    def __init__(self) -> None:
        self.asked = 0
        self.process: subprocess.Popen[bytes] | None = None

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self.asked += 1
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(STOP_SIGNAL if self.asked == 1 else signal.SIGTERM)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals in a block."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _in_mpirun() -> None:
    """Make mpirun end with the launcher, whatever ends that."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _copy(source: IO[bytes], lines: Lines) -> None:
    for line in source:
        lines.take(line)
    lines.close()


def _run_once(job: Job, stop: _Stop) -> Outcome:
    cores = len(os.sched_getaffinity(0))
    environment = worker_environment(job, cores, os.environ)
    command = mpirun_command(job, find_mpirun(), cores, environment)
    start = time.monotonic()
    # In a session of its own Ctrl-C reaches the launcher only, which asks the workers to stop.
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_in_mpirun,
    ) as process:
        stop.process = process
        assert process.stdout is not None and process.stderr is not None
        lines = [Lines(sys.stdout.buffer), Lines(sys.stderr.buffer)]
        copies = [
            threading.Thread(target=_copy, args=pair)
            for pair in zip((process.stdout, process.stderr), lines, strict=True)
        ]
        for copy in copies:
            copy.start()
        for copy in copies:
            copy.join()
        code = process.wait()
    end = next((each.end for each in lines if each.end is not None), None)
    code = 128 - code if code < 0 else code
    if code and end is not None and end.code:
        code = end.code
    return Outcome(code, time.monotonic() - start, end, stop.asked > 0)


def _say(text: str) -> None:
    print(f"mindspore_rec.launch: {text}", file=sys.stderr, flush=True)


def run(job: Job, restarts: int = 0) -> Outcome:
    """Run a job and copy its output; return how it ended, and say so in one line on stderr.

    Ctrl-C and SIGTERM ask the workers to stop, as SIGTERM; a second one ends them at once.

    Args:
        job: what to run.
        restarts: times to start all workers again after one has failed. The script has to go on
            from its last checkpoint by itself. Default: 0.

    Raises:
        WorkerError: there is no mpirun, or too few file descriptors.
    """
    workers = job.on_fullest_host()
    allow_files(_OWN_FILES + _FILES_A_WORKER * workers, f"starting {workers} workers on a host")
    stop = _Stop()
    with stop.installed():
        for restart in range(restarts + 1):
            outcome = _run_once(job, stop)
            if outcome.code == 0 or outcome.stopped or restart == restarts:
                break
            _say(f"{outcome.summary(job)}; restart {restart + 1} of {restarts}")
    _say(outcome.summary(job))
    return outcome
