# SPDX-License-Identifier: Apache-2.0
"""Pulse of whoever follows a run: time of its last look, by which it is known that it hangs."""

from __future__ import annotations

import struct
import time
from typing import Any

__all__ = ["PULSE_BYTES", "Pulse"]

PULSE_BYTES = 16
_LATE_SECONDS = 20.0  # without a look, beyond the time between two
_SLOW_SECONDS = 600.0  # for one checkpoint, which may have hundreds of GB


class Pulse:
    """Time of the last look at a run, and whether a checkpoint is being applied since then.

    One process or thread beats, and any others read. The clock is that of all processes of a
    machine.

    Args:
        memory: of `PULSE_BYTES` zeros, which several processes may share. Default: of its own.

    Example:
        >>> pulse = Pulse()
        >>> pulse.beat()
        >>> pulse.seconds() < 5, pulse.complaint(0.1)
        (True, None)
    """

    def __init__(self, memory: Any = None) -> None:
        self._memory = bytearray(PULSE_BYTES) if memory is None else memory

    def beat(self, applying: bool = False) -> None:
        """Note that the run was looked at now.

        Args:
            applying: whether a checkpoint is applied from now on. Default: False.
        """
        # The time last: whoever reads between the two takes an old time, which is no news.
        struct.pack_into("=q", self._memory, 8, int(applying))
        struct.pack_into("=d", self._memory, 0, time.monotonic())

    def seconds(self) -> float | None:
        """Return the seconds since the last look; None if there was none."""
        (at,) = struct.unpack_from("=d", self._memory, 0)
        return max(0.0, time.monotonic() - at) if at else None

    def complaint(self, poll_seconds: float) -> str | None:
        """Return why whoever follows the run seems to hang; None if it does not.

        Args:
            poll_seconds: time between two looks.
        """
        seconds = self.seconds()
        if seconds is None:
            return None
        (applying,) = struct.unpack_from("=q", self._memory, 8)
        if applying:
            if seconds <= _SLOW_SECONDS:
                return None
            return f"a newer state has been read for {seconds:.0f} s: the disk or process hangs"
        if seconds <= poll_seconds + _LATE_SECONDS:
            return None
        return (
            f"the run was last looked at {seconds:.0f} s ago: what follows it hangs or was "
            "stopped, and newer states are not seen"
        )
