# SPDX-License-Identifier: Apache-2.0
"""`worker_group`: the workers of this job, one of which is this process."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from mindspore_rec import _native
from mindspore_rec._native import WorkerError
from mindspore_rec.common.parallel.ends import ProgramEnds
from mindspore_rec.common.parallel.launcher import WORKER_PROCESS, launched
from mindspore_rec.common.parallel.start import same_program, start_mpi, threads_of_worker

__all__ = ["Engine", "WorkerGroup", "set_engine", "worker_group"]


class Engine(Protocol):
    """Engine that runs a worker's operators asynchronously, as MindSpore does."""

    def limit_threads(self, threads: int) -> None:
        """Limit the engine to `threads` threads, unless the program has set a number of threads."""

    def wait(self) -> None:
        """Wait until all operators that were started have finished.

        If an operator has failed, `wait` raises the operator's error.
        """


class WorkerGroup:
    """The workers of this job. A process without a launcher is a job of one worker.

    Calls that exchange data are collective: all workers make the same calls in the same order, and
    each worker waits for all workers. Only the main thread may call methods that exchange data. All
    other threads must exchange data through a separate channel (see the method `channel`). A wait
    of more than `MINDSPORE_REC_HANG_LIMIT` seconds (default: 300) ends the job.

    Attributes:
        rank: index of this worker, 0 to `size` - 1.
        size: number of workers.
        host: name of this worker's host.
        hosts: names of the hosts of all workers, by rank.
        local_rank: index of this worker among the workers of its host.
        local_size: number of workers on this worker's host.

    Example:
        >>> group = worker_group()
        >>> group.rank, group.size
        (0, 1)
        >>> group.all_gather_json({"rows": 10})
        [{'rows': 10}]
    """

    def __init__(self, native: _native.WorkerGroup, *, started: bool) -> None:
        self._native = native
        self._control = native.channel("control")
        self._started = started
        self._process = os.getpid()
        self._over = False
        self.rank: int = native.rank
        self.size: int = native.size
        self.host: str = socket.gethostname()
        self.hosts: list[str] = [data.decode() for data in self._gather(self.host.encode())]
        self.local_rank: int = self.hosts[: self.rank].count(self.host)
        self.local_size: int = self.hosts.count(self.host)

    def __repr__(self) -> str:
        return f"WorkerGroup(rank={self.rank}, size={self.size}, host={self.host!r})"

    # ---- collective calls of the main thread

    def all_gather(self, data: bytes) -> list[bytes]:
        """Return the bytes that all workers sent, by rank. The lengths may differ."""
        self._require_main_thread("all_gather")
        return self._gather(data)

    def all_gather_json(self, value: Any) -> list[Any]:
        """Return the values that all workers sent, by rank. Values must be JSON-serializable."""
        self._require_main_thread("all_gather_json")
        return [json.loads(data) for data in self._gather(json.dumps(value).encode())]

    def broadcast(self, data: bytes | None, root: int = 0) -> bytes:
        """Return the bytes that worker `root` sent. On all other workers, `data` is not used.

        Raises:
            ValueError: no worker has the rank `root`.
            TypeError: `data` of worker `root` is None.
        """
        self._require_main_thread("broadcast")
        if not 0 <= root < self.size:
            raise ValueError(f"root must be in [0, {self.size - 1}], got {root}")
        if self.rank == root and data is None:
            raise TypeError(f"data of worker {root} must be bytes, got None")
        return self._gather(data if data is not None and self.rank == root else b"")[root]

    def barrier(self) -> None:
        """Wait until all workers have called `barrier`."""
        self._require_main_thread("barrier")
        self._control.barrier()

    def require_equal(self, what: str, digest: str) -> None:
        """Check that a digest is the same on all workers.

        Args:
            what: name of the digested object, for the error message.
            digest: any text, a checksum for example.

        Raises:
            WorkerError: the digests differ. All workers raise a WorkerError, which names the ranks
                that differ from the majority.

        Example:
            >>> worker_group().require_equal("configuration", "1f0a")
        """
        self.require_all_equal({what: digest})

    def require_all_equal(self, digests: dict[str, str]) -> None:
        """Check that several named digests are the same on all workers.

        Raises:
            WorkerError: digests differ. The error message names the first digest that differs, and
                the ranks that differ from the majority.
        """
        every = self.all_gather_json(digests)
        for what in [*digests, *(key for one in every for key in one)]:
            values = [one.get(what) for one in every]
            if len(set(values)) > 1:
                raise WorkerError(_difference(what, values))

    def require_same_arrays(self, what: str, names: Sequence[str], arrays: Sequence[Any]) -> None:
        """Check by checksums that arrays are identical on all workers.

        Args:
            what: text that names the arrays in the error message, such as "dense parameters".
            names: name of each array, for the error message.
            arrays: C-contiguous arrays.

        Raises:
            WorkerError: arrays differ. The error message names the first array that differs, and
                the ranks that differ from worker 0.
        """
        self._require_main_thread("require_same_arrays")
        difference = self._control.find_difference(list(arrays))
        if difference is not None:
            place, ranks = difference
            name = names[place] if place < len(names) else "their number"
            raise WorkerError(f"{what} differ between worker 0 and {_workers(ranks)}: {name}")

    # ---- steps and other threads

    def begin_step(self, step: int, samples: Sequence[int], summed: bool = False) -> None:
        """Begin a step, and set the number of samples of each worker.

        Until the next call of `begin_step`, the gradients are weighted by the numbers of samples. A
        worker without samples takes part in the exchanges, but sends no keys.

        Args:
            step: the step number.
            samples: number of samples of each worker, by rank.
            summed: True if losses are sums over samples instead of means. If True, gradients are
                added over workers instead of averaged. Default: False.

        Raises:
            ValueError: `samples` does not have one number per worker, or a number is below 0.
        """
        self._native.begin_step(step, list(samples), summed)

    def channel(self, name: str) -> _native.WorkerChannel:
        """Return a channel for one thread; `name` is 'ahead', 'checkpoint', 'merge' or 'service'.

        The collective calls `all_gather`, `all_to_all` and `barrier` of a channel may be called by
        one thread only. Any thread may call `send`, `poll` and `receive`, which exchange single
        messages. Tags of messages are 0 to 16383. On the channel 'service', only tags 0 to 8191 are
        free, because requests for rows use higher tags.

        Raises:
            ValueError: no channel has this name.
        """
        return self._native.channel(name)

    # ---- ends

    def finish(self) -> None:
        """End the job normally: wait until all workers call `finish`, and end MPI.

        At the end of a program that has not failed, `finish` is called automatically. After
        `finish`, the group cannot exchange data.

        Raises:
            RuntimeError: an operator that ran asynchronously has failed.
            WorkerError: another worker waits for this worker in a call that exchanges data.
        """
        if self._over or not self._started:
            return
        # Asynchronous operators may still run, and MPI must not end during an exchange.
        _wait_for_engine()
        self._over = True
        _native.WorkerGroup.finish()

    def abort(self, message: str) -> None:
        """End the job at once: print the message, and end this process with code 1.

        Under a launcher, `abort` never returns, and the launcher ends all other workers.

        Raises:
            WorkerError: there is no launcher.
        """
        if not self._started:
            raise WorkerError(message)
        print(f"worker {self.rank} of {self.size}: {message}", file=sys.stderr, flush=True)
        os._exit(1)

    def _gather(self, data: bytes) -> list[bytes]:
        if self._over:
            raise WorkerError("the workers have ended: finish() was called")
        return self._control.all_gather(data)

    def _require_main_thread(self, call: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise WorkerError(f"{call} is for the main thread: other threads use channel()")

    def _at_exit(self) -> None:
        """End the job normally at the end of the program, unless the program has failed."""
        if os.getpid() != self._process or self._over:
            return
        self._over = True
        if not _ends.failed:
            try:
                _wait_for_engine()
            except BaseException:
                _native.WorkerGroup.stop_watching()
                raise
        # A worker that waits for this worker ends the job with this worker's exit code.
        if _ends.failed or not _native.WorkerGroup.leave():
            _native.WorkerGroup.stop_watching()
        else:
            _native.WorkerGroup.finish()


def _workers(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8])
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"worker{'s' if len(ranks) > 1 else ''} {shown}{more}"


def _difference(what: str, values: Sequence[str | None]) -> str:
    """Return a message that names the workers whose value differs from the majority's value."""
    usual = Counter(values).most_common(1)[0][0]
    others = [rank for rank, value in enumerate(values) if value != usual]
    return (
        f"{what} of {_workers(others)} differs from that of {_workers([values.index(usual)])}: "
        f"{values[others[0]]} and {usual}; all workers must have the same"
    )


_ends = ProgramEnds()
_group: WorkerGroup | None = None
_engine: Engine | None = None


def set_engine(engine: Engine) -> None:
    """Set the engine that runs this process's operators, and limit the engine's threads."""
    global _engine
    _engine = engine
    if _group is not None and _group._started:
        _limit_engine()


def _limit_engine() -> None:
    threads = threads_of_worker()
    if _engine is not None and threads is not None:
        _engine.limit_threads(threads)


def _wait_for_engine() -> None:
    if _engine is not None:
        _engine.wait()


def worker_group() -> WorkerGroup:
    """Return this job's workers. The first call of `worker_group` connects to the other workers.

    Under `python -m mindspore_rec.launch -n N` or Open MPI's `mpirun -n N` there are N workers.
    Without a launcher there is one worker, and MPI is not started.

    Raises:
        WorkerError: the launcher of this process does not belong to Open MPI, MPI is missing or
            does not start, or the workers run different programs.

    Example:
        >>> worker_group().size
        1
    """
    global _group
    if _group is not None and _group._process == os.getpid():
        return _group
    told = launched(os.environ, os.getpid())
    if told is None:
        _group = WorkerGroup(_native.WorkerGroup.alone(), started=False)
        return _group
    _limit_engine()
    native = start_mpi(told)
    os.environ[WORKER_PROCESS] = str(os.getpid())
    _ends.install(lambda: None if _group is None else _group._at_exit())
    _group = WorkerGroup(native, started=True)
    _group.require_all_equal(same_program())
    return _group
