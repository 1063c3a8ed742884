# SPDX-License-Identifier: Apache-2.0
"""RunWriter: writes the checkpoints of one run, in the background while training goes on."""

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
from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = ["RunWriter", "Save"]

logger = logging.getLogger("mindspore_rec")


@dataclass(frozen=True)
class _Failed:
    """A delta that could not be written: where it was to be, and the seconds that it took."""

    path: Path
    stall_seconds: float
    write_seconds: float


@dataclass(frozen=True)
class Save:
    """Figures of one checkpoint that was written.

    Attributes:
        step: number of training steps before it.
        kind: 'full' or 'delta'.
        rows: number of rows in it.
        stall_seconds: seconds that training waited for it.
        write_seconds: seconds of writing, mostly in the background.
        bytes: size of its files.
    """

    step: int
    kind: str
    rows: int
    stall_seconds: float
    write_seconds: float
    bytes: int


class RunWriter:
    """Writer of a run: the first full checkpoint, deltas since it, and full ones merged of them.

    One thread writes deltas, another merges. If a delta cannot be written, the next one has its
    changes too. All workers call the same methods in the same order.

    Args:
        directory: directory of the run.
        keep: number of full checkpoints that are kept.
        model: the manifest's entry on the network for predictors, or None.
        announce: function that worker 0 calls with a dict on each checkpoint, or None.
        keep_digests: whether tables keep their digests, for deltas. Default: False.

    Attributes:
        saves: a `Save` of each checkpoint that was written.
        failures: number of writes that failed.
        saved_step: step of the newest state in the directory; -1 if there is none.
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
        self._failed: _Failed | None = None  # the last delta, if it could not be written
        self._team = self._writers = self._mergers = ALONE

    @property
    def has_state(self) -> bool:
        """Whether the directory has a state of the run."""
        return self._state is not None

    @property
    def busy(self) -> bool:
        """Whether a delta is being written."""
        assert self._writer is not None
        return self._writer.busy

    def go_on(self, entry: Entry, tables: Iterable[TableParameter]) -> None:
        """Go on with a run whose state has been loaded into the tables."""
        self._failed = None
        self._mark(tables)
        self._run, self._state, self.saved_step = entry.run, entry.state, entry.step

    def begin(self, group: WorkerGroup) -> None:
        """Start the threads, each with a channel of its own to the same thread of other workers."""
        self._team = Team(group)
        if group.size > 1:
            self._writers = Team(group.channel("checkpoint"), patient=True)
            self._mergers = Team(group.channel("merge"), patient=True)
        self._writer, self._merger = Worker("checkpoint"), Worker("merge")

    def write_first(self, cell: nn.Cell, step: int, states: dict[str, Any]) -> None:
        """Write the full checkpoint with which a run begins, before this returns.

        Raises:
            OSError: it cannot be written.
        """
        begin = time.perf_counter()
        tables = {table.name: table for table in tables_of(cell)}
        self._run = self._team.first(new_id)
        self._mark(tables.values())
        target = self._directory / entry_name(step, "full")
        fields = self._fields("full", step, None)
        shares = self._team.shares

        def write(directory: Path) -> dict[str, Any]:
            return write_full(cell, tables, states, directory, shares)

        written = write_checkpoint(target, fields, write, self._writers)
        seconds = time.perf_counter() - begin
        self._written(target, written, seconds, seconds)

    def save(
        self, cell: nn.Cell, step: int, states: Callable[[], dict[str, Any]], full: bool
    ) -> None:
        """Copy the changes since the last delta, and begin to write them.

        Args:
            cell: the training cell.
            step: number of training steps.
            states: function that returns the other states.
            full: whether to merge a full checkpoint afterwards.

        Raises:
            CheckpointError: an earlier merge found that its checkpoints are damaged.
        """
        self.finish_write()
        assert self._state is not None and self._writer is not None and self._merger is not None
        if not self._merger.busy:
            self._merger.wait()  # raises the error of a merge that has ended
        begin = time.perf_counter()
        tables = {table.name: table for table in tables_of(cell)}
        since = {name: table.marks.held(self) or 0 for name, table in tables.items()}
        delta = Delta(cell, tables, since, states(), self._team.shares)
        marks = [(table, table.marks.new()) for table in tables.values()]
        delta.take_digests(tables)
        self._keep_digests_of(tables.values())  # if a digest was dropped since
        fields = self._fields("delta", step, _watermark(tables.values()))
        target = self._directory / entry_name(step, "delta")
        stall = time.perf_counter() - begin

        def write() -> list[tuple[TableParameter, int]]:
            """Return the marks up to which changes are saved now; none if nothing was written."""
            self._take_failed()
            saved_marks: list[tuple[TableParameter, int]] = []
            if self.saved_step != step:  # otherwise what is there is older than the marks
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
        """Wait for the delta that is being written; after a failure the next one includes it."""
        assert self._writer is not None
        try:
            marks = self._writer.wait() or []
        except OSError as error:
            self.failures += 1
            logger.warning("a delta could not be written to %s: %s", self._directory, error)
            return
        for table, mark in marks:
            table.marks.hold(self, mark)

    def _take_failed(self) -> None:
        """Take a failed delta for saved if it is there nevertheless, before the next is written.

        Its name could be neither synced nor changed back. A predictor may answer by its state
        already, so it must stay, and the next delta must start from it: no chain leads past two
        deltas that start from one state.

        Raises:
            OSError: its name still cannot be synced; then the next delta must not be written.
            CheckpointError: another process wrote what is there.
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

        Call `finish_write` before. Nothing is read from the disk.
        """

        def differs() -> bool:
            return any(has_changed(table, table.marks.held(self) or 0) for table in tables_of(cell))

        return any(self._team.all(differs))

    def has_unsaved_weights(self, cell: nn.Cell) -> bool:
        """Return whether limits of tables or weights differ, on any worker, from the newest state.

        Call `finish_merge` before.

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
        """End the threads, after what they are writing.

        Whether that could be written is not looked at any more: the next delta has its changes too.
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
            except (MemoryError, RuntimeError) as error:  # deltas go without, until the next try
                logger.warning("table '%s' keeps no digest: %s", table.name, error)

    def _merge(self, step: int) -> None:
        """Begin to merge the state of a step, the newest that counts as saved."""
        merger = self._merger
        assert merger is not None
        if any(self._writers.all(lambda: merger.busy)):
            return  # merging takes longer than the time between two full ones
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
        """Note a written checkpoint; worker 0 announces it, and does not repeat a failed call."""
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

    def _fields(self, kind: str, step: int, watermark: int | None) -> Callable[[], dict[str, Any]]:
        """Return a function that gives a manifest's fields, with a new id of the state.

        A delta's parent is the newest state at the time of the call.
        """
        now = time.time()
        return lambda: {
            "kind": kind,
            "step": step,
            "run": self._run,
            "state": new_id(),
            "parent": self._state if kind == "delta" else None,
            "saved_at": now,
            "watermark": watermark,
            "model": self._model,
        }


def _watermark(tables: Iterable[TableParameter]) -> int | None:
    return max((table.event_time or 0 for table in tables), default=0) or None
