# SPDX-License-Identifier: Apache-2.0
"""RecCheckpoint: callback that writes checkpoints and deltas during training."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mindspore import nn
from mindspore.train import Callback, RunContext

from mindspore_rec._native import FileLock, make_directories
from mindspore_rec.checkpoint.cadence import Cadence
from mindspore_rec.checkpoint.chain import (
    Entry,
    entries,
    entry_at,
    entry_name,
    newest_chain,
    verify_chain,
)
from mindspore_rec.checkpoint.contents import files_of
from mindspore_rec.checkpoint.data_place import NAME as DATA
from mindspore_rec.checkpoint.data_place import DataPlace
from mindspore_rec.checkpoint.directory import training_cell
from mindspore_rec.checkpoint.load import check_load, load_chain
from mindspore_rec.checkpoint.manifest import new_id
from mindspore_rec.checkpoint.merge import merge_chain
from mindspore_rec.checkpoint.run_directory import lock, remove, remove_left_over, remove_old
from mindspore_rec.checkpoint.share import Share
from mindspore_rec.checkpoint.snapshot import Delta, write_full
from mindspore_rec.checkpoint.state_file import random_state, set_random_state
from mindspore_rec.checkpoint.team import ALONE, Team
from mindspore_rec.checkpoint.worker import Worker
from mindspore_rec.checkpoint.worker_states import WorkerStates
from mindspore_rec.checkpoint.write import write_checkpoint
from mindspore_rec.checks import check_int
from mindspore_rec.nn.embedding import tables_of
from mindspore_rec.parallel.group import worker_group
from mindspore_rec.parameter import TableParameter

__all__ = ["RecCheckpoint", "Save"]

logger = logging.getLogger("mindspore_rec")

_HOLDER = "checkpoint"  # of marks
_INPUT = re.compile(r"[^:]+:[A-Z]+[0-9]*:-?\d+(,-?\d+)*")


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


class RecCheckpoint(Callback):
    """Callback that saves the whole state of a training at intervals, in the background.

    When training begins, a full checkpoint is written if the directory is empty; from then on
    deltas, each with the changes since the last one. Training waits only while the changes are
    copied. A new full checkpoint is merged from the last one and its deltas in another thread;
    checkpoints older than the `keep` newest full ones are then removed.

    The callback runs after all other callbacks of a step. The state consists of tables (rows,
    optimizer state, counters), dense parameters, optimizer, position in the data, the random number
    generators of Python, NumPy and MindSpore, and `states`. A training that is resumed from it has
    the same bits as one that was never interrupted, if its data and callbacks depend on nothing
    else. (Eviction by capacity chooses victims from random samples, which differ after a restart.)

    The training data must be a source of batches with a state (a `StreamingDataset`, or a
    `BatchWrapper` of one such as `FeatureBatches`), or start anew with each run and have a length:
    a list, a finite Dataset. Other data, such as a generator or a `GeneratorDataset` over a stream,
    are refused before the first step with the reason why they cannot be resumed, unless
    `data_starts_over` is True.

    If a checkpoint cannot be written, for example because the disk is full, a warning is logged,
    training continues, and the next delta has all changes since the last one that was written.

    Several workers (see `mindspore_rec.launch`) write one run together, each the rows that it has,
    and any number of workers goes on from it. What one of them cannot write fails for all. Random
    generators and `states` are those of each worker; where their number has changed, an object with
    a method `load_worker_states(states, worker, workers)` gets the states of all, and another one
    must have had the same state on all.

    Args:
        directory: directory of the run; made if missing. One process, or the workers of one job, at
            a time may write to it. Of several workers: in a file system that all of them share.
        every_steps: steps between two full checkpoints, at least 1; or
        every_seconds: seconds between them, above 0. One of the two must be given.
        keep: number of full checkpoints that are kept, with the deltas since the oldest, at least
            1. Default: 2.
        delta_every_steps: steps between two deltas, at least 1; or
        delta_every_seconds: seconds between them, above 0. Default: None, only the deltas that
            full checkpoints are merged from.
        states: objects by name with `state_dict()` and `load_state_dict(state)` that belong to the
            state, for example a `ProgressiveValidation`. The `train_dataset` need not be among
            them.
        data_starts_over: whether the data may start anew after a restart: their position is then
            not saved, and any data are accepted. Default: False.
        announce: function that worker 0 calls from another thread when a checkpoint is written,
            with a dict of `run`, `kind`, `step`, `state`, `parent`, `path`, `watermark` and
            `saved_at`. Its exceptions are logged.
        builder: function that makes the network for `serving.Predictor`, as
            'package.module:function'.
        builder_arguments: keyword arguments of `builder`, JSON values.
        builder_inputs: inputs of that network, as texts such as 'ids:INT64:-1,26', for predictors.
            Default: None, those of the network's `set_inputs`.

    Attributes:
        directory: directory of the run.
        step: number of training steps since the run began, over all restarts.
        saves: a `Save` of each checkpoint that this object wrote.
        failures: number of writes that failed.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, out of range, or excludes another.

    Example:
        >>> import tempfile
        >>> import mindspore as ms
        >>> import numpy as np
        >>> from mindspore import nn
        >>> from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecModel
        >>> ms.set_context(mode=ms.GRAPH_MODE)
        >>> net = nn.SequentialCell(
        ...     HashEmbeddingLookup(4, ms.int64, name="doc.rec_checkpoint"),
        ...     nn.Flatten(),
        ...     nn.Dense(8, 1),
        ... )
        >>> optimizer = LazyAdam(net.trainable_params(), learning_rate=0.1)
        >>> model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer)
        >>> batch = np.array([[1, 2], [3, 4]]), np.array([[0], [1]], np.float32)
        >>> root = Path(tempfile.mkdtemp())
        >>> checkpoint = RecCheckpoint(root, every_steps=4, delta_every_steps=2)
        >>> checkpoint.restore(model) is None  # nothing there yet
        True
        >>> summary = model.online_train([batch] * 5, checkpoint, progress=False)
        >>> for path in sorted(root.glob("0*")):
        ...     print(path.name)
        000000000000.full
        000000000002.delta
        000000000004.delta
        000000000004.full
        000000000005.delta
        >>> RecCheckpoint(root, every_steps=4).restore(model)
        5
    """

    runs_last = True

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        keep: int = 2,
        delta_every_steps: int | None = None,
        delta_every_seconds: float | None = None,
        states: Mapping[str, Any] | None = None,
        data_starts_over: bool = False,
        announce: Callable[[dict[str, Any]], Any] | None = None,
        builder: str | None = None,
        builder_arguments: Mapping[str, Any] | None = None,
        builder_inputs: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.directory = Path(directory)
        self._full = Cadence("every", every_steps, every_seconds)
        if self._full.off:
            raise ValueError("every_steps or every_seconds must be given")
        self._delta = Cadence("delta_every", delta_every_steps, delta_every_seconds)
        self.keep = check_int("keep", keep, 1, 1 << 20)
        self._states = _check_states(states)
        if not isinstance(data_starts_over, bool):
            raise TypeError(f"data_starts_over must be a bool, got {data_starts_over!r}")
        self._data = DataPlace(data_starts_over)
        if announce is not None and not callable(announce):
            raise TypeError(f"announce must be callable, got {announce!r}")
        self._announce = announce
        self._model = _check_builder(builder, builder_arguments, builder_inputs)
        self.step = 0
        self.saves: list[Save] = []
        self.failures = 0
        self._run: str | None = None
        self._last: str | None = None  # id of the newest state in the directory
        self._began = 0  # self.step when this training began
        self._saved_step = -1
        self._restored: tuple[Any, Path] | None = None  # state of the data, until training begins
        self._unsaved: list[tuple[TableParameter, int]] = []  # marks of what is being written
        self._writer: Worker | None = None
        self._merger: Worker | None = None
        self._lock: FileLock | None = None  # of worker 0
        self._team = self._writers = self._mergers = ALONE

    # ---- going on

    def restore(self, model: Any, train_dataset: Any = None, step: int | None = None) -> int | None:
        """Restore the newest state, before training; all workers call it at the same time.

        Args:
            model: the RecModel (or training cell), built as when it was saved.
            train_dataset: the training data, if they have a state; before their first batch.
            step: step of the state to restore; newer checkpoints are removed. Default: None, the
                newest state.

        Returns:
            Number of training steps of that state; None if there is no checkpoint, and nothing has
            changed.

        Raises:
            ValueError: a file is damaged (a CheckpointError); the model, data or `states` are not
                those that were saved (only one of checkpoint and data has a position in a stream);
                the position in the data cannot be saved; there is no such step.
            RuntimeError: training has begun, or another process writes to the directory.
        """
        if self._lock is not None:
            raise RuntimeError("restore() is for before the training")
        team = Team(worker_group())
        team.each(lambda: self._data.check(train_dataset))
        if not team.first(self.directory.is_dir):
            return None
        with self._locked(team):
            chain = self._chain(team, step)
            if not chain:
                return None
            last = chain[-1]
            cell = training_cell(model)
            shares = {table.name: team.shares.held(table) for table in tables_of(cell)}
            states = team.each(lambda: self._checked(chain, shares, team, train_dataset))
            team.each(lambda: check_load(cell, chain, shares))
            # Before the tables, so that no row has changed if these raise an error.
            wanted = self._wanted(train_dataset)
            team.each(lambda: states.load_all(wanted))
            generators = states.random()
            load_chain(cell, chain, shares)
            if step is not None:
                team.first(lambda: self._remove_after(last.step))
        _mark(tables_of(cell))
        set_random_state(generators)
        self._restored = states.data(), last.path
        self._run, self._last, self.step = last.run, last.state, last.step
        self._saved_step = last.step
        return last.step

    @contextmanager
    def _locked(self, team: Team) -> Iterator[None]:
        """Lock the directory for all workers: worker 0 has the lock."""
        held = team.each(lambda: lock(self.directory) if team.worker == 0 else None)
        try:
            yield
        finally:
            if held is not None:
                held.close()

    def _chain(self, team: Team, step: int | None) -> list[Entry]:
        """Return the chain to a state, as worker 0 sees the directory."""
        names = team.first(lambda: [each.path.name for each in newest_chain(self.directory, step)])
        return team.each(lambda: [entry_at(self.directory / name) for name in names])

    def _checked(
        self,
        chain: list[Entry],
        shares: dict[str, Share | None],
        team: Team,
        train_dataset: Any,
    ) -> WorkerStates:
        """Check the files that this worker reads, and return the states in the last of them."""
        last = chain[-1]
        verify_chain(chain, lambda manifest: files_of(manifest, shares))
        states = WorkerStates(last, team.shares.of_network)
        states.random()
        wanted = self._wanted(train_dataset)
        if wanted.keys() != set(states.names):
            raise ValueError(
                f"states and train_dataset must be those that were saved: {last.path} has the "
                f"states of {sorted(states.names)}, given are {sorted(wanted)}"
            )
        return states

    def _wanted(self, train_dataset: Any) -> dict[str, Any]:
        return {**self._states, **self._data.stateful(train_dataset)}

    def _remove_after(self, step: int) -> None:
        remove([each for each in entries(self.directory) if each.step > step])

    # ---- the callback

    def on_train_begin(self, run_context: RunContext) -> None:
        """Open the directory, and write the first checkpoint of a run.

        Raises:
            ValueError: the position in the data cannot be saved, or is not the one that was
                restored; the directory belongs to another run.
        """
        run = run_context.original_args()
        cell = run.train_network
        group = worker_group()
        self._team = Team(group)
        self._check_data(run.train_dataset)
        self._team.each(self._open)
        try:
            self._began = self.step
            self._data.begin(run.train_dataset)
            if self._team.workers > 1:
                self._writers = Team(group.channel("checkpoint"), patient=True)
                self._mergers = Team(group.channel("merge"), patient=True)
            self._writer, self._merger = Worker("checkpoint"), Worker("merge")
            tables = {table.name: table for table in tables_of(cell)}
            if self._last is None:
                self._first(cell, tables, self._all_states(run))
        except BaseException:
            self._close()
            raise
        self._data.watch(run.train_dataset)
        self._restored = None
        now = time.monotonic()
        self._full.restart(now)
        self._delta.restart(now)

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Take a snapshot if one is due and the last one has been written."""
        run = run_context.original_args()
        self.step = self._began + run.cur_step_num
        save, full = self._due()
        if save:
            self._save(run, full)

    def _due(self) -> tuple[bool, bool]:
        """Return whether to save now, and whether a full checkpoint: on all workers alike.

        Where an interval is in seconds, worker 0 decides by its clock.
        """
        if self._team.workers == 1 or not (self._full.by_clock or self._delta.by_clock):
            return self._due_here()
        save, full = self._team.told(lambda: list(self._due_here()))
        return save, full

    def _due_here(self) -> tuple[bool, bool]:
        now = time.monotonic()
        full, delta = self._full.due(self.step, now), self._delta.due(self.step, now)
        at_this_step = (full and self._full.by_steps) or (delta and self._delta.by_steps)
        assert self._writer is not None
        return at_this_step or ((full or delta) and not self._writer.busy), full

    def on_train_end(self, run_context: RunContext) -> None:
        """Save the last state, and wait until it is written.

        Raises:
            OSError: it cannot be written.
        """
        try:
            self._finish_write()
            if self.step != self._saved_step:
                self._save(run_context.original_args(), full=False)
                self._finish_write()
            if self.step != self._saved_step:
                raise OSError(f"the state of step {self.step} could not be saved; see the log")
            if self._merger is not None:
                self._merger.wait()
        finally:
            self._close()

    def __exit__(self, *error: Any) -> None:
        """Stop writing after a training that failed."""
        self._close()

    # ---- saving

    def _first(self, cell: nn.Cell, tables: Mapping[str, Any], states: dict[str, Any]) -> None:
        begin = time.perf_counter()
        self._run = self._team.first(new_id)
        _mark(tables.values())
        target = self.directory / entry_name(self.step, "full")
        fields = self._fields("full", self.step, None, None)
        shares = self._team.shares

        def write(directory: Path) -> dict[str, Any]:
            return write_full(cell, tables, states, directory, shares)

        written = write_checkpoint(target, fields, write, self._writers)
        seconds = time.perf_counter() - begin
        self._written(target, written, seconds, seconds)

    def _save(self, run: Any, full: bool) -> None:
        self._finish_write()
        assert self._last is not None and self._writer is not None
        begin = time.perf_counter()
        tables = {table.name: table for table in tables_of(run.train_network)}
        since = {name: table.marks.held(_HOLDER) or 0 for name, table in tables.items()}
        states = self._all_states(run)
        delta = Delta(run.train_network, tables, since, states, self._team.shares)
        marks = {name: table.marks.new() for name, table in tables.items()}
        fields = self._fields("delta", self.step, self._last, _watermark(tables))
        target = self.directory / entry_name(self.step, "delta")
        stall = time.perf_counter() - begin

        def write() -> None:
            begin = time.perf_counter()
            written = write_checkpoint(target, fields, delta.write, self._writers)
            self._written(target, written, stall, time.perf_counter() - begin)
            if full:
                self._merge()

        self._writer.begin(write)
        self._unsaved = [(table, marks[name]) for name, table in tables.items()]
        now = time.monotonic()
        self._delta.restart(now)
        if full:
            self._full.restart(now)

    def _finish_write(self) -> None:
        """Wait for the delta that is being written; after a failure the next one includes it."""
        assert self._writer is not None
        marks, self._unsaved = self._unsaved, []
        try:
            self._writer.wait()
        except OSError as error:
            self.failures += 1
            logger.warning("a delta could not be written to %s: %s", self.directory, error)
            return
        for table, mark in marks:
            table.marks.hold(_HOLDER, mark)

    def _merge(self) -> None:
        merger = self._merger
        assert merger is not None
        if any(self._writers.all(lambda: merger.busy)):
            return  # merging takes longer than the time between two full ones
        team = self._mergers

        def merge() -> None:
            begin = time.perf_counter()
            chain = self._chain(team, None)
            if len(chain) == 1:
                return
            target = self.directory / entry_name(chain[-1].step, "full")
            try:
                written = merge_chain(chain, target, team)
            except OSError as error:
                self.failures += 1
                logger.warning("a full checkpoint could not be merged at %s: %s", target, error)
                return
            self._save_of(target, written, 0.0, time.perf_counter() - begin)
            team.first(lambda: remove_old(self.directory, self.keep))

        merger.begin(merge)

    def _written(self, path: Path, written: Mapping[str, Any], stall: float, took: float) -> None:
        self._last, self._saved_step = written["state"], written["step"]
        self._save_of(path, written, stall, took)

    def _save_of(self, path: Path, written: Mapping[str, Any], stall: float, took: float) -> None:
        """Note a checkpoint that was written, and announce it once."""
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
        self, kind: str, step: int, parent: str | None, watermark: int | None
    ) -> Callable[[], dict[str, Any]]:
        """Return a function that gives a manifest's fields, with a new id of the state."""
        now = time.time()
        return lambda: {
            "kind": kind,
            "step": step,
            "run": self._run,
            "state": new_id(),
            "parent": parent,
            "saved_at": now,
            "watermark": watermark,
            "model": self._model,
        }

    def _all_states(self, run: Any) -> dict[str, Any]:
        objects = {name: each.state_dict() for name, each in self._states.items()}
        # As of the trained batch: the source may have been read ahead.
        objects.update(self._data.state(run.get("train_batch")))
        return {"objects": objects, "random": random_state()}

    # ---- the data

    def _check_data(self, dataset: Any) -> None:
        self._team.each(lambda: self._check_data_here(dataset))

    def _check_data_here(self, dataset: Any) -> None:
        self._data.check(dataset)
        if self._restored is not None:
            self._data.check_restored(dataset, *self._restored)

    # ---- the directory

    def _open(self) -> None:
        """Lock the directory and make it ready; worker 0 does it for all."""
        if self._team.worker != 0:
            return
        make_directories(self.directory)
        self._lock = lock(self.directory)
        try:
            self._clean()
        except BaseException:
            self._lock.close()
            self._lock = None
            raise

    def _clean(self) -> None:
        remove_left_over(self.directory)
        found = entries(self.directory)
        newest = self.step if self._last is not None else -1
        if found and found[-1].step != newest:
            raise ValueError(
                f"{self.directory} has checkpoints of a run that is at step {found[-1].step}: call "
                "restore() first, or give an empty directory"
            )

    def _close(self) -> None:
        self._data.end()
        for worker in (self._writer, self._merger):
            if worker is not None:
                worker.close()
        self._writer = self._merger = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _mark(tables: Iterable[TableParameter]) -> None:
    for table in tables:
        table.marks.hold(_HOLDER, table.marks.new())


def _check_states(states: Mapping[str, Any] | None) -> dict[str, Any]:
    if states is not None and not isinstance(states, Mapping):
        raise TypeError(f"states must be a dict of objects by name, got {type(states).__name__}")
    found = dict(states or {})
    for name, each in found.items():
        if not isinstance(name, str) or name == DATA:
            raise ValueError(f"states must have names other than '{DATA}', got {name!r}")
        if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
            raise TypeError(
                f"states[{name!r}] must have state_dict and load_state_dict, got {each!r}"
            )
    return found


def _check_builder(
    builder: str | None, arguments: Mapping[str, Any] | None, inputs: Sequence[str] | None
) -> dict[str, Any] | None:
    if builder is None:
        for name, given in (("builder_arguments", arguments), ("builder_inputs", inputs)):
            if given is not None:
                raise ValueError(f"{name} must be None without a builder")
        return None
    if not isinstance(builder, str) or builder.count(":") != 1:
        raise ValueError(f"builder must be 'package.module:function', got {builder!r}")
    if inputs is not None:
        for each in [inputs] if isinstance(inputs, str) else inputs:
            if isinstance(inputs, str) or not isinstance(each, str) or not _INPUT.fullmatch(each):
                raise ValueError(
                    "builder_inputs must be a list of texts name:datatype:shape, as in "
                    f"['ids:INT64:-1,26'], got {each!r}"
                )
        inputs = list(inputs)
    return {"builder": builder, "arguments": dict(arguments or {}), "inputs": inputs}


def _watermark(tables: Mapping[str, Any]) -> int | None:
    times = [table.event_time or 0 for table in tables.values()]
    return max(times, default=0) or None
