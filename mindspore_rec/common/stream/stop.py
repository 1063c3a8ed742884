# SPDX-License-Identifier: Apache-2.0
"""StopWhen: conditions that end a stream."""

from __future__ import annotations

from dataclasses import dataclass

from mindspore_rec.common.checks import check_int, check_number

__all__ = ["StopWhen"]

_BETWEEN_LOOKS = 0.02  # seconds at least between two calls of `StopWhen.waiting`


@dataclass(frozen=True)
class StopWhen:
    """Conditions that end a stream. The first condition that is met ends the stream.

    Args:
        batches: number of batches, at least 1, after which the stream ends. Batches of earlier runs
            do not count.
        seconds: number of seconds, above 0, from the request for the first batch to the end of the
            stream. Rows of an incomplete batch are not returned and stay in the topic.
        watermark: event time, in seconds since 1970, that ends the stream. The stream ends after
            the first batch that has an event at or after `watermark`.
        idle_seconds: seconds without a new row, above 0, after which the stream ends. The time
            since the last poll of the topic does not count toward `idle_seconds`. The rows read so
            far become the last batch, which may be small. If only some partitions have new
            messages, the stream does not read these messages while another partition has the turn.
            Messages that are not read stay in the topic.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> StopWhen(batches=10, idle_seconds=30.0).seconds is None
        True
    """

    batches: int | None = None
    seconds: float | None = None
    watermark: float | None = None
    idle_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.batches is not None:
            check_int("batches", self.batches, 1, (1 << 62) - 1)
        for name in ("seconds", "idle_seconds"):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value, low=0, low_open=True)
        if self.watermark is not None:
            check_number("watermark", self.watermark)

    def before(self, batches: int, seconds: float, watermark: float | None) -> str:
        """Return why the stream makes no further batch, or ""."""
        if self.batches is not None and batches >= self.batches:
            return f"{batches} batches"
        if self.seconds is not None and seconds >= self.seconds:
            return f"{self.seconds} seconds"
        if self.watermark is not None and watermark is not None and watermark >= self.watermark:
            return f"watermark {self.watermark}"
        return ""

    def waiting(self, seconds: float, idle: float) -> str:
        """Return why the wait for rows must stop; "" if the wait continues."""
        if self.seconds is not None and seconds >= self.seconds:
            return f"{self.seconds} seconds"
        if self.idle_seconds is not None and idle >= self.idle_seconds:
            return f"idle for {self.idle_seconds} seconds"
        return ""

    def keeps_rest(self, reason: str) -> bool:
        """Return True if the rows of an incomplete batch are returned as the last batch."""
        return reason.startswith("idle")

    def next_look(self, now: float, began: float, last_row: float) -> float:
        """Return the time at which to call `waiting` again."""
        times = [now + 1.0]
        if self.seconds is not None:
            times.append(began + self.seconds)
        if self.idle_seconds is not None:
            # Wait for at least a short time: a running poll may take long, and waiting must not
            # become a busy loop.
            times.append(max(last_row + self.idle_seconds, now + _BETWEEN_LOOKS))
        return min(times)
