# SPDX-License-Identifier: Apache-2.0
"""Callbacks that end training after a given step, or if the metrics meet a condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mindspore.train import Callback, RunContext

from mindspore_rec.train.callbacks.progress import request_stop
from mindspore_rec.train.callbacks.resumed import steps_before

__all__ = ["Decision", "StopAt"]


class Decision(Callback):
    """Callback that passes the metrics of each evaluation to a function.

    Args:
        ends: function that takes a dict of an evaluation's metrics. If the function returns True,
            the training ends after the step.
        reason: text that the training's summary shows as the reason for the end.

    Example:
        >>> decision = Decision(lambda metrics: metrics["auc"] < 0.5, "worse than chance")
    """

    runs_last = 0.7  # after the callbacks that evaluate, before a RecCheckpoint

    def __init__(self, ends: Callable[[Mapping[str, float]], bool], reason: str) -> None:
        super().__init__()
        self._ends, self._reason = ends, reason
        self._seen = 0

    def on_train_begin(self, run_context: RunContext) -> None:
        """Forget an earlier training."""
        self._seen = 0

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Pass the metrics to the function if there was an evaluation within the epoch."""
        self._decide(run_context)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Pass the metrics to the function if there was an evaluation at the end of the epoch."""
        self._decide(run_context)

    def _decide(self, run_context: RunContext) -> None:
        history = run_context.original_args().history
        for _, metrics in history[self._seen :]:
            if self._ends(metrics):
                request_stop(run_context, self._reason)
        self._seen = len(history)


class StopAt(Callback):
    """Callback that ends the training after a given step; steps before restarts count too.

    Args:
        step: the last step.
        reason: text that the training's summary shows as the reason for the end.

    Example:
        >>> callback = StopAt(1000, "as many steps as before")
    """

    runs_last = 1.5  # after a RecCheckpoint, which counts the steps before a restart

    def __init__(self, step: int, reason: str) -> None:
        super().__init__()
        self._step, self._reason = step, reason

    def on_train_begin(self, run_context: RunContext) -> None:
        """Stop before the first step if a restarted training has already done the last step."""
        self._look(run_context)

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Stop after the step."""
        self._look(run_context)

    def _look(self, run_context: RunContext) -> None:
        run = run_context.original_args()
        if steps_before(run) + run.cur_step_num >= self._step:
            request_stop(run_context, self._reason)
