# SPDX-License-Identifier: Apache-2.0
"""RunWriter: writes the checkpoints of one run in the background while training continues."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mindspore import nn

from mindspore_rec.common.parallel.group import WorkerGroup
from mindspore_rec.common.run.chain import Entry, entry_at, entry_name
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.manifest import new_id
from mindspore_rec.common.run.merge import merge_chain
from mindspore_rec.common.run.team import ALONE, Team
from mindspore_rec.common.run.write import summary, write_checkpoint
from mindspore_rec.common.sync import sync
from mindspore_rec.train.checkpoint.run_directory import chain_of_all, remove_old
from mindspore_rec.train.checkpoint.snapshot import Delta, write_full
from mindspore_rec.train.checkpoint.unsaved import differs_from, has_changed
from mindspore_rec.train.checkpoint.worker import Worker
from mindspore_rec.train.nn.tables import tables_of
from mindspore_rec.train.optim.asked_rates import asked_rates
from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = ["RunWriter", "Save"]

logger = logging.getLogger("mindspore_rec")


@dataclass(frozen=True)
class _Failed:
    """Path, stall seconds and write seconds of a delta that could not be written."""

    path: Path
    stall_seconds: float
    write_seconds: float


@dataclass(frozen=True)
class Save:
    """Statistics of one written checkpoint.

    Attributes:
        step: number of training steps before the checkpoint.
        kind: 'full' or 'delta'.
        rows: number of rows in the checkpoint.
        stall_seconds: seconds that training waited while the changes were copied. For the first
            checkpoint of a run, `stall_seconds` includes the time of writing.
        write_seconds: seconds that writing took, mostly in the background.
        bytes: size of the checkpoint's files.
    """

    step: int
    kind: str
    rows: int
    stall_seconds: float
    write_seconds: float
    bytes: int


class RunWriter:
    """Writer of a run's checkpoints: the first full checkpoint, deltas and merged full checkpoints.

    One thread writes deltas, and another thread merges full checkpoints. If a delta cannot be
    written, the next delta includes the changes of the failed delta. All workers call the same
    methods in the same order.

    Args:
        directory: directory of the run.
        keep: number of full checkpoints to keep.
        model: the manifest's entry for the network that predictors run, or None.
        announce: function that worker 0 calls with a dict that describes a new checkpoint; None: no
            call.
        keep_digests: whether each table keeps a digest of each row, for the digests in deltas.
            Default: False.

    Attributes:
        saves: a `Save` for each written checkpoint.
        failures: number of writes that failed.
        last_failure: error of the last delta that could not be written; None if there is none.
        saved_step: step of the newest state in the directory; -1 if there is no state.
    """

    def __init__(
        self,
        directory: Path,
        keep: int,
        model: dict[str, Any] | None,
        announce: Callable[[dict[str, Any]], Any] | None,
        keep_digests: bool = False,
    ) -> None:
        self.saves: list[Save] = []
        self.failures = 0
        self.last_failure: OSError | None = None
        self.saved_step = -1
        self._directory = directory
        self._keep = keep
        self._model = model
        self._announce = announce
        self._keep_digests = keep_digests
        self._run: str | None = None
        self._state: str | None = None  # id of the newest state in the directory
        self._writer: Worker | None = None
        self._merger: Worker | None = None
        self._failed: _Failed | None = None  # the last delta if its write failed
        self._team = self._writers = self._mergers = ALONE

    @property
    def has_state(self) -> bool:
        """True if the directory contains a state of the run."""
        return self._state is not None

    @property
    def busy(self) -> bool:
        """True if a delta is being written."""
        assert self._writer is not None
        return self._writer.busy

    def go_on(self, entry: Entry, tables: Iterable[TableParameter]) -> None:
        """Continue a run after its state has been loaded into the tables."""
        self._failed = None
        self._mark(tables)
        self._run, self._state, self.saved_step = entry.run, entry.state, entry.step

    def begin(self, group: WorkerGroup) -> None:
        """Start the threads.

        Each thread has a communication channel to the same thread on the other workers.
        """
        self._team = Team(group)
        if group.size > 1:
            self._writers = Team(group.channel("checkpoint"), patient=True)
            self._mergers = Team(group.channel("merge"), patient=True)
        self._writer, self._merger = Worker("checkpoint"), Worker("merge")

    def write_first(self, cell: nn.Cell, step: int, states: dict[str, Any]) -> None:
        """Write the first full checkpoint of a run, and return when the write has finished.

        Raises:
            OSError: the checkpoint cannot be written.
        """
        begin = time.perf_counter()
        tables = {table.name: table for table in tables_of(cell)}
        self._run = self._team.first(new_id)
        self._mark(tables.values())
        target = self._directory / entry_name(step, "full")
        fields = self._fields("full", step, None, cell)
        shares = self._team.shares

        def write(directory: Path) -> dict[str, Any]:
            return write_full(cell, tables, states, directory, shares)

        written = write_checkpoint(target, fields, write, self._writers)
        seconds = time.perf_counter() - begin
        self._written(target, written, seconds, seconds)

    def save(
        self, cell: nn.Cell, step: int, states: Callable[[], dict[str, Any]], full: bool
    ) -> None:
        """Copy the changes since the last delta, and start to write the copies.

        Args:
            cell: the training cell.
            step: number of training steps.
            states: function that returns the states of objects outside the network.
            full: whether to merge the checkpoints into a full checkpoint afterwards.

        Raises:
            CheckpointError: an earlier merge has found damaged checkpoints.
        """
        self.finish_write()
        assert self._state is not None and self._writer is not None and self._merger is not None
        if not self._merger.busy:
            self._merger.wait()  # raises the error of a finished merge
        begin = time.perf_counter()
        tables = {table.name: table for table in tables_of(cell)}
        since = {name: table.marks.held(self) or 0 for name, table in tables.items()}
        delta = Delta(cell, tables, since, states(), self._team.shares)
        marks = [(table, table.marks.new()) for table in tables.values()]
        delta.take_digests(tables)
        self._keep_digests_of(tables.values())  # again, if a table has dropped its digest
        fields = self._fields("delta", step, _watermark(tables.values()), cell)
        target = self._directory / entry_name(step, "delta")
        stall = time.perf_counter() - begin

        def write() -> list[tuple[TableParameter, int]]:
            """Write the delta; return pairs (table, mark).

            Each table's changes up to its mark are saved. If nothing was written, return an empty
            list.
            """
            self._take_failed()
            saved_marks: list[tuple[TableParameter, int]] = []
            if self.saved_step != step:  # if equal, the saved state is older than the marks
                begin = time.perf_counter()
                try:
                    written = write_checkpoint(target, fields, delta.write, self._writers)
                except OSError:
                    self._failed = _Failed(target, stall, time.perf_counter() - begin)
                    raise
                self._written(target, written, stall, time.perf_counter() - begin)
                saved_marks = marks
            if full:
                self._merge(step)
            return saved_marks

        self._writer.begin(write)

    def finish_write(self) -> None:
        """Wait until the delta is written.

        If the write failed, the next delta includes the changes of the failed delta.
        """
        assert self._writer is not None
        try:
            marks = self._writer.wait() or []
        except OSError as error:
            self.failures += 1
            self.last_failure = error
            logger.warning("a delta could not be written to %s: %s", self._directory, error)
            return
        for table, mark in marks:
            table.marks.hold(self, mark)

    def _take_failed(self) -> None:
        """Count a failed delta as saved if the delta's directory exists.

        Call this method before the next delta is written.

        The directory of a failed delta exists if the rename of the directory could neither be
        synced nor be undone. A predictor may already serve the delta, so the directory of the delta
        must not be removed. The failed delta must be the parent of the next delta, because a chain
        cannot contain two deltas with the same parent.

        Raises:
            OSError: the rename of the failed delta's directory still cannot be synced to disk, so
                the next delta must not be written.
            CheckpointError: another process has written to the directory.
        """
        failed, team = self._failed, self._writers
        if failed is None:
            return
        if team.first(failed.path.is_dir):
            team.first(lambda: sync(self._directory))
            entry = team.each(lambda: entry_at(failed.path))
            if (entry.run, entry.parent) != (self._run, self._state):
                raise CheckpointError(f"{failed.path} is not of this run's state {self._state}")
            written = summary(entry.manifest)
            self._written(failed.path, written, failed.stall_seconds, failed.write_seconds)
        self._failed = None

    def has_unsaved_rows(self, cell: nn.Cell) -> bool:
        """Return whether rows have changed, on any worker, since the newest state was saved.

        Call `finish_write` first. The method reads nothing from disk.
        """

        def differs() -> bool:
            return any(has_changed(table, table.marks.held(self) or 0) for table in tables_of(cell))

        return any(self._team.all(differs))

    def has_unsaved_weights(self, cell: nn.Cell) -> bool:
        """Return whether a worker's weights or table limits differ from the newest saved state.

        Call `finish_merge` first.

        Raises:
            OSError: the state cannot be read.
        """
        names = [entry_name(self.saved_step, kind) for kind in ("delta", "full")]

        def differs() -> bool:
            path = next(self._directory / n for n in names if (self._directory / n).is_dir())
            return differs_from(
                cell, {table.name: table for table in tables_of(cell)}, entry_at(path)
            )

        return any(self._team.all(differs))

    def finish_merge(self) -> None:
        """Wait for the full checkpoint that is being merged."""
        if self._merger is not None:
            self._merger.wait()

    def close(self) -> None:
        """Wait for the current writes, then end the threads.

        The method does not check whether the last writes succeeded, because the next delta includes
        the changes of a failed write.
        """
        for worker in (self._writer, self._merger):
            if worker is not None:
                worker.close()
        self._writer = self._merger = None

    def _mark(self, tables: Iterable[TableParameter]) -> None:
        for table in tables:
            table.marks.hold(self, table.marks.new())
        self._keep_digests_of(tables)

    def _keep_digests_of(self, tables: Iterable[TableParameter]) -> None:
        for table in tables if self._keep_digests else ():
            try:
                table.marks.keep_digest()
            except (MemoryError, RuntimeError) as error:  # deltas have no digest until the next try
                logger.warning("table '%s' keeps no digest: %s", table.name, error)

    def _merge(self, step: int) -> None:
        """Start to merge the checkpoints up to `step`, which is the newest saved step."""
        merger = self._merger
        assert merger is not None
        if any(self._writers.all(lambda: merger.busy)):
            return  # the last merge takes longer than the time between two merges
        team = self._mergers

        def merge() -> None:
            begin = time.perf_counter()
            try:
                chain = chain_of_all(self._directory, team, step)
                if len(chain) == 1:
                    return
                target = self._directory / entry_name(chain[-1].step, "full")
                written = merge_chain(chain, target, team)
            except OSError as error:
                self.failures += 1
                logger.warning(
                    "a full checkpoint could not be merged in %s: %s", self._directory, error
                )
                return
            self._note(target, written, 0.0, time.perf_counter() - begin)
            try:
                team.first(lambda: remove_old(self._directory, self._keep))
            except OSError as error:
                logger.warning(
                    "old checkpoints could not be removed from %s: %s", self._directory, error
                )

        merger.begin(merge)

    def _written(self, path: Path, written: Mapping[str, Any], stall: float, took: float) -> None:
        self._state, self.saved_step = written["state"], written["step"]
        self._note(path, written, stall, took)

    def _note(self, path: Path, written: Mapping[str, Any], stall: float, took: float) -> None:
        """Record a written checkpoint; worker 0 tries once to announce the checkpoint."""
        self.saves.append(
            Save(written["step"], written["kind"], written["rows"], stall, took, written["bytes"])
        )
        if self._announce is None or self._team.worker != 0:
            return
        names = ("run", "kind", "step", "state", "parent", "watermark", "saved_at")
        message = {name: written[name] for name in names}
        try:
            self._announce({**message, "path": str(path)})
        except Exception:
            logger.warning("announcing %s failed", path, exc_info=True)

    def _fields(
        self, kind: str, step: int, watermark: int | None, cell: nn.Cell
    ) -> Callable[[], dict[str, Any]]:
        """Return a function that returns the fields of a manifest; each call makes a new state id.

        The parent of a delta is the state that is newest when the returned function is called.
        """
        now, rates = time.time(), asked_rates(cell)
        return lambda: {
            "kind": kind,
            "step": step,
            "run": self._run,
            "state": new_id(),
            "parent": self._state if kind == "delta" else None,
            "saved_at": now,
            "watermark": watermark,
            "model": self._model,
            "asked_rates": rates,
        }


def _watermark(tables: Iterable[TableParameter]) -> int | None:
    return max((table.event_time or 0 for table in tables), default=0) or None
