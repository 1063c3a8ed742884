# SPDX-License-Identifier: Apache-2.0
"""Admission and eviction: policies that decide when a key of a hash table gets or loses a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import numpy as np

from mindspore_rec.common.checks import check_int, check_number, check_one_of

__all__ = ["Admission", "CountAdmission", "Eviction", "ProbabilityAdmission", "SketchAdmission"]

MAX_COUNT = (1 << 30) - 1  # occurrences at which a row's counter saturates
MAX_COEFFICIENT = 1 << 20  # occurrences that one occurrence counts as, `faae_coefficient`
MAX_SKETCH_COUNT = (1 << 16) - 1
NEVER = 1 << 60
ORDERS = ("lru", "lfu", "lfu_decay", "score")
TRIGGERS = ("step", "callback")


def _limit(argument: str, value: int | None, low: int) -> int:
    """Return a limit for the native core; -1 means no limit."""
    if value is None:
        return -1
    value = check_int(argument, value, -1, NEVER)
    if -1 < value < low:
        raise ValueError(f"{argument} must be None, -1 (off) or in [{low}, {NEVER}], got {value}")
    return value


@dataclass(frozen=True)
class CountAdmission:
    """Policy that admits a key as soon as its count reaches the threshold in a training batch.

    The count is exact: the number of occurrences in training, times the lookup's
    `faae_coefficient`. If a key is admitted, all its occurrences in the batch are admitted. For a
    key that is not admitted yet, lookups return the table's `unknown_value`, and no row is trained.
    If training runs several epochs, each epoch adds to the counts. `CountFirstEpoch` restricts
    counting to the first epoch.

    Args:
        threshold: count that admits a key, 1 to 2**30 - 1. With a threshold of -1 or None, every
            key is admitted at once. With a threshold of 0, counts are frozen and no new key is
            admitted.
        max_candidates: maximum number of counters for keys that are not admitted, at least 16. A
            counter takes 20 to 35 bytes. If there are `max_candidates` counters, a new counter
            replaces an old counter. Some old counters are compared, and the counter with the least
            count is replaced. If several of these counters have the least count, the oldest is
            replaced. Default: no maximum.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> CountAdmission(2).threshold
        2
    """

    kind: ClassVar[str] = "count"  # name of the policy in the native core
    # Counters for keys without a row: "keys" (one counter per key), "sketch", or None (no
    # counters).
    counts: ClassVar[str | None] = "keys"

    threshold: int | None
    max_candidates: int | None = None

    def __post_init__(self) -> None:
        threshold = -1 if self.threshold is None else self.threshold
        object.__setattr__(
            self, "threshold", check_int("admission threshold", threshold, -1, MAX_COUNT)
        )
        _limit("max_candidates", self.max_candidates, 16)

    def native_arguments(self) -> dict[str, Any]:
        """Return this policy's keyword arguments for `_native.Table`."""
        return {
            "admission_kind": self.kind,
            "admission_threshold": self.threshold,
            "max_candidates": _limit("max_candidates", self.max_candidates, 16),
        }


@dataclass(frozen=True)
class SketchAdmission:
    """Policy that admits a key by an approximate count, which needs less memory than exact counts.

    The sketch is a counting Bloom filter of a fixed size with four counters per key. The number of
    bits of a counter depends on `max_threshold`. Different keys may share counters, so a key may be
    admitted before its own count reaches the threshold. If eviction by age is on, all counts are
    halved after every `max_idle_steps` steps. If `max_idle_steps` is None or -1, all counts are
    halved after every `max_idle_seconds` seconds of event time. With a threshold of 2, a sketch
    wrongly admits some keys that occurred only once. The share of wrongly admitted keys is 16 % at
    1 byte of sketch per counted key, 5 % at 2 bytes, 0.9 % at 4 bytes and 0.12 % at 8 bytes
    (`benchmarks/sketch_accuracy.py`). An exact counter costs about 28 bytes.

    Args:
        threshold: as for `CountAdmission`, at most 65535.
        sketch_bytes: bytes of the filter, at least 1024. Default: 64 MiB.
        max_threshold: the highest threshold that may be set later, 1 to 65535 and at least
            `threshold`. A counter has 4 bits for a `max_threshold` up to 15, 8 bits up to 255, and
            16 bits above 255. Default: `threshold`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    `SketchAdmission` follows Fan et al., "Summary cache" (2000), and the CBF filter of DeepRec.

    Example:
        >>> SketchAdmission(3).sketch_bytes
        67108864
    """

    kind: ClassVar[str] = "sketch"
    counts: ClassVar[str | None] = "sketch"

    threshold: int | None
    sketch_bytes: int = 64 << 20
    max_threshold: int | None = None

    def __post_init__(self) -> None:
        threshold = -1 if self.threshold is None else self.threshold
        threshold = check_int("admission threshold", threshold, -1, MAX_SKETCH_COUNT)
        object.__setattr__(self, "threshold", threshold)
        check_int("sketch_bytes", self.sketch_bytes, 1024, 1 << 40)
        highest = max(threshold, 1) if self.max_threshold is None else self.max_threshold
        highest = check_int("max_threshold", highest, max(threshold, 1), MAX_SKETCH_COUNT)
        object.__setattr__(self, "max_threshold", highest)

    def native_arguments(self) -> dict[str, Any]:
        """Return this policy's keyword arguments for `_native.Table`."""
        highest = self.max_threshold or 1
        return {
            "admission_kind": self.kind,
            "admission_threshold": self.threshold,
            "sketch_bytes": self.sketch_bytes,
            "sketch_bits": 4 if highest < 16 else 8 if highest < 256 else 16,
        }


@dataclass(frozen=True)
class ProbabilityAdmission:
    """Policy that admits a key with a fixed probability at each occurrence in training.

    If a key without a row occurs n times in a batch, the key is admitted with probability
    1 - (1 - probability) ** n. The policy keeps no counters. The decision to admit a key depends
    only on the seed, the table's name, the key, the step and the number n of occurrences. The
    decision is the same for all occurrences in a batch, and in a repeated run.

    Args:
        probability: probability that one occurrence admits the key, above 0, at most 1.

    Raises:
        TypeError, ValueError: `probability` is not a number, or is out of range.

    `ProbabilityAdmission` follows the "probability filter" of large-scale systems (Monolith;
    FBGEMM).

    Example:
        >>> ProbabilityAdmission(0.1).probability
        0.1
    """

    kind: ClassVar[str] = "probability"
    counts: ClassVar[str | None] = None

    probability: float

    def __post_init__(self) -> None:
        value = check_number("probability", self.probability)
        if not 0 < value <= 1:
            raise ValueError(f"probability must be in (0, 1], got {self.probability}")

    def native_arguments(self) -> dict[str, Any]:
        """Return this policy's keyword arguments for `_native.Table`."""
        return {"admission_kind": self.kind, "probability": float(self.probability)}


Admission = CountAdmission | SketchAdmission | ProbabilityAdmission


def counts_of(kind: str) -> str | None:
    """Return how an admission policy counts keys without a row: "keys", "sketch" or None.

    Args:
        kind: name of the policy in the native core.

    Returns:
        "keys" or "sketch"; None if the policy does not count, or the name is unknown.

    Example:
        >>> counts_of("count"), counts_of("probability")
        ('keys', None)
    """
    return next((each.counts for each in get_args(Admission) if each.kind == kind), None)


@dataclass(frozen=True)
class Eviction:
    """Rules by which rows are evicted with their optimizer state and count. Rules may be combined.

    If rows are evicted by age, a row is hidden from all lookups as soon as its age reaches the
    limit. The row's memory is freed later, by a sweep that visits a slice of the table in each
    step. If the table has too many rows at the end of a step, rows are evicted in the order
    `order`. The order of eviction is approximate, because victims are chosen from a sample of eight
    rows for each row to evict. The next incremental export contains every eviction.

    Args:
        max_idle_steps: number of whole steps without a training lookup after which a row is
            evicted, at least 1. With a limit of 1, a row must be looked up in every step to stay in
            the table. If a row is written between two steps, the row's age is measured from the
            next step. Default: None, which means no limit. The limits below also have the default
            None. For all limits, -1 means the same as None.
        max_idle_seconds: seconds of event time without a training lookup after which a row is
            evicted, at least 1. A row's age is the watermark (greatest event time of the batches so
            far) minus the watermark when the row was last looked up. `max_idle_seconds` needs event
            times from `table.set_event_time` or a timestamp column.
        max_rows: maximum number of rows at the end of a step, at least 1.
        max_bytes: maximum number of bytes of rows and index at the end of a step, at least 1.
        order: order of eviction if a table has too many rows. With 'lru', the least recently used
            rows are evicted first. With 'lfu', the least frequently used rows are evicted first.
            With 'lfu_decay', the least frequently used rows are evicted first, but each occurrence
            counts half as much after every `half_life_steps` steps. With 'score', the rows with the
            lowest score from `table.set_scores` (default: 0) are evicted first. Among rows with
            equal frequency or score, the least recently used row is evicted first. Default: 'lru'.
        half_life_steps: number of steps, above 0, after which an occurrence counts half as much.
            `half_life_steps` is required with 'lfu_decay', and illegal with all other orders.
        min_norm: minimum L2 norm of a row's value, above 0. If a row's norm is below `min_norm`,
            the sweep evicts the row after at most 256 steps. Rows with initial values may be
            evicted too. To keep rows with initial values, choose a limit below the norm of initial
            values, or the trigger 'callback'.
        trigger: 'step' or 'callback'. With 'step', the rules are applied in every step. With
            'callback', the rules are applied and ages are measured only when `table.evict()` is
            called, for example by `EvictCallback`. Default: 'step'.

    Raises:
        TypeError, ValueError: an argument has the wrong type, is out of range, or has no effect in
            combination with the other arguments.

    Example:
        >>> Eviction(max_idle_seconds=7 * 24 * 3600, max_rows=100_000_000).order
        'lru'
    """

    max_idle_steps: int | None = None
    max_idle_seconds: int | None = None
    max_rows: int | None = None
    max_bytes: int | None = None
    order: str = "lru"
    half_life_steps: float | None = None
    min_norm: float | None = None
    trigger: str = "step"

    def __post_init__(self) -> None:
        for name in ("max_idle_steps", "max_idle_seconds", "max_rows", "max_bytes"):
            object.__setattr__(self, name, _limit(name, getattr(self, name), 1))
        check_one_of("order", self.order, ORDERS)
        check_one_of("trigger", self.trigger, TRIGGERS)
        norm = -1.0 if self.min_norm is None else check_number("min_norm", self.min_norm)
        if norm <= 0 and norm != -1.0:
            raise ValueError(f"min_norm must be None, -1 (off) or > 0, got {self.min_norm}")
        object.__setattr__(self, "min_norm", norm)
        if (self.order == "lfu_decay") != (self.half_life_steps is not None):
            raise ValueError(
                "half_life_steps must be given with order='lfu_decay' and only there, got "
                f"{self.half_life_steps!r} with {self.order!r}"
            )
        if self.half_life_steps is not None and not (
            0 < check_number("half_life_steps", self.half_life_steps)
        ):
            raise ValueError(f"half_life_steps must be > 0, got {self.half_life_steps}")
        if not self.evicts:
            raise ValueError(
                "an Eviction must have a rule: max_idle_steps, max_idle_seconds, max_rows, "
                "max_bytes or min_norm"
            )
        if self.order != "lru" and not self.has_capacity:
            raise ValueError(f"order={self.order!r} is for max_rows or max_bytes, which are off")

    @property
    def has_capacity(self) -> bool:
        """True if rows are evicted when there are too many rows or bytes."""
        return self.max_rows != -1 or self.max_bytes != -1

    @property
    def evicts(self) -> bool:
        """True if at least one rule is on."""
        by_age = self.max_idle_steps != -1 or self.max_idle_seconds != -1
        return by_age or self.has_capacity or self.min_norm != -1.0

    def native_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments for `_native.Table` and for its `set_eviction`."""
        return {
            "max_idle_steps": self.max_idle_steps,
            "max_idle_seconds": self.max_idle_seconds,
            "max_rows": self.max_rows,
            "max_bytes": self.max_bytes,
            "order": self.order,
            "half_life_steps": 0.0 if self.half_life_steps is None else self.half_life_steps,
            "min_norm": self.min_norm,
            "on_trigger": self.trigger == "callback",
        }


def check_admission(value: Any) -> Admission | None:
    """Check that `value` is an admission policy or None, and return `value`.

    Raises:
        TypeError: `value` is of an unsupported type.

    Example:
        >>> check_admission(None)
    """
    if value is None or isinstance(value, Admission):
        return value
    *names, last = (each.__name__ for each in get_args(Admission))
    raise TypeError(f"admission must be a {', '.join(names)} or {last}, got {value!r}")


def check_eviction(value: Any, argument: str = "eviction") -> Eviction | None:
    """Check that `value` is an Eviction or None, and return `value`.

    Raises:
        TypeError: `value` is of an unsupported type.

    Example:
        >>> check_eviction(None)
    """
    if value is None or isinstance(value, Eviction):
        return value
    raise TypeError(f"{argument} must be an Eviction, got {value!r}")


def check_unknown_value(argument: str, value: Any, dim: int) -> list[float] | None:
    """Convert the value of unknown keys to a list of one or `dim` floats; None if `value` is None.

    Raises:
        TypeError, ValueError: `value` has another type or length, or is not finite.

    Example:
        >>> check_unknown_value("unknown_value", 0.5, 4)
        [0.5]
    """
    if value is None:
        return None
    values = value.asnumpy() if hasattr(value, "asnumpy") else value
    values = values.tolist() if isinstance(values, np.ndarray) else values
    numbers = values if isinstance(values, (list, tuple)) else [values]
    floats = [check_number(argument, each) for each in numbers]
    if len(floats) not in (1, dim):
        raise ValueError(f"{argument} must be a number or {dim} numbers, got {value!r}")
    return floats
