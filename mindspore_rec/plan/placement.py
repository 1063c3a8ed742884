# SPDX-License-Identifier: Apache-2.0
"""Compute the cost of a table under each placement, and choose placements for all tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mindspore_rec.common.checks import check_int, check_number
from mindspore_rec.plan.worker_loads import WorkerLoads

__all__ = ["KEY_BYTES", "Machine", "Placed", "TableCost", "propose"]

KEY_BYTES = 12  # a key and how often it occurs, on its way to the owner
# _EXCHANGES is the number of exchanges in a step. _AVERAGES is the number of additional exchanges
# in a step that averages dense gradients. In an exchange, a worker sends one message to every other
# worker. In the forward pass of a lookup cell, the workers exchange headers, keys, statuses and
# rows. In the backward pass of a lookup cell, the workers exchange headers, gradients and statuses.
# In the training loop, the workers exchange batches and losses. To average dense gradients, the
# workers exchange headers, parts and sums.
_EXCHANGES = 9
_AVERAGES = 3
# A table is small if it has fewer rows per worker than _SMALL_ROWS. A hash cannot distribute a few
# rows evenly.
_SMALL_ROWS = 64


@dataclass(frozen=True)
class Machine:
    """Speeds of one worker, from which the time of a step is predicted.

    Args:
        link_bytes: bytes per second that a host's link can carry in each direction. Default:
            1.25e9, which means 10 Gbit/s.
        memory_bytes: bytes per second that a worker can read and write if the rows are at random
            places in memory. Default: 10e9.
        latency: seconds from sending a message to its arrival on another host. Default: 50e-6.
        message: seconds of processor time that a worker needs for one message. Default: 10e-6, the
            time for TCP; shared memory needs 2e-6.
        workers_per_host: number of workers on a host. The workers share the host's link; messages
            between workers of the same host do not use the link. Default: 1.

    Raises:
        ValueError: a number is out of range.
    """

    link_bytes: float = 1.25e9
    memory_bytes: float = 10e9
    latency: float = 50e-6
    message: float = 10e-6
    workers_per_host: int = 1

    def __post_init__(self) -> None:
        for name in ("link_bytes", "memory_bytes"):
            if check_number(name, getattr(self, name)) <= 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)}")
        for name in ("latency", "message"):
            if check_number(name, getattr(self, name)) < 0:
                raise ValueError(f"{name} must be >= 0, got {getattr(self, name)}")
        check_int("workers_per_host", self.workers_per_host, 1, 1 << 16)

    def table_seconds(self, touched: np.ndarray) -> float:
        """Return the seconds that the busiest worker needs to access rows in a step, on average."""
        return float(touched.max(axis=1).mean()) / self.memory_bytes

    def exchange_seconds(self, out: np.ndarray, into: np.ndarray, workers: int) -> float:
        """Return the seconds of all exchanges in a step: the transfer time on the busiest link,
        plus the processor time and the latency of the messages.
        """
        remote = 1.0 - min(self.workers_per_host, workers) / workers
        # The busiest worker determines the time of each step; the workers of a host share the
        # host's link.
        busiest = np.maximum(out, into).max(axis=1).mean() * self.workers_per_host
        return float(busiest) * remote / self.link_bytes + _EXCHANGES * self._message_seconds(
            workers
        )

    def average_seconds(self, dense_bytes: int, workers: int) -> float:
        """Return the seconds that the workers need to exchange dense gradients for averaging."""
        if workers == 1 or dense_bytes == 0:
            return 0.0
        remote = 1.0 - min(self.workers_per_host, workers) / workers
        moved = 2.0 * dense_bytes * remote * self.workers_per_host
        return moved / self.link_bytes + _AVERAGES * self._message_seconds(workers)

    def _message_seconds(self, workers: int) -> float:
        latency = self.latency if workers > self.workers_per_host else 0.0
        return (workers - 1) * self.message + latency


@dataclass(frozen=True)
class Placed:
    """Load of a table on each worker, for one placement.

    Args:
        rows: `[N]`, number of rows on each worker.
        touched_bytes: `[steps, N]`, bytes that each worker reads and writes in rows in each step.
        out_bytes: `[steps, N]`, bytes that each worker sends in each step.
        in_bytes: `[steps, N]`, bytes that each worker receives in each step.
    """

    rows: np.ndarray
    touched_bytes: np.ndarray
    out_bytes: np.ndarray
    in_bytes: np.ndarray


@dataclass(frozen=True)
class TableCost:
    """Cost of a table, for each placement.

    A lookup reads a row; an update reads and writes a row. For each distinct key, a message
    contains the value or the gradient, with 4 bytes per float.

    Args:
        loads: rows, lookups and keys of the table on each worker.
        dim: number of floats in a row's value.
        row_bytes: bytes of a row.
    """

    loads: WorkerLoads
    dim: int
    row_bytes: int

    def placed(self, placement: str, owner: int | None = None) -> Placed:
        """Return the load of the table if its placement is 'sharded', 'replicated', or 'owner' (all
        rows on worker `owner`)."""
        loads, value = self.loads, 4 * self.dim
        sent, received, updated, rows = loads.sent, loads.received, loads.updated, loads.rows
        if placement == "owner":
            rows, received, updated = (_all_on(each, owner) for each in (rows, received, updated))
        elif placement == "replicated":
            rows, received, updated = (_everywhere(each) for each in (rows, received, updated))
        touched = received * self.row_bytes + updated * 2 * self.row_bytes
        if placement == "replicated":
            others = received - sent
            out = sent * (loads.workers - 1) * (KEY_BYTES + value)
            return Placed(rows, touched, out, others * (KEY_BYTES + value))
        out = sent * (KEY_BYTES + value) + received * value
        return Placed(rows, touched, out, received * (KEY_BYTES + value) + sent * value)


def propose(costs: Mapping[str, TableCost], machine: Machine) -> dict[str, tuple[str, int | None]]:
    """Return a placement for each table, and the owning worker if the placement is 'owner'.

    Large tables are sharded. A small table has fewer than 64 rows per worker. A small table is
    sharded, replicated or put on the least busy worker. For a small table, the chosen placement
    makes the busiest worker's step as short as possible. If 'sharded' is among the best placements,
    'sharded' is chosen.

    Example:
        >>> loads = WorkerLoads(2, *(np.array(x) for x in ([5, 1], [[9, 1]], [[5, 1]], [[5, 1]],
        ...                                                [[3, 3]])))
        >>> propose({"small": TableCost(loads, dim=16, row_bytes=220)}, Machine())
        {'small': ('replicated', None)}
    """
    chosen: dict[str, tuple[str, int | None]] = dict.fromkeys(costs, ("sharded", None))
    first = next(iter(costs.values())).loads
    workers = first.workers
    if workers == 1:
        return chosen
    total = _Total(machine, workers)
    for name, cost in costs.items():
        total.add(cost.placed(*chosen[name]), 1)
    small = [name for name, cost in costs.items() if cost.loads.rows.sum() < _SMALL_ROWS * workers]
    small.sort(key=lambda name: -int(costs[name].loads.received.sum()))
    for name in small:
        total.add(costs[name].placed(*chosen[name]), -1)
        places: list[tuple[str, int | None]] = [
            ("sharded", None),
            ("replicated", None),
            ("owner", total.least_busy()),
        ]
        seconds = [total.seconds_with(costs[name].placed(*place)) for place in places]
        chosen[name] = places[int(np.argmin(seconds))]
        total.add(costs[name].placed(*chosen[name]), 1)
    return chosen


class _Total:
    """Sum of the loads of all tables; each load is a mean over the steps."""

    def __init__(self, machine: Machine, workers: int) -> None:
        self._machine = machine
        self._touched = np.zeros(workers)
        self._out = np.zeros(workers)
        self._into = np.zeros(workers)

    def add(self, placed: Placed, sign: int) -> None:
        self._touched += sign * placed.touched_bytes.mean(0)
        self._out += sign * placed.out_bytes.mean(0)
        self._into += sign * placed.in_bytes.mean(0)

    def least_busy(self) -> int:
        return int(np.argmin(self._touched + self._out + self._into))

    def seconds_with(self, placed: Placed) -> float:
        memory = self._touched + placed.touched_bytes.mean(0)
        out = self._out + placed.out_bytes.mean(0)
        into = self._into + placed.in_bytes.mean(0)
        link = np.maximum(out, into) / self._machine.link_bytes
        return float(memory.max()) / self._machine.memory_bytes + float(link.max())


def _all_on(load: np.ndarray, owner: int | None) -> np.ndarray:
    placed = np.zeros_like(load)
    placed[..., owner] = load.sum(axis=-1)
    return placed


def _everywhere(load: np.ndarray) -> np.ndarray:
    return np.broadcast_to(load.sum(axis=-1, keepdims=True), load.shape)
