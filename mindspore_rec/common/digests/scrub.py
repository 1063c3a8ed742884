# SPDX-License-Identifier: Apache-2.0
"""Scrub: the loop of all scrubbers, which look for rows that changed by themselves.

A round looks at all rows once, a slice at a time, and takes a number of seconds. The rows are
behind the interface `ScrubbedRows`, which divides them into slices and checks them. A trainer calls
`step` after each step of the training; a predictor has a thread that calls `turn`.
"""

from __future__ import annotations

import logging
import time
from typing import NamedTuple, Protocol

__all__ = ["Scrub", "ScrubbedRows", "Slice"]

logger = logging.getLogger("mindspore_rec")

_MOST_SHARE = 0.25  # of the time


class Slice(NamedTuple):
    """Slice of rows that a scrubber has looked at.

    Attributes:
        rows: number of rows; 0 after an error if the next slice has the same rows.
        last: True if it is the last slice of the round.
        error: why the rows could not be read. Default: None, they were read.
        name: name of the rows in a warning about the error. Default: ''.
    """

    rows: int
    last: bool
    error: Exception | None = None
    name: str = ""


class ScrubbedRows(Protocol):
    """Rows that a `Scrub` looks at.

    Attributes:
        pause: seconds without a try after rows that could not be read.
    """

    pause: float

    @property
    def active(self) -> bool:
        """True if the present round has slices."""

    def begin(self) -> int:
        """Begin a round; return the present number of rows of all its slices together."""

    def look(self) -> Slice:
        """Look at the next slice of the round; report damaged rows, or raise an error."""


class Scrub:
    """Loop over rounds, which takes at most a quarter of the time.

    A round takes longer than its seconds if a quarter of them is not enough.

    Args:
        rows: the rows.
        seconds: seconds of a round.

    Attributes:
        rounds: number of ended rounds in which every row was read.
        round_seconds: seconds of the last round that `rounds` counts; None before its end.
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
        """True if the present round has rows to look at."""
        return self._rows.active

    def begin(self) -> None:
        """Begin a round anew."""
        self._began = time.monotonic()
        self._total = self._rows.begin()
        self._done = self._unread = 0
        self._ended = not self._rows.active

    def step(self) -> None:
        """Look at slices that are due, for at most a quarter of the time since the last call.

        Raises:
            Exception: the rows are damaged, and `ScrubbedRows.look` reports this by an error.
        """
        self.turn(_MOST_SHARE * (time.monotonic() - self._last_step))
        self._last_step = time.monotonic()

    def turn(self, seconds: float = 0.0) -> float:
        """Look at slices that are due, until some seconds have passed.

        Args:
            seconds: seconds after which no further slice is begun. Default: 0, so that one slice is
                looked at.

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
        """Return the time at which the next slice or the end of the round is due."""
        share = self._done / self._total if self._total and not self._ended else 1.0
        return self._began + self._seconds * min(share, 1.0)

    def _look(self) -> float:
        """Look at a slice; return the seconds of the pause that follows."""
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
