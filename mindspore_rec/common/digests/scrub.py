# SPDX-License-Identifier: Apache-2.0
"""Scrub: the common loop of scrubbers, which search for rows damaged by memory or disk faults.

A round checks each row once. The slices of a round are distributed evenly over the round's planned
duration. The interface `ScrubbedRows` divides the rows into slices and checks each slice. A trainer
calls `step` after each training step; in a predictor, a thread calls `turn`.
"""

from __future__ import annotations

import logging
import time
from typing import NamedTuple, Protocol

__all__ = ["Scrub", "ScrubbedRows", "Slice"]

logger = logging.getLogger("mindspore_rec")

_MOST_SHARE = 0.25  # of the time
_LONGEST_GAP = 10.0  # seconds; a longer gap between two steps counts as this long


class Slice(NamedTuple):
    """Slice of rows that a scrubber has checked.

    Attributes:
        rows: number of checked rows; 0 if reading failed and the next slice tries the same rows
            again.
        last: True if this is the last slice of the round.
        error: reason why the rows could not be read. Default: None, which means that the rows were
            read without an error.
        name: text that names the rows in warnings. Default: ''.
    """

    rows: int
    last: bool
    error: Exception | None = None
    name: str = ""


class ScrubbedRows(Protocol):
    """Interface of the rows that a `Scrub` checks.

    Attributes:
        pause: seconds to wait after rows could not be read.
    """

    pause: float

    @property
    def active(self) -> bool:
        """True if the current round has slices of rows to check."""

    def begin(self) -> int:
        """Begin a round; return the total number of rows in the round's slices."""

    def look(self) -> Slice:
        """Check the next slice of the round; report damaged rows, or raise an error."""


class Scrub:
    """Loop of scrubbing rounds; scrubbing takes at most a quarter of the time.

    If scrubbing all rows takes more than a quarter of `seconds`, a round takes longer than
    `seconds`.

    Args:
        rows: the rows.
        seconds: planned duration of a round.

    Attributes:
        rounds: number of finished rounds in which every row was read.
        round_seconds: duration of the last round that `rounds` counts; None if `rounds` is 0.
    """

    def __init__(self, rows: ScrubbedRows, seconds: float) -> None:
        self.rounds = 0
        self.round_seconds: float | None = None
        self._rows = rows
        self._seconds = seconds
        self._warned = ""
        self._last_step = self._not_before = time.monotonic()
        self.begin()

    @property
    def active(self) -> bool:
        """True if the current round has rows to check."""
        return self._rows.active

    def begin(self) -> None:
        """Begin a new round."""
        self._began = time.monotonic()
        self._total = self._rows.begin()
        self._done = self._unread = 0
        self._ended = not self._rows.active

    def step(self) -> None:
        """Check the slices that are due; use at most a quarter of the time between calls.

        Even after a long time without calls, for example if a stream was idle, a call takes at most
        2.5 seconds.

        Raises:
            Exception: `ScrubbedRows.look` raises an error because rows are damaged.
        """
        gap = min(time.monotonic() - self._last_step, _LONGEST_GAP)
        self.turn(_MOST_SHARE * gap)
        self._last_step = time.monotonic()

    def turn(self, seconds: float = 0.0) -> float:
        """Check the slices that are due, until `seconds` have passed.

        Args:
            seconds: seconds after which no further slice is begun. Default: 0, which means that one
                slice is checked.

        Returns:
            Seconds until the next slice is due.

        Raises:
            Exception: as for `step`.
        """
        began = now = time.monotonic()
        if began >= self._not_before:
            pause = 0.0
            while not self._ended and not pause and self._due() < now:
                pause = self._look()
                now = time.monotonic()
                if now - began >= seconds:
                    break
            self._not_before = max(began + (now - began) / _MOST_SHARE, now + pause)
            if self._ended and now >= self._began + self._seconds:
                self._end(now)
        return max(self._due(), self._not_before) - time.monotonic()

    def _due(self) -> float:
        """Return the planned time of the next slice, or the round's end if no slice is left."""
        share = self._done / self._total if self._total and not self._ended else 1.0
        return self._began + self._seconds * min(share, 1.0)

    def _look(self) -> float:
        """Check a slice; return the number of seconds to pause afterwards."""
        looked = self._rows.look()
        self._done += looked.rows
        self._ended = looked.last
        if looked.error is None:
            return 0.0
        self._unread += looked.rows
        if str(looked.error) != self._warned:
            logger.warning("%s cannot be scrubbed now: %s", looked.name, looked.error)
        self._warned = str(looked.error)
        return self._rows.pause

    def _end(self, now: float) -> None:
        if self._rows.active and not self._unread:
            self.rounds += 1
            self.round_seconds = round(now - self._began, 3)
            self._warned = ""
        self.begin()
