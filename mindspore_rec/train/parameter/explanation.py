# SPDX-License-Identifier: Apache-2.0
"""Explanation: a table's information about one key, in numbers and as a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

__all__ = ["Explanation"]

_EVICTED = {
    "idle_steps": "it was not seen in training for too many steps",
    "idle_seconds": "it was not seen for too long in event time",
    "capacity": "the table had more rows than its capacity",
    "norm": "the norm of its value was too small",
}


@dataclass(frozen=True)
class Explanation:
    """A table's information about one key; `str()` returns the information as a sentence.

    Attributes:
        table: the table's name.
        key: the key.
        present: whether the key has a row that evaluation can read.
        tier: tier of the row: 'host', 'remote' or 'ssd'; '' if the key has no row. While a row is
            being moved to a lower tier, `tier` is 'host'. Rows on a device count as 'host'.
        count: number of the key's occurrences in training, times `faae_coefficient`. `count`
            includes occurrences before admission. The count is an estimate if admission is by
            sketch.
        threshold: threshold of admission by count; -1 if there is no threshold.
        last_step: training step of the row's last lookup; None if there is no row.
        last_time: event time of the step `last_step`, in seconds since 1970; None if there is no
            row or there are no event times.
        norm: L2 norm of the value; None if there is no row.
        score: the row's frequency with eviction order 'lfu_decay', or the row's score with order
            'score'; None with other orders.
        reason: text that explains why the key has no row; '' if the key has a row.
        evicted_step: step of the key's last eviction; None if the table has recorded no eviction of
            the key.
        evicted_time: event time of the step `evicted_step`, or None.
    """

    table: str
    key: int
    present: bool
    tier: str
    count: int
    threshold: int
    last_step: int | None
    last_time: int | None
    norm: float | None
    score: float | None
    reason: str
    evicted_step: int | None
    evicted_time: int | None

    def __str__(self) -> str:
        if not self.present:
            return f"table {self.table!r}, key {self.key}: no row; {self.reason}"
        seen = f"seen {self.count} times, last in step {self.last_step}"
        if self.last_time is not None:
            seen += f" ({_utc(self.last_time)})"
        score = "" if self.score is None else f", score {self.score:.6g}"
        return (
            f"table {self.table!r}, key {self.key}: a row in tier {self.tier}, {seen}, "
            f"norm {self.norm:.6g}{score}"
        )


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def explanation(
    table: str, key: int, known: dict[str, Any], *, admission: str, scored: bool
) -> Explanation:
    """Convert the native table's information about a key to an `Explanation`.

    Args:
        table: name of the table.
        key: the key.
        known: result of `_native.Table.explain`.
        admission: how the table admits keys: 'count', 'sketch' or 'probability'.
        scored: whether each row of the table has a frequency or a score.
    """
    present = bool(known["present"])
    evicted = known["evicted_reason"]
    return Explanation(
        table=table,
        key=key,
        present=present,
        tier=known["tier"],
        count=known["count"],
        threshold=known["threshold"],
        last_step=known["last_step"] if present else None,
        last_time=known["last_time"] if present and known["last_time"] else None,
        norm=known["norm"] if present else None,
        score=known["score"] if present and scored else None,
        reason="" if present else _why_absent(known, admission),
        evicted_step=known["evicted_step"] if evicted else None,
        evicted_time=known["evicted_time"] if evicted and known["evicted_time"] else None,
    )


def _why_absent(known: dict[str, Any], admission: str) -> str:
    threshold, count = known["threshold"], known["count"]
    reasons = []
    if known["evicted_reason"]:
        reasons.append(
            f"evicted in step {known['evicted_step']}: {_EVICTED[known['evicted_reason']]}"
        )
    if not known["trainable"]:
        reasons.append("the table is frozen (requires_grad=False), so no key is admitted")
    elif admission == "probability":
        reasons.append("never seen in training, or not admitted by chance")
    elif threshold == 0:
        reasons.append(f"not admitted: counts are frozen at {count} (threshold 0)")
    elif count > 0:
        reasons.append(f"not admitted: its count {count} is below the threshold {threshold}")
    elif not reasons:
        reasons.append("never seen in training, erased, or evicted too long ago to remember")
    return "; ".join(reasons)
