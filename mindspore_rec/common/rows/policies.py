# SPDX-License-Identifier: Apache-2.0
"""Admission and eviction: when a key gets a row in a hash table, and when it loses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    """Return a limit as the native core takes it, -1 for off."""
    if value is None:
        return -1
    value = check_int(argument, value, -1, NEVER)
    if -1 < value < low:
        raise ValueError(f"{argument} must be None, -1 (off) or in [{low}, {NEVER}], got {value}")
    return value


@dataclass(frozen=True)
class CountAdmission:
    """Admits a key in the training batch in which its count reaches the threshold.

    The count is exact: occurrences in training, times the lookup's `faae_coefficient`. A key is
    admitted for the whole batch or not at all. Until then it reads the table's `unknown_value` and
    is not trained. A second epoch counts its keys again; `CountFirstEpoch` lets the first one count
    alone.

    Args:
        threshold: count by which a key is admitted, 1 to 2**30 - 1; -1 or None: every key is
            admitted at once; 0: counts are frozen and no new key is admitted.
        max_candidates: most counters of keys that are not admitted, at least 16, of 20 to 35 bytes
            each. If there would be more, a few are compared, and the counter with the least count,
            of equals the oldest, is dropped. Default: no bound.

    Example:
        >>> CountAdmission(2).threshold
        2
    """

    threshold: int | None
    max_candidates: int | None = None

    def __post_init__(self) -> None:
        threshold = -1 if self.threshold is None else self.threshold
        object.__setattr__(
            self, "threshold", check_int("admission threshold", threshold, -1, MAX_COUNT)
        )
        _limit("max_candidates", self.max_candidates, 16)

    def native_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of `_native.Table`."""
        return {
            "admission_kind": "count",
            "admission_threshold": self.threshold,
            "max_candidates": _limit("max_candidates", self.max_candidates, 16),
        }


@dataclass(frozen=True)
class SketchAdmission:
    """Admits a key by an approximate count, if exact counters of all keys would not fit.

    A counting Bloom filter of a fixed size, four counters per key, as wide as the threshold needs.
    Keys that share counters may be admitted early; if eviction by age is on, counts are halved once
    in every idle limit. Of keys seen once, a threshold of 2 admits too early: 16 % at 1 byte of
    sketch per key counted, 5 % at 2, 0.9 % at 4, 0.12 % at 8 (`benchmarks/sketch_accuracy.py`). An
    exact counter costs about 28 bytes.

    Args:
        threshold: as for `CountAdmission`, at most 65535.
        sketch_bytes: bytes of the filter, at least 1024. Default: 64 MiB.
        max_threshold: the highest threshold that may be set later, 1 to 65535; it decides the
            counters' width, 4 bits up to 15, 8 up to 255, 16 above. Default: the threshold.

    After Fan et al., "Summary cache" (2000), and the CBF filter of DeepRec.

    Example:
        >>> SketchAdmission(3).sketch_bytes
        67108864
    """

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
        """Return the keyword arguments of `_native.Table`."""
        highest = self.max_threshold or 1
        return {
            "admission_kind": "sketch",
            "admission_threshold": self.threshold,
            "sketch_bytes": self.sketch_bytes,
            "sketch_bits": 4 if highest < 16 else 8 if highest < 256 else 16,
        }


@dataclass(frozen=True)
class ProbabilityAdmission:
    """Admits a key without a row in a training batch with a probability.

    No counter is kept. Whether a key is admitted is a function of (seed, table name, key, step): it
    is the same for the whole batch, and when a run is repeated.

    Args:
        probability: probability of being admitted, above 0, at most 1.

    After the "probability filter" of large-scale systems (Monolith; FBGEMM).

    Example:
        >>> ProbabilityAdmission(0.1).probability
        0.1
    """

    probability: float

    def __post_init__(self) -> None:
        value = check_number("probability", self.probability)
        if not 0 < value <= 1:
            raise ValueError(f"probability must be in (0, 1], got {self.probability}")

    def native_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of `_native.Table`."""
        return {"admission_kind": "probability", "probability": float(self.probability)}


Admission = CountAdmission | SketchAdmission | ProbabilityAdmission


@dataclass(frozen=True)
class Eviction:
    """Rules by which rows are evicted, with optimizer state and count; several may be given.

    By age, a row is gone for every lookup the moment its age reaches the limit; its memory is freed
    by a sweep that looks at a slice of the table each step. By capacity, rows are evicted at the
    end of the step that brought too many, approximately in the given order: victims are chosen from
    a sample eight times as large. Every eviction is in the next incremental export.

    Args:
        max_idle_steps: number of whole steps without being seen in training after which a row is
            evicted, at least 1: with 1, a row must be seen in every step. What is written between
            two steps counts as seen in the step to come. Default: off (None or -1), as all below.
        max_idle_seconds: the same by event time: the watermark (greatest event time of the batches
            so far) minus the watermark when the row was last seen, at least 1. Needs event times:
            `table.set_event_time`, or a timestamp column.
        max_rows: most rows at the end of a step, at least 1.
        max_bytes: most bytes of rows and index at the end of a step, at least 1.
        order: which rows are evicted first if there are too many: 'lru', seen longest ago; 'lfu',
            seen least often; 'lfu_decay', the same, but an occurrence counts half after
            `half_life_steps`; 'score', of the lowest score set by `table.set_scores` (0 for a row
            without one). Of equals, the row seen longest ago. Default: 'lru'.
        half_life_steps: steps after which an occurrence counts half, above 0; with 'lfu_decay' and
            only there.
        min_norm: least L2 norm of a row's value, above 0; a row of a smaller one is evicted when
            the sweep reaches it, within 256 steps. First values have a norm too: choose a limit
            below theirs, or a trigger.
        trigger: when rules are applied: 'step', all the time; 'callback', only when `table.evict()`
            is called, which `EvictCallback` does; ages are measured then. Default: 'step'.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, out of range, or has no effect
            beside the other arguments.

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
        """Whether rows are evicted if there are too many."""
        return self.max_rows != -1 or self.max_bytes != -1

    @property
    def evicts(self) -> bool:
        """Whether there is any rule."""
        by_age = self.max_idle_steps != -1 or self.max_idle_seconds != -1
        return by_age or self.has_capacity or self.min_norm != -1.0

    def native_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of `_native.Table` and its `set_eviction`."""
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
    """Return `value`, an admission policy or None.

    Raises:
        TypeError: it is something else.

    Example:
        >>> check_admission(None)
    """
    kinds = (CountAdmission, SketchAdmission, ProbabilityAdmission)
    if value is None or isinstance(value, kinds):
        return value
    raise TypeError(
        "admission must be a CountAdmission, SketchAdmission or ProbabilityAdmission, "
        f"got {value!r}"
    )


def check_eviction(value: Any) -> Eviction | None:
    """Return `value`, an Eviction or None.

    Raises:
        TypeError: it is something else.

    Example:
        >>> check_eviction(None)
    """
    if value is None or isinstance(value, Eviction):
        return value
    raise TypeError(f"eviction must be an Eviction, got {value!r}")


def check_unknown_value(argument: str, value: Any, dim: int) -> list[float] | None:
    """Return a number, or `dim` numbers, as a list of floats, or None.

    Raises:
        TypeError, ValueError: it is something else, or not finite.

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
