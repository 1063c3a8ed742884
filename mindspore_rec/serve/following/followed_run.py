# SPDX-License-Identifier: Apache-2.0
"""A network that is kept at the newest state of a run's directory."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.network.runner import Runner
from mindspore_rec.common.run.chain import Entry, verify, verify_chain
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.serve.following.catalog import Catalog, ChainError
from mindspore_rec.serve.following.digests import NoStateError, RowDigests, StateDigests
from mindspore_rec.serve.following.features import with_learned
from mindspore_rec.serve.following.pulse import Pulse
from mindspore_rec.serve.following.scrub import ComparedRows, Scrubber, TableRows
from mindspore_rec.serve.following.status import Status
from mindspore_rec.serve.following.tiers import ServedTiers
from mindspore_rec.serve.following.update import Served, Update
from mindspore_rec.serve.network.opening import NetworkOpener, NotYetError

__all__ = ["FollowedRun"]

T = TypeVar("T")

logger = logging.getLogger("mindspore_rec")


class FollowedRun:
    """Load the newest state of a run, then the newer ones each time `catch_up` is called.

    Args:
        path: the directory of the run.
        opener: makes the network.
        wait_seconds: how long to wait for a first checkpoint.
        poll_seconds: how often to look until then.
        features: as for `Predictor`.
        rows: as for `Predictor`.
        tiers: as for `Predictor`, checked.
        scrub_seconds: as for `Predictor`.

    Attributes:
        runner: the network.
        applied: the newest checkpoint that is in it.
        pulse: of the looks at the run.

    Raises:
        As `Predictor`.
    """

    def __init__(
        self,
        path: Path,
        opener: NetworkOpener,
        wait_seconds: float,
        poll_seconds: float,
        features: FeaturePipeline | None = None,
        rows: str = "float32",
        tiers: CacheConfig | None = None,
        scrub_seconds: float = 0.0,
    ) -> None:
        self._prepare(path, opener, features, rows, tiers)
        try:
            chain = self._first_chain(time.monotonic() + wait_seconds, poll_seconds)
            self._scrub(scrub_seconds)
        except BaseException:
            self.close()
            raise
        self.applied: Entry = chain[-1]
        self._deltas_applied, self._fulls_loaded = len(chain) - 1, 1
        self._served = self._new_served(self._first_features)
        self._set_error()
        self.pulse.beat()
        if self._scrubber is not None:
            self._scrubber.start()

    def _prepare(
        self,
        path: Path,
        opener: NetworkOpener,
        features: FeaturePipeline | None,
        rows: str,
        tiers: CacheConfig | None = None,
    ) -> None:
        self.path = path
        self._rows = rows
        self._tiers = None if tiers is None else ServedTiers(tiers)
        self._runner: Runner | None = None
        self._opener = opener
        self._given_features = features
        self._first_features: FeaturePipeline | None = None
        self._updating = threading.Lock()  # held by whoever reads or applies checkpoints
        self._catalog = Catalog(path)
        self._error: str | None = None
        self.pulse = Pulse()
        self._failed = False  # an update broke off: only a full checkpoint helps
        self._state = threading.Lock()  # held while all rows change, or are read as one state
        self._scrubber: Scrubber | None = None

    @property
    def runner(self) -> Runner:
        """The network."""
        assert self._runner is not None
        return self._runner

    def _scrub(self, seconds: float) -> None:
        """Note the rows as they are, to scrub them; not with 0 seconds."""
        self._make_scrubber(seconds)
        if self._scrubber is not None:
            self._scrubber.index()

    def _make_scrubber(self, seconds: float) -> None:
        if seconds == 0:
            return
        self._scrubber = Scrubber(
            self._compared_rows(),
            {name: table.vocabulary for name, table in self.runner.tables.items()},
            seconds,
            self._state,
            lambda: not self._failed,
        )

    def _compared_rows(self) -> dict[str, ComparedRows]:
        below = () if self._tiers is None else self._tiers.names
        return {name: TableRows(table, below) for name, table in self.runner.tables.items()}

    def _new_served(self, features: FeaturePipeline | None) -> Served:
        served = Served(self.runner, features)
        if self._scrubber is not None:
            served.tables = self._scrubber.noted(served.tables)
        return served

    @property
    def features(self) -> FeaturePipeline | None:
        """Feature pipeline with the statistics of the state that answers, or None."""
        return self._served.features

    # ---- the first state

    def _first_chain(self, deadline: float, poll_seconds: float) -> list[Entry]:
        missing = f"there is no checkpoint in {self.path}"
        while True:
            self._catalog.refresh()
            while chain := self._catalog.first_chain():
                try:
                    self._load(chain)
                    return chain
                except NotYetError as error:
                    missing = str(error)
                    break
                except FileNotFoundError:
                    self._catalog.refresh()  # removed meanwhile
                except ValueError as error:
                    self._reject_damaged(chain, error)
            errors = self._catalog.errors(-1)
            if errors:
                raise errors[0]
            if time.monotonic() >= deadline:
                raise TimeoutError(missing)
            time.sleep(poll_seconds)

    def _load(self, chain: Sequence[Entry]) -> None:
        if self._runner is None:
            runner = self._opener.open(chain[-1])
            try:
                for table in runner.tables.values():
                    table.quantise_rows(self._rows)
                if self._tiers is not None:
                    self._tiers.attach(runner.tables)
            except BaseException:
                runner.close()
                raise
            if self._given_features is None:
                self._given_features = runner.features
            self._runner = runner
        verify_chain(chain)
        self._first_features = self._learned(chain[-1])
        self._runner.load(chain)

    def _learned(self, entry: Entry) -> FeaturePipeline | None:
        features = self._given_features
        return None if features is None else with_learned(features, entry)

    def _reject_damaged(self, chain: Sequence[Entry], error: ValueError) -> None:
        """Ignore the damaged checkpoint of a chain, or raise the error if there is none."""
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
        raise error

    # ---- the next ones

    def run(self, start: Callable[[], Callable[[], Any]]) -> tuple[Any, int]:
        """Call `start()`, then the function that it returns; return its result and the step.

        Args:
            start: called while nothing changes; the function that it returns is called afterwards.

        Raises:
            RuntimeError: an update broke off, and there is no whole state.
        """
        with self.runner.lock.reading():
            if self._failed:
                raise RuntimeError(f"there is no whole state to answer from: {self._error}")
            finish, step = start(), self.applied.step
        return finish(), step

    def catch_up(self) -> None:
        """Apply all checkpoints that follow the present state; `status` says why if it cannot.

        Raises:
            OSError: the directory cannot be read.
        """
        with self._updating:
            try:
                self._catch_up()
            except Exception as error:
                self._error = f"{self.path}: {error}"
                raise

    def _catch_up(self) -> None:
        self._catalog.refresh()
        while True:
            try:
                if self._failed:
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
                self._catalog.refresh()  # removed meanwhile: there is another way
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
            ChainError: it is damaged, or not the next one.
            FileNotFoundError: it was removed.
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
        elif entry.kind == "delta" and self._failed:
            reason = "is a delta, but after an update that broke off a full one is needed"
        else:
            return
        raise ChainError(entry.path, f"{entry.path} {reason}")

    def _apply(self, chain: Sequence[Entry]) -> None:
        self._put(Update(self._served, chain))

    def _put(self, update: Update) -> None:
        with self._state:
            with self.runner.lock.writing():
                self._failed = True
                update.apply()
                self._failed = False
                self.applied = update.last
            if self._scrubber is not None:
                self._scrubber.settle()
        self._count(update.chain)

    def _count(self, chain: Sequence[Entry]) -> None:
        deltas = sum(entry.kind == "delta" for entry in chain)
        self._deltas_applied += deltas
        self._fulls_loaded += len(chain) - deltas

    def _set_error(self, text: str | None = None) -> None:
        """Set the error: damaged files first, since they leave gaps."""
        damaged = self._catalog.errors(self.applied.step)
        text = str(damaged[0]) if damaged else text
        if text is not None and text != self._error:
            logger.warning("%s", text)
        self._error = text

    # ---- status

    def look(self) -> None:
        """Read the directory again, for `status`, without applying anything."""
        if self._updating.acquire(blocking=False):
            try:
                self._catalog.refresh()
                self.pulse.beat()
            finally:
                self._updating.release()

    def status(self, following: bool, poll_seconds: float = 0.0) -> Status:
        """Return the state that predictions are of, and its age.

        Args:
            following: whether a thread of this process follows the run.
            poll_seconds: time between two of its looks. Default: 0.
        """
        applied = self.applied
        late = self.pulse.complaint(poll_seconds) if following else None
        return Status.of(
            self.path,
            applied,
            lag=self._catalog.lag(applied.step),
            following=following and late is None,
            looked_seconds=self.pulse.seconds(),
            deltas_applied=self._deltas_applied,
            fulls_loaded=self._fulls_loaded,
            error=late or self._error or self._catalog.absence(),
            runtime=self.runner.name,
            runtime_reason=self._opener.reason,
            tiers=None if self._tiers is None else self._tiers.stats(self.runner.tables),
            scrub=None if self._scrubber is None else self._scrubber.report(),
        )

    def digests(self, parts: int) -> StateDigests:
        """Return the digests of all tables; no checkpoint is applied meanwhile.

        Raises:
            NoStateError: an update broke off, and there is no whole state.
        """

        def start() -> StateDigests:
            tables = self.runner.tables
            table_digests = {name: table.digest(parts) for name, table in tables.items()}
            return StateDigests.of(self.applied, table_digests)

        return self._while_nothing_changes(start)

    def row_digests(self, table: str, part: int, parts: int) -> RowDigests:
        """Return the digests of the rows of a part of a table.

        Raises:
            NoStateError: an update broke off, and there is no whole state.
        """

        def start() -> RowDigests:
            keys_and_digests = self.runner.tables[table].row_digests(part, parts)
            return RowDigests(self.applied.state, *keys_and_digests)

        return self._while_nothing_changes(start)

    def _while_nothing_changes(self, start: Callable[[], T]) -> T:
        # Not the lock of answers: an update that waited for that one would hold up new answers.
        with self._state:
            if self._failed:
                raise NoStateError(f"there is no whole state to answer from: {self._error}")
            return start()

    def close(self) -> None:
        """Free the tables of a network that was made here, and the tiers."""
        if self._scrubber is not None:
            self._scrubber.close()
        if self._tiers is not None:
            self._tiers.release()
        with self._state:
            if self._runner is not None:
                self._runner.close()
            if self._tiers is not None:
                self._tiers.close()
