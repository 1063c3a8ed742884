# SPDX-License-Identifier: Apache-2.0
"""Heartbeat of the thread or process that follows a run, so that a hang is noticed."""

from __future__ import annotations

import struct
import threading
import time
from typing import Any

__all__ = ["PULSE_BYTES", "Pulse"]

PULSE_BYTES = 24
_LOOKED, _APPLYING, _ALIVE = 0, 8, 16  # offsets
_ALIVE_SECONDS = 1.0  # between two signs of life
_LATE_SECONDS = 20.0  # without a look, beyond the time between two; or without a sign of life
_SLOW_SECONDS = 600.0  # for one checkpoint, which may have hundreds of GB


class Pulse:
    """Time of the last check of a run's directory, and whether a checkpoint is being applied.

    One process or thread writes the pulse, and other processes or threads read it. The times of
    different processes are comparable, because all processes of a machine share one clock.

    Args:
        memory: buffer of `PULSE_BYTES` zeros, which several processes may share. Default: a new
            buffer.

    Example:
        >>> pulse = Pulse()
        >>> pulse.beat()
        >>> pulse.seconds() < 5, pulse.complaint(0.1)
        (True, None)
    """

    def __init__(self, memory: Any = None) -> None:
        self._memory = bytearray(PULSE_BYTES) if memory is None else memory

    def beat(self, applying: bool = False) -> None:
        """Record that the run's directory is checked now.

        Args:
            applying: True if the caller now begins to apply a checkpoint. Default: False.
        """
        # Write the time last. A process that reads the memory before the time is written reads an
        # old time, which does no harm.
        struct.pack_into("=q", self._memory, _APPLYING, int(applying))
        self._note(_LOOKED)

    def show_life(self) -> None:
        """Start a thread that regularly records that the process runs.

        While a checkpoint is applied, which may take minutes, only the thread shows that the
        process is still running.
        """

        def live() -> None:
            while True:
                self._note(_ALIVE)
                time.sleep(_ALIVE_SECONDS)

        self._note(_ALIVE)
        threading.Thread(target=live, name="pulse", daemon=True).start()

    def seconds(self) -> float | None:
        """Return the seconds since the directory was last checked; None if it was never checked."""
        return self._since(_LOOKED)

    def complaint(self, poll_seconds: float) -> str | None:
        """Return why the run's follower seems to hang; return None if the follower seems to work.

        Args:
            poll_seconds: seconds between two checks of the directory.
        """
        alive, looked = self._since(_ALIVE), self._since(_LOOKED)
        if alive is not None and alive > _LATE_SECONDS:
            return f"the process that follows the run has not run for {alive:.0f} s: it was stopped"
        if looked is None:
            return None
        (applying,) = struct.unpack_from("=q", self._memory, _APPLYING)
        if applying:
            if looked <= _SLOW_SECONDS:
                return None
            return f"a newer state has been read for {looked:.0f} s: the disk or process hangs"
        if looked <= poll_seconds + _LATE_SECONDS:
            return None
        return f"the run was last looked at {looked:.0f} s ago: its disk or what follows it hangs"

    def _note(self, offset: int) -> None:
        struct.pack_into("=d", self._memory, offset, time.monotonic())

    def _since(self, offset: int) -> float | None:
        (at,) = struct.unpack_from("=d", self._memory, offset)
        return max(0.0, time.monotonic() - at) if at else None
