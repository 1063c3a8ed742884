# SPDX-License-Identifier: Apache-2.0
"""Count rows, received keys and updates on each of N workers, for one table and a key log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mindspore_rec import _native
from mindspore_rec.plan.log import KeyLog

__all__ = ["WorkerLoads", "count_loads"]


@dataclass(frozen=True)
class WorkerLoads:
    """Loads of N workers for one table; a hash of a key selects the worker that owns the key's row.

    In a step, each worker trains on one batch of the log. If the last samples of the log do not
    fill a step, these samples are not counted. If the log is shorter than one step, the loads are
    expected values for one step whose batches resemble the batches of the log.

    Args:
        workers: number of workers, N.
        rows: int64 `[N]`, number of the log's distinct keys that each worker owns.
        lookups: int64 `[steps, N]`, number of lookups of each owner's keys by all workers.
        received: int64 `[steps, N]`, number of keys that all workers send to each owner. Every
            worker sends each of its distinct keys once.
        updated: int64 `[steps, N]`, number of the global batch's distinct keys that each worker
            owns. A worker updates the rows of the keys that it owns.
        sent: int64 `[steps, N]`, number of distinct keys in each worker's batch.
        expected: True if the log is shorter than one step; the loads are then expected values,
            float64.
    """

    workers: int
    rows: np.ndarray
    lookups: np.ndarray
    received: np.ndarray
    updated: np.ndarray
    sent: np.ndarray
    expected: bool = False

    @property
    def steps(self) -> int:
        """Number of counted steps; 1 if the loads are expected values for one step."""
        return len(self.sent)


def count_loads(
    log: KeyLog,
    workers: Sequence[int],
    batch_size: int,
    progress: Callable[[int], object] | None = None,
) -> tuple[list[WorkerLoads], int]:
    """Return the loads for each number of workers, and the number of samples of the log.

    Args:
        log: the keys of one table, in the order of training.
        workers: job sizes (numbers of workers) for which loads are counted, each at least 1.
        batch_size: number of samples in one worker's batch.
        progress: function that is called with the number of bytes read since the previous call.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/log.csv"
        >>> _ = open(path, "w").write("item\\n7\\n8\\n7\\n9\\n")
        >>> (loads,), samples = count_loads(KeyLog([path], ["item"]), [2], batch_size=2)
        >>> samples, loads.rows.sum(), loads.sent.tolist(), loads.updated.sum()
        (4, 3, [[2, 2]], 3)
    """
    counters = [_Counter(number) for number in workers]
    seen = _SeenKeys()
    samples = 0
    for batch in log.batches(batch_size, progress):
        samples += batch.samples
        keys, counts = np.unique(batch.keys, return_counts=True)
        for counter in counters:
            counter.add(keys, counts)
        seen.add(keys, counts)
    seen.merge()
    return [counter.loads(seen) for counter in counters], samples


class _SeenKeys:
    """Counts each distinct key's lookups in the log, and the batches that contain the key."""

    def __init__(self) -> None:
        self.keys = np.empty(0, np.int64)
        self.batches = np.empty(0, np.int64)
        self.lookups = np.empty(0, np.int64)
        self.count = 0  # batches of the log
        self._new: list[tuple[np.ndarray, np.ndarray]] = []
        self._waiting = 0

    def add(self, keys: np.ndarray, counts: np.ndarray) -> None:
        self.count += 1
        self._new.append((keys, counts))
        self._waiting += len(keys)
        if self._waiting > max(1 << 20, len(self.keys)):
            self.merge()

    def merge(self) -> None:
        keys = np.concatenate([self.keys, *(keys for keys, _ in self._new)])
        batches = np.concatenate([self.batches, np.ones(self._waiting, np.int64)])
        lookups = np.concatenate([self.lookups, *(counts for _, counts in self._new)])
        self.keys, place = np.unique(keys, return_inverse=True)
        self.batches = np.bincount(place, batches, len(self.keys)).astype(np.int64)
        self.lookups = np.bincount(place, lookups, len(self.keys)).astype(np.int64)
        self._new, self._waiting = [], 0


class _Counter:
    """Count the loads for one number of workers; worker i gets the i-th batch of each step."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._keys: list[np.ndarray] = []  # of the present step's batches
        self._lookups = np.zeros(workers, np.int64)
        self._received = np.zeros(workers, np.int64)
        self._steps: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []

    def add(self, keys: np.ndarray, counts: np.ndarray) -> None:
        owners = _native.owners(keys, self._workers)
        lookups = np.bincount(owners, counts, self._workers)
        self._lookups += lookups.astype(np.int64)
        self._received += np.bincount(owners, minlength=self._workers)
        self._keys.append(keys)
        if len(self._keys) == self._workers:
            self._end_step()

    def _end_step(self) -> None:
        distinct = np.unique(np.concatenate(self._keys))
        updated = np.bincount(_native.owners(distinct, self._workers), minlength=self._workers)
        sent = np.array([len(keys) for keys in self._keys], np.int64)
        self._steps.append((self._lookups, self._received, updated, sent))
        self._keys = []
        self._lookups, self._received = (np.zeros(self._workers, np.int64) for _ in range(2))

    def loads(self, seen: _SeenKeys) -> WorkerLoads:
        owners = _native.owners(seen.keys, self._workers)
        rows = np.bincount(owners, minlength=self._workers)
        if not self._steps:
            return self._expected(seen, owners, rows)
        lookups, received, updated, sent = (
            np.array([step[i] for step in self._steps], np.int64) for i in range(4)
        )
        return WorkerLoads(self._workers, rows, lookups, received, updated, sent)

    def _expected(self, seen: _SeenKeys, owners: np.ndarray, rows: np.ndarray) -> WorkerLoads:
        share = seen.batches / max(seen.count, 1)  # of the batches that have the key

        def by_owner(load: np.ndarray) -> np.ndarray:
            return np.bincount(owners, load, self._workers).reshape(1, -1)

        lookups = by_owner(self._workers * seen.lookups / max(seen.count, 1))
        received = by_owner(self._workers * share)
        updated = by_owner(1.0 - (1.0 - share) ** self._workers)
        sent = np.full((1, self._workers), share.sum())
        return WorkerLoads(self._workers, rows, lookups, received, updated, sent, expected=True)
