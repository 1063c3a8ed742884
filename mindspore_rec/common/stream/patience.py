# SPDX-License-Identifier: Apache-2.0
"""Patience: what a stream does by the clock while it waits for messages."""

from __future__ import annotations

from typing import NamedTuple

from mindspore_rec.common.stream.limits import StreamLimits
from mindspore_rec.common.stream.stop import StopWhen

__all__ = ["Patience", "Verdict"]

_LOOK = 0.2  # seconds of waiting for messages after which a signal is looked for


class Verdict(NamedTuple):
    """Next action of a stream that waits for messages.

    Args:
        kind: "wait": wait on; "cut": end the batch here, short of its size; "leave": leave the
            partition that has the turn out; "end": end the stream without the rows of the batch.
        reason: reason why the stream ends after it; "" if it goes on.
        seconds: how long to wait at most; for "wait" only.
    """

    kind: str
    reason: str = ""
    seconds: float = 0.0


class Patience:
    """Clock of a stream: since when it reads, its rows wait and its partitions have nothing.

    Times are seconds of a clock that the caller reads, such as `time.monotonic`.

    Args:
        limits: limits of waiting for a partition, and for a batch to be full.
        stop: when the stream ends by itself.

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
        """Whether `skip_idle_seconds` or `max_wait_seconds` may decide what a batch is."""
        return self._skip_idle is not None or self._max_wait is not None

    def begin(self, now: float) -> None:
        """Count the time of reading from now on."""
        self._began = self._last_row = now

    def message_came(self) -> None:
        """Note that a message was taken: no partition is waited for any more."""
        self._waits.clear()

    def rows_came(self, now: float) -> None:
        """Note that rows of the batch were taken."""
        self._last_row = now
        self._first_row = self._first_row or now

    def batch_ended(self) -> None:
        """Note that no rows wait any more."""
        self._first_row = None

    def reason_to_end(self, now: float, batches: int, watermark: float | None) -> str:
        """Return the reason to make no further batch, or "".

        Args:
            now: the time.
            batches: number of batches of this run.
            watermark: latest event time of all batches; None if there is none.
        """
        return self.stop.before(batches, now - self._began, watermark)

    def look(
        self, now: float, looked: float, may_decide: bool, current: int | None, others: bool
    ) -> Verdict:
        """Return what to do while the next message is not there.

        Args:
            now: the time.
            looked: time when the newest look into the topic began whose messages are here. The
                stream counts as idle up to then: after a pause of the process, messages may have
                come that nobody has looked for.
            may_decide: whether a decision may be made here: not in the middle of a message, nor
                before a message with which an earlier run may have gone on.
            current: partition whose turn it is; None if all are idle.
            others: whether other partitions take turns.
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
