# SPDX-License-Identifier: Apache-2.0
"""Decision: callback that ends a training if a function of an evaluation's metrics says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mindspore.train import Callback, RunContext

from mindspore_rec.train.callbacks.progress import request_stop

__all__ = ["Decision"]


class Decision(Callback):
    """Callback that passes the metrics of each evaluation to a function.

    Args:
        ends: function of the metrics. If it returns True, the training ends after the step.
        reason: reason in the summary of the training.

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
        """Decide after an evaluation in an epoch."""
        self._decide(run_context)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Decide after an evaluation at the end of an epoch."""
        self._decide(run_context)

    def _decide(self, run_context: RunContext) -> None:
        history = run_context.original_args().history
        for _, metrics in history[self._seen :]:
            if self._ends(metrics):
                request_stop(run_context, self._reason)
        self._seen = len(history)
