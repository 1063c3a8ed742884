# SPDX-License-Identifier: Apache-2.0
"""Run a job with mpirun, copy its output, and restart all workers after a failure."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import IO, TextIO, cast

from mindspore_rec.common.launch.mpirun import (
    Job,
    describe_hosts,
    find_mpirun,
    mpirun_command,
    worker_environment,
)
from mindspore_rec.common.launch.output import End, Lines, Output
from mindspore_rec.common.launch.stop import Stop
from mindspore_rec.common.parallel.start import allow_files

__all__ = ["Job", "Outcome", "run"]

# File descriptors that mpirun needs: a fixed number, plus pipes and sockets of each worker.
_OWN_FILES = 64
_FILES_A_WORKER = 8
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Outcome:
    """Outcome of a job.

    Attributes:
        code: exit code of the first worker that failed, or 128 plus the number of the signal that
            ended the worker. If mpirun reported no failed worker, `code` is mpirun's exit code,
            which is 0 if all workers succeeded. If the output could not be written, the code is 141
            or 1 (see `run`).
        seconds: seconds from the job's start to its end.
        end: rank and exit code of the first worker that failed; None if mpirun reported no failed
            worker.
        stopped: True if the job was asked to stop, by Ctrl-C, by SIGTERM, or because the output
            could not be written.
    """

    code: int
    seconds: float
    end: End | None
    stopped: bool

    def summary(self, job: Job) -> str:
        """Return one line of text about the outcome."""
        plural = "" if job.workers == 1 else "s"
        who = f"{job.workers} worker{plural} {describe_hosts(job.used_hosts())}"
        after = f"after {self.seconds:.1f} s"
        if self.code == 0:
            return f"{who} ended well {after}{', asked to stop' if self.stopped else ''}"
        how = f"mpirun ended with code {self.code}" if self.end is None else str(self.end)
        others = ", which ended the others" if self.end is not None and job.workers > 1 else ""
        return f"{how} {after}{others} ({who}{', asked to stop' if self.stopped else ''})"


def _in_mpirun() -> None:
    """Make mpirun end when the launcher ends for any reason."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _copy(source: IO[bytes], lines: Lines) -> None:
    for line in source:
        lines.take(line)
    lines.close()


def _unbuffered(stream: TextIO) -> Output:
    """Return the unbuffered file below the buffer of a text stream.

    A write to the buffer holds the buffer's lock. If a write waited forever because nobody reads
    the output, Python could not exit.
    """
    with contextlib.suppress(OSError):
        stream.flush()
    return cast(Output, getattr(stream.buffer, "raw", stream.buffer))


def _wait_for_output(copies: list[threading.Thread], stop: Stop) -> None:
    """Wait until all output is copied. After a second signal, stop waiting."""
    for copy in copies:
        while copy.is_alive() and stop.asked < 2:
            copy.join(0.2)


def _run_once(job: Job, stop: Stop) -> Outcome:
    cores = len(os.sched_getaffinity(0))
    environment = worker_environment(job, cores, os.environ)
    command = mpirun_command(job, find_mpirun(), cores, environment)
    start = time.monotonic()
    # mpirun runs in a new session, so that Ctrl-C reaches only the launcher, which asks the workers
    # to stop.
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_in_mpirun,
    ) as process:
        stop.watch(process)
        assert process.stdout is not None and process.stderr is not None

        def lost(error: OSError) -> None:
            if stop.lose_output(error):
                _say(f"the output cannot be written any more ({error}): the workers must stop")

        lines = [Lines(_unbuffered(each), lost) for each in (sys.stdout, sys.stderr)]
        copies = [
            threading.Thread(target=_copy, args=pair, daemon=True)
            for pair in zip((process.stdout, process.stderr), lines, strict=True)
        ]
        for copy in copies:
            copy.start()
        _wait_for_output(copies, stop)
        code = process.wait()
    end = next((each.end for each in lines if each.end is not None), None)
    code = 128 - code if code < 0 else code
    if code and end is not None and end.code:
        code = end.code
    if stop.lost is not None:
        # Programs that write to a pipe without a reader exit with the code 128 + SIGPIPE.
        code = 128 + signal.SIGPIPE if isinstance(stop.lost, BrokenPipeError) else 1
    return Outcome(code, time.monotonic() - start, end, stop.requested)


def _say(text: str) -> None:
    # The process that reads the output may have ended.
    with contextlib.suppress(OSError):
        print(f"mindspore_rec.launch: {text}", file=sys.stderr, flush=True)


def run(job: Job, restarts: int = 0) -> Outcome:
    """Run a job and copy its output.

    Return the outcome, and print the outcome in one line on stderr.

    The first Ctrl-C or SIGTERM asks the workers to stop. The second signal ends the workers at
    once. The workers are also asked to stop if the output can no longer be written, for example
    because the reader has ended (`| head`) or the disk is full. If the output cannot be written,
    later output is dropped, and workers that still run after 20 s are ended. If output could not be
    written, the exit code is 141 for a pipe without a reader, and 1 for all other errors.

    Args:
        job: what to run.
        restarts: maximum number of times that all workers are restarted after a failure. The script
            must resume from its last checkpoint. Default: 0.

    Raises:
        WorkerError: mpirun is missing, or the limit of file descriptors is too low.
    """
    workers = job.on_fullest_host()
    allow_files(_OWN_FILES + _FILES_A_WORKER * workers, f"starting {workers} workers on a host")
    stop = Stop()
    with stop.installed():
        for restart in range(restarts + 1):
            outcome = _run_once(job, stop)
            if outcome.code == 0 or outcome.stopped or restart == restarts:
                break
            _say(f"{outcome.summary(job)}; restart {restart + 1} of {restarts}")
    _say(outcome.summary(job))
    return outcome
