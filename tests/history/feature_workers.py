# SPDX-License-Identifier: Apache-2.0
"""The feature workers of a run: one works, another one may have been stopped and come back."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.history.record import History
from tests.support.lives import Lives

__all__ = ["FeatureWorkers"]

_BATCH_SECONDS = 2.0  # most of the time in which a batch comes


class FeatureWorkers:
    """Two processes, of which one at a time works; they share a state, and a name.

    Each life has a `batch_size`, a `message_rows`, a `max_wait_seconds` and a `skip_idle_seconds`
    of its own, and takes its time for each row or none. On a file system that loses locks, a worker
    that is stopped comes back beside the one that has taken over. After one that refuses the topic,
    which was made anew, come others with a state and a name of theirs.

    Args:
        script: serves the lives.
        environment: variables of theirs.
        options: of every life.
        seed: of what differs.
        history: gets a record of what ends by itself.
        patience: seconds in which a worker that comes back notices that another one has taken over.
    """

    def __init__(
        self,
        script: Path,
        environment: Mapping[str, str],
        options: Mapping[str, Any],
        seed: int,
        history: History,
        patience: float,
    ) -> None:
        self._lives = [Lives(script, environment) for _ in range(2)]
        self._options, self._history = dict(options), history
        self._patience = patience
        self._random = random.Random(f"feature workers {seed}")
        self._replaced = self._refused = 0
        self._own: dict[str, Any] = {}

    def __enter__(self) -> FeatureWorkers:
        with contextlib.ExitStack() as stack:
            for each in self._lives:
                stack.enter_context(each)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def replaced(self) -> int:
        """How many workers have come back and ended, for another one had taken over."""
        return self._replaced

    def start(self, soon: bool = False) -> dict[str, Any]:
        """Begin a life; return what is its own.

        Args:
            soon: whether it sends what there is without waiting for a full batch, or for a
                partition that has nothing. Default: that is decided by chance.
        """
        self._own = {
            "batch": self._random.randint(5, 40),
            "message_rows": self._random.randint(2, 12),
            "wait": 0.05 if soon else self._random.choice((None, 0.05, 0.5)),
            "skip_idle": 0.05 if soon else self._random.choice((None, 0.05, 0.5)),
            "row_seconds": 0.0 if soon else self._random.choice((0.0, 0.004)),
        }
        place = {"state": str(self._state), "name": self._refused}
        self._lives[0].begin({"role": "work", **self._options, **self._own, **place})
        return self._own

    @property
    def _state(self) -> Path:
        return Path(f"{self._options['state']}.{self._refused}")

    def start_without_journal(self) -> bool:
        """Begin a life without the journal of the ones before; return whether it went on so.

        It may do so if nothing that was sent has to be repeated. Else it has to refuse, and the
        journal is put back.
        """
        journal = self._state.with_name(f"{self._state.name}.journal")
        aside = journal.with_suffix(".aside")
        aside.unlink(missing_ok=True)
        if journal.exists():
            journal.rename(aside)
        self.start()
        if self._lives[0].wait_for("works") or "journal" not in self._lives[0].words:
            return True
        aside.replace(journal)
        self.start()
        return False

    def send_soon(self) -> None:
        """Have a worker that sends what there is, however long nothing else comes."""
        if None in self._own.values():
            self.end()
            self.start(soon=True)

    def kill(self) -> None:
        """End the life as a crash would."""
        self._lives[0].kill()

    def end(self) -> None:
        """End the life in order."""
        worker = self._lives[0]
        worker.wait_for("works")
        worker.signal(signal.SIGTERM)
        # SIGTERM kills it if it comes before `run` waits for it.
        if worker.end() not in (0, -signal.SIGKILL, -signal.SIGTERM):
            self._history.add("ended", who="feature worker", code=worker.code)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the worker inside the context, in which another one is to be started."""
        self._lives[0].wait_for("works")
        if self._own["row_seconds"]:
            self._wait_for_features()
        self._lives[0].signal(signal.SIGSTOP)
        self._lives.reverse()
        try:
            yield
            self._lives[0].wait_for("works")
        finally:
            self._lives[1].signal(signal.SIGCONT)
        code: int | str
        try:
            code = self._lives[1].end(self._patience)
        except TimeoutError:
            self._lives[1].kill()
            code = "none: it went on"
        if code != 0 or not {"replaced", "refused"} & {*self._lives[1].words}:
            self._history.add("ended", who="feature worker that came back", code=code)
        self._replaced += 1

    def _wait_for_features(self) -> None:
        """Wait until the worker begins with a batch, which it sends when it comes back."""
        worker = self._lives[0]
        known = worker.words.count("features")
        deadline = time.monotonic() + _BATCH_SECONDS
        while time.monotonic() < deadline and worker.words.count("features") <= known:
            if worker.over:
                return
            time.sleep(0.002)

    def mend(self, soon: bool = False) -> None:
        """Start a worker where the one that works has ended by itself, and note it."""
        worker = self._lives[0]
        if worker.over:
            if worker.code == 0 and "refused" in worker.words:
                self._history.add("topic refused")
                self._refused += 1
            else:
                self._history.add("ended", who="feature worker", code=worker.code)
            self.start(soon)
