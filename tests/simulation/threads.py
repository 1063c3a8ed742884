# SPDX-License-Identifier: Apache-2.0
"""Simulated locks, conditions, events, threads and pools, in place of those of `threading`."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.simulation.scheduler import Died, Scheduler, Task, current_task

__all__ = ["Asked", "Local", "Pool", "Threading"]


class Lock:
    """Lock, or a reentrant one."""

    def __init__(self, scheduler: Scheduler, again: bool = False) -> None:
        self._scheduler = scheduler
        self._again = again
        self._owner: Task | None = None
        self._depth = 0
        self._waiting: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it."""
        task = current_task()
        assert task is not None
        self._scheduler.step("acquire")
        if self._owner is task and self._again:
            self._depth += 1
            return True
        while self._owner is not None:
            if not blocking:
                return False
            self._waiting.append(task)
            if self._scheduler.block("wait for a lock", None if timeout < 0 else timeout):
                self._waiting.remove(task)
                return False
        self._owner, self._depth = task, 1
        return True

    def release(self) -> None:
        """Give it back, which is no yield point."""
        task = current_task()
        if self._owner is not task:
            if task is not None and task.process.dying:
                raise Died
            raise RuntimeError("release of a lock that this thread does not have")
        self._depth -= 1
        if self._depth:
            return
        self._owner = None
        while self._waiting:
            self._waiting.popleft().ready = True

    def locked(self) -> bool:
        """Return whether a thread has it."""
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Condition:
    """Condition variable."""

    def __init__(self, scheduler: Scheduler, lock: Lock | None = None) -> None:
        self._scheduler = scheduler
        self._lock = Lock(scheduler, again=True) if lock is None else lock
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiting: list[Task] = []

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Give the lock back until another thread notifies."""
        task = current_task()
        assert task is not None and self._lock._owner is task
        depth = self._lock._depth
        self._lock._depth = 1
        self._lock.release()
        self._waiting.append(task)
        try:
            late = self._scheduler.block("wait for a condition", timeout)
        finally:
            if task in self._waiting:
                self._waiting.remove(task)
        self._lock.acquire()
        self._lock._depth = depth
        return not late

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Wait until a function returns something true."""
        assert timeout is None
        while not (found := predicate()):
            self.wait()
        return found

    def notify(self, count: int = 1) -> None:
        """Wake threads up."""
        for task in self._waiting[:count]:
            task.ready = True
        del self._waiting[:count]

    def notify_all(self) -> None:
        """Wake all threads up."""
        self.notify(len(self._waiting))


class Event:
    """Flag that threads wait for."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False
        self._waiting: list[Task] = []

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._set

    def set(self) -> None:
        """Set it."""
        self._scheduler.step("set an event")
        self._set = True
        for task in self._waiting:
            task.ready = True
        self._waiting.clear()

    def clear(self) -> None:
        """Unset it."""
        self._scheduler.step("clear an event")
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set."""
        task = current_task()
        assert task is not None
        self._scheduler.step("look at an event")
        if not self._set:
            self._waiting.append(task)
            self._scheduler.block("wait for an event", timeout)
            if task in self._waiting:
                self._waiting.remove(task)
        return self._set


class Thread:
    """Thread of the process whose thread makes it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
        scheduler: Scheduler,
    ) -> None:
        self._scheduler = scheduler
        self._target, self._args, self._kwargs = target, args, kwargs or {}
        self.name = name or "thread"
        self.daemon = daemon
        self.task: Task | None = None

    def start(self) -> None:
        """Start it."""
        mine = current_task()
        assert mine is not None and self.task is None and self._target is not None
        target = self._target
        self.task = self._scheduler.start(
            mine.process, self.name, lambda: target(*self._args, **self._kwargs)
        )

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        mine = current_task()
        assert mine is not None and self.task is not None
        self._scheduler.step(f"join {self.task.name}")
        while not self.task.ended:
            self.task.joiners.append(mine)
            if self._scheduler.block(f"wait for the end of {self.task.name}", timeout):
                return

    def is_alive(self) -> bool:
        """Return whether it has begun and not ended."""
        return self.task is not None and not self.task.ended


class Asked:
    """Stands for an `Interruption`: the world asks a process to end, by its attribute `asked`."""

    waiting = False

    def __init__(self, work: str = "") -> None:
        task = current_task()
        assert task is not None
        self._process = task.process

    @property
    def requested(self) -> bool:
        """Whether it was asked."""
        return self._process.asked

    @requested.setter
    def requested(self, asked: bool) -> None:
        self._process.asked = asked

    def restore(self) -> None:
        """Do nothing."""

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Local:
    """Stands for a `threading.local`, which all greenlets of a real thread share."""

    def __getattr__(self, name: str) -> Any:
        task = current_task()
        try:
            return task.local[name]  # type: ignore[union-attr]
        except (KeyError, AttributeError):
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        task = current_task()
        assert task is not None
        task.local[name] = value


class Threading:
    """Stands for the module `threading` in the modules that are simulated."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)

    def current_thread(self) -> Any:
        """Return an object of the thread that runs, which is not the main one of a process."""
        task = current_task()
        return threading.current_thread() if task is None else task

    def Lock(self) -> Any:  # noqa: N802
        """Return a lock."""
        return threading.Lock() if current_task() is None else Lock(self._scheduler)

    def RLock(self) -> Any:  # noqa: N802
        """Return a reentrant lock."""
        return threading.RLock() if current_task() is None else Lock(self._scheduler, again=True)

    def Condition(self, lock: Any = None) -> Any:  # noqa: N802
        """Return a condition variable."""
        if current_task() is None:
            return threading.Condition(lock)
        return Condition(self._scheduler, lock)

    def Event(self) -> Any:  # noqa: N802
        """Return an event."""
        return threading.Event() if current_task() is None else Event(self._scheduler)

    def Thread(self, *args: Any, **kwargs: Any) -> Any:  # noqa: N802
        """Return a thread."""
        if current_task() is None:
            return threading.Thread(*args, **kwargs)
        return Thread(*args, **kwargs, scheduler=self._scheduler)


class _Future:
    def __init__(self, scheduler: Scheduler) -> None:
        self._over = Event(scheduler)
        self._value: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._over.is_set()

    def result(self) -> Any:
        while not self._over.wait():
            pass
        if self._error is not None:
            raise self._error
        return self._value

    def run(self, work: Callable[[], Any]) -> None:
        try:
            self._value = work()
        except Exception as error:
            self._error = error
        self._over.set()


class Pool:
    """Stands for a `ThreadPoolExecutor` of one thread."""

    def __init__(self, scheduler: Scheduler, thread_name_prefix: str) -> None:
        self._scheduler = scheduler
        self._queue: deque[tuple[_Future, Callable[[], Any]] | None] = deque()
        self._there = Condition(scheduler)
        self._thread: Thread | None = None
        self._name = thread_name_prefix

    def submit(self, work: Callable[[], Any]) -> _Future:
        """Have a function run."""
        future = _Future(self._scheduler)
        with self._there:
            self._queue.append((future, work))
            self._there.notify()
        if self._thread is None:
            self._thread = Thread(target=self._run, name=self._name, scheduler=self._scheduler)
            self._thread.start()
        return future

    def shutdown(self, wait: bool = True) -> None:
        """End the thread, after what it was given."""
        with self._there:
            self._queue.append(None)
            self._there.notify()
        if wait and self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._there:
                while not self._queue:
                    self._there.wait()
                each = self._queue.popleft()
            if each is None:
                return
            each[0].run(each[1])
