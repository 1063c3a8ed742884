# SPDX-License-Identifier: Apache-2.0
"""Peers: interface between the training loop of one worker and all workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor
from mindspore.graph.api import _pynative_executor
from mindspore.train import RunContext

from mindspore_rec.common.parallel.channel import Group
from mindspore_rec.common.stream.batches import Batch, BatchSource
from mindspore_rec.common.stream.interrupt import Interruption
from mindspore_rec.train.graph.loss_value import loss_value
from mindspore_rec.train.graph.operator_errors import operator_errors
from mindspore_rec.train.metrics.summary import TrainSummary
from mindspore_rec.train.workers.agreement import Agreement
from mindspore_rec.train.workers.feed import Feed, OwnFeed
from mindspore_rec.train.workers.worker_data import share_way
from mindspore_rec.train.workers.worker_feed import WorkerBatch, WorkerFeed
from mindspore_rec.train.workers.worker_state import WorkerState

__all__ = ["Alone", "Peers"]


class Alone:
    """Single worker of a training: exchanges no messages and leaves the steps unchanged.

    Attributes:
        feed: the `Feed` that supplies the worker's batches.
        rank: index of the worker; 0 for a single worker.
        workers: number of workers; 1 for a single worker.
        name: name of the worker in error messages; '' for a single worker.
        share: name of this worker's share of the data; "whole" for a single worker. See `Passes`.
        reads_on: True if no batch is lost when the source is read again after an exception.
        bad: index of the worker whose last loss is NaN or infinite; None if all losses are finite.
            With one worker, `bad` is always None, because the training loop itself checks the loss.
    """

    rank, workers, name, share = 0, 1, "", "whole"
    bad: int | None = None

    def __init__(self, source: BatchSource) -> None:
        self.feed: Feed = OwnFeed()
        self.reads_on = source.reads_on

    def next(self, read: Callable[[int | None], Batch | None], most: int | None) -> Batch | None:
        """Return the next batch from `read(most)`; None at the end or if the workers stop."""
        batch = read(most)
        if batch is None:
            self.feed.check()
        return batch

    def begin_step(self, step: int, batch: Batch) -> Sequence[int]:
        """Return the number of rows of each worker in a step."""
        return self.feed.begin_step(step, batch)

    def end_step(self, step: int, batch: Batch, outputs: Any) -> Any:
        """Return the outputs of a step, with the loss over all workers as the first output."""
        return outputs

    def settle(self, run: Any, context: RunContext, interruption: Interruption) -> None:
        """Do nothing; `Peers.settle` stops all workers if one of several workers stops."""

    def interrupted(self, interruption: Interruption) -> bool:
        """Return True if a signal has stopped the training on some worker."""
        return interruption.requested

    def stop_reason(self, own: str) -> str:
        """Return the reason why the data ended, from the first worker that reports a reason."""
        return own

    def finish(self, summary: TrainSummary) -> None:
        """With one worker, do nothing; with several workers, add the waiting times to `summary`."""


class Peers(Alone):
    """Interface between the training loop of one worker and all workers of the training.

    Args:
        group: all workers.
        source: this worker's share of the training data.
        summed: True if the loss is a sum over a batch's rows, False if the loss is a mean.
        state: the network's `WorkerState`. The `WorkerState` handles parameters that steps change
            without a gradient.
    """

    feed: WorkerFeed

    def __init__(self, group: Group, source: BatchSource, summed: bool, state: WorkerState) -> None:
        self._group = group
        self._state = state
        self._agreement = Agreement(group, "t")
        self.feed = WorkerFeed(self._agreement, source, "train_dataset")
        self.rank, self.workers = group.rank, group.size
        self.name = f"worker {group.rank} of {group.size}"
        self.share = share_way(source)
        self.reads_on = all(group.all_gather_json(source.reads_on))
        self._interrupted = False
        self._summed = summed
        self._told = False

    def next(self, read: Callable[[int | None], Batch | None], most: int | None) -> Batch | None:
        """Return the next batch from `read(most)`; None at the end or if the workers stop."""
        rounds = self._agreement.rounds
        batch = read(most)
        if self._agreement.rounds == rounds:  # the batch was read before
            self.feed.agree_stop()
        if self.feed.stopped:
            return None
        if batch is None:
            self.feed.check()
        return batch

    def begin_step(self, step: int, batch: Batch) -> Sequence[int]:
        """Report each worker's number of rows in a step to the tables; return these numbers."""
        return self.feed.begin_step(step, batch, self._summed)

    def end_step(self, step: int, batch: Batch, outputs: Any) -> Any:
        """Make the network's state equal on all workers after a step, and return the outputs.

        The loss over all workers is the first output.
        """
        assert isinstance(batch, WorkerBatch)
        outputs = self._with_loss(outputs, batch)
        if ms.get_context("mode") == ms.PYNATIVE_MODE:
            # A step's operators use the row counts of that step, so the operators must end before
            # the next step begins.
            _pynative_executor.sync()
        self._state.end_step(step, batch.samples)
        return outputs

    def _with_loss(self, outputs: Any, batch: WorkerBatch) -> Any:
        many = isinstance(outputs, (tuple, list)) and bool(outputs)
        first = outputs[0] if many else outputs
        own = math.nan
        if isinstance(first, Tensor):
            with operator_errors():  # PyNative mode raises errors of the step here
                own = loss_value(first)
        loss = self._agreement.loss(own, batch.own_samples, self._summed)
        self.bad = loss.bad
        if not isinstance(first, Tensor):
            return outputs
        made = Tensor(np.array(loss.value, np.float32))
        return (made, *outputs[1:]) if many else made

    def settle(self, run: Any, context: RunContext, interruption: Interruption) -> None:
        """Find out whether a worker stops; if a worker stops, tell all workers the reason."""
        if not self.feed.agree_stop() or self._told:
            return
        self._told = True
        answers = self._agreement.json([run.stop_reason, interruption.requested])
        self._interrupted = any(signal for _, signal in answers)
        run.stop_reason = next((reason for reason, _ in answers if reason), "")
        if self._interrupted:
            interruption.requested = True
        else:
            context.request_stop()

    def interrupted(self, interruption: Interruption) -> bool:
        """Return True if a signal has stopped the training on some worker."""
        return self._interrupted

    def stop_reason(self, own: str) -> str:
        """Return the reason why the data ended, from the first worker that reports a reason."""
        return next((reason for reason in self._agreement.json(own) if reason), "")

    def finish(self, summary: TrainSummary) -> None:
        """Add to a summary the seconds that each worker waited for other workers."""
        summary.workers = self.workers
        summary.waits = [float(each) for each in self._agreement.json(self._agreement.seconds)]
