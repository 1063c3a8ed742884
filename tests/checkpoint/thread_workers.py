# SPDX-License-Identifier: Apache-2.0
"""Workers of a job as threads of one process, with the messages that checkpoints need."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from mindspore_rec.checkpoint.team import Team

__all__ = ["ThreadChannel", "run_workers"]

T = TypeVar("T")

_SECONDS = 60


class ThreadChannel:
    """One worker's end of a channel between threads."""

    def __init__(self, rank: int, size: int, barrier: threading.Barrier, values: list[Any]) -> None:
        self.rank, self.size = rank, size
        self._barrier, self._values = barrier, values

    def all_gather(self, data: bytes) -> list[bytes]:
        self._values[self.rank] = data
        self._barrier.wait(_SECONDS)
        found = list(self._values)
        self._barrier.wait(_SECONDS)
        return found


def run_workers(workers: int, work: Callable[[Team], T]) -> list[T | BaseException]:
    """Call a function in a thread of each worker; return the results, or what was raised."""
    barrier, values = threading.Barrier(workers), [None] * workers
    found: list[Any] = [None] * workers

    def run(rank: int) -> None:
        try:
            channel = ThreadChannel(rank, workers, barrier, values)
            found[rank] = work(Team(channel, patient=workers % 2 == 0))
        except BaseException as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * _SECONDS)
        assert not thread.is_alive(), "a worker waits for ever"
    return found
