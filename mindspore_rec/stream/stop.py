# SPDX-License-Identifier: Apache-2.0
"""StopWhen: when a stream ends by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["StopWhen"]


@dataclass(frozen=True)
class StopWhen:
    """Ends a stream at the first of these; what is None does not count.

    Args:
        batches: so many batches of this run, at least 1.
        seconds: so long after the first batch was asked for, above 0. Rows that wait for their
            batch to be full stay in the topic.
        watermark: an event of that time (seconds since 1970) or later is in a batch.
        idle_seconds: so long no row came, above 0. The rows that are there make a last batch, maybe
            a small one; with several partitions, rows behind the turn of a silent one stay in the
            topic.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> StopWhen(batches=10, idle_seconds=30.0).seconds is None
        True
    """

    batches: int | None = None
    seconds: float | None = None
    watermark: float | None = None
    idle_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.batches is not None and self.batches < 1:
            raise ValueError(f"batches must be at least 1, got {self.batches}")
        for name in ("seconds", "idle_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be above 0 and finite, got {value}")
        if self.watermark is not None and not math.isfinite(self.watermark):
            raise ValueError(f"watermark must be finite, got {self.watermark}")

    def before(self, batches: int, seconds: float, watermark: float | None) -> str:
        """Why no further batch is to be made, or nothing."""
        if self.batches is not None and batches >= self.batches:
            return f"{batches} batches"
        if self.seconds is not None and seconds >= self.seconds:
            return f"{self.seconds} seconds"
        if self.watermark is not None and watermark is not None and watermark >= self.watermark:
            return f"watermark {self.watermark}"
        return ""

    def waiting(self, seconds: float, idle: float) -> str:
        """Why waiting for rows is to end, or nothing."""
        if self.seconds is not None and seconds >= self.seconds:
            return f"{self.seconds} seconds"
        if self.idle_seconds is not None and idle >= self.idle_seconds:
            return f"idle for {self.idle_seconds} seconds"
        return ""

    def keeps_rest(self, reason: str) -> bool:
        """Whether what waits for its batch to be full makes a last one."""
        return reason.startswith("idle")

    def next_look(self, now: float, began: float, last_row: float) -> float:
        """When `waiting` may have another answer."""
        found = [now + 1.0]
        if self.seconds is not None:
            found.append(began + self.seconds)
        if self.idle_seconds is not None:
            found.append(last_row + self.idle_seconds)
        return min(found)
