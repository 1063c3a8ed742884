# SPDX-License-Identifier: Apache-2.0
"""Cadence: the interval between two actions, in steps or seconds."""

from __future__ import annotations

import sys

from mindspore_rec.common.checks import check_int, check_number

__all__ = ["Cadence"]

_FOREVER = 1e9  # maximum number of seconds between two actions


class Cadence:
    """Interval between two actions, in steps or seconds; without an interval, no action is due.

    Args:
        argument: common beginning of the two arguments' names, for error messages. The names end in
            `_steps` and `_seconds`.
        steps: number of steps between two actions, at least 1, or None. The action is due at each
            step whose number is a multiple of `steps`.
        seconds: seconds between two actions, above 0, or None.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or both intervals
            are set.

    Example:
        >>> cadence = Cadence("every", 10, None)
        >>> [step for step in range(1, 25) if cadence.due(step, now=0.0)]
        [10, 20]
    """

    def __init__(self, argument: str, steps: int | None, seconds: float | None) -> None:
        if steps is not None and seconds is not None:
            raise ValueError(f"{argument}_steps and {argument}_seconds exclude each other")
        self.steps = (
            None if steps is None else check_int(f"{argument}_steps", steps, 1, sys.maxsize)
        )
        self.seconds = None
        if seconds is not None:
            self.seconds = check_number(f"{argument}_seconds", seconds)
            if not 0 < self.seconds <= _FOREVER:
                raise ValueError(
                    f"{argument}_seconds must be above 0 and at most {_FOREVER:.0f}, got {seconds}"
                )
        self._last = 0.0

    @property
    def off(self) -> bool:
        """True if the action is never due."""
        return self.steps is None and self.seconds is None

    @property
    def by_steps(self) -> bool:
        """True if the interval is in steps."""
        return self.steps is not None

    @property
    def by_clock(self) -> bool:
        """True if the interval is in seconds."""
        return self.seconds is not None

    def restart(self, now: float) -> None:
        """Start the interval again at the clock time `now`, in seconds."""
        self._last = now

    def due(self, step: int, now: float) -> bool:
        """Return whether the action is due after `step`, at the clock time `now`."""
        if self.steps is not None:
            return step % self.steps == 0
        return self.seconds is not None and now - self._last >= self.seconds
