# SPDX-License-Identifier: Apache-2.0
"""Requests that wait at the same time go through the network together."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from mindspore_rec.checks import check_int
from mindspore_rec.serving.predictor import Predictor

__all__ = ["Batcher", "BusyError"]

_MOST_WAITING = 4096

Answer = tuple[list[np.ndarray], int]
"""Outputs, and the version that they are of."""


class BusyError(RuntimeError):
    """More requests wait than will be answered in time."""


@dataclass(frozen=True)
class _Request:
    inputs: list[np.ndarray]
    future: Future[Answer] = field(default_factory=Future)

    @property
    def rows(self) -> int:
        return len(self.inputs[0])


class Batcher:
    """One thread calls the predictor, each time with all that has come meanwhile.

    MindSpore runs one graph at a time, and a call with one row costs nearly what one with twenty
    does. Nobody waits for a batch to fill: a request that comes alone goes alone.

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

    def submit(self, inputs: list[np.ndarray]) -> Future[Answer]:
        """Hands a request over.

        Args:
            inputs: as `Predictor.predict` takes them; their first dimensions are the same, where
                requests go together.

        Raises:
            BusyError: too many wait already, or it is closed.
            ValueError: inputs of different first dimensions.
        """
        rows = {len(each) for each in inputs}
        if self._max_rows and len(rows) != 1:
            raise ValueError(f"inputs must have the same first dimension, got {sorted(rows)}")
        request = _Request(inputs)
        with self._changed:
            if self._closed:
                raise BusyError("the server is stopping")
            if len(self._waiting) >= _MOST_WAITING:
                raise BusyError(f"{_MOST_WAITING} requests are waiting already")
            self._waiting.append(request)
            self._changed.notify()
        return request.future

    def close(self) -> None:
        """Answers what waits, and ends."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            try:
                self._answer(batch)
            except Exception as error:
                if len(batch) == 1:
                    batch[0].future.set_exception(error)
                    continue
                for request in batch:  # one of them is to blame, the others are not
                    try:
                        self._answer([request])
                    except Exception as own:
                        request.future.set_exception(own)

    def _next(self) -> list[_Request]:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            if not self._waiting:
                return []
            batch = [self._waiting.popleft()]
            rows = batch[0].rows
            while self._waiting and rows + self._waiting[0].rows <= self._max_rows:
                batch.append(self._waiting.popleft())
                rows += batch[-1].rows
            return batch

    def _answer(self, batch: list[_Request]) -> None:
        if len(batch) == 1:
            batch[0].future.set_result(self._predictor.predict_versioned(*batch[0].inputs))
            return
        together = [
            np.concatenate(parts)
            for parts in zip(*(request.inputs for request in batch), strict=True)
        ]
        outputs, version = self._predictor.predict_versioned(*together)
        ends = np.cumsum([request.rows for request in batch])[:-1]
        parts = zip(*(np.split(output, ends) for output in outputs), strict=True)
        for request, part in zip(batch, parts, strict=True):
            request.future.set_result((list(part), version))
