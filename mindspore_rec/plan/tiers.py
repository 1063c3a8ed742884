# SPDX-License-Identifier: Apache-2.0
"""Simulate the tiers of a table on a key log: `python -m mindspore_rec.plan --tiers`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.plan.capacity import ORDERS
from mindspore_rec.plan.index import KeyIndex
from mindspore_rec.plan.log import KeyLog
from mindspore_rec.plan.passes import dry_run
from mindspore_rec.plan.sizes import INDEX_BYTES, SSD_INDEX_BYTES
from mindspore_rec.plan.tier_runs import LfuTiers, LruTiers, TierRun

__all__ = ["TierOutcome", "TierPlan", "TierUse", "Tiers", "plan_tiers"]


@dataclass(frozen=True)
class Tiers:
    """Sizes of the tiers of a table; the arguments are like the arguments of `CacheConfig`.

    Args:
        host: limit of host memory, in rows (int, at least 1) or as a share of the log's distinct
            keys (float in (0, 1]).
        remote: limit of the remote tier, in the same units as `host`; None: no limit. `remote` is
            required if `lower` is ('remote', 'ssd'), and must be None for all other values of
            `lower`.
        lower: tiers below host memory: ('ssd',), ('remote',) or ('remote', 'ssd').

    Raises:
        TypeError: a value is of the wrong type.
        ValueError: a value is out of range.

    Example:
        >>> Tiers.parse("1%,2%,5000")[0]
        Tiers(host=0.01, remote=None, lower=('ssd',))
        >>> Tiers.parse("host=10%,remote=1000000,ssd")
        [Tiers(host=0.1, remote=1000000, lower=('remote', 'ssd'))]
    """

    host: int | float
    remote: int | float | None = None
    lower: tuple[str, ...] = ("ssd",)

    def __post_init__(self) -> None:
        _check_capacity("host", self.host)
        if self.lower not in (("ssd",), ("remote",), ("remote", "ssd")):
            raise ValueError(f"lower must be 'remote', 'ssd' or both in this order: {self.lower}")
        if self.remote is not None:
            _check_capacity("remote", self.remote)
        if (self.remote is not None) != (len(self.lower) == 2):
            raise ValueError(
                "remote must have a limit where the SSD is below it, and only there: "
                f"got {self.remote} with {self.lower}"
            )

    @classmethod
    def parse(cls, text: str) -> list[Tiers]:
        """Parse a list of capacities of host memory, or one set of named tiers.

        Raises:
            ValueError: the text is neither a list of capacities nor a set of named tiers.
        """
        parts = text.split(",")
        if "=" not in text:
            return [cls(_capacity(part, text)) for part in parts]
        sizes: dict[str, int | float | None] = {}
        for part in parts:
            name, equals, value = part.partition("=")
            if name not in ("host", "remote", "ssd") or name in sizes or (name == "ssd" and equals):
                raise ValueError(_form(text))
            sizes[name] = _capacity(value, text) if equals else None
        host = sizes.pop("host", None)
        if host is None:
            raise ValueError(_form(text))
        return [cls(host, sizes.get("remote"), tuple(sizes))]


@dataclass(frozen=True)
class TierUse:
    """Statistics of one tier in a simulation of a table's tiers.

    Numbers per step are means over all steps after the warm-up.

    Args:
        name: 'host', 'remote' or 'ssd'.
        capacity: limit in rows; None: no limit.
        rows: number of rows in the tier at the end of the log.
        served: share of a step's distinct keys whose rows were in the tier when the step began.
        read_rows: rows promoted from the tier per step; 0 for host memory.
        written_rows: rows demoted to the tier per step; 0 for host memory.
        moved_bytes: bytes of the promoted and the demoted rows per step.
        memory_bytes: bytes of host memory that the tier needs. An SSD tier needs host memory only
            for its index, and a remote tier needs none.
    """

    name: str
    capacity: int | None
    rows: int
    served: float
    read_rows: float
    written_rows: float
    moved_bytes: float
    memory_bytes: int


@dataclass(frozen=True)
class TierOutcome:
    """Result of simulating a table with one choice of tiers.

    Args:
        order: order of demotion, 'lru' or 'lfu'.
        tiers: the tiers, host memory first.
        new: share of a step's distinct keys that had no row when the step began.
        fits: True if, for every batch, host memory has room for the rows of the batch's distinct
            keys.
    """

    order: str
    tiers: list[TierUse]
    new: float
    fits: bool


@dataclass
class TierPlan:
    """Statistics of a log, and the outcome of each choice of tiers on this log.

    Args:
        samples: number of rows of the log.
        steps: number of training steps in one pass over the log.
        warm_up: number of steps at the log's start that only fill the tiers and are not counted.
        lookups: number of lookups.
        keys: number of distinct keys of the log.
        unique_keys: mean number of distinct keys per step, without the warm-up.
        most_unique_keys: greatest number of distinct keys in a step.
        row_bytes: bytes of a row in host memory, including the row's index entry.
        moved_row_bytes: bytes that a row has while it moves between tiers.
        outcomes: one outcome for each choice of tiers and each order.
    """

    samples: int = 0
    steps: int = 0
    warm_up: int = 0
    lookups: int = 0
    keys: int = 0
    unique_keys: float = 0.0
    most_unique_keys: int = 0
    row_bytes: int = 0
    moved_row_bytes: int = 0
    outcomes: list[TierOutcome] = field(default_factory=list)


def plan_tiers(
    log: KeyLog,
    choices: Sequence[Tiers],
    row_bytes: int,
    batch_size: int,
    order: Sequence[str] = ("lru",),
    warm_up: int = 0,
    progress: bool = False,
) -> TierPlan:
    """Simulate in which tier the row of each key is, and how many rows move between tiers.

    Args:
        log: the keys, in the order of training.
        choices: the `Tiers` objects to simulate.
        row_bytes: bytes of a row; `sizes.row_bytes` computes this number.
        batch_size: samples of a training batch, at least 1.
        order: orders of demotion to try: 'lru', 'lfu'.
        warm_up: number of steps at the log's start that only fill the tiers and are not counted.
        progress: whether to show a progress bar, if standard error is a terminal.

    Raises:
        ValueError: an argument is out of range, the log has no keys or is damaged, or the log is
            not longer than the warm-up.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/log.csv"
        >>> _ = open(path, "w").write("item\\n7\\n8\\n7\\n9\\n8\\n")
        >>> plan = plan_tiers(KeyLog([path], ["item"]), [Tiers(2)], 220, batch_size=1)
        >>> host, ssd = plan.outcomes[0].tiers
        >>> host.served, ssd.served, plan.outcomes[0].new, ssd.written_rows * plan.steps
        (0.2, 0.2, 0.6, 2.0)
    """
    check_int("batch_size", batch_size, 1, (1 << 31) - 1)
    check_int("warm_up", warm_up, 0, (1 << 62) - 1)
    for each in order:
        check_one_of("order", each, ORDERS)
    shares = any(isinstance(c, float) for tiers in choices for c in (tiers.host, tiers.remote))
    with dry_run(log, batch_size, shares, progress) as (index, bar):
        limits = [_limits(tiers, index.size) for tiers in choices]
        lru = LruTiers() if "lru" in order else None
        lfu = {each: LfuTiers(each) for each in set(limits) if "lfu" in order}
        runs: list[TierRun] = [*([lru] if lru else []), *lfu.values()]
        plan = _feed(runs, log, index, batch_size, warm_up, bar.update)
    plan.row_bytes, plan.moved_row_bytes = row_bytes, row_bytes - INDEX_BYTES
    for name in dict.fromkeys(order):
        for tiers, capacities in zip(choices, limits, strict=True):
            run: TierRun | None = lru if name == "lru" else lfu[capacities]
            assert run is not None
            plan.outcomes.append(_outcome(plan, name, tiers, capacities, run))
    return plan


def _feed(
    runs: list[TierRun],
    log: KeyLog,
    index: KeyIndex,
    batch_size: int,
    warm_up: int,
    update: Callable[[int], object],
) -> TierPlan:
    plan = TierPlan(warm_up=warm_up)
    unique = 0
    for batch in log.batches(batch_size, update):
        if plan.steps == warm_up:
            unique = 0
            for run in runs:
                run.start_counting()
        distinct = index.distinct(batch.keys)
        for run in runs:
            run.add(distinct)
        plan.steps += 1
        plan.samples += batch.samples
        plan.lookups += distinct.lookups
        unique += len(distinct.codes)
        plan.most_unique_keys = max(plan.most_unique_keys, len(distinct.codes))
    plan.keys = index.size
    if plan.lookups == 0:
        raise ValueError(f"the log has no keys: {', '.join(map(str, log.paths))}")
    if plan.steps <= warm_up:
        raise ValueError(f"warm_up must be below the log's {plan.steps} steps, got {warm_up}")
    plan.unique_keys = unique / (plan.steps - warm_up)
    return plan


def _outcome(
    plan: TierPlan, order: str, tiers: Tiers, capacities: tuple[int, ...], run: TierRun
) -> TierOutcome:
    counts = run.counts(capacities)
    steps = plan.steps - plan.warm_up
    asked = max(sum(counts.found) + counts.new, 1)
    uses = []
    for i, name in enumerate(("host", *tiers.lower)):
        limit = capacities[i] if i < len(capacities) else None
        read = counts.found[i] / steps if i else 0.0
        written = counts.written[i] / steps
        memory = {
            "host": min(capacities[0], plan.keys) * plan.row_bytes,
            "remote": 0,
            "ssd": plan.keys * SSD_INDEX_BYTES,
        }[name]
        moved = (read + written) * plan.moved_row_bytes
        served = counts.found[i] / asked
        uses.append(TierUse(name, limit, counts.rows[i], served, read, written, moved, memory))
    fits = plan.most_unique_keys <= capacities[0]
    return TierOutcome(order, uses, counts.new / asked, fits)


def _limits(tiers: Tiers, keys: int) -> tuple[int, ...]:
    capacities = [tiers.host] if tiers.remote is None else [tiers.host, tiers.remote]
    return tuple(max(1, round(c * keys)) if isinstance(c, float) else c for c in capacities)


def _check_capacity(name: str, capacity: int | float) -> None:
    if not isinstance(capacity, float):
        check_int(name, capacity, 1, (1 << 31) - 1)
    elif not 0 < capacity <= 1:
        raise ValueError(f"{name} must be rows or a share in (0, 1], got {capacity}")


def _capacity(part: str, text: str) -> int | float:
    try:
        if part.endswith("%"):
            return float(part[:-1]) / 100
        return int(part) if part.isdecimal() else float(part)
    except ValueError:
        raise ValueError(_form(text)) from None


def _form(text: str) -> str:
    return (
        "must be rows or shares of the distinct keys in host memory (1%,10%,50000), or "
        f"host=ROWS|SHARE[,remote[=ROWS|SHARE]][,ssd], got {text!r}"
    )
