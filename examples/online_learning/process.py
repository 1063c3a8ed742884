# SPDX-License-Identifier: Apache-2.0
"""Part of the example: one or several processes, which are restarted if one process ends."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from examples.online_learning.parts import PROCESSES, Status

__all__ = ["Part"]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
QUICK_ENDS = 3  # of a part in succession, after which it is given up
SOON = 20.0  # seconds


class Part:
    """Process of one part of the example, with automatic restarts.

    Args:
        name: name of the script.
        directory: directory of the run.
        arguments: arguments of the script.
        workers: number of processes that run the part together. Default: 1.
    """

    def __init__(self, name: str, directory: Path, arguments: list[str], workers: int = 1) -> None:
        self.name = name
        self.starts = 0
        self._workers = workers
        self._processes = Status(directory, PROCESSES)
        self._kills = 0
        # The demo's other parts need the cores too, so workers are not pinned to cores.
        launch = ["-m", "mindspore_rec.launch", "-n", str(workers), "--no-bind"]
        script = [str(HERE / f"{name}.py"), *arguments]
        self._command = [sys.executable, *(launch if workers > 1 else []), *script]
        self._log = directory / "logs" / f"{name}.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._quick = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._began = self._started = 0.0

    def keep_up(self) -> None:
        """Start the process if it is not running.

        Raises:
            RuntimeError: the process was started several times, and ended soon each time.
        """
        if self._process is not None:
            if self._process.poll() is None:
                return
            killed = self._process.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
            soon = time.monotonic() < self._began + SOON
            self._quick = self._quick + 1 if soon and not killed else 0
            if self._quick >= QUICK_ENDS:
                end = self._log.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise RuntimeError(f"{self.name} does not run; the end of {self._log}:\n{end}")
        self._began, self._started = time.monotonic(), time.time()
        self.starts += 1
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,  # a Ctrl-C in the terminal is for the runner to handle
                preexec_fn=_end_with_parent,
            )

    def has_spoken(self, directory: Path) -> bool:
        """True if the part has reported metrics since its last start."""
        return bool(Status(directory, self.name).read().get("at", 0.0) > self._started)

    def kill(self) -> None:
        """Kill the process, like a crash; with several workers, each call kills the next worker."""
        if self._process is None:
            return
        if self._workers == 1:
            self._process.kill()
        else:
            # When one worker ends, the launcher ends all other workers, and then exits.
            process = self._processes.read()["processes"][self._kills % self._workers]
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(process, signal.SIGKILL)
        self._kills += 1
        self._started = math.inf  # what it has reported is of a process that has ended

    def stop(self, timeout: float = 60.0) -> None:
        """End the process cleanly, or by force after `timeout` seconds."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_with_parent() -> None:
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)
