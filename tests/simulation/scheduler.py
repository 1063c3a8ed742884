# SPDX-License-Identifier: Apache-2.0
"""Threads that run one at a time, in an order that a seed decides, under a clock of their own.

A simulated thread is a greenlet, so that all of them run in one real thread. At each *yield point*
(an operation on a file, on a lock, a wait, a sleep, a look at the clock) the running thread gives
its turn to one chosen by the seed, maybe itself. Where no thread can run, the clock goes on to the
next moment that one waits for; where none waits for a moment, that is a deadlock.

Threads belong to processes. A process dies by `kill`: each of its threads gets `Died` at its yield
point, and at every later one, so that what its `finally` and `except` would do is not done. Nobody
else runs meanwhile.
"""

from __future__ import annotations

import random
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

__all__ = ["TICK", "Died", "HangError", "Process", "Scheduler", "Task", "current_task"]

TICK = 1e-4  # seconds of a yield point
_KEPT = 100_000  # lines of a trace


class Died(BaseException):
    """The process of the thread has been killed."""


class HangError(Exception):
    """No thread can run, or they run for ever."""


class Process:
    """Simulated process: its threads, which die together.

    Args:
        name: for the trace.

    Attributes:
        dying: whether it was killed.
        asked: whether it was asked to end.
        tasks: its threads that have not ended.
        failure: the first exception that ended one of them, or None.
        faults: errors that it was given by files.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.dying = self.asked = False
        self.tasks: set[Task] = set()
        self.failure: BaseException | None = None
        self.faults: list[BaseException] = []


class Task:
    """Simulated thread; see `Scheduler.start`."""

    def __init__(self, process: Process, name: str, work: Callable[[], Any]) -> None:
        self.process = process
        self.name = f"{process.name}/{name}"
        self.work = work
        self.turn: _Greenlet
        self.local: dict[str, Any] = {}  # of `Local` objects
        self.ready = True
        self.until: float | None = None  # the clock's time at which a wait ends by itself
        self.timed_out = False
        self.ended = False
        self.joiners: list[Task] = []


class _Greenlet(greenlet):
    task: Task


def current_task() -> Task | None:
    """Return the simulated thread that runs this, or None."""
    current = getcurrent()
    return current.task if type(current) is _Greenlet else None


class Scheduler:
    """Scheduler of simulated threads.

    Args:
        seed: of every choice.
        most_yields: yield points of a schedule beyond which it counts as one that never ends.
        keep_trace: whether to keep what was done at each yield point.

    Attributes:
        now: the clock, in seconds.
        yields: yield points so far.
        switches: of these, those at which another thread got the turn.
        trace: lines.
    """

    def __init__(self, seed: int, most_yields: int = 60_000, keep_trace: bool = False) -> None:
        self.random = random.Random(seed)
        self.now = 1_000_000.0
        self.yields = self.switches = 0
        self.trace: deque[str] = deque(maxlen=_KEPT)
        self.keep_trace = keep_trace
        # Some schedules change threads at every point, others let each run for long.
        self._stay = self.random.choice((0.0, 0.5, 0.8, 0.95))
        self._early = self.random.choice((0.0, 0.002, 0.02))  # a wait ends though others can run
        self._most = most_yields
        self._tasks: list[Task] = []
        self._hub: greenlet
        self._someone_dies = False
        self.hung: str | None = None
        self.on_step: Callable[[], None] = lambda: None  # may kill processes

    # ---- threads

    def run(self, process: Process, work: Callable[[], Any]) -> None:
        """Run a first thread, and return when it and all others have ended.

        Raises:
            HangError: they do not end.
        """
        self._hub = getcurrent()
        self._begin(Task(process, "main", work))
        while self._tasks:  # a thread that ends comes back here
            self._pick().turn.switch()
        if self.hung is not None:
            raise HangError(self.hung)

    def start(self, process: Process, name: str, work: Callable[[], Any]) -> Task:
        """Start a thread of a process."""
        task = Task(process, name, work)
        self._begin(task)
        self.step(f"start {task.name}")
        return task

    def _begin(self, task: Task) -> None:
        task.process.tasks.add(task)
        self._tasks.append(task)
        task.turn = _Greenlet(lambda: self._live(task), self._hub)
        task.turn.task = task

    def _live(self, task: Task) -> None:
        try:
            if not task.process.dying:
                task.work()
        except Died:
            pass
        except BaseException as error:
            if task.process.failure is None:
                task.process.failure = error
            self.note(f"ended by {type(error).__name__}: {error}")
        task.ended = True
        task.process.tasks.discard(task)
        self._tasks.remove(task)
        for joiner in task.joiners:
            joiner.ready = True

    def kill(self, process: Process) -> None:
        """Kill a process; if it is the caller's own, `Died` is raised at its next yield point."""
        process.dying = self._someone_dies = True
        for task in process.tasks:
            task.ready = True

    # ---- yield points

    def note(self, what: str) -> None:
        """Add a line to the trace."""
        if self.keep_trace:
            task = current_task()
            name = "-" if task is None else task.name
            self.trace.append(f"{self.yields:6d} {self.now - 1e6:9.4f} {name:22s} {what}")

    def step(self, what: str) -> None:
        """Yield point: maybe give the turn to another thread."""
        task = getcurrent().task
        process = task.process
        if process.dying:
            raise Died
        self.yields += 1
        if self.yields > self._most:
            self._too_many()
        self.now += TICK
        if self.keep_trace:
            self.note(what)
        self.on_step()
        if process.dying:
            raise Died
        if self._someone_dies or self.random.random() >= self._stay:
            self._give_turn(task)
            if process.dying:
                raise Died

    def block(self, what: str, seconds: float | None = None) -> bool:
        """Wait until someone makes this thread ready, or for a time; return whether that was it."""
        task = current_task()
        assert task is not None
        if task.process.dying:
            raise Died
        self.yields += 1
        if self.yields > self._most:
            self._too_many()
        if self.keep_trace:
            self.note(what)
        task.ready = False
        task.timed_out = False
        task.until = None if seconds is None else self.now + max(seconds, 1e-6)
        self._give_turn(task)
        task.until = None
        if task.process.dying:
            raise Died
        return task.timed_out

    def _too_many(self) -> None:
        self._hang(f"it has not ended after {self._most} yield points")

    def _give_turn(self, task: Task) -> None:
        chosen = self._pick()
        if chosen is not task:
            self.switches += 1
            chosen.turn.switch()

    def _pick(self) -> Task:
        while True:
            self._someone_dies = False
            ready, waiting = [], []
            for task in self._tasks:
                if task.process.dying:
                    self._someone_dies = True
                    return task
                if not task.ready and task.until is not None:
                    if task.until > self.now:
                        waiting.append(task)
                        continue
                    task.ready = task.timed_out = True
                if task.ready:
                    ready.append(task)
            if ready and not (waiting and self.random.random() < self._early):
                return ready[int(self.random.random() * len(ready))]
            if waiting:
                first = min(waiting, key=lambda task: task.until or 0.0)
                self.now = max(self.now, first.until or 0.0)
                first.ready = first.timed_out = True
                return first
            self._hang("no thread can run: a deadlock")

    def _hang(self, why: str) -> None:
        if self.hung is None:
            waits = ", ".join(sorted(task.name for task in self._tasks))
            self.hung = f"{why}; there are {waits}"
        for task in self._tasks:
            task.process.dying = True
            task.ready = True


def explained(error: BaseException) -> str:
    """Return an exception with its traceback as a text."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


class Clock:
    """Stands for the module `time` in the modules that are simulated."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic(self) -> float:
        """Return the simulated time, after a yield point."""
        if current_task() is None:
            return time.monotonic()
        self._scheduler.step("look at the clock")
        return self._scheduler.now

    def time(self) -> float:
        """Return the simulated time."""
        return time.time() if current_task() is None else self._scheduler.now

    def perf_counter(self) -> float:
        """Return the simulated time."""
        return time.perf_counter() if current_task() is None else self._scheduler.now

    def sleep(self, seconds: float) -> None:
        """Wait for a simulated time."""
        if current_task() is None:
            time.sleep(seconds)
        else:
            self._scheduler.block(f"sleep {seconds:g} s", seconds)
