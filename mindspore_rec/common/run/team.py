# SPDX-License-Identifier: Apache-2.0
"""Team: the workers of a checkpoint, each of which writes or reads one part.

If an action fails on one worker, all workers raise an error, so that no worker continues alone.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from mindspore_rec.common.parallel.channel import Channel
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.share import Shares

__all__ = ["ALONE", "Team"]

_HEARTBEAT = 10.0  # seconds between two reports of a worker that is not ready
_KINDS: dict[str, type[Exception]] = {
    "OSError": OSError,
    "FileExistsError": FileExistsError,
    "FileNotFoundError": FileNotFoundError,
    "CheckpointError": CheckpointError,
    "ValueError": ValueError,
    "TypeError": TypeError,
    "RuntimeError": RuntimeError,
}

T = TypeVar("T")


class Team:
    """Workers that perform an action together. Each worker performs one part of the action.

    All workers call the same methods in the same order. A method returns after all workers have
    finished the action. If the action fails on one worker, the method raises an error on all
    workers.

    Args:
        channel: channel for messages between the workers. Default: None, which means that there is
            only one worker.
        patient: True if a worker may wait for slower workers longer than the channel's time limit.
            If True, a thread of each worker sends a message on the channel every ten seconds during
            an action, so other objects must not use the channel. Default: False.

    Attributes:
        worker: index of this worker, from 0.
        workers: number of workers.

    Example:
        >>> ALONE.all(lambda: 3), ALONE.first(lambda: 4)
        ([3], 4)
    """

    def __init__(self, channel: Channel | None = None, patient: bool = False) -> None:
        self.worker = 0 if channel is None else channel.rank
        self.workers = 1 if channel is None else channel.size
        self._channel = channel if self.workers > 1 else None
        self._patient = patient

    @property
    def shares(self) -> Shares:
        """This worker's shares of the tables."""
        return Shares(self.worker, self.workers)

    def all(self, work: Callable[[], T]) -> list[T]:
        """Call a function on every worker, and return the results of all workers, in worker order.

        Args:
            work: function whose result consists of JSON values.

        Raises:
            OSError: the function raised an OSError on a worker, and no worker raised another kind
                of error.
            Exception: the function raised an error other than an OSError on a worker. The failed
                worker raises the function's error. All other workers raise an error of the same
                class, or a RuntimeError if the class is not in `_KINDS`. The error message names
                the failed worker.
        """
        if self._channel is None:
            return [work()]
        messenger = _Messenger(self._channel) if self._patient else None
        error: BaseException | None = None
        result: Any = None
        try:
            result = work()
        except BaseException as raised:
            error = raised
        last = {"result": result, "error": _described(error)}
        reports = _gathered(self._channel, last) if messenger is None else messenger.finish(last)
        self._raise([report["error"] for report in reports], error)
        return [report["result"] for report in reports]

    def each(self, work: Callable[[], T]) -> T:
        """Call a function on every worker, and return this worker's result, of any type.

        Raises:
            Exception: as for `all`.
        """
        results: list[T] = []
        self.all(lambda: results.append(work()))
        return results[0]

    def first(self, work: Callable[[], T]) -> T:
        """Call a function on worker 0 only, and return the result on every worker.

        Raises:
            Exception: as for `all`.
        """
        return self.all(lambda: work() if self.worker == 0 else None)[0]  # type: ignore[return-value]

    def told(self, work: Callable[[], T]) -> T:
        """On worker 0, call a fast function that never raises; return the result on every worker.

        Each worker sends one message. No thread is started, even if the team was made with
        `patient=True`.
        """
        mine = work() if self.worker == 0 else None
        told = [mine] if self._channel is None else _gathered(self._channel, mine)
        return told[0]  # type: ignore[return-value]

    def _raise(self, errors: list[dict[str, str] | None], mine: BaseException | None) -> None:
        failed = [(worker, each) for worker, each in enumerate(errors) if each is not None]
        if not failed:
            return
        # Sort OSErrors last, so that an OSError is raised only if all workers' errors are OSErrors.
        failed.sort(key=lambda pair: issubclass(_kind(pair[1]), OSError))
        worker, first = failed[0]
        if mine is not None and issubclass(type(mine), OSError) == issubclass(
            _kind(first), OSError
        ):
            raise mine
        raise _kind(first)(f"worker {worker}: {first['text']}") from mine


ALONE = Team()


def _gathered(channel: Channel, value: Any) -> list[Any]:
    return [json.loads(data) for data in channel.all_gather(json.dumps(value).encode())]


class _Messenger:
    """Thread that exchanges reports until every worker has sent its last report."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._ready = threading.Event()
        self._last: Any = None
        self._reports: list[Any] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="checkpoint reports", daemon=True)
        self._thread.start()

    def finish(self, report: Any) -> list[Any]:
        """Send the last report of this worker, and return the last reports of all workers."""
        self._last = report
        self._ready.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._reports

    def _work(self) -> None:
        try:
            while not all(self._reports) or not self._reports:
                ready = self._ready.wait(_HEARTBEAT)
                self._reports = _gathered(self._channel, self._last if ready else None)
        except BaseException as error:
            self._error = error


def _described(error: BaseException | None) -> dict[str, str] | None:
    if error is None:
        return None
    kinds = (each.__name__ for each in type(error).__mro__)
    kind = next((name for name in kinds if name in _KINDS), "RuntimeError")
    text = str(error) if type(error).__name__ == kind else f"{type(error).__name__}: {error}"
    return {"kind": kind, "text": text[:2000]}


def _kind(error: dict[str, str] | None) -> type[Exception]:
    return _KINDS[error["kind"]] if error is not None else RuntimeError
