# SPDX-License-Identifier: Apache-2.0
"""A network that is kept at the newest state of a run's directory."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mindspore import nn

from mindspore_rec.checkpoint.chain import Entry, verify, verify_chain
from mindspore_rec.checkpoint.load import load_chain
from mindspore_rec.feature.feature_pipeline import FeaturePipeline
from mindspore_rec.nn.embedding import tables_of
from mindspore_rec.serving.builder import builder_of
from mindspore_rec.serving.catalog import Catalog, ChainError
from mindspore_rec.serving.fair_lock import FairLock
from mindspore_rec.serving.features import with_learned
from mindspore_rec.serving.status import Status
from mindspore_rec.serving.update import Served, Update

__all__ = ["FollowedRun"]

logger = logging.getLogger("mindspore_rec")


class FollowedRun:
    """Load the newest state of a run, then the newer ones each time `catch_up` is called.

    Args:
        path: the directory of the run.
        network: as for `Predictor`.
        wait_seconds: how long to wait for a first checkpoint.
        poll_seconds: how often to look until then.
        features: as for `Predictor`.

    Attributes:
        network: the Cell, in evaluation mode.
        applied: the newest checkpoint that is in it.

    Raises:
        As `Predictor`.
    """

    def __init__(
        self,
        path: Path,
        network: nn.Cell | Callable[[], nn.Cell] | None,
        wait_seconds: float,
        poll_seconds: float,
        features: FeaturePipeline | None = None,
    ) -> None:
        self.path = path
        self.network: Any = None
        self._given_features = features
        self._first_features: FeaturePipeline | None = None
        self._lock = FairLock()
        self._updating = threading.Lock()  # held by whoever reads or applies checkpoints
        self._catalog = Catalog(path)
        self._error: str | None = None
        self._failed = False  # an update broke off: only a full checkpoint helps
        self._owns_network = not isinstance(network, nn.Cell)
        try:
            chain = self._first_chain(network, time.monotonic() + wait_seconds, poll_seconds)
        except BaseException:
            self.close()
            raise
        self.applied: Entry = chain[-1]
        self._deltas_applied, self._fulls_loaded = len(chain) - 1, 1
        self._served = Served(self.network, self._first_features)
        self._set_error()

    @property
    def features(self) -> FeaturePipeline | None:
        """Feature pipeline with the statistics of the state that answers, or None."""
        return self._served.features

    # ---- the first state

    def _first_chain(self, network: Any, deadline: float, poll_seconds: float) -> list[Entry]:
        while True:
            self._catalog.refresh()
            while chain := self._catalog.first_chain():
                try:
                    with self._lock:
                        self._make_network(network, chain[-1])
                        verify_chain(chain)
                        self._first_features = self._learned(chain[-1])
                        load_chain(self.network, chain)
                    return chain
                except FileNotFoundError:
                    self._catalog.refresh()  # removed meanwhile
                except ValueError as error:
                    self._reject_damaged(chain, error)
            errors = self._catalog.errors(-1)
            if errors:
                raise errors[0]
            if time.monotonic() >= deadline:
                raise TimeoutError(f"there is no checkpoint in {self.path}")
            time.sleep(poll_seconds)

    def _make_network(self, network: Any, entry: Entry) -> None:
        if self.network is not None:
            return
        if network is None:
            network = builder_of(entry)
        made = network if isinstance(network, nn.Cell) else network()
        if isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], FeaturePipeline):
            made, built = made
            if self._given_features is None:
                self._given_features = built
        if not isinstance(made, nn.Cell):
            raise TypeError(
                "network must give a Cell, or a Cell and its FeaturePipeline, "
                f"got {type(made).__name__}"
            )
        made.set_train(False)
        self.network = made

    def _learned(self, entry: Entry) -> FeaturePipeline | None:
        given = self._given_features
        return None if given is None else with_learned(given, entry)

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
        raise error

    # ---- the next ones

    def run(self, work: Callable[[], Any]) -> tuple[Any, int]:
        """Call a function while nothing changes; return its result and the step of the state.

        Raises:
            RuntimeError: an update broke off, and there is no whole state.
        """
        with self._lock:
            if self._failed:
                raise RuntimeError(f"there is no whole state to answer from: {self._error}")
            return work(), self.applied.step

    def catch_up(self) -> None:
        """Apply all checkpoints that follow the present state; `status` names what prevents it.

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
                self._set_error()
                return
            try:
                self._put(Update(self._served, chain))
            except FileNotFoundError:
                self._catalog.refresh()  # removed meanwhile: there is another way
            except ChainError as error:
                self._catalog.reject(error)

    def apply(self, entry: Entry) -> None:
        """Apply one checkpoint.

        Raises:
            ChainError: it is damaged, or not the next one.
            FileNotFoundError: it was removed.
        """
        with self._updating:
            self._check_next(entry)
            self._put(Update(self._served, [entry]))

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

    def _put(self, update: Update) -> None:
        with self._lock:
            self._failed = True
            update.apply()
            self._failed = False
            self.applied = update.last
        deltas = sum(entry.kind == "delta" for entry in update.chain)
        self._deltas_applied += deltas
        self._fulls_loaded += len(update.chain) - deltas

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
            finally:
                self._updating.release()

    def status(self, following: bool) -> Status:
        """Return the state that predictions are of, and its age."""
        applied = self.applied
        saved_at = applied.manifest["saved_at"]
        return Status(
            path=str(self.path),
            run=applied.run,
            version=applied.step,
            state=applied.state,
            saved_at=saved_at,
            age_seconds=max(0.0, time.time() - saved_at),
            watermark=applied.manifest["watermark"],
            lag=self._catalog.lag(applied.step),
            following=following,
            deltas_applied=self._deltas_applied,
            fulls_loaded=self._fulls_loaded,
            error=self._error,
        )

    def close(self) -> None:
        """Free the tables of a network that it made itself."""
        with self._lock:
            if self._owns_network and self.network is not None:
                for table in tables_of(self.network):
                    table.close()
