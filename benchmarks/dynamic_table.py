# SPDX-License-Identifier: Apache-2.0
"""Code that the benchmarks of dynamic features share: full tables, streams with new keys."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

os.environ.setdefault("GLOG_v", "3")

import bench_common
import embedding_step  # type: ignore[import-not-found]
import mindspore as ms
import numpy as np
from mindspore import Tensor

import mindspore_rec as mr

CLOCK = 1_000_000  # step number in the clock of a filled table
TIME = 1_700_000_000  # event time in the clock of a filled table
SWEEP_STEPS = 256  # steps in which the eviction's sweep visits all rows
CHUNK = 500_000


def choose(names: list[str], asked: list[str] | None, option: str) -> list[str]:
    """Return the requested names; None requests all names.

    Raises:
        SystemExit: a name is unknown.
    """
    unknown = sorted(set(asked or ()) - set(names))
    if unknown:
        raise SystemExit(f"{option} must be among {', '.join(names)}, got {', '.join(unknown)}")
    return names if asked is None else asked


class Sample(NamedTuple):
    """Seconds of a whole step, and seconds that the step spends in the table's operators."""

    step: float
    table: float


class Subject:
    """A full table and its train step.

    Args:
        name: name of the table.
        fields: number of ids in a sample.
        dim: number of floats in a row.
        admission, eviction: the policies, or None for no policy.
    """

    def __init__(
        self, name: str, fields: int, dim: int, admission: Any = None, eviction: Any = None
    ) -> None:
        self.lookup = mr.HashEmbeddingLookup(
            dim, key_dtype=ms.int64, name=name, admission=admission, eviction=eviction
        )
        self.table = self.lookup.embedding_table
        net = embedding_step.Table(self.lookup, embedding_step.Head(fields, dim))
        optimizer = mr.LazyAdam(net.trainable_params(), learning_rate=1e-3)
        self.net = embedding_step.TrainStep(net, optimizer).set_train()

    def fill(self, rows: int, idle: tuple[int, int], spare: int, seed: int) -> None:
        """Fill the table with rows for the keys that `spread_keys` makes from 0 .. rows - 1.

        Args:
            rows: number of rows.
            idle: range of the rows' idle times, in steps (and seconds); the idle times are spread
                evenly over this range.
            spare: number of rows that were in use and are now free, as after an eviction. New keys
                reuse the memory of the spare rows, so that no measured step waits for fresh memory
                from the system.
            seed: seed of the rows' random counts and ages.
        """
        rng = np.random.default_rng(seed)
        scored = self.table.eviction is not None and self.table.eviction.order == "lfu_decay"
        self.table.set_clock(CLOCK, TIME)
        for start in range(0, rows + spare, CHUNK):
            numbers = np.arange(start, min(start + CHUNK, rows + spare))
            ages = rng.integers(*idle, len(numbers), endpoint=True).astype(np.uint32)
            counts = np.minimum(rng.zipf(1.5, len(numbers)), 1 << 20).astype(np.uint32)
            states = None
            if scored:
                width = self.table.state_width
                states = np.zeros((len(numbers), width), np.float32)
                states[:, -1] = counts
            self.table.import_rows(
                bench_common.spread_keys(numbers),
                states=states,
                counts=counts,
                last_steps=CLOCK - ages,
                last_times=TIME - ages,
            )
        if spare:
            self.table.erase_rows(bench_common.spread_keys(np.arange(rows, rows + spare)))

    def step(self, ids: Tensor, label: Tensor, event_time: int | None = None) -> Sample:
        """Run one training step and return its times."""
        before = sum(each[1] for each in self.table.op_times().values())
        start = time.perf_counter()
        if event_time is not None:
            self.table.set_event_time(event_time)
        self.net(ids, label).asnumpy()
        spent = time.perf_counter() - start
        after = sum(each[1] for each in self.table.op_times().values())
        return Sample(spent, (after - before) / 1e9)

    def close(self) -> None:
        """Close the table."""
        self.table.close()


class Stream:
    """Batches of ids: most keys are in the table, and a share of the keys is new.

    With 'returning', half of the new keys in a batch have never occurred before, and the other half
    were new in the previous batch. Even with an admission threshold of 2, a step inserts as many
    keys as without admission. With a threshold of 2, the step also counts the same number of keys
    that are not admitted yet. With 'once', each new key occurs only once in the stream.

    Args:
        shape: batch and fields.
        rows: number of keys in the table.
        zipf: exponent of the Zipf distribution of the ids that have rows.
        share: share of the ids whose keys are new.
        kind: 'returning' or 'once'.
        first: index of the first new key.
        seed: seed of the random ids.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        rows: int,
        zipf: float,
        share: float,
        kind: str,
        first: int,
        seed: int,
    ) -> None:
        self._rng = np.random.default_rng(seed)
        draw = bench_common.Zipf(rows, zipf, self._rng)
        offsets = (np.arange(shape[1]) * (rows // shape[1])).astype(np.int64)
        # A fixed offset per field shifts the ranks, so that the frequent keys differ between
        # fields.
        self.known = [
            bench_common.spread_keys((draw.draw(shape) + offsets) % rows) for _ in range(8)
        ]
        new = int(share * shape[0] * shape[1])
        self.fresh = new // 2 if kind == "returning" else new
        self._kind = kind
        self._next = first
        self._before: np.ndarray | None = None
        self._made = 0

    @property
    def used(self) -> int:
        """Index of the next new key."""
        return self._next

    def batch(self) -> np.ndarray:
        """Return the next batch, int64 [B, F]."""
        ids = self.known[self._made % len(self.known)].copy()
        self._made += 1
        numbers = np.arange(self._next, self._next + self.fresh)
        self._next += self.fresh
        new = bench_common.spread_keys(numbers)
        placed = new
        if self._kind == "returning" and self._before is not None:
            placed = np.concatenate([new, self._before])
        self._before = new
        places = self._rng.choice(ids.size, len(placed), replace=False)
        ids.reshape(-1)[places] = placed
        return ids

    def tensors(self, n: int) -> list[Tensor]:
        """Return the next n batches as Tensors."""
        return [Tensor.from_numpy(self.batch()) for _ in range(n)]
