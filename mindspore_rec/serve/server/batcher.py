# SPDX-License-Identifier: Apache-2.0
"""Run the network once for all requests that wait at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.columns.arrow_columns import join_rows
from mindspore_rec.common.columns.tensors import TensorSpec
from mindspore_rec.serve.protocol.ragged import Ragged
from mindspore_rec.serve.server.model_reports import Statistics

__all__ = ["Answer", "Answers", "Batcher", "BusyError", "Inputs"]

_MOST_WAITING = 4096
_MOST_THREADS = 4

Answer = tuple[list[np.ndarray], int]
"""Outputs, and the version (`Status.version`) that they are of."""


Inputs: TypeAlias = list[np.ndarray] | pa.RecordBatch
"""Arrays in the order of the network's arguments, or raw rows."""


class Answers(Protocol):
    """Protocol of a predictor that answers requests: a `Predictor` or a client of a `Predictor`."""

    @property
    def inputs(self) -> Sequence[TensorSpec] | None:
        """Inputs of the predictor's network; None if the inputs are not known."""

    @property
    def outputs(self) -> Sequence[TensorSpec] | None:
        """Outputs of the predictor's network; None if the outputs are not known."""

    def predict_versioned(self, *inputs: Any) -> Answer:
        """Return all outputs, and the version of the state from which the outputs were computed."""


class BusyError(RuntimeError):
    """Error: the server has too much work to accept another request, or is stopping."""


@dataclass(frozen=True)
class _Request:
    inputs: Inputs
    rows: int  # 0 if requests go one by one
    at: int  # nanoseconds, when it came
    future: Future[Answer] | asyncio.Future[Answer]

    def goes_with(self, other: _Request) -> bool:
        """Return True if both requests contain arrays, or both contain rows with equal schemas."""
        return _schema(self.inputs) == _schema(other.inputs)


@dataclass(frozen=True)
class _Outcome:
    """Outcome of a request: an answer or an error."""

    request: _Request
    answer: Answer | None
    error: Exception | None = None

    def tell(self) -> None:
        """Complete the request's future if it is not done.

        For an asyncio future, call `tell` in the thread of the future's event loop.
        """
        future = self.request.future
        if self.error is not None:
            if not future.done():
                future.set_exception(self.error)
        elif not future.done():
            assert self.answer is not None
            future.set_result(self.answer)


class Batcher:
    """Threads that call the predictor; each call contains all requests that wait at that time.

    A call with one row costs nearly as much as a call with ten rows. No request waits until a batch
    is full, so a single request runs alone. A future may be cancelled as long as its request has
    not been passed to the network. A cancelled request is left out of the next batch, without
    effect on other requests.

    Args:
        predictor: the predictor that answers requests; each row of the outputs must depend only on
            the same row of the inputs.
        max_rows: maximum number of rows in a call; a single request may have more rows. Each
            request gets a separate call if `max_rows` is 0, if the outputs are not known, or if the
            first dimension of an input or output is not the number of rows. The predictor's
            `rows_at_once` also limits the rows of a call. More rows than `rows_at_once` in a call
            do not reduce the time per row.
        observe: function that is called at each call of the predictor, with three arguments: the
            number of requests in the call, the number of rows in the call (0 if each request gets a
            separate call), and the number of requests that still wait. Default: none.
        statistics: object that counts the calls and adds up their durations. Default: none.

    Example:
        >>> batcher = Batcher(predictor, 1024)  # doctest: +SKIP
        >>> outputs, version = batcher.submit([ids]).result()  # doctest: +SKIP
    """

    def __init__(
        self,
        predictor: Answers,
        max_rows: int = 1024,
        observe: Callable[[int, int, int], None] | None = None,
        statistics: Statistics | None = None,
    ) -> None:
        self._predictor = predictor
        self._statistics = statistics
        self._observe = observe
        self._max_rows = check_int("max_rows", max_rows, 0, 1 << 30)
        at_once = getattr(predictor, "at_once", 1)
        self._max_rows = min(self._max_rows, getattr(predictor, "rows_at_once", self._max_rows))
        self._ragged = Ragged(predictor.inputs or ())
        together = predictor.outputs is not None and all(
            spec.shape[0] == -1 for spec in (*predictor.outputs, *(predictor.inputs or ()))
        )
        if not together:
            self._max_rows = 0
        self._waiting: deque[_Request] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"batcher {number}", daemon=True)
            for number in range(min(at_once, _MOST_THREADS))
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, inputs: Inputs) -> Future[Answer]:
        """Queue a request; return a concurrent future. Any thread may call `submit`.

        Args:
            inputs: inputs of the network, see `Predictor.predict`; if requests are batched, all
                arrays have the same first dimension.

        Raises:
            BusyError: too many requests are already waiting, or the batcher is closed.
            ValueError: inputs have different first dimensions.
        """
        return self._queue(inputs, Future())

    def submit_from_loop(self, inputs: Inputs) -> asyncio.Future[Answer]:
        """Queue a request; return an asyncio future. Call `submit_from_loop` in a running event
        loop.

        When several requests are answered together, a single call in the event loop completes the
        futures of all these requests.

        Args and Raises: the same as for `submit`.
        """
        return self._queue(inputs, asyncio.get_running_loop().create_future())

    def _queue(self, inputs: Inputs, future: Any) -> Any:
        rows = 0
        if self._max_rows and isinstance(inputs, pa.RecordBatch):
            rows = inputs.num_rows
        elif self._max_rows:
            sizes = self._ragged.rows(inputs)
            if len(sizes) != 1:
                raise ValueError(f"inputs must have the same first dimension, got {sorted(sizes)}")
            (rows,) = sizes
        request = _Request(inputs, rows, time.perf_counter_ns(), future)
        with self._changed:
            if self._closed:
                raise BusyError("the server is stopping")
            if len(self._waiting) >= _MOST_WAITING:
                raise BusyError(f"{_MOST_WAITING} requests are waiting already")
            self._waiting.append(request)
            self._changed.notify()
        return request.future

    def close(self) -> None:
        """Answer the waiting requests, and end the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            # _is_wanted marks concurrent futures as running. A running future cannot be cancelled,
            # so setting its result cannot fail.
            batch = [each for each in batch if _is_wanted(each.future)]
            if batch:
                begin = time.perf_counter_ns()
                outcomes = self._outcomes(batch)
                if self._statistics is not None:
                    took = time.perf_counter_ns() - begin
                    rows = sum(each.request.rows or 1 for each in outcomes if each.error is None)
                    self._statistics.executed([begin - each.at for each in batch], rows, took)
                _tell(outcomes)

    def _next(self) -> list[_Request] | None:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            if not self._waiting:
                return None
            batch = [self._waiting.popleft()]
            rows = batch[0].rows
            while self._max_rows and self._waiting:
                if rows + self._waiting[0].rows > self._max_rows:
                    break
                if not self._waiting[0].goes_with(batch[0]):
                    break
                batch.append(self._waiting.popleft())
                rows += batch[-1].rows
            waiting = len(self._waiting)
        if self._observe is not None:
            self._observe(len(batch), rows, waiting)
        return batch

    def _outcomes(self, batch: list[_Request]) -> list[_Outcome]:
        """Return an outcome for each request, even after an error, so that no request hangs."""
        try:
            answers = self._answers(batch)
        except BaseException as error:
            if len(batch) == 1:
                return [_Outcome(batch[0], None, _for_a_future(error))]
            # A single request may have caused the error, so run each request alone.
            return [each for request in batch for each in self._outcomes([request])]
        return [_Outcome(request, answer) for request, answer in zip(batch, answers, strict=True)]

    def _answers(self, batch: list[_Request]) -> list[Answer]:
        together = self._joined([request.inputs for request in batch])
        outputs, version = self._predictor.predict_versioned(*together)
        if len(batch) == 1:
            return [(outputs, version)]
        rows = [request.rows for request in batch]
        for output in outputs:
            if len(output) != sum(rows):
                raise ValueError(f"the network gave {len(output)} rows for {sum(rows)}")
        answers, end = [], 0
        for count in rows:
            begin, end = end, end + count
            answers.append(([output[begin:end] for output in outputs], version))
        return answers

    def _joined(self, parts: list[Inputs]) -> list[Any]:
        """Return the inputs of a batch's requests, concatenated in the order of the requests."""
        if len(parts) == 1:
            return [parts[0]] if isinstance(parts[0], pa.RecordBatch) else list(parts[0])
        if isinstance(parts[0], pa.RecordBatch):
            return [join_rows(parts)]
        return self._ragged.joined(parts)


def _is_wanted(future: Future[Answer] | asyncio.Future[Answer]) -> bool:
    if isinstance(future, Future):
        return future.set_running_or_notify_cancel()
    return not future.cancelled()


def _tell(outcomes: list[_Outcome]) -> None:
    """Complete the futures: concurrent futures directly, and asyncio futures by one call per
    loop."""
    loops: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for each in outcomes:
        if isinstance(each.request.future, Future):
            each.tell()
        else:
            loops.setdefault(each.request.future.get_loop(), []).append(each)
    for loop, of_loop in loops.items():
        with contextlib.suppress(RuntimeError):  # it is closed: nobody waits
            loop.call_soon_threadsafe(_tell_all, of_loop)


def _tell_all(outcomes: list[_Outcome]) -> None:
    for each in outcomes:
        each.tell()


def _schema(inputs: Inputs) -> pa.Schema | None:
    return inputs.schema if isinstance(inputs, pa.RecordBatch) else None


def _for_a_future(error: BaseException) -> Exception:
    """Return the error, or a RuntimeError if the error cannot be set in a future.

    A SystemExit would end the event loop, and asyncio refuses a StopIteration.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"the network raised {type(error).__name__}: {error}")
