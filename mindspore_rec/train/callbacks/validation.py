# SPDX-License-Identifier: Apache-2.0
"""Validation for `RecModel.fit`: a metric of the mean loss, and a callback that evaluates after
epochs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from mindspore import Tensor, dtype as mstype
from mindspore.train import Callback, Loss, RunContext

from mindspore_rec.common.checks import check_int
from mindspore_rec.train.callbacks.progress import EvalCallback
from mindspore_rec.train.graph.loss_value import loss_value

__all__ = ["EvalLoss", "Validation", "check_frequency", "count_evaluations"]


class EvalLoss(Loss):
    """Mean of the losses of all batches; a batch has one loss, or one loss per row.

    Example:
        >>> loss = EvalLoss()
        >>> loss.update(Tensor([1.0, 3.0]))
        >>> loss.update(Tensor(4.0))
        >>> float(loss.eval())
        3.0
    """

    def update(self, *inputs: Any) -> None:
        """Add the loss of a batch."""
        super().update(Tensor(loss_value(inputs), mstype.float32))


class Validation(EvalCallback):
    """Callback that evaluates at the ends of epochs, as `mindspore.train.Model.fit` does.

    Callbacks that are called later can read the metrics as `eval_results` and `metrics` of the run.
    After an epoch without evaluation, the run has neither `eval_results` nor `metrics`. If Ctrl-C
    was pressed or the loss is not finite, no evaluation is made.

    Args:
        model: the RecModel that is trained.
        valid_dataset: evaluation data.
        frequency: number of epochs between evaluations, or a list of the epochs after which to
            evaluate.
        callbacks: callbacks that are called during evaluations.
        finite: whether NaN or infinity in the data is an error. Default: True.
    """

    def __init__(
        self,
        model: Any,
        valid_dataset: Any,
        frequency: int | list[int],
        callbacks: Sequence[Callback],
        finite: bool = True,
    ) -> None:
        super().__init__(model, valid_dataset)
        self._frequency = frequency
        self._callbacks = callbacks
        self._finite = finite
        self._hidden: dict[str, float] = {}  # metrics of other callbacks, at the end of an epoch

    def metric_names(self) -> list[str]:
        """Return the names of the metrics, including "eval_loss" if the mean loss is measured."""
        return [*super().metric_names(), *["eval_loss"] * self._model._has_eval_loss]

    def on_train_epoch_begin(self, run_context: RunContext) -> None:
        """Show the last evaluation's metrics in the progress bar during the next epoch."""
        self._show_last(run_context.original_args())

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Evaluate if an evaluation is due after this epoch."""
        run = run_context.original_args()
        self._hidden = run.pop("metrics", None) or {}
        run.pop("eval_results", None)
        # A restart may begin at the end of an epoch, if all steps of the epoch are finished.
        trained = not run.interrupted and run.data_passes.taken and self._is_finite(run)
        if trained and _is_due(self._frequency, run.cur_epoch_num):
            self._evaluate(run_context)

    def on_train_end(self, run_context: RunContext) -> None:
        """Store the last evaluation's metrics, which the training summary shows."""
        self._show_last(run_context.original_args())

    def _show_last(self, run: Any) -> None:
        if self.history:
            run.metrics = {**self._hidden, **(run.get("metrics") or {}), **self.history[-1][1]}

    def _measure(self, run: Any) -> dict[str, float]:
        measured: dict[str, float] = self._model._validate(
            self._dataset, self._callbacks, run.cur_epoch_num, self._finite
        )
        run.eval_results = dict(measured)
        return measured


def check_frequency(valid_frequency: Any) -> int | list[int]:
    """Check `valid_frequency`, and return a number of epochs or a list of epochs.

    Raises:
        TypeError, ValueError: `valid_frequency` is neither an int nor a list of ints, or is below
            1.

    Example:
        >>> check_frequency((1, 5))
        [1, 5]
    """
    if isinstance(valid_frequency, (list, tuple)):
        return [
            check_int(f"valid_frequency[{at}]", each, 1, sys.maxsize)
            for at, each in enumerate(valid_frequency)
        ]
    return check_int("valid_frequency", valid_frequency, 1, sys.maxsize)


def count_evaluations(frequency: int | list[int], initial_epoch: int, epoch: int) -> int:
    """Return how many evaluations `fit` makes in the epochs after `initial_epoch`, up to `epoch`.

    Example:
        >>> count_evaluations(2, 0, 5), count_evaluations([1, 5, 9], 1, 5)
        (2, 1)
    """
    if isinstance(frequency, int):
        return epoch // frequency - initial_epoch // frequency
    return len({each for each in frequency if initial_epoch < each <= epoch})


def _is_due(frequency: int | list[int], epoch: int) -> bool:
    return epoch % frequency == 0 if isinstance(frequency, int) else epoch in frequency
