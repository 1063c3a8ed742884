# SPDX-License-Identifier: Apache-2.0
"""Start the processes that answer requests from shared tables, and restart processes that end.

The supervisor imports the modules that the processes need, then forks the processes, so that all
processes share the modules' memory. The supervisor also creates the listening socket and the memory
for the rows. The memory and the socket exist as long as the supervisor runs, even if a process
ends. The supervisor starts the processes, and then only waits until a process ends.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import mmap
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mindspore_rec import _native
from mindspore_rec.common.network.builder import load_function
from mindspore_rec.serve.following.announced import listen
from mindspore_rec.serve.following.pulse import PULSE_BYTES, Pulse
from mindspore_rec.serve.network.own_directory import OwnDirectory
from mindspore_rec.serve.protection.options import counted

__all__ = ["FATAL", "Shared", "add_worker_arguments", "named_error", "supervise"]

FATAL = 3  # exit code of a process that would fail again after a restart
_MOST_PAUSE = 10.0  # seconds before a process is started again
_FIRST_PAUSE = 0.1
_LIVED = 10.0  # a process that ran longer is restarted without a pause
_DRAIN = 30.0  # seconds that a worker has to answer what it accepted, besides --drain-seconds
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)


class Shared:
    """Options, listening socket and shared memory that all processes use.

    Args:
        options: parsed command-line options.
        listener: the listening socket.

    Attributes:
        fd: descriptor of the shared memory.
        copy: directory for a copy of the network.
        pulse: object that shows whether the process that follows the run is still working.
    """

    def __init__(self, options: argparse.Namespace, listener: socket.socket) -> None:
        self.options = options
        self.listener = listener
        self.fd = os.memfd_create("mindspore_rec_serving", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._own = OwnDirectory()
        self.copy = self._own.path
        self._answers = mmap.mmap(-1, 1)
        self.pulse = Pulse(mmap.mmap(-1, PULSE_BYTES))

    @property
    def answers(self) -> bool:
        """True if the first worker has a state and can therefore answer requests."""
        return self._answers[0] != 0

    def answer(self) -> None:
        """Record that the first worker has a state and can therefore answer requests."""
        self._answers[0] = 1

    def places(self, worker: int) -> range:
        """Return the indexes of a worker's reader slots; the writer uses the last of all slots."""
        each = (_native.SHARED_READERS - 1) // self.options.workers
        return range(worker * each, (worker + 1) * each)

    def close(self) -> None:
        """Remove the directory from the disk."""
        self._own.close()


def add_worker_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--workers`."""
    parser.add_argument(
        "--workers",
        type=counted(1, _native.SHARED_READERS // 4),
        default=1,
        metavar="N",
        help="processes that answer, which share the rows; one more follows the run. Of networks "
        "that are served as ONNX; default: %(default)s, which follows the run itself",
    )


class _Process:
    """Child process that is restarted when it ends."""

    def __init__(self, name: str, run: Callable[[], int], signal_at_end: signal.Signals) -> None:
        self.name = name
        self._run = run
        self._signal_at_end = signal_at_end
        self.pid = 0
        self._started = 0.0
        self._pause = 0.0
        self.due: float | None = 0.0  # time of the next start

    def start(self) -> None:
        """Start it."""
        self.due = None
        self._started = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        # Block signals until the child has set its own handlers. A signal that arrived before the
        # child set its handlers would be consumed by the parent's handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self.pid = os.fork()
        except OSError as error:  # too many processes or too little memory
            self.pid = -1
            self.due = self._started + _MOST_PAUSE
            print(f"{self.name} cannot be started yet: {error}", file=sys.stderr, flush=True)
        if self.pid:
            self.pid = max(self.pid, 0)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            return
        code = 1
        try:
            system = ctypes.CDLL(None)
            system.prctl(_PR_SET_PDEATHSIG, int(self._signal_at_end))
            system.prctl(_PR_SET_NAME, f"rec {self.name}".encode())  # name that ps and top show
            signal.set_wakeup_fd(-1)
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            if os.getppid() == parent:
                code = self._run()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def ended(self, status: int) -> str:
        """Record the end of the process, set the restart time, and return how the process ended."""
        self.pid = 0
        lived = time.monotonic() - self._started
        self._pause = (
            0.0 if lived > _LIVED else min(max(2 * self._pause, _FIRST_PAUSE), _MOST_PAUSE)
        )
        self.due = time.monotonic() + self._pause
        if os.WIFSIGNALED(status):
            return f"was ended by {signal.Signals(os.WTERMSIG(status)).name}"
        return f"ended with exit code {os.WEXITSTATUS(status)}"

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to the process, if the process runs."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def supervise(
    options: argparse.Namespace,
    listener: socket.socket,
    work: Callable[[Shared, int], int],
    ended: Callable[[int], object] = lambda pid: None,
) -> int:
    """Run a writer and the workers until a signal stops them; return the exit code.

    Args:
        options: parsed command-line options.
        listener: the listening socket.
        work: function that each worker runs, with the `Shared` object and the worker's index as
            arguments. `work` runs until SIGTERM arrives, and returns the exit code.
        ended: function that is called with the id of each process that has ended. Default: none.

    If a process ends with the exit code `FATAL`, the supervisor ends all processes.
    """
    arrived = _signal_pipe()  # first: a signal must not leave the directory of `Shared` behind
    shared = Shared(options, listener)
    writer = _Process("writer", lambda: _write(shared), signal.SIGKILL)
    workers = [
        _Process(f"worker {i}", lambda i=i: work(shared, i), signal.SIGTERM)  # type: ignore[misc]
        for i in range(options.workers)
    ]
    processes = [writer, *workers]
    gc.collect()
    gc.freeze()  # so that a child's collections do not copy all pages of objects
    code = 0
    try:
        stop = False
        while not stop:
            now = time.monotonic()
            for each in processes:
                if each.due is not None and each.due <= now:
                    each.start()
            due = [each.due for each in processes if each.due is not None]
            wait = max(0.0, min(due, default=now + 3600) - now)
            select.select([arrived], [], [], wait)
            stop = bool({signal.SIGTERM, signal.SIGINT} & _read_signals(arrived))
            for each, status in _ended(processes):
                pid, how = each.pid, each.ended(status)
                ended(pid)
                try:
                    _forget(shared, each, writer, workers)
                except (MemoryError, RuntimeError) as error:  # no process could write later
                    print(f"error: {named_error(error)}", file=sys.stderr, flush=True)
                    code, stop = 1, True
                if os.WIFEXITED(status) and os.WEXITSTATUS(status) == FATAL:
                    code, stop = 1, True
                elif not stop:
                    print(f"{each.name} {how}; it is started again", file=sys.stderr, flush=True)
    finally:
        _end(processes, writer, _DRAIN + options.drain_seconds)
        shared.close()
    return code


def _signal_pipe() -> int:
    """Return a file descriptor from which the signal numbers of incoming signals can be read."""
    arrived, write = os.pipe()
    for each in (arrived, write):
        os.set_blocking(each, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
    return arrived


def _read_signals(arrived: int) -> set[int]:
    try:
        return set(os.read(arrived, 4096))
    except BlockingIOError:
        return set()


def _ended(processes: list[_Process]) -> list[tuple[_Process, int]]:
    ended = []
    for each in processes:
        if each.pid:
            pid, status = os.waitpid(each.pid, os.WNOHANG)
            if pid:
                ended.append((each, status))
    return ended


def _forget(shared: Shared, ended: _Process, writer: _Process, workers: list[_Process]) -> None:
    """Free the reader slots of an ended process, which may have ended during a lookup."""
    if not _native.SharedMemory.is_created(shared.fd):
        return
    memory = _native.SharedMemory(shared.fd)
    if ended is writer:
        memory.following = False
        memory.clear_readers(_native.SHARED_READERS - 1, 1)
    else:
        places = shared.places(workers.index(ended))
        memory.clear_readers(places.start, len(places))


def _end(processes: list[_Process], writer: _Process, seconds: float) -> None:
    """End all processes; before a worker ends, it answers all requests that it has received."""
    for each in processes:
        each.kill(signal.SIGKILL if each is writer else signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while any(each.pid for each in processes):
        for each, status in _ended(processes):
            each.ended(status)
        if time.monotonic() > deadline:
            for each in processes:
                each.kill(signal.SIGKILL)
        time.sleep(0.01)


def named_error(error: BaseException) -> str:
    """Return an error's name and text, and a hint if a memory limit may be the cause."""
    text = f"{type(error).__name__}: {error}"
    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    if limited and ("allocate memory" in text or isinstance(error, MemoryError)):
        text += (
            "; the address space is limited (ulimit -v), of which --workers reserve as much as the "
            "machine has memory: limit memory by a cgroup instead (MemoryMax of systemd)"
        )
    return text


def _write(shared: Shared) -> int:
    """Follow the run until the process ends."""
    from mindspore_rec.serve.following.followed_run import FollowedRun
    from mindspore_rec.serve.shared.writer import ServedInSharedMemory

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, to all of them: workers drain
    options = shared.options
    path = Path(options.path)
    awake = threading.Event()
    resumes = _native.SharedMemory.is_created(shared.fd)
    try:
        features = load_function(options.features)() if options.features else None
        served = ServedInSharedMemory(
            path,
            shared.copy,
            shared.fd,
            options.rows,
            inputs=options.input,
            features=features,
        )
        run = FollowedRun(
            path,
            served,
            options.wait_seconds,
            options.poll_seconds,
            options.scrub_seconds,
            shared.pulse,
        )
        shared.pulse.show_life()
        served.memory.following = True
        if options.announcements:
            listen(options.announcements, awake.set)
    except Exception as error:
        print(f"error: {named_error(error)}", file=sys.stderr, flush=True)
        again = resumes and not isinstance(error, _native.SharedDamagedError)
        return 1 if again else FATAL
    run.follow(options.poll_seconds, awake)
    return 0
