# SPDX-License-Identifier: Apache-2.0
"""When something that is done now and then is due."""

from __future__ import annotations

import sys

from mindspore_rec.checks import check_int, check_number

__all__ = ["Cadence"]

_FOREVER = 1e9  # seconds


class Cadence:
    """Every so many steps or seconds, or never.

    Args:
        argument: name of the arguments, without `_steps` and `_seconds`.
        steps: at least 1, or None; then it is due at multiples.
        seconds: above 0, or None; then it is due so long after the last time.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or range, or both are given.

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
        """Whether it is never due."""
        return self.steps is None and self.seconds is None

    @property
    def by_steps(self) -> bool:
        """Whether it depends on the step only."""
        return self.steps is not None

    def restart(self, now: float) -> None:
        """It was done at that moment, in seconds of a clock."""
        self._last = now

    def due(self, step: int, now: float) -> bool:
        """Whether it is to be done after that step, at that moment."""
        if self.steps is not None:
            return step % self.steps == 0
        return self.seconds is not None and now - self._last >= self.seconds
