# SPDX-License-Identifier: Apache-2.0
"""Run the network once for all requests that wait at the same time."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from mindspore_rec.checks import check_int
from mindspore_rec.feature.arrow_columns import join_rows
from mindspore_rec.serving.predictor import Predictor

__all__ = ["Batcher", "BusyError"]

_MOST_WAITING = 4096

Answer = tuple[list[np.ndarray], int]
"""Outputs, and the version (`Status.version`) that they are of."""


Inputs: TypeAlias = list[np.ndarray] | pa.RecordBatch
"""Arrays in the order of the network's arguments, or raw rows."""


class BusyError(RuntimeError):
    """More requests wait than will be answered in time."""


@dataclass(frozen=True)
class _Request:
    inputs: Inputs
    rows: int  # 0 where requests go one by one
    future: Future[Answer] = field(default_factory=Future)

    def goes_with(self, other: _Request) -> bool:
        """Return whether both are arrays, or rows of the same columns."""
        return _schema(self.inputs) == _schema(other.inputs)


class Batcher:
    """Thread that calls the predictor, each time with all requests that arrived meanwhile.

    MindSpore runs one graph at a time, and a call with one row costs nearly what one with twenty
    does. Nobody waits for a batch to fill: a request that comes alone goes alone. A future may be
    cancelled until its request goes to the network: then it is left out, and nobody else notices.

    Args:
        predictor: what answers; a row of its inputs must give a row of its outputs, whatever the
            other rows are.
        max_rows: rows of a call, unless one request has more. 0: requests go one by one.

    Example:
        >>> batcher = Batcher(predictor, 1024)  # doctest: +SKIP
        >>> outputs, version = batcher.submit([ids]).result()  # doctest: +SKIP
    """

    def __init__(self, predictor: Predictor, max_rows: int = 1024) -> None:
        self._predictor = predictor
        self._max_rows = check_int("max_rows", max_rows, 0, 1 << 30)
        together = predictor.outputs is not None and all(
            spec.shape[0] == -1 for spec in (*predictor.outputs, *(predictor.inputs or ()))
        )
        if not together:
            self._max_rows = 0
        self._waiting: deque[_Request] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self._thread.start()

    def submit(self, inputs: Inputs) -> Future[Answer]:
        """Queue a request.

        Args:
            inputs: as `Predictor.predict` takes them; the first dimensions of arrays are the same,
                where requests go together.

        Raises:
            BusyError: too many wait already, or it is closed.
            ValueError: inputs of different first dimensions.
        """
        rows = 0
        if self._max_rows and isinstance(inputs, pa.RecordBatch):
            rows = inputs.num_rows
        elif self._max_rows:
            found = {len(each) for each in inputs}
            if len(found) != 1:
                raise ValueError(f"inputs must have the same first dimension, got {sorted(found)}")
            (rows,) = found
        request = _Request(inputs, rows)
        with self._changed:
            if self._closed:
                raise BusyError("the server is stopping")
            if len(self._waiting) >= _MOST_WAITING:
                raise BusyError(f"{_MOST_WAITING} requests are waiting already")
            self._waiting.append(request)
            self._changed.notify()
        return request.future

    def close(self) -> None:
        """Answer the requests that wait, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            # From here on they cannot be cancelled, so that setting an answer cannot fail.
            batch = [each for each in batch if each.future.set_running_or_notify_cancel()]
            if batch:
                self._answer(batch)

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
            return batch

    def _answer(self, batch: list[_Request]) -> None:
        """Answer each of them, whatever happens: nobody may wait for ever."""
        try:
            answers = self._answers(batch)
        except BaseException as error:
            if len(batch) == 1:
                batch[0].future.set_exception(_for_a_future(error))
                return
            for request in batch:  # one of them is to blame, the others are not
                self._answer([request])
            return
        for request, answer in zip(batch, answers, strict=True):
            request.future.set_result(answer)

    def _answers(self, batch: list[_Request]) -> list[Answer]:
        together = _joined([request.inputs for request in batch])
        outputs, version = self._predictor.predict_versioned(*together)
        if len(batch) == 1:
            return [(outputs, version)]
        rows = [request.rows for request in batch]
        for output in outputs:
            if len(output) != sum(rows):
                raise ValueError(f"the network gave {len(output)} rows for {sum(rows)}")
        ends = np.cumsum(rows)[:-1]
        parts = [np.split(output, ends) for output in outputs]
        return [([part[i] for part in parts], version) for i in range(len(batch))]


def _schema(inputs: Inputs) -> pa.Schema | None:
    return inputs.schema if isinstance(inputs, pa.RecordBatch) else None


def _joined(parts: list[Inputs]) -> list[Any]:
    """Return the inputs of requests that go together, one after the other."""
    rows = [part for part in parts if isinstance(part, pa.RecordBatch)]
    if rows:
        return [join_rows(rows)]
    if len(parts) == 1:
        return list(parts[0])
    return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]


def _for_a_future(error: BaseException) -> Exception:
    """Return the error, or one in its place that reaches whoever waits in an event loop.

    A SystemExit would end the loop, and asyncio refuses a StopIteration.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"the network raised {type(error).__name__}: {error}")
