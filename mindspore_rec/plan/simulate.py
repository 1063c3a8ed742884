# SPDX-License-Identifier: Apache-2.0
"""Simulate all choices of thresholds and capacities in one pass over a log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.plan.age import AgeSweep
from mindspore_rec.plan.capacity import ORDERS, CapacityRun
from mindspore_rec.plan.index import KeyIndex
from mindspore_rec.plan.log import KeyLog
from mindspore_rec.plan.outcome import Curve, Outcome
from mindspore_rec.plan.passes import dry_run
from mindspore_rec.plan.sizes import DIGEST_BYTES
from mindspore_rec.plan.stack import StackDistances

__all__ = ["Choices", "Plan", "simulate"]

_MAX_COUNT = (1 << 30) - 1


@dataclass(frozen=True)
class Choices:
    """The choices to simulate.

    Each admission threshold is simulated once without eviction, and once with each idle limit. Each
    capacity is simulated with each order of eviction and each threshold in `capacity_admission`,
    without eviction by age.

    Args:
        admission: admission thresholds (occurrences until a key is admitted), each in [1, 2^30 -
            1].
        idle_steps: idle limits in training steps, each at least 1.
        idle_seconds: idle limits in seconds of event time, each in [1, 2^32).
        capacity: table capacities, each in rows (int, at least 1) or as a share of the log's
            distinct keys (float in (0, 1]).
        order: orders in which a table beyond its capacity evicts rows: 'lru', 'lfu'.
        capacity_admission: admission thresholds to simulate with the capacities.

    Raises:
        TypeError: a value is of the wrong type.
        ValueError: a value is out of range.

    Example:
        >>> Choices(admission=[1, 0])
        Traceback (most recent call last):
        ...
        ValueError: admission must be in [1, 1073741823], got 0
    """

    admission: Sequence[int] = (1, 2, 3, 5, 10)
    idle_steps: Sequence[int] = ()
    idle_seconds: Sequence[int] = ()
    capacity: Sequence[int | float] = ()
    order: Sequence[str] = ("lru",)
    capacity_admission: Sequence[int] = (1,)

    def __post_init__(self) -> None:
        for name, low, high in (
            ("admission", 1, _MAX_COUNT),
            ("capacity_admission", 1, _MAX_COUNT),
            ("idle_steps", 1, (1 << 62) - 1),
            ("idle_seconds", 1, (1 << 32) - 1),
        ):
            for value in getattr(self, name):
                check_int(name, value, low, high)
        for order in self.order:
            check_one_of("order", order, ORDERS)
        for capacity in self.capacity:
            if not isinstance(capacity, float):
                check_int("capacity", capacity, 1, (1 << 31) - 1)
            elif not 0 < capacity <= 1:
                raise ValueError(f"capacity must be rows or a share in (0, 1], got {capacity}")
        if not self.admission:
            raise ValueError("admission must have at least one threshold")


@dataclass
class Plan:
    """Statistics of a log, and the outcome of each choice on this log.

    Args:
        samples: number of rows of the log.
        steps: number of training steps in one pass over the log.
        lookups: number of lookups.
        keys: number of distinct keys.
        row_bytes: bytes of a row, without its digest.
        outcomes: one outcome for each choice.
        curves: one curve for each setting that varies; a curve is the hit rate as a function of
            memory.
    """

    samples: int = 0
    steps: int = 0
    lookups: int = 0
    keys: int = 0
    row_bytes: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)


def simulate(
    log: KeyLog,
    choices: Choices,
    row_bytes: int,
    batch_size: int,
    progress: bool = False,
) -> Plan:
    """Simulate a table's rows, counters and evictions, but not its values, for each choice.

    The simulation's memory grows with the number of distinct keys, not with the log's length. If a
    capacity is a share, an additional first pass over the log counts the distinct keys.

    Args:
        log: the log of keys, in the order of training.
        choices: thresholds, idle limits and capacities to simulate.
        row_bytes: bytes of a row without digests, as computed by `row_bytes()`. The simulation adds
            the bytes of one digest per row, or of two digests if rows are evicted by age.
        batch_size: number of samples in a training batch, at least 1.
        progress: whether to show a progress bar, if standard error is a terminal.

    Raises:
        ValueError: the log has no keys, is damaged, or has no times although `idle_seconds` is set.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/log.csv"
        >>> _ = open(path, "w").write("item\\n7\\n7\\n7\\n8\\n")
        >>> plan = simulate(KeyLog([path], ["item"]), Choices(admission=[1, 2]), 92, batch_size=1)
        >>> [(o.admission, o.hit_rate, o.final_rows, o.final_counters) for o in plan.outcomes]
        [(1, 0.5, 2, 0), (2, 0.25, 1, 1)]
    """
    if choices.idle_seconds and log.time is None:
        raise ValueError("idle_seconds needs the log's time column")
    check_int("batch_size", batch_size, 1, (1 << 31) - 1)
    counts_first = any(isinstance(capacity, float) for capacity in choices.capacity)
    with dry_run(log, batch_size, counts_first, progress) as (index, bar):
        run = _Run(choices, row_bytes, index.size)
        _feed(run, log, index, batch_size, bar.update)
    run.plan.outcomes = run.outcomes()
    run.plan.curves = run.curves()
    return run.plan


def _feed(
    run: _Run, log: KeyLog, index: KeyIndex, batch_size: int, update: Callable[[int], object]
) -> None:
    plan, time = run.plan, 0
    for batch in log.batches(batch_size, update):
        distinct = index.distinct(batch.keys)
        # The clock never goes back: a batch with an earlier event time leaves the clock unchanged.
        time = max(time, batch.time or 0)
        for sweep in run.by_steps:
            sweep.add(distinct, plan.steps)
        for sweep in run.by_seconds:
            sweep.add(distinct, time)
        if run.stack is not None:
            run.stack.add(distinct)
        for single in run.singles.values():
            single.add(distinct)
        plan.steps += 1
        plan.samples += batch.samples
        plan.lookups += distinct.lookups
    plan.keys = index.size
    if plan.lookups == 0:
        raise ValueError(f"the log has no keys: {', '.join(map(str, log.paths))}")


class _Run:
    """Runs the simulations of all choices, and returns the outcomes and curves."""

    def __init__(self, choices: Choices, row_bytes: int, keys: int) -> None:
        self.plan = Plan(row_bytes=row_bytes)
        digested = row_bytes + DIGEST_BYTES
        aged = row_bytes + 2 * DIGEST_BYTES  # a row remembers in which sum it is, too
        admission = list(dict.fromkeys(choices.admission))
        self.by_steps = [AgeSweep(admission, digested)] + [
            AgeSweep(admission, aged, idle, "steps") for idle in dict.fromkeys(choices.idle_steps)
        ]
        self.by_seconds = [
            AgeSweep(admission, aged, idle, "seconds")
            for idle in dict.fromkeys(choices.idle_seconds)
        ]
        capacities = [
            max(1, round(capacity * keys)) if isinstance(capacity, float) else capacity
            for capacity in choices.capacity
        ]
        self._choices = [
            (order, threshold, capacity)
            for order in dict.fromkeys(choices.order)
            for threshold in dict.fromkeys(choices.capacity_admission)
            for capacity in sorted(set(capacities))
        ]
        self.stack: StackDistances | None = None
        self.singles: dict[tuple[str, int, int], CapacityRun] = {}
        for choice in self._choices:
            order, threshold, capacity = choice
            if order == "lru" and threshold == 1:
                self.stack = self.stack or StackDistances(digested)
            else:
                self.singles[choice] = CapacityRun(capacity, order, threshold, digested)

    def outcomes(self) -> list[Outcome]:
        made = [o for sweep in self.by_steps + self.by_seconds for o in sweep.outcomes()]
        return made + [self._outcome(choice) for choice in self._choices]

    def _outcome(self, choice: tuple[str, int, int]) -> Outcome:
        if choice in self.singles:
            return self.singles[choice].outcome()
        assert self.stack is not None
        return self.stack.outcome(choice[2])

    def curves(self) -> list[Curve]:
        made = []
        for sweep in self.by_steps + self.by_seconds:
            points = sorted(sweep.outcomes(), key=lambda o: -o.admission)
            first = points[0]
            idle = "no eviction" if first.idle is None else f"idle {first.idle} {first.idle_unit}"
            made.append(_through(f"admission, {idle}", points, [str(o.admission) for o in points]))
        for (order, threshold), group in groupby(self._choices, key=lambda choice: choice[:2]):
            points = [self._outcome(choice) for choice in group]
            names = [f"{o.capacity:,}" for o in points]
            made.append(_through(f"{order} capacity, admission {threshold}", points, names))
        return made + ([] if self.stack is None else [self.stack.curve()])


def _through(label: str, points: list[Outcome], names: list[str]) -> Curve:
    return Curve(
        label,
        [o.peak_rows for o in points],
        [o.peak_bytes for o in points],
        [o.hit_rate for o in points],
        names,
    )
