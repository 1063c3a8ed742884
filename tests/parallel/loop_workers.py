# SPDX-License-Identifier: Apache-2.0
"""Workers that are threads of one process, for tests of what workers agree on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from mindspore_rec.common.parallel import agreed_error

T = TypeVar("T")
_SECONDS = 60.0
_local = threading.local()


class Ended(BaseException):
    """Raised in a worker that waits for one that has ended, as the launcher ends it."""


class Exchange:
    """Messages of the workers, by the number of the exchange."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._sent: dict[int, dict[int, bytes]] = {}
        self._changed = threading.Condition()
        self._broken = False

    def gather(self, number: int, rank: int, data: bytes) -> list[bytes]:
        """Return what all have sent; `Ended` if one of them ends before it has sent anything."""
        with self._changed:
            sent = self._sent.setdefault(number, {})
            sent[rank] = data
            self._changed.notify_all()
            whole = self._changed.wait_for(
                lambda: len(sent) == self.size or self._broken, timeout=_SECONDS
            )
            assert whole, f"worker {rank} waited for {_SECONDS} s in exchange {number}"
            if len(sent) < self.size:
                raise Ended
            return [sent[each] for each in range(self.size)]

    def end(self) -> None:
        """End the workers that wait for one that has ended."""
        with self._changed:
            self._broken = True
            self._changed.notify_all()


class ThreadGroup:
    """One of several workers, each a thread.

    Attributes:
        steps: what `begin_step` was told.
        gathers: number of exchanges.
    """

    def __init__(self, rank: int, exchange: Exchange) -> None:
        self.rank = rank
        self.size = exchange.size
        self.steps: list[tuple[int, list[int]]] = []
        self.gathers = 0
        self._exchange = exchange

    def all_gather(self, data: bytes) -> list[bytes]:
        assert isinstance(data, bytes)
        self.gathers += 1
        return self._exchange.gather(self.gathers, self.rank, data)

    def all_gather_json(self, value: Any) -> list[Any]:
        return [json.loads(each) for each in self.all_gather(json.dumps(value).encode())]

    def broadcast(self, data: bytes | None, root: int = 0) -> bytes:
        return self.all_gather(data or b"")[root]

    def barrier(self) -> None:
        self.all_gather(b"")

    def begin_step(self, step: int, samples: list[int], summed: bool = False) -> None:
        assert len(samples) == self.size
        self.steps.append((step, list(samples)))


class OneWorker:
    """The only worker."""

    rank, size = 0, 1


def this_worker() -> Any:
    """Return the worker of this thread."""
    return getattr(_local, "group", OneWorker)


def run_workers(count: int, work: Callable[[ThreadGroup], T]) -> list[T]:
    """Return what each worker's work returns, or the exception that it raised.

    When one ends with an exception, the others are ended where they wait.
    """
    exchange = Exchange(count)
    results: list[Any] = [None] * count

    def body(rank: int) -> None:
        _local.group = ThreadGroup(rank, exchange)
        try:
            results[rank] = work(_local.group)
        except BaseException as error:
            results[rank] = error
            exchange.end()

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def only_error(results: list[Any], rank: int) -> BaseException:
    """Return the exception of one worker, after checking that all others were ended."""
    for worker, result in enumerate(results):
        if worker != rank:
            assert isinstance(result, Ended), result
    assert isinstance(results[rank], BaseException), results[rank]
    return results[rank]


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others give the worker that reports an error one second."""
    monkeypatch.setattr(agreed_error, "GRACE", 1.0)
