# SPDX-License-Identifier: Apache-2.0
"""A predictor that is killed and started again, and who asks it all the time."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.history.clock import Clock
from tests.history.network import KEYS, WIDTH
from tests.history.record import History
from tests.support.http_server import Client, Server, children

__all__ = ["Asker", "Part"]

_IDS = np.arange(KEYS, dtype=np.int64)[:, None]
_ASKED_BY_A_CONNECTION = 10  # then a new one, which another worker may take


class Part:
    """A predictor.

    Args:
        name: its name in the history.
        root: directory of the checkpoints.
        log: file that gets what it says.
        history: gets a record when it starts.
        clock: its wall clock. Default: the machine's.
        options: of the command.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        log: Path,
        history: History,
        clock: Clock | None,
        *options: str,
    ) -> None:
        self.name = name
        self._environment = {} if clock is None else clock.environment
        self._root, self._log, self._history, self._options = root, log, history, options
        self.server: Server | None = None

    def start(self) -> None:
        """Start the process and wait until it listens; once more where it ends before that."""
        try:
            self._start()
        except AssertionError:
            self._history.add("ended", who=self.name, code="before it listened")
            self._start()

    def _start(self) -> None:
        self._history.add_files("start", "files", who=self.name)
        with open(self._log, "a", encoding="utf-8") as log:
            self.server = Server(
                self._root, *self._options, errors=log, environment=self._environment
            )

    def kill(self) -> None:
        """End it as a crash would; it may be stopped."""
        server, self.server = self.server, None
        if server is not None:
            server.process.kill()
            server.process.wait()

    def pids(self) -> dict[str, int]:
        """Return its processes by name: `name`, and those that it has started."""
        if self.server is None:
            return {}
        pid = self.server.process.pid
        found = {self.name: pid}
        with contextlib.suppress(OSError):
            found.update({f"{self.name}: {name}": n for name, n in children(pid).items()})
        return found

    @property
    def code(self) -> int | None:
        """Exit code, where the process has ended by itself; None while it runs, or was killed."""
        return None if self.server is None else self.server.process.poll()


class Asker(threading.Thread):
    """Asks a predictor for all rows, one request after the other.

    Args:
        part: the predictor.
        history: gets the answers.
        pause: seconds between two requests.
    """

    def __init__(self, part: Part, history: History, pause: float) -> None:
        super().__init__(daemon=True)
        self._part, self._history, self._pause = part, history, pause
        self.newest = -1  # version that it has answered
        self.stop = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Ask until it is stopped."""
        try:
            while not self.stop.is_set():
                server = self._part.server
                if server is not None:
                    with contextlib.suppress(OSError, http.client.HTTPException):
                        self._ask(server.client())
                time.sleep(self._pause)
        except BaseException as error:
            self.failure = error

    def _ask(self, client: Client) -> None:
        for _ in range(_ASKED_BY_A_CONNECTION):
            status, found = client.infer(_IDS)
            if status == 200:
                self._answered(found)
            elif status != 503:  # what it says until its first state is there
                self._history.add("refused", who=self._part.name, status=status, text=str(found))
            if self.stop.wait(self._pause):
                return

    def _answered(self, found: dict[str, Any]) -> None:
        version = int(found["model_version"])
        rows = np.asarray(found["outputs"][0]["data"]).reshape(KEYS, WIDTH).tolist()
        self._history.add("answer", who=self._part.name, version=version, rows=rows)
        if version != self.newest:
            self._history.add_files("files", "newest")
        self.newest = version
