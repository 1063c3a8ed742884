# SPDX-License-Identifier: Apache-2.0
"""Patience: decide what a stream does while it waits for messages."""

from __future__ import annotations

from typing import NamedTuple

from mindspore_rec.common.stream.limits import StreamLimits
from mindspore_rec.common.stream.stop import StopWhen

__all__ = ["Patience", "Verdict"]

_LOOK = 0.2  # seconds of waiting for messages after which a signal is looked for


class Verdict(NamedTuple):
    """Next action of a stream that waits for messages.

    Args:
        kind: "wait", "cut", "leave" or "end". With "wait", the stream waits up to `seconds` for
            messages. With "cut", the batch ends now, with fewer rows than the batch size. With
            "leave", the partition that has the turn takes no more turns until it has messages
            again. With "end", the stream ends, and the rows of the unfinished batch are not
            returned.
        reason: reason why the stream ends after this action; "" if the stream continues.
        seconds: maximum seconds to wait if `kind` is "wait".
    """

    kind: str
    reason: str = ""
    seconds: float = 0.0


class Patience:
    """Timer of a stream.

    The timer measures how long the stream reads, how long it waits for a full batch, and how long
    it waits for a partition.

    Times are seconds of a clock that the caller reads, such as `time.monotonic`.

    Args:
        limits: limits of the waits for a partition and for a full batch.
        stop: conditions that end the stream.

    Example:
        >>> patience = Patience(StreamLimits(max_wait_seconds=5), StopWhen())
        >>> patience.begin(100.0)
        >>> patience.rows_came(101.0)
        >>> patience.look(105.875, 105.8, True, 0, False)
        Verdict(kind='wait', reason='', seconds=0.125)
        >>> patience.look(106.0, 105.9, True, 0, False).kind
        'cut'
    """

    def __init__(self, limits: StreamLimits, stop: StopWhen) -> None:
        self.stop = stop
        self._skip_idle = limits.skip_idle_seconds
        self._max_wait = limits.max_wait_seconds
        self._began = self._last_row = 0.0
        self._first_row: float | None = None  # when the batch's first row came
        self._waits: dict[int, float] = {}  # by partition, since when it is waited for

    @property
    def depends_on_time(self) -> bool:
        """True if `skip_idle_seconds` or `max_wait_seconds` may determine the rows of a batch."""
        return self._skip_idle is not None or self._max_wait is not None

    def begin(self, now: float) -> None:
        """Record that reading began at the time `now`."""
        self._began = self._last_row = now

    def message_came(self) -> None:
        """Record that a message was taken, and end all waits for partitions."""
        self._waits.clear()

    def rows_came(self, now: float) -> None:
        """Record that rows of the batch were taken."""
        self._last_row = now
        self._first_row = self._first_row or now

    def batch_ended(self) -> None:
        """Record that the batch has ended, and that no rows wait for a batch."""
        self._first_row = None

    def reason_to_end(self, now: float, batches: int, watermark: float | None) -> str:
        """Return the reason why the stream ends before the next batch; "" if the stream continues.

        Args:
            now: the time.
            batches: number of batches that this run has read.
            watermark: latest event time of all batches; None without event times.
        """
        return self.stop.before(batches, now - self._began, watermark)

    def look(
        self, now: float, looked: float, may_decide: bool, current: int | None, others: bool
    ) -> Verdict:
        """Return the next action of a stream whose next message is not available.

        Args:
            now: the time.
            looked: time at which the newest completed poll began. The time after `looked` does not
                count as idle time, because messages that arrived after `looked` may not have been
                polled yet.
            may_decide: True if the stream may make a decision before the next message. No decision
                may be made inside a message, or before a message that an earlier run may have
                taken.
            current: partition that has the turn; None if all partitions are idle.
            others: True if partitions other than `current` also take turns.
        """
        until = now + _LOOK
        if may_decide and self._max_wait is not None and self._first_row is not None:
            if now >= self._first_row + self._max_wait:
                return Verdict("cut")
            until = min(until, self._first_row + self._max_wait)
        if may_decide and self._skip_idle is not None and current is not None and others:
            since = self._waits.setdefault(current, now)
            if now >= since + self._skip_idle:
                return Verdict("leave")
            until = min(until, since + self._skip_idle)
        reason = self.stop.waiting(now - self._began, looked - self._last_row)
        if reason:
            has_rows = self._first_row is not None
            keeps_rest = has_rows and may_decide and self.stop.keeps_rest(reason)
            return Verdict("cut" if keeps_rest else "end", reason)
        unseen = now - looked  # not counted as idle
        until = min(until, self.stop.next_look(now, self._began, self._last_row + unseen))
        return Verdict("wait", seconds=max(until - now, 0.001))
