# SPDX-License-Identifier: Apache-2.0
"""The result of a simulation with one choice of thresholds and capacity."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Curve", "Outcome"]


@dataclass(frozen=True)
class Outcome:
    """One choice of thresholds and capacity, and its result on a log.

    Args:
        admission: number of occurrences at which a key gets a row.
        idle: a row is evicted if its key has not occurred for `idle` steps or seconds. None: never.
        idle_unit: 'steps', 'seconds', or '' if there is no eviction by age.
        capacity: maximum number of rows that remain after a batch; None: no limit.
        order: 'lru' or 'lfu', the order of evictions; '' if `capacity` is None.
        hit_rate: share of lookups that read a row that was trained in an earlier batch.
        admitted_rate: share of lookups whose key is admitted and therefore trained.
        peak_rows: greatest number of rows after any batch.
        final_rows: number of rows at the end of the log.
        peak_counters: greatest number of counters after any batch; a counter counts a key that is
            not yet admitted.
        final_counters: number of counters at the end of the log.
        peak_bytes: greatest total size of rows and counters after any batch, in bytes.
        final_bytes: total size of rows and counters at the end of the log, in bytes.
        evictions: number of evictions; a key may be evicted several times.
    """

    admission: int
    idle: int | None
    idle_unit: str
    capacity: int | None
    order: str
    hit_rate: float
    admitted_rate: float
    peak_rows: int
    final_rows: int
    peak_counters: int
    final_counters: int
    peak_bytes: int
    final_bytes: int
    evictions: int

    @property
    def label(self) -> str:
        """Short name of the choice.

        Example:
            >>> Outcome(3, 50, "steps", None, "", 0.5, 0.6, 1, 1, 0, 0, 48, 48, 0).label
            'admission 3, idle 50 steps'
        """
        words = [f"admission {self.admission}"]
        if self.idle is not None:
            words.append(f"idle {self.idle} {self.idle_unit}")
        if self.capacity is not None:
            words.append(f"{self.order} {self.capacity:,}")
        return ", ".join(words)


@dataclass(frozen=True)
class Curve:
    """Hit rate over memory.

    Args:
        label: name of the setting that changes along the curve.
        rows: peak number of rows at each point of the curve.
        bytes: peak size of rows and counters at each point of the curve.
        hit_rate: share of lookups that are hits, at each point of the curve.
        names: name of each point; an empty list if the curve has too many points for names.
    """

    label: str
    rows: list[int]
    bytes: list[int]
    hit_rate: list[float]
    names: list[str] = field(default_factory=list)
