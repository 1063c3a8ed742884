# SPDX-License-Identifier: Apache-2.0
"""The validation of `RecModel.fit`: a callback, first in the list, and the loss that it adds."""

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
    """Mean over batches of the loss of each, which may have a loss for each row.

    Example:
        >>> loss = EvalLoss()
        >>> loss.update(Tensor([1.0, 3.0]))
        >>> loss.update(Tensor(4.0))
        >>> float(loss.eval())
        3.0
    """

    def update(self, *inputs: Any) -> None:
        """Take in the loss of a batch."""
        super().update(Tensor(loss_value(inputs), mstype.float32))


class Validation(EvalCallback):
    """Callback that evaluates at the ends of epochs, as `mindspore.train.Model.fit` does.

    Later callbacks find what it has measured as `eval_results` and `metrics`; at the end of an
    epoch without evaluation there are none. Nothing is evaluated after Ctrl-C, or if the loss is
    not finite.

    Args:
        model: the RecModel that is trained.
        valid_dataset: data that are evaluated.
        frequency: number of epochs between evaluations, or the epochs after which there is one.
        callbacks: callbacks that are called in evaluations.
        finite: whether NaN and infinity in the data are an error. Default: True.
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
        self._hidden: dict[str, float] = {}  # figures of other callbacks, at the end of an epoch

    def metric_names(self) -> list[str]:
        """Return the names of the metrics that are measured, and the loss's name."""
        return [*super().metric_names(), *["eval_loss"] * self._model._has_eval_loss]

    def on_train_epoch_begin(self, run_context: RunContext) -> None:
        """Show the last evaluation again to the progress bar."""
        self._show_last(run_context.original_args())

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Evaluate if it is time to."""
        run = run_context.original_args()
        self._hidden = run.pop("metrics", None) or {}
        run.pop("eval_results", None)
        # A restart may be at the end of an epoch whose steps were all trained before.
        trained = not run.interrupted and run.data_passes.taken and self._is_finite(run)
        if trained and _is_due(self._frequency, run.cur_epoch_num):
            self._evaluate(run_context)

    def on_train_end(self, run_context: RunContext) -> None:
        """Leave the last evaluation for the summary."""
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
    """Return how often `fit` evaluates: a number of epochs, or a list of them.

    Raises:
        TypeError, ValueError: it is neither, or below 1.

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
    """Return the number of evaluations of `fit` in the epochs after the first `initial_epoch`.

    Example:
        >>> count_evaluations(2, 0, 5), count_evaluations([1, 5, 9], 1, 5)
        (2, 1)
    """
    if isinstance(frequency, int):
        return epoch // frequency - initial_epoch // frequency
    return len({each for each in frequency if initial_epoch < each <= epoch})


def _is_due(frequency: int | list[int], epoch: int) -> bool:
    return epoch % frequency == 0 if isinstance(frequency, int) else epoch in frequency
