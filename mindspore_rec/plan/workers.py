# SPDX-License-Identifier: Apache-2.0
"""Predict training on many workers from a key log: `python -m mindspore_rec.plan --workers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from tqdm import tqdm

from mindspore_rec.common.checks import check_int, check_number
from mindspore_rec.common.old_arguments import Renamed, old_attribute, takes_old
from mindspore_rec.plan.log import KeyLog
from mindspore_rec.plan.placement import Machine, TableCost, propose
from mindspore_rec.plan.sizes import DIGEST_BYTES, row_bytes
from mindspore_rec.plan.worker_loads import WorkerLoads, count_loads

__all__ = ["PlannedTable", "TableOnWorkers", "WorkerOutcome", "WorkerPlan", "plan_workers"]


@old_attribute("dim", "embedding_dim")
@takes_old(Renamed("dim", "embedding_dim", replaces=True))
@dataclass(frozen=True)
class PlannedTable:
    """Input of `plan_workers` for one table.

    Args:
        log: log of the keys that are looked up in the table.
        embedding_dim: number of floats in a row's value.
        optimizer: name of an optimizer, one of `OPTIMIZERS`.
    """

    log: KeyLog
    embedding_dim: int = 16
    optimizer: str = "LazyAdam"


@dataclass(frozen=True)
class TableOnWorkers:
    """Load of one table on N workers.

    An imbalance is the load of the busiest worker, divided by the mean load; 1.0 means equal
    shares. Even if the table has another placement, the imbalances are computed for placement
    'sharded', in which a hash of the key selects the worker. The numbers of keys and bytes are
    means per step and worker.

    Args:
        placement: 'sharded', 'owner' or 'replicated', as in `TableConfig.placement`.
        owner: if the placement is 'owner', the worker that has the table; None for all other
            placements.
        most_rows: number of rows on the worker with the most rows.
        row_imbalance: number of rows on the busiest worker, divided by the mean number.
        lookup_imbalance: number of lookups on the busiest worker, divided by the mean number. Every
            occurrence of a key counts as a lookup.
        key_imbalance: number of keys that the busiest worker receives, divided by the mean number.
            Every worker sends each of its distinct keys once.
        sent_keys: number of distinct keys in a worker's batch.
        sent_bytes: bytes of keys, rows and gradients that a worker sends per step. With 'sharded'
            and 'owner', `sent_bytes` includes the bytes that the worker sends to itself.
    """

    placement: str
    owner: int | None
    most_rows: int
    row_imbalance: float
    lookup_imbalance: float
    key_imbalance: float
    sent_keys: float
    sent_bytes: float


@dataclass(frozen=True)
class WorkerOutcome:
    """Prediction of training with N workers.

    Args:
        workers: N.
        steps: number of whole steps of the log; a step has N batches.
        expected: True if the log is shorter than one step. If `expected` is True, the numbers below
            are expected values for N batches in which each key is as likely as in the log's
            batches.
        row_bytes: greatest number of bytes that the rows of all tables take on a worker.
        tables: one `TableOnWorkers` for each table, by table name.
        compute_seconds: seconds of a step's dense part; the caller of the plan sets this number.
        table_seconds: seconds that the busiest worker needs for lookups and updates.
        exchange_seconds: seconds that the workers need to exchange keys, rows and gradients.
        average_seconds: seconds that the workers need to average dense gradients.
        step_seconds: sum of `compute_seconds`, `table_seconds`, `exchange_seconds` and
            `average_seconds`.
        samples_per_second: samples per second of all workers; None if the step takes no time.
    """

    workers: int
    steps: int
    expected: bool
    row_bytes: int
    tables: dict[str, TableOnWorkers]
    compute_seconds: float
    table_seconds: float
    exchange_seconds: float
    average_seconds: float
    step_seconds: float
    samples_per_second: float | None


@dataclass
class WorkerPlan:
    """Statistics of a log, and the predictions for each number of workers.

    Args:
        samples: number of rows of the log.
        batch_size: samples of one worker's batch.
        keys: number of distinct keys of each table.
        machine: speeds of the machine; the predicted times depend on these speeds.
        outcomes: one outcome for each number of workers.
    """

    samples: int
    batch_size: int
    keys: dict[str, int]
    machine: Machine
    outcomes: list[WorkerOutcome] = field(default_factory=list)

    def placements(self) -> dict[str, dict[str, dict[str, str | int]]]:
        """Return, for each number of workers, the proposed `TableConfig` arguments of each
        table."""
        proposed: dict[str, dict[str, dict[str, str | int]]] = {}
        for outcome in self.outcomes:
            tables = proposed[str(outcome.workers)] = {}
            for name, table in outcome.tables.items():
                tables[name] = {"placement": table.placement}
                if table.owner is not None:
                    tables[name]["owner"] = table.owner
        return proposed


def plan_workers(
    tables: Mapping[str, PlannedTable],
    workers: Sequence[int],
    batch_size: int,
    machine: Machine | None = None,
    dense_bytes: int = 0,
    compute_seconds: float = 0.0,
    progress: bool = False,
) -> WorkerPlan:
    """Predict rows, bytes and step time of training on several workers.

    Args:
        tables: the tables to plan, by name. Each table has a log; all logs must have the same
            samples.
        workers: job sizes (numbers of workers) to try.
        batch_size: number of samples in one worker's batch; in a step, N workers train on N times
            as many samples.
        machine: speeds of a worker and of its host's network link. Default: `Machine()`.
        dense_bytes: bytes of the dense parameters' gradients. Default: 0.
        compute_seconds: seconds that one worker needs for the dense part of a batch. Default: 0.
        progress: whether to show a progress bar, if standard error is a terminal.

    Raises:
        ValueError: an argument is out of range, or a log has no keys or is damaged.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/log.csv"
        >>> _ = open(path, "w").write("item\\n" + "\\n".join(map(str, range(64))) + "\\n")
        >>> tables = {"items": PlannedTable(KeyLog([path], ["item"]))}
        >>> outcome = plan_workers(tables, [2], batch_size=8).outcomes[0]
        >>> outcome.steps, outcome.tables["items"].sent_keys
        (4, 8.0)
    """
    if not tables:
        raise ValueError("tables must have at least one table")
    if not workers:
        raise ValueError("workers must have at least one number")
    for number in workers:
        check_int("workers", number, 1, 1 << 20)
    check_int("batch_size", batch_size, 1, (1 << 31) - 1)
    check_int("dense_bytes", dense_bytes, 0, 1 << 50)
    if check_number("compute_seconds", compute_seconds) < 0:
        raise ValueError(f"compute_seconds must be >= 0, got {compute_seconds}")
    machine = machine or Machine()
    sizes = {
        name: row_bytes(table.embedding_dim, table.optimizer) for name, table in tables.items()
    }
    loads: dict[str, list[WorkerLoads]] = {}
    samples = 0
    total = sum(table.log.size for table in tables.values())
    with tqdm(total=total, unit="B", unit_scale=True, disable=None if progress else True) as bar:
        for name, table in tables.items():
            bar.set_description(name)
            loads[name], samples = count_loads(table.log, workers, batch_size, bar.update)
            if not loads[name][0].rows.sum():
                raise ValueError(f"table '{name}': the log has no keys")
    keys = {name: int(table_loads[0].rows.sum()) for name, table_loads in loads.items()}
    plan = WorkerPlan(samples, batch_size, keys, machine)
    for i in range(len(workers)):
        costs = {
            name: TableCost(loads[name][i], table.embedding_dim, sizes[name])
            for name, table in tables.items()
        }
        plan.outcomes.append(_outcome(costs, machine, batch_size, dense_bytes, compute_seconds))
    return plan


def _outcome(
    costs: Mapping[str, TableCost],
    machine: Machine,
    batch_size: int,
    dense_bytes: int,
    compute_seconds: float,
) -> WorkerOutcome:
    places = propose(costs, machine)
    placed = [costs[name].placed(*place) for name, place in places.items()]
    loads = next(iter(costs.values())).loads
    row_bytes = _sum(
        [
            each.rows * (cost.row_bytes + DIGEST_BYTES)
            for each, cost in zip(placed, costs.values(), strict=True)
        ]
    )
    table_seconds = machine.table_seconds(_sum([each.touched_bytes for each in placed]))
    exchange = machine.exchange_seconds(
        _sum([each.out_bytes for each in placed]),
        _sum([each.in_bytes for each in placed]),
        loads.workers,
    )
    average = machine.average_seconds(dense_bytes, loads.workers)
    step = compute_seconds + table_seconds + exchange + average
    return WorkerOutcome(
        loads.workers,
        0 if loads.expected else loads.steps,
        loads.expected,
        int(np.max(row_bytes)),
        {name: _table(costs[name], *place) for name, place in places.items()},
        compute_seconds,
        table_seconds,
        exchange,
        average,
        step,
        loads.workers * batch_size / step if step > 0 else None,
    )


def _table(cost: TableCost, placement: str, owner: int | None) -> TableOnWorkers:
    loads, placed = cost.loads, cost.placed(placement, owner)
    return TableOnWorkers(
        placement,
        owner,
        int(placed.rows.max()),
        _imbalance(loads.rows),
        _imbalance(loads.lookups.sum(0)),
        _imbalance(loads.received.sum(0)),
        float(loads.sent.mean()),
        float(placed.out_bytes.mean()),
    )


def _sum(loads: list[np.ndarray]) -> np.ndarray:
    return np.sum(np.stack(loads), axis=0)


def _imbalance(load: np.ndarray) -> float:
    mean = float(load.mean())
    return float(load.max()) / mean if mean > 0 else 1.0
