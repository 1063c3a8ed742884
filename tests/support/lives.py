# SPDX-License-Identifier: Apache-2.0
"""Runs and kills the lives of trainer_script.py, or of another script that is made like it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from tests.support.processes import ROOT, start_python

SCRIPT = ROOT / "tests" / "online" / "trainer_script.py"
PATIENCE = 300.0  # seconds; tests may have to share a machine


class Lives:
    """One life after the other of a trainer or a feature worker; ended with the context.

    Args:
        script: serves the lives.
        environment: variables of theirs besides this process's. Default: none.
    """

    def __init__(self, script: Path = SCRIPT, environment: Mapping[str, str] | None = None) -> None:
        self._script = script
        self._environment = dict(environment or {})
        self._lines: queue.Queue[str] = queue.Queue()
        self._pid: int | None = None
        self.code: int | None = None
        self.restored = 0
        self.step = 0
        self.words: list[str] = []

    def __enter__(self) -> Lives:
        self._server = start_python(
            self._script, stdin=subprocess.PIPE, variables=self._environment
        )
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.kill()
        self._server.wait()

    def _read(self) -> None:
        assert self._server.stdout is not None
        for line in self._server.stdout:
            self._lines.put(line)

    def begin(self, options: dict[str, Any]) -> None:
        """Starts a life."""
        assert self._server.stdin is not None
        self._pid, self.code, self.step, self.words = None, None, 0, []
        self._server.stdin.write(json.dumps(options) + "\n")
        self._server.stdin.flush()
        while self._pid is None:
            self._hear(PATIENCE)

    @property
    def over(self) -> bool:
        """Whether the life has ended; `code` is how."""
        while not self._lines.empty():
            self._hear(0)
        return self.code is not None

    def reach(self, step: int) -> bool:
        """Waits for a step; False where the life ended before it."""
        while self.code is None and self.step < step:
            self._hear(PATIENCE)
        return self.code is None

    def wait_for(self, word: str) -> bool:
        """Waits until the life says a word; False where it ended before it."""
        while self.code is None and word not in self.words:
            self._hear(PATIENCE)
        return word in self.words

    def signal(self, number: signal.Signals) -> None:
        """Sends the life a signal."""
        if not self.over and self._pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self._pid, number)

    def end(self, seconds: float = PATIENCE) -> int:
        """Waits for the life's end."""
        deadline = time.monotonic() + seconds
        while self.code is None:
            self._hear(deadline - time.monotonic())
        return self.code

    def kill(self) -> None:
        """Ends the life as a crash would."""
        self.signal(signal.SIGKILL)
        self.end()

    def _hear(self, seconds: float) -> None:
        try:
            line = self._lines.get(timeout=max(seconds, 0.01))
        except queue.Empty:
            raise TimeoutError(f"nothing heard after step {self.step}") from None
        word, _, rest = line.strip().partition(" ")
        if word == "pid":
            self._pid = int(rest)
        elif word == "exit":
            self.code = int(rest)
        elif word == "step":
            self.step = int(rest)
        elif word == "restored":
            self.restored = int(rest)
        self.words.append(word)


def assert_same(one: Path, other: Path, but: str = "") -> None:
    """Compares what two trainers wrote at their end, bit for bit.

    Args:
        one: a file.
        other: another.
        but: what is not compared. Default: everything is.
    """
    with np.load(one) as got, np.load(other) as want:
        assert sorted(got) == sorted(want)
        wrong = [
            name
            for name in want
            if name != but
            and (
                got[name].dtype != want[name].dtype
                or got[name].shape != want[name].shape
                or got[name].tobytes() != want[name].tobytes()
            )
        ]
        assert not wrong, f"not the same: {wrong}"
