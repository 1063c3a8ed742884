# SPDX-License-Identifier: Apache-2.0
"""Peers: the other workers, as the training loop of one of several workers sees them."""

from __future__ import annotations

import math
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor
from mindspore.graph.api import _pynative_executor
from mindspore.train import RunContext

from mindspore_rec.common.parallel.agreed_error import raise_on
from mindspore_rec.common.parallel.channel import Group
from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.common.stream.batches import BatchSource
from mindspore_rec.common.stream.interrupt import Interruption
from mindspore_rec.train.graph.loss_value import loss_value
from mindspore_rec.train.graph.operator_errors import operator_errors
from mindspore_rec.train.metrics.summary import TrainSummary
from mindspore_rec.train.workers.agreement import Agreement
from mindspore_rec.train.workers.worker_feed import WorkerBatch, WorkerFeed
from mindspore_rec.train.workers.worker_state import WorkerState

__all__ = ["Peers", "check_same", "current_group"]


def current_group() -> Group:
    """Return the workers of the job of which this process is one; one alone without a launcher."""
    return worker_group()


class Peers:
    """The other workers of a training.

    Args:
        group: all workers.
        source: this worker's share of the training data.
        summed: whether the loss is a sum over the rows of a batch, not their mean.
        state: what steps change in the network beside the optimizer.

    Attributes:
        feed: batches of which all workers take the same number.
        reads_on: whether the sources of all workers have `reads_on`.
        bad: lowest worker whose last loss is NaN or infinite; None if all are finite.
        interrupted: whether a signal has stopped the training on some worker.
    """

    def __init__(self, group: Group, source: BatchSource, summed: bool, state: WorkerState) -> None:
        self._group = group
        self._state = state
        self._agreement = Agreement(group, "t")
        self.feed = WorkerFeed(self._agreement, source, "train_dataset")
        self.reads_on = all(group.all_gather_json(source.reads_on))
        self.bad: int | None = None
        self.interrupted = False
        self._summed = summed
        self._told = False

    @property
    def name(self) -> str:
        """This worker for messages: 'worker 1 of 4'."""
        return f"worker {self._group.rank} of {self._group.size}"

    @property
    def workers(self) -> int:
        """Number of workers."""
        return self._group.size

    @property
    def rounds(self) -> int:
        """Number of rounds so far."""
        return self._agreement.rounds

    def begin_step(self, step: int, batch: WorkerBatch) -> None:
        """Tell the tables and the optimizer how many rows each worker has in a step."""
        self._group.begin_step(step, list(batch.samples), self._summed)

    def outputs(self, outputs: Any, batch: WorkerBatch) -> Any:
        """Return the outputs of a train step with the loss over all workers as the first one."""
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

    def end_step(self, step: int, batch: WorkerBatch) -> None:
        """Make what the step has changed in the network alike on all workers."""
        if ms.get_context("mode") == ms.PYNATIVE_MODE:
            # Operators of this step weigh by its rows, so they end before the next one begins.
            _pynative_executor.sync()
        self._state.end_step(step, batch.samples)

    def settle(self, run: Any, context: RunContext, interruption: Interruption) -> None:
        """Ask the other workers whether one stops, and if so tell all why."""
        if not self.feed.agree_stop() or self._told:
            return
        self._told = True
        said = self._agreement.json([run.stop_reason, interruption.requested])
        self.interrupted = any(signal for _, signal in said)
        run.stop_reason = next((reason for reason, _ in said if reason), "")
        if self.interrupted:
            interruption.requested = True
        else:
            context.request_stop()

    def stop_reason(self, own: str) -> str:
        """Return the reason why the data of a worker ended, of the lowest one that has any."""
        return next((reason for reason in self._agreement.json(own) if reason), "")

    def finish(self, summary: TrainSummary) -> None:
        """Add to a summary how long each worker waited for the other workers."""
        summary.workers = self._group.size
        summary.waits = [float(each) for each in self._agreement.json(self._agreement.seconds)]


def check_same(group: Group, what: str, mine: dict[str, Any]) -> None:
    """Raise an error if this worker's settings are not worker 0's.

    Args:
        group: all workers.
        what: what the settings are of, for the message.
        mine: settings by name, JSON values.

    Raises:
        ValueError: a setting differs; the message names it and the worker.
    """
    found = group.all_gather_json(mine)
    for worker, other in enumerate(found):
        for name, value in other.items():
            if value != found[0].get(name):
                raise_on(
                    group.rank,
                    worker,
                    ValueError(
                        f"{what} must be the same on all workers: {name} is {value!r:.300} on "
                        f"worker {worker} and {found[0].get(name)!r:.300} on worker 0"
                    ),
                )
