# SPDX-License-Identifier: Apache-2.0
"""TrainLoop: trains on batches, calls the callbacks, and ends cleanly."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from mindspore import Tensor, nn
from mindspore.train import Callback, RunContext

from mindspore_rec.common.stream.batches import LATER, Batch, BatchSource
from mindspore_rec.common.stream.interrupt import Interruption
from mindspore_rec.common.stream.read_watch import ReadLaterError, reading
from mindspore_rec.train.data.finite_batches import check_batch
from mindspore_rec.train.data.given_data import no_batch
from mindspore_rec.train.data.label_range import check_label_range
from mindspore_rec.train.graph.cell_caller import CellCaller
from mindspore_rec.train.graph.loss_value import loss_value
from mindspore_rec.train.graph.tensors import as_tensors
from mindspore_rec.train.loop.hints import hint_vocabulary
from mindspore_rec.train.loop.passes import Passes
from mindspore_rec.train.loop.prefetch import PrefetchStage
from mindspore_rec.train.metrics.summary import TrainSummary
from mindspore_rec.train.optim.rates import check_rates
from mindspore_rec.train.parameter.hash_table import HashTable
from mindspore_rec.train.workers.feed import Reader
from mindspore_rec.train.workers.peers import Alone

__all__ = ["TrainLoop"]


class TrainLoop:
    """One run of training over epochs of batches.

    Unlike `mindspore.train.Model.train`, the loop never reads the size of a data set, because an
    unbounded data set has no size.

    Args:
        call: `CellCaller` of the training cell.
        run: parameters that callbacks read by `run_context.original_args()`.
        callbacks: a callback, or a manager of several callbacks.
        interruption: object that records whether Ctrl-C or SIGTERM has requested a stop.
        stage: prefetch stage, which reads batches ahead.
        event_tables: tables that receive the event time of each batch, just before the batch's
            step.
        max_steps: maximum number of steps of the run; None for no limit.
        peers: the workers of the training, all of which run the same steps.

    Attributes:
        summary: summary of the run.
        stop_on_nan: whether a NaN or infinite loss of a step is an error.
        finite_columns: whether a NaN or infinite number in a column of a batch is an error.
        optimizers: optimizers of the training cell. If an optimizer has a list of learning rates,
            the list must cover all steps.
    """

    def __init__(
        self,
        call: CellCaller,
        run: Any,
        callbacks: Callback,
        interruption: Interruption,
        stage: PrefetchStage,
        event_tables: Sequence[HashTable],
        max_steps: int | None,
        peers: Alone,
    ) -> None:
        self.summary = TrainSummary(history=run.history)
        self.stop_on_nan = False
        self.finite_columns = False
        self.optimizers: Sequence[nn.Optimizer] = ()
        self._rated_steps: int | None = None  # number of steps that have a learning rate
        self._call = call
        self._run = run
        self._context = RunContext(run)
        self._callbacks = callbacks
        self._interruption = interruption
        self._stage = stage
        self._event_tables = event_tables
        self._max_steps = max_steps
        self._last = max_steps  # no batches are read beyond this number of steps
        self._peers = peers
        self._passes = Passes(
            run.train_source, peers.share, peers.workers, run, lambda: stage.has_batch
        )
        run.data_passes = self._passes
        self._reader = Reader(
            wants_stop=lambda: interruption.requested or bool(self._context.get_stop_requested()),
            interrupted=lambda: interruption.requested,
            knows_ids=lambda: stage.ids_known,
            has_batch=self._can_go_on,
            on_idle=self._idle,
        )

    def run_passes(
        self, source: BatchSource, epochs: int, epoch_steps: int | None, initial_epoch: int = 0
    ) -> None:
        """Train for `epochs` epochs.

        An epoch has `epoch_steps` steps, or is one pass over the source if `epoch_steps` is None.
        If a checkpoint was restored, training may resume in the middle of a pass.

        Raises:
            ValueError: a pass over the source yields no batch.
        """
        passes = self._passes
        passes.begin(epoch_steps, initial_epoch)
        with _Begun(self._callbacks, self._context):
            left = range(passes.epochs + 1, initial_epoch + epochs + 1)  # numbers of epochs
            if epoch_steps is None:
                self._run_whole(source, left)
                return
            self._limit(len(left) * epoch_steps - passes.taken)
            with self._reading(self._repeated(source), source):
                for number in left:
                    self._epoch(number, epoch_steps)
                    if self._over():
                        break

    def _run_whole(self, source: BatchSource, epochs: range) -> None:
        for number in epochs:
            with self._reading(self._not_empty(source), source):
                self._epoch(number, None)
            if self._over():
                break

    def run_stream(self, source: BatchSource, epoch_steps: int) -> None:
        """Train on one pass over a finite or endless source, in epochs of `epoch_steps` steps."""
        self._passes.begin(epoch_steps, 0)
        with _Begun(self._callbacks, self._context), self._reading(self._batches(source), source):
            epoch = self._passes.epochs
            taken = epoch_steps
            while taken == epoch_steps and not self._over():
                epoch += 1
                taken = self._epoch(epoch, epoch_steps)

    def _epoch(self, number: int, steps: int | None) -> int:
        run, passes = self._run, self._passes
        run.cur_epoch_num = number
        self._callbacks.on_train_epoch_begin(self._context)
        ended = False
        while (steps is None or passes.taken < steps) and not self._over():
            begin = time.perf_counter()
            batch = self._next()
            if batch is None:
                ended = passes.taken > 0 and not self._over()
                break
            self._step(batch, begin)
        self._settle()
        run.interrupted = self._peers.interrupted(self._interruption)
        # Set `taken` and `complete` before the callbacks run, because a callback may request a
        # stop.
        taken = passes.taken
        complete = run.epoch_complete = ended or taken in (steps, run.batch_num)
        self.summary.epochs += complete
        self._callbacks.on_train_epoch_end(self._context)
        self._settle()
        passes.end_epoch(complete)
        return taken

    # ---- batches

    def _batches(self, source: BatchSource) -> Generator[Batch, None, None]:
        copy = self._stage.reads_ahead
        columns = self._call.columns
        batches = self._passes.read(source)
        place = 0
        seen = False
        while True:
            try:
                batch = next(batches, None)
            except ReadLaterError:
                batches = self._passes.read(source)
                yield LATER
                continue
            if batch is None:
                return
            place = place if batch.place is None else batch.place.batches - 1
            if batch.names is not None:
                columns.names = batch.names
            where = f"batch {place} of train_dataset"
            if self.finite_columns:
                check_batch(batch, columns, where)
            if not seen:  # checking every batch would take as long as a small step
                check_label_range(batch.columns, columns, self._run.loss_fn, where)
            seen = True
            place += 1
            yield replace(batch, columns=as_tensors(batch.columns, copy=copy, columns=columns))

    def _repeated(self, source: BatchSource) -> Generator[Batch, None, None]:
        while True:
            yield from self._not_empty(source)

    def _not_empty(self, source: BatchSource) -> Generator[Batch, None, None]:
        return _not_empty(self._batches(source), source, self._peers.name, self._passes.goes_on)

    @contextmanager
    def _reading(self, stream: Generator[Batch, None, None], source: BatchSource) -> Iterator[None]:
        """Inside the context, read batches from `stream`; at the end, drop batches that were read
        ahead."""

        def find_names() -> Sequence[str]:
            return source.column_names

        self._peers.feed.start(lambda: self._read(stream), self._reader)
        self._stage.start(self._peers.feed)
        try:
            with closing(stream), self._call.columns.named(find_names):
                yield
        finally:
            self._stage.stop()

    def _read(self, stream: Iterator[Batch]) -> Batch | None:
        try:
            self._interruption.waiting = True
            with reading(self._on_wait):
                return next(stream, None)
        except KeyboardInterrupt:
            self._interruption.requested = True
            return None
        finally:
            self._interruption.waiting = False

    def _on_wait(self) -> None:
        self._interruption.waiting = False  # no signal may interrupt communication or a callback
        try:
            self._peers.feed.on_wait()
        finally:
            self._interruption.waiting = True

    def _can_go_on(self) -> bool:
        """Return True if training can go on with a batch that was read ahead."""
        return self._peers.reads_on and self._stage.has_batch

    def _idle(self) -> None:
        """Call `on_train_wait` of the callbacks, because training is waiting for data."""
        for callback in self._run.list_callback:
            waits = getattr(callback, "on_train_wait", None)
            if waits is not None:
                waits(self._context)

    def _next(self) -> Batch | None:
        most = None if self._last is None else self._last - self._run.cur_step_num
        batch = self._peers.next(self._stage.next, most)
        # If Ctrl-C has ended the wait for a batch, do not train on batches that were read ahead.
        return None if self._peers.interrupted(self._interruption) else batch

    def _limit(self, steps: int) -> None:
        self._last = steps if self._last is None else min(steps, self._last)

    def _step(self, batch: Batch, begin: float) -> None:
        run, summary = self._run, self.summary
        compilations = self._call.compilations
        columns = batch.columns
        if columns[-1].shape[:1] == (0,):
            raise ValueError(
                f"the batch of train_dataset for step {run.cur_step_num + 1} has no rows, and its "
                "loss would be NaN: leave it out, as in [b for b in batches if len(b[-1])]"
            )
        self._check_rates()
        run.cur_step_num += 1
        run.train_dataset_element = columns
        run.train_batch = batch
        samples = self._begin_step(batch)
        self._set_event_time(batch)
        self._callbacks.on_train_step_begin(self._context)
        self._stage.begin_step()
        if run.cur_step_num == 1:
            hint_vocabulary(run.train_network, columns)
        self._begin_step(batch)  # again, because a callback may have run an evaluation
        run.net_outputs = self._call(True, *columns)
        self._stage.end_step()
        self._passes.taken += 1
        self._interruption.restore()
        run.net_outputs = self._peers.end_step(run.cur_step_num, batch, run.net_outputs)
        if self.stop_on_nan:
            _check_loss(run.net_outputs, run.cur_step_num, self._peers.bad)
        run.samples += sum(samples)
        if self._call.compilations == compilations and run.cur_step_num > 1:
            summary.step_seconds += time.perf_counter() - begin
            summary.step_samples += sum(samples)
        else:
            summary.compile_seconds += time.perf_counter() - begin
        self._callbacks.on_train_step_end(self._context)

    def _check_rates(self) -> None:
        """Check that the next step has a learning rate; before the first step, check all steps."""
        run = self._run
        if run.cur_step_num == 0:
            left = [check_rates(o, run.total_steps, run.epoch_num) for o in self.optimizers]
            self._rated_steps = min((steps for steps in left if steps is not None), default=None)
        if self._rated_steps is not None and run.cur_step_num >= self._rated_steps:
            raise ValueError(
                "learning_rate must have a rate for each step, and has none after step "
                f"{self._rated_steps} of this run: give more, or a LearningRateSchedule"
            )

    def _begin_step(self, batch: Batch) -> Sequence[int]:
        """Announce the step to all workers' tables; return each worker's number of batch rows."""
        samples = self._peers.begin_step(self._run.cur_step_num, batch)
        self._run.batch_samples = samples[self._peers.rank]
        return samples

    def _set_event_time(self, batch: Batch) -> None:
        if batch.event_time is not None:
            for table in self._event_tables:
                table.set_event_time(batch.event_time)
        if batch.before_step is not None:
            batch.before_step()

    # ---- the end

    def _settle(self) -> None:
        self._peers.settle(self._run, self._context, self._interruption)

    def _over(self) -> bool:
        if self._peers.feed.stopped:
            return True
        return self._max_steps is not None and self._run.cur_step_num >= self._max_steps

    def source_stop_reason(self, source: BatchSource) -> str:
        """Return why the data ended: the reason of the first worker that has a reason, or ''."""
        return self._peers.stop_reason(source.stop_reason)

    def finish(self, seconds: float) -> TrainSummary:
        """Return the summary of the run; `seconds` is its duration."""
        run, summary = self._run, self.summary
        summary.steps = run.cur_step_num
        summary.samples = run.samples
        summary.seconds = seconds
        summary.loss = loss_value(run.net_outputs)
        summary.metrics = run.get("metrics") or {}
        summary.interrupted = self._peers.interrupted(self._interruption)
        self._peers.finish(summary)
        # MindSpore turns a SIGINT during a step into SIGTERM, so the signal is not known exactly.
        by_signal = "interrupted by Ctrl-C or SIGTERM" if summary.interrupted else ""
        summary.stop_reason = run.stop_reason or by_signal
        return summary


class _Begun:
    """Context that calls `on_train_begin` first, and `on_train_end` last if there was no error."""

    def __init__(self, callbacks: Callback, context: RunContext) -> None:
        self._callbacks = callbacks
        self._context = context

    def __enter__(self) -> None:
        self._callbacks.on_train_begin(self._context)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self._callbacks.on_train_end(self._context)


def _not_empty(
    batches: Generator[Batch, None, None], source: BatchSource, worker: str, goes_on: bool
) -> Generator[Batch, None, None]:
    empty = not goes_on
    with closing(batches):
        for batch in batches:
            empty = empty and batch is LATER
            yield batch
    if empty:
        raise no_batch("train_dataset", source, worker)


def _check_loss(outputs: Any, step: int, worker: int | None) -> None:
    first = outputs[0] if isinstance(outputs, (tuple, list)) and outputs else outputs
    if not isinstance(first, Tensor):
        return
    loss = loss_value(first)
    if worker is not None or not math.isfinite(loss):
        where = "" if worker is None else f" of worker {worker}"
        raise FloatingPointError(
            f"the loss is {loss} at step {step}{where}, and rows of that step may hold NaN too: go "
            "back to the last checkpoint, or to an earlier one with restore(step=N), and lower the "
            "learning rate or set clip_global_norm; stop_on_nan=False trains on"
        )
