# SPDX-License-Identifier: Apache-2.0
"""Update a served state to the newest state in a run's directory."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.digests.state import NoStateError, RowDigests, StateDigests
from mindspore_rec.common.network.runner import Runner
from mindspore_rec.common.run.chain import Entry, verify
from mindspore_rec.serve.following.catalog import Catalog, ChainError
from mindspore_rec.serve.following.pulse import Pulse
from mindspore_rec.serve.following.scrub import Scrubber
from mindspore_rec.serve.following.served import Served
from mindspore_rec.serve.following.status import Status
from mindspore_rec.serve.network.opening import NotYetError

__all__ = ["FollowedRun"]

T = TypeVar("T")

logger = logging.getLogger("mindspore_rec")


class FollowedRun:
    """Load the newest state of a run, then apply newer states at each call of `catch_up`.

    Args:
        path: the directory of the run.
        served: the served state, into which no checkpoint has been loaded yet. The followed run
            updates the served state.
        wait_seconds: maximum time in seconds to wait for a first checkpoint.
        poll_seconds: seconds between two checks for the first checkpoint.
        scrub_seconds: target duration of a round of scrubbing in seconds, see `Predictor`. Default:
            0, which means never.
        pulse: `Pulse` that records when the run's directory is checked. Default: a new Pulse.

    Attributes:
        served: the served state.
        pulse: `Pulse` that records when the run's directory is checked.

    Raises:
        As `Predictor`.
    """

    shared_bytes: int | None = None

    def __init__(
        self,
        path: Path,
        served: Served,
        wait_seconds: float,
        poll_seconds: float,
        scrub_seconds: float = 0.0,
        pulse: Pulse | None = None,
    ) -> None:
        self.path = path
        self.served = served
        self.pulse = pulse or Pulse()
        self._updating = threading.Lock()  # held by whoever reads or applies checkpoints
        self._state = threading.Lock()  # held while all rows change, or are read as one state
        self._catalog = Catalog(path)
        self._error: str | None = None
        self._scrubber: Scrubber | None = None
        try:
            resumes = served.resume()
            if not resumes:
                self._load_first(time.monotonic() + wait_seconds, poll_seconds)
                self._set_error()
            if scrub_seconds:
                self._scrubber = self._new_scrubber(scrub_seconds)
            if not resumes:
                served.show(lambda: self._report(self.applied))
            if self._scrubber is not None:
                self._scrubber.index()
                served.tables = self._scrubber.noted(served.tables)
        except BaseException:
            self.close()
            raise
        self.pulse.beat()
        if self._scrubber is not None:
            self._scrubber.start()

    def _new_scrubber(self, seconds: float) -> Scrubber:
        return Scrubber(
            self.served.compared_rows(),
            {name: table.vocabulary for name, table in self.runner.tables.items()},
            seconds,
            self._state,
            lambda: self.served.whole,
        )

    @property
    def runner(self) -> Runner:
        """The network."""
        return self.served.runner

    @property
    def applied(self) -> Entry:
        """Newest checkpoint that the served state includes."""
        return self.served.progress.entry

    @property
    def features(self) -> FeaturePipeline | None:
        """Feature pipeline with the statistics of the served state, or None."""
        return self.served.features

    # ---- the first state

    def _load_first(self, deadline: float, poll_seconds: float) -> None:
        missing, told = f"there is no checkpoint in {self.path}", ""
        while True:
            self._catalog.refresh()
            while chain := self._catalog.first_chain():
                try:
                    self.served.load(chain)
                    return
                except NotYetError as error:
                    missing = str(error)
                    break
                except FileNotFoundError:
                    if not self._catalog.lost(chain):
                        raise  # by the function that creates the network
                except ValueError as error:
                    self._reject_damaged(chain, error)
            errors = self._catalog.errors(-1)
            if errors:
                raise errors[0]
            if time.monotonic() >= deadline:
                raise TimeoutError(missing)
            if missing != told:
                logger.warning("waiting: %s", missing)
                told = missing
            time.sleep(poll_seconds)

    def _reject_damaged(self, chain: Sequence[Entry], error: ValueError) -> None:
        """Reject the damaged checkpoint of a chain; if no checkpoint is damaged, raise `error`."""
        for entry in chain:
            if not entry.path.is_dir():
                self._catalog.refresh()  # removed meanwhile
                return
            try:
                verify(entry)
            except ValueError as damage:
                logger.warning("%s", damage)
                self._catalog.reject(ChainError(entry.path, str(damage)))
                return
            except FileNotFoundError:
                self._catalog.refresh()  # removed between two of its files
                return
        if self._catalog.forget_changed(chain):
            self._catalog.refresh()  # repaired before the check: the next try reads the new files
            return
        raise error

    # ---- the next ones

    def follow(
        self, poll_seconds: float, awake: threading.Event, closed: threading.Event | None = None
    ) -> None:
        """Apply the checkpoints of the run as they appear.

        After a failure, the last good state still answers requests, and the next check tries again.
        Repeated failures with the same message are logged once.

        Args:
            poll_seconds: seconds between two checks of the run's directory.
            awake: event that ends the wait before the next check.
            closed: event; if the event is set, the function returns. Default: no event, so the
                function never returns.
        """
        last_error = ""
        while closed is None or not closed.is_set():
            awake.clear()
            try:
                self.catch_up()
                self.pulse.beat()
                last_error = ""
            except Exception as error:
                if str(error) != last_error:
                    logger.warning("following %s failed", self.path, exc_info=True)
                last_error = str(error)
                self.pulse.beat()  # it looked, and status().error says what is wrong
            awake.wait(poll_seconds)

    def catch_up(self) -> None:
        """Apply all checkpoints after the present state; `status().error` says why a checkpoint
        failed.

        Raises:
            OSError: the directory cannot be read.
            SharedReaderStuckError: (of `_native`) a reader of shared memory has used an old state
                for too long.
        """
        try:
            self.served.settle()
            with self._updating:
                try:
                    self._catch_up()
                except Exception as error:
                    self._error = f"{self.path}: {error}"
                    raise
        finally:
            self.served.tell(lambda: self._report(self.applied))

    def _catch_up(self) -> None:
        self._catalog.refresh()
        while True:
            try:
                if not self.served.whole:
                    chain = self._catalog.first_chain()
                else:
                    chain = self._catalog.next_chain(self.applied)
            except ChainError as error:
                self._set_error(str(error))
                return
            if not chain:
                self._set_error(self._catalog.absence())
                return
            try:
                self.pulse.beat(applying=True)
                self._tell_of_way_back(chain[-1])
                self._apply(chain)
            except FileNotFoundError:
                if not self._catalog.lost(chain):
                    raise  # the missing file is not a checkpoint's: another try would miss it, too
            except ChainError as error:
                self._catalog.reject(error)

    def _tell_of_way_back(self, entry: Entry) -> None:
        if entry.step < self.applied.step:
            logger.warning(
                "the training went back: from state %s (step %d) to %s (step %d)",
                self.applied.state, self.applied.step, entry.path, entry.step,
            )  # fmt: skip

    def apply(self, entry: Entry) -> None:
        """Apply one checkpoint.

        Raises:
            ChainError: a checkpoint is damaged, or does not follow the present state.
            FileNotFoundError: the checkpoint was removed.
        """
        with self._updating:
            self._check_next(entry)
            self._apply([entry])

    def _check_next(self, entry: Entry) -> None:
        applied = self.applied
        here = f"the predictor is at state {applied.state} (step {applied.step})"
        if entry.run != applied.run:
            reason = f"is of run {entry.run}, the predictor follows run {applied.run}"
        elif entry.state == applied.state:
            reason = f"leads to state {entry.state}, which has been applied already"
        elif entry.step <= applied.step:
            reason = f"is of step {entry.step}, out of order: {here}"
        elif entry.kind == "delta" and entry.parent != applied.state:
            reason = f"starts from state {entry.parent}, but {here}: a delta is missing"
        elif entry.kind == "delta" and not self.served.whole:
            reason = "is a delta, but after an update that broke off a full one is needed"
        else:
            return
        raise ChainError(entry.path, f"{entry.path} {reason}")

    def _apply(self, chain: Sequence[Entry]) -> None:
        served = self.served
        checkpoints = served.read(chain)
        progress = served.progress.after(chain)
        with self._state:
            try:
                served.put(checkpoints, progress, lambda: self._report(chain[-1]))
            except BaseException:
                if self._scrubber is not None:
                    self._scrubber.forget()
                raise
            try:
                served.settle()
            finally:  # answers have it, even if one of them stays at the state before
                self._note_rows(chain)

    def _note_rows(self, chain: Sequence[Entry]) -> None:
        if self._scrubber is None:
            return
        if chain[0].kind == "full":
            self._scrubber.index()
        else:
            self._scrubber.settle()

    def _set_error(self, text: str | None = None) -> None:
        """Set `status().error` to the error of a damaged checkpoint, or to `text` if no checkpoint
        is damaged.
        """
        damaged = self._catalog.errors(self.applied.step)
        text = str(damaged[0]) if damaged else text
        if text is not None and text != self._error:
            logger.warning("%s", text)
        self._error = text

    # ---- answers

    @property
    def at_once(self) -> int:
        """Best number of parallel predictions: 1 with MindSpore, the number of CPUs with ONNX
        Runtime."""
        return 1 if self.runner.network is not None else len(os.sched_getaffinity(0))

    def run(self, start: Callable[[], Callable[[], Any]]) -> tuple[Any, int]:
        """Call `start`, then call the function that `start` returned. Return the function's result,
        and the training step of the state that `start` read.

        Args:
            start: function that reads the state and returns the function to call next. The state is
                not updated while `start` runs. The state may be updated while the returned
                function runs.

        Raises:
            RuntimeError: an update was interrupted, so the served state is incomplete.
        """
        with self.runner.lock.reading():
            if not self.served.whole:
                raise RuntimeError(f"there is no whole state to answer from: {self._error}")
            finish, step = start(), self.applied.step
        return finish(), step

    def table_stats(self) -> dict[str, dict[str, Any]]:
        """Return the `stats` of each table: counts of rows, bytes and operations."""
        with self.runner.lock.reading():
            return {name: dict(table.stats()) for name, table in self.runner.tables.items()}

    # ---- status

    def look(self) -> None:
        """Read the directory again for `status`, unless another thread is reading it now."""
        if self._updating.acquire(blocking=False):
            try:
                self._catalog.refresh()
                self.pulse.beat()
            finally:
                self._updating.release()

    def status(self, following: bool, poll_seconds: float = 0.0) -> Status:
        """Return the status of the served state, including the state's age.

        Args:
            following: whether a thread of this process follows the run. If the thread hangs,
                `following` in the status is False.
            poll_seconds: seconds between two checks by the thread that follows the run. Default: 0.
        """
        progress = self.served.progress
        late = self.pulse.complaint(poll_seconds) if following else None
        return Status.of(
            self.path,
            progress.entry,
            lag=self._catalog.lag(progress.entry.step),
            following=following and late is None,
            looked_seconds=self.pulse.seconds(),
            deltas_applied=progress.deltas_applied,
            fulls_loaded=progress.fulls_loaded,
            error=late or self._error or self._catalog.absence(),
            runtime=self.runner.name,
            runtime_reason=self.served.reason,
            tiers=self.served.tier_stats(),
            scrub=self._scrub_report(),
        )

    def _report(self, applied: Entry) -> dict[str, Any]:
        """Return the fields of `Status` that only the process that follows the run can compute."""
        return {
            "lag": self._catalog.lag(applied.step),
            "error": self._error,
            "scrub": self._scrub_report(),
        }

    def _scrub_report(self) -> dict[str, Any] | None:
        return None if self._scrubber is None else self._scrubber.report()

    def digests(self, parts: int) -> StateDigests:
        """Return the digests of all tables; no checkpoint is applied during the call.

        Raises:
            NoStateError: an update was interrupted, so the served state is incomplete.
        """

        def start() -> StateDigests:
            tables = self.runner.tables
            table_digests = {name: table.digest(parts) for name, table in tables.items()}
            now = self.applied
            return StateDigests(now.run, now.step, now.state, table_digests)

        return self._while_nothing_changes(start)

    def row_digests(self, table: str, part: int, parts: int) -> RowDigests:
        """Return the digests of the rows in one part of a table.

        Raises:
            NoStateError: an update was interrupted, so the served state is incomplete.
        """

        def start() -> RowDigests:
            keys_and_digests = self.runner.tables[table].row_digests(part, parts)
            return RowDigests(self.applied.state, *keys_and_digests)

        return self._while_nothing_changes(start)

    def _while_nothing_changes(self, start: Callable[[], T]) -> T:
        # Do not lock the runner's lock here. If an update had to wait for the runner's lock, no new
        # prediction could start during the wait.
        with self._state:
            if not self.served.whole:
                raise NoStateError(f"there is no whole state to answer from: {self._error}")
            return start()

    def close(self) -> None:
        """End scrubbing, and free the served state."""
        if self._scrubber is not None:
            self._scrubber.close()
        with self._state:
            self.served.close()
