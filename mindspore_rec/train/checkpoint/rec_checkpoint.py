# SPDX-License-Identifier: Apache-2.0
"""RecCheckpoint: callback that writes checkpoints and deltas during training."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mindspore.train import Callback, RunContext

from mindspore_rec._native import FileLock
from mindspore_rec.common.checks import check_int
from mindspore_rec.common.digests.scrub import Scrub
from mindspore_rec.common.old_arguments import InSettings, takes_old
from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.common.run.chain import Entry, verify_chain
from mindspore_rec.common.run.contents import files_of
from mindspore_rec.common.run.load_tables import TableShares
from mindspore_rec.common.run.team import ALONE, Team
from mindspore_rec.train.checkpoint.arguments import check_states
from mindspore_rec.train.checkpoint.cadence import Cadence
from mindspore_rec.train.checkpoint.callback_states import CallbackStates
from mindspore_rec.train.checkpoint.data_place import NAME as DATA, DataPlace, SavedPlace
from mindspore_rec.train.checkpoint.directory import training_cell
from mindspore_rec.train.checkpoint.load import check_load, load_chain
from mindspore_rec.train.checkpoint.network_process import NetworkProcess
from mindspore_rec.train.checkpoint.publication import Publication
from mindspore_rec.train.checkpoint.random_state import random_state, set_random_state
from mindspore_rec.train.checkpoint.row_checks import RowChecks
from mindspore_rec.train.checkpoint.run_directory import (
    chain_of_all,
    locked,
    open_to_write,
    remove_after,
)
from mindspore_rec.train.checkpoint.run_writer import RunWriter, Save
from mindspore_rec.train.checkpoint.scrub import DigestedRows, TierRows
from mindspore_rec.train.checkpoint.worker_states import WorkerStates
from mindspore_rec.train.nn.tables import tables_of

__all__ = ["RecCheckpoint", "Save"]


_RETRY_SECONDS = 5.0  # seconds after a failed write, while a stream has no messages


class RecCheckpoint(Callback):
    """Callback that saves the whole training state at intervals, in the background.

    When training begins, a full checkpoint is written if the directory is empty. After the full
    checkpoint, deltas follow; each delta contains the changes since the previous delta. Training
    waits while the changes are copied. If the interval is in steps, training also waits until the
    previous delta is written. Another thread merges the last full checkpoint and its deltas into a
    new full checkpoint. After the merge, checkpoints older than the newest `keep` full checkpoints
    are removed.

    The callback runs after all other callbacks of a step, except `EarlyStopping`, `WeightAverage`
    and `RateSchedule`. Changes between steps, such as rows
    erased after `restore()`, are saved with the next step or when training ends. The state consists
    of tables (rows, optimizer state, counters), dense parameters, the optimizer, the position in
    the data, and `states`. The state also includes the random number generators of Python, NumPy
    and MindSpore. A resumed training and an uninterrupted training give bit-identical results if
    data and callbacks depend only on the saved state. The results may differ if a table evicts by
    capacity, because a restart changes the random samples from which the evicted rows are chosen.

    The training data must have a state or a length. A `StreamingDataset` has a state. A
    `BatchWrapper`, such as `FeatureBatches`, has a state if the wrapped source has a state. A list
    or a finite Dataset has a length. Data with a length must yield the same batches after each
    start of the program. After `restore()`, `RecModel` resumes in the middle of a pass over data
    with a length. Batches of finished steps are read and skipped. The argument `epoch` includes the
    epochs before the restart, so a restarted program trains only on the remaining batches and
    epochs. An error is raised if the batches differ from the batches that were read before the
    restart. If `data_starts_over` is False, data without a state and without a length, such as a
    generator or a `GeneratorDataset` over a stream, are rejected before the first step. The error
    message contains the reason why the data cannot be resumed.

    If a checkpoint cannot be written during training, for example because the disk is full, a
    warning is logged and training continues. The next delta contains all changes since the last
    delta that was written. If the first checkpoint of a run or the last state of a training cannot
    be written, an OSError is raised.
    While a stream has no messages, checkpoints with intervals in seconds are still written, and a
    failed delta is written again after 5 seconds. If an interval is a number of steps, its
    checkpoints are written only after a step.

    Several workers (see `mindspore_rec.launch`) write one run together; each worker writes its own
    rows. Any number of workers can resume the run. If a write fails on one worker, the write counts
    as failed on all workers. Each worker saves its own random generators and `states`. If the
    number of workers has changed, an object with a method `load_worker_states(states, worker,
    workers)` receives the states of all workers. Any other object must have had the same state on
    all workers when the checkpoint was written.

    Args:
        directory: directory of the run; made if missing. Only one process, or the workers of one
            job, may write to the directory at the same time. With several workers, the directory
            must be in a file system that all workers share.
        every_steps: steps between two full checkpoints, at least 1; or
        every_seconds: seconds between two full checkpoints, above 0. Either `every_steps` or
            `every_seconds` is required.
        keep: number of full checkpoints to keep, at least 1. All deltas after the oldest kept full
            checkpoint are kept too. Default: 2.
        delta_every_steps: steps between two deltas, at least 1; or
        delta_every_seconds: seconds between two deltas, above 0. Default: None, which means that a
            delta is written only just before each full checkpoint, and at the end of a training.
        states: dict from names to further objects whose states are saved, for example a
            `ProgressiveValidation`. Each object has the methods `state_dict()` and
            `load_state_dict(state)`. The states of `train_dataset`, `EarlyStopping`,
            `ReduceLROnPlateau`, `EvalCallback`, `WeightAverage` and `RateSchedule` are saved
            automatically.
        data_starts_over: whether the data start from the beginning after a restart. If
            `data_starts_over` is True, the position in the data is not saved, and any data are
            accepted. Default: False.
        row_checks: settings for detecting rows that have changed although no update has written the
            rows. Default: `RowChecks()`, which uses a digest of each row.
        publication: settings for publishing the network and announcing checkpoints to predictors.
            Default: None, which means that predictors get only the checkpoints.

    Attributes:
        directory: directory of the run.
        step: number of training steps since the run began, including steps before restarts. If rows
            or weights change after the last step was saved, these changes are saved when the
            training ends, and `step` grows by 1.
        saves: one `Save` for each checkpoint that this object wrote.
        failures: number of writes that failed.
        scrub_rounds: number of times that all rows have been checked in the present training.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or two arguments
            must not be set together.

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

    @takes_old(
        InSettings("row_checks", RowChecks, ["keep_digests", "scrub_seconds"]),
        InSettings(
            "publication",
            Publication,
            ["announce", "builder", "builder_arguments", "builder_inputs"],
        ),
    )
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
        row_checks: RowChecks | None = None,
        publication: Publication | None = None,
    ) -> None:
        super().__init__()
        self.directory = Path(directory)
        self._full = Cadence("every", every_steps, every_seconds)
        if self._full.off:
            raise ValueError("every_steps or every_seconds must be given")
        self._delta = Cadence("delta_every", delta_every_steps, delta_every_seconds)
        self.keep = check_int("keep", keep, 1, 1 << 20)
        self._states = check_states(states)
        if DATA in self._states:
            raise ValueError(f"states must have names other than '{DATA}'")
        if not isinstance(data_starts_over, bool):
            raise TypeError(f"data_starts_over must be a bool, got {data_starts_over!r}")
        self._data = DataPlace(data_starts_over)
        checks = RowChecks() if row_checks is None else row_checks
        if not isinstance(checks, RowChecks):
            raise TypeError(f"row_checks must be a RowChecks, got {type(checks).__name__}")
        self._scrub_seconds = checks.scrub_seconds
        self._scrubs: list[Scrub] = []
        published = Publication() if publication is None else publication
        if not isinstance(published, Publication):
            raise TypeError(f"publication must be a Publication, got {type(published).__name__}")
        self.step = 0
        network = published.network
        self._writer = RunWriter(
            self.directory, self.keep, network, published.announce, checks.keep_digests
        )
        self._network = NetworkProcess(self.directory, network)
        self._began = 0  # self.step when this training began
        self._tried, self._tried_at = -1, 0.0  # step and time of the last save
        self._merged = -1  # step of the last save with a full checkpoint
        self._restored: SavedPlace | None = None  # used until training begins
        self._saved_callbacks: Any = {}  # saved states of callbacks, used until training begins
        self._callbacks = CallbackStates([], [])
        self._lock: FileLock | None = None  # only on worker 0
        self._team = ALONE

    @property
    def saves(self) -> list[Save]:
        """One `Save` for each checkpoint that this object wrote."""
        return self._writer.saves

    @property
    def failures(self) -> int:
        """Number of writes that failed."""
        return self._writer.failures

    @property
    def scrub_rounds(self) -> int:
        """Number of times that all rows have been checked in the present training."""
        count = min if all(scrub.active for scrub in self._scrubs) else max
        return count((scrub.rounds for scrub in self._scrubs), default=0)

    # ---- going on

    def restore(
        self,
        model: Any,
        train_dataset: Any = None,
        step: int | None = None,
        *,
        new_data: bool = False,
    ) -> int | None:
        """Restore the newest state before training; call this method on all workers.

        Learning rates that callbacks or the program have changed during the training are restored.
        If the program has given the optimizer another `learning_rate` than the program that wrote
        the checkpoint, the training continues with the new rate, and a warning names both rates. A
        changed `learning_rate` of `FTRL` is not used, because the state of `FTRL` is in units of 1
        / rate.

        Args:
            model: the RecModel or training cell, built in the same way as the saved model.
            train_dataset: the training data; needed if the data have a state. Call `restore` before
                any batch is read from the data. Default: None.
            step: step of the state to restore; newer checkpoints are removed. Default: None, which
                means the newest state.
            new_data: True if the data are new, for example a stream after a training on files.
                If `new_data` is True, training starts at the beginning of the new data, and the
                position in the checkpoint is not used. Use True only at the first start with the
                new data, because the next checkpoint contains the position in the new data.
                Default: False.

        Returns:
            Number of training steps of the restored state. If there is no checkpoint, `restore`
            returns None and changes nothing.

        Raises:
            TypeError: `new_data` is not a bool, or `train_dataset` is not an iterable of batches.
            ValueError: a file is damaged (a CheckpointError), there is no checkpoint of `step`, or
                the position in the data cannot be saved. A ValueError is also raised if the model,
                the data or `states` do not match the checkpoint. The data do not match the
                checkpoint if only the data, or only the checkpoint, has a position in a stream.
            RuntimeError: training has begun, or another process writes to the directory.
        """
        if self._lock is not None:
            raise RuntimeError("restore() is for before the training")
        if not isinstance(new_data, bool):
            raise TypeError(f"new_data must be a bool, got {new_data!r}")
        team = Team(worker_group())
        team.each(lambda: self._data.check(train_dataset))
        if not team.first(self.directory.is_dir):
            return None
        with locked(self.directory, team):
            chain = chain_of_all(self.directory, team, step)
            if not chain:
                return None
            last = chain[-1]
            cell = training_cell(model)
            shares = {table.name: team.shares.held(table) for table in tables_of(cell)}
            wanted = self._wanted(train_dataset, new_data)
            states = team.each(lambda: self._checked(chain, shares, team, wanted, new_data))
            team.each(lambda: check_load(cell, chain, shares, new_rates=True))
            # Load the states before the tables, so that no row has changed if loading a state
            # fails.
            team.each(lambda: states.load_all(wanted))
            generators = states.random()
            load_chain(cell, chain, shares, new_rates=True)
            if step is not None:
                team.first(lambda: remove_after(self.directory, last.step))
        self._writer.go_on(last, tables_of(cell))
        set_random_state(generators)
        self._restored = SavedPlace(states.data(), states.passes(), last.path, last.step, new_data)
        # The callbacks' states contain metrics of the old data, which do not apply to the new data.
        self._saved_callbacks = {} if new_data else states.callbacks()
        self.step = last.step
        return last.step

    def _checked(
        self,
        chain: list[Entry],
        shares: TableShares,
        team: Team,
        wanted: Mapping[str, Any],
        new_data: bool,
    ) -> WorkerStates:
        """Check the files that this worker reads, and return the states in the last checkpoint."""
        last = chain[-1]
        verify_chain(chain, lambda manifest: files_of(manifest, shares))
        states = WorkerStates(last, team.shares.of_network)
        states.random()
        saved = set(states.names) - ({DATA} if new_data else set())
        if wanted.keys() != saved:
            other = ""
            if wanted.keys() ^ saved == {DATA}:
                other = "; data that are new to the run begin at their start with new_data=True"
            raise ValueError(
                f"states and train_dataset must be those that were saved: {last.path} has the "
                f"states of {sorted(saved)}, given are {sorted(wanted)}{other}"
            )
        return states

    def _wanted(self, train_dataset: Any, new_data: bool) -> dict[str, Any]:
        """Return a dict with the objects whose states are restored, by name."""
        return {**self._states, **({} if new_data else self._data.stateful(train_dataset))}

    # ---- the callback

    def on_train_begin(self, run_context: RunContext) -> None:
        """Open the directory and, for a new run, write the first checkpoint.

        Raises:
            ValueError: the position in the data cannot be saved, or the data are not at the
                restored position; or the directory belongs to another run. A ValueError is also
                raised if a callback of MindSpore has a state that cannot be saved.
            OSError: the first checkpoint of the run cannot be written.
            RuntimeError: another process writes to the directory.
        """
        run = run_context.original_args()
        group = worker_group()
        self._team = Team(group)
        self._team.each(lambda: self._begin_data(run))
        self._team.each(lambda: self._begin_callbacks(run))
        self._team.each(self._open)
        try:
            self._began = self._merged = self.step
            self._tried = -1
            self._writer.begin(group)
            if not self._writer.has_state:
                self._writer.write_first(run.train_network, self.step, self._all_states(run))
            if self._team.worker == 0:
                self._network.start()
        except BaseException:
            self._close()
            raise
        if self._scrub_seconds:
            tables = tables_of(run.train_network)
            self._scrubs = [
                Scrub(rows(tables), self._scrub_seconds) for rows in (DigestedRows, TierRows)
            ]
        self._data.watch(run.train_dataset)
        self._restored, self._saved_callbacks = None, {}
        now = time.monotonic()
        self._full.restart(now)
        self._delta.restart(now)

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Take a snapshot if a checkpoint is due.

        If the interval is in seconds and the previous snapshot is still being written, the snapshot
        is taken after a later step. If the interval is in steps, training waits until the previous
        snapshot has been written.

        Raises:
            RuntimeError: a row in memory or in a tier has changed although no update has written
                the row.
        """
        run = run_context.original_args()
        self._callbacks.catch_up(run_context)
        self.step = self._began + run.cur_step_num
        for scrub in self._scrubs:
            scrub.step()
        save, full = self._due()
        if save:
            self._save(run, full)

    def on_train_wait(self, run_context: RunContext) -> None:
        """Save if an interval has passed or a write has failed.

        While training waits for data, the training loop calls this method several times per second.
        All workers call this method at the same time.
        """
        due = self._due_while_waiting
        save, full = due() if self._team.workers == 1 else self._team.told(lambda: list(due()))
        if save:
            self._save(run_context.original_args(), full)

    def _due_while_waiting(self) -> tuple[bool, bool]:
        """While training waits for data, return whether to save, and whether to merge."""
        writer, now = self._writer, time.monotonic()
        if writer.busy:
            return False, False
        failed = writer.saved_step < self._tried and now >= self._tried_at + _RETRY_SECONDS
        full = self._full.by_clock and self._full.due(self.step, now) and self._merged != self.step
        delta = self._delta.by_clock and self._delta.due(self.step, now)
        return full or (writer.saved_step != self.step and (delta or failed)), full

    def _due(self) -> tuple[bool, bool]:
        """Return whether to save, and whether to merge; the answer is the same on all workers.

        An interval in seconds is measured by the clock of worker 0.
        """
        if self._team.workers == 1 or not (self._full.by_clock or self._delta.by_clock):
            return self._due_here()
        save, full = self._team.told(lambda: list(self._due_here()))
        return save, full

    def _due_here(self) -> tuple[bool, bool]:
        now = time.monotonic()
        full, delta = self._full.due(self.step, now), self._delta.due(self.step, now)
        at_this_step = (full and self._full.by_steps) or (delta and self._delta.by_steps)
        return at_this_step or ((full or delta) and not self._writer.busy), full

    def on_train_end(self, run_context: RunContext) -> None:
        """Save the last state, and wait until the state is written.

        If rows changed after the last step was saved, the rows are saved under the next step
        number. Changes of table limits or dense weights after `restore()` are saved under the next
        step number, even if the training makes no step.

        Raises:
            OSError: the state cannot be written.
        """
        run = run_context.original_args()
        try:
            self._callbacks.catch_up(run_context)
            self._writer.finish_write()
            if self.step == self._writer.saved_step and self._has_unsaved(run):
                self.step += 1  # a state of this step was saved already
            if self.step != self._writer.saved_step:
                self._save(run, full=False)
                self._writer.finish_write()
            if self.step != self._writer.saved_step:
                cause = self._writer.last_failure
                raise OSError(
                    f"the state of step {self.step} could not be saved: {cause or 'see the log'}"
                ) from cause
            self._writer.finish_merge()
            self._network.wait()
        finally:
            self._close()

    def _has_unsaved(self, run: Any) -> bool:
        if self._writer.has_unsaved_rows(run.train_network):
            return True
        if self.step != self._began:
            return False
        self._writer.finish_merge()  # a merge may remove the checkpoint that is compared
        return self._writer.has_unsaved_weights(run.train_network)

    def __exit__(self, *error: Any) -> None:
        """If the training failed, stop writing."""
        self._close()

    def _save(self, run: Any, full: bool) -> None:
        self._writer.save(run.train_network, self.step, lambda: self._all_states(run), full)
        now = time.monotonic()
        self._delta.restart(now)
        self._tried, self._tried_at = self.step, now
        if full:
            self._full.restart(now)
            self._merged = self.step

    def _all_states(self, run: Any) -> dict[str, Any]:
        objects = {name: each.state_dict() for name, each in self._states.items()}
        # Save the data's state after the batch of the last step, because later batches may already
        # have been read.
        objects.update(self._data.state(run.get("train_batch")))
        return {"objects": objects, "random": random_state(), **self._data.passes(run)} | (
            self._callbacks.states()
        )

    def _begin_data(self, run: Any) -> None:
        """Check the training data, and begin the training at the restored position."""
        self._data.check(run.train_dataset)
        if self._restored is not None:
            self._data.check_restored(run.train_dataset, self._restored)
        self._data.begin(run, self._restored)

    def _begin_callbacks(self, run: Any) -> None:
        """Restore the states of this library's callbacks, and set `run.steps_before`."""
        run.steps_before = self.step
        self._callbacks = CallbackStates(run.get("list_callback") or [], self._states.values())
        self._callbacks.begin(self.directory, lambda: self._writer.saved_step)
        if self._restored is not None:
            self._callbacks.load(self._saved_callbacks, self._restored.path)

    def _open(self) -> None:
        """Let worker 0 prepare and lock the directory for all workers."""
        if self._team.worker == 0:
            newest = self.step if self._writer.has_state else -1
            self._lock = open_to_write(self.directory, newest)

    def _close(self) -> None:
        self._network.close()
        self._data.end()
        self._writer.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None
