# SPDX-License-Identifier: Apache-2.0
"""ProgressiveValidation: predict each batch just before its training step, and compute metrics."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from mindspore import Tensor
from mindspore.train import Callback, RunContext

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.metrics import functional
from mindspore_rec.common.metrics.inputs import (
    as_labels,
    as_predictions,
    check_same_length,
    task_column,
)
from mindspore_rec.common.parallel.array_message import pack_arrays, unpack_arrays
from mindspore_rec.common.parallel.channel import Group
from mindspore_rec.train.workers.peers import current_group

__all__ = ["ProgressiveValidation"]


class ProgressiveValidation(Callback):
    """Callback that scores each batch before its training step: AUC, log loss, calibration.

    The model predicts each batch in evaluation mode just before the batch's training step. Every
    row of the stream is therefore first used for a test and then for training, so no separate test
    data are needed. The metrics are exact over the last `window` rows. The metrics and `drift` are
    shown in the progress bar and stored in `run_context.original_args().metrics`. `drift` is the
    log loss of the window minus the log loss of all rows so far. A `drift` above 0 shows that the
    model has become worse.

    The callback costs one additional forward pass per step. With several workers, each worker
    computes the metrics over the rows of all workers, in the order of the workers. All workers
    therefore get the same metrics.

    Args:
        model: the RecModel that is trained, or a function from a batch's columns to predictions. A
            RecModel must have a `loss_fn`. The last column of a batch is the label.
        window: number of most recent rows over which the metrics are computed, at least 1 (default
            100,000).
        every_rows: rows between two reports, at least 1. Default: a tenth of the window.
        from_logits: whether predictions are logits (default True).
        task: index of the column to use if predictions or labels have shape ``[B, T]`` (default 0).

    Attributes:
        history: `(step, rows so far, metrics)` of each report.
        rows: number of rows scored.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range. During training,
            the error means that predictions are not finite, or that labels are not 0 or 1.

    Progressive validation: Blum, Kalai, Langford 1999
    (https://doi.org/10.1145/307400.307439).

    Example:
        >>> import mindspore as ms
        >>> from mindspore import nn
        >>> from mindspore_rec import LazyAdam, RecModel
        >>> ms.set_context(mode=ms.GRAPH_MODE)
        >>> net = nn.Dense(2, 1)
        >>> optimizer = LazyAdam(net.trainable_params(), learning_rate=0.1)
        >>> model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer)
        >>> x = np.array([[1, 0], [0, 1]], np.float32)
        >>> y = np.array([[1], [0]], np.float32)
        >>> validation = ProgressiveValidation(model, window=20, every_rows=20)
        >>> summary = model.online_train([(x, y)] * 50, validation, progress=False)
        >>> validation.history[-1][2]["auc"]  # of the last 20 rows
        1.0
    """

    def __init__(
        self,
        model: Any,
        window: int = 100_000,
        every_rows: int | None = None,
        from_logits: bool = True,
        task: int = 0,
    ) -> None:
        super().__init__()
        self.window = check_int("window", window, 1, sys.maxsize)
        every = max(1, self.window // 10) if every_rows is None else every_rows
        self.every_rows = check_int("every_rows", every, 1, sys.maxsize)
        if not isinstance(from_logits, bool):
            raise TypeError(f"from_logits must be a bool, got {from_logits!r}")
        self.from_logits = from_logits
        self.task = check_int("task", task, 0, 1 << 20)
        self._score = _scorer(model)
        self.history: list[tuple[int, int, dict[str, float]]] = []
        self.rows = 0
        self._loss_sum = 0.0
        self._reported = 0
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []
        self._held = 0

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Score the batch of the step."""
        run = run_context.original_args()
        batch = run.train_dataset_element
        prediction = as_predictions(
            task_column(_array(self._score(batch)), "prediction", self.task),
            "prediction",
            from_logits=self.from_logits,
        )
        label = as_labels(task_column(_array(batch[-1]), "label", self.task), "label")
        check_same_length(prediction=prediction, label=label)
        group = current_group()
        if group.size == 1:
            self._take(np.array(prediction), np.array(label))
        else:
            self._take(*_of_all(group, prediction, label, run.batch_samples))
        if self.rows - self._reported >= self.every_rows:
            self._report(run)

    def on_train_end(self, run_context: RunContext) -> None:
        """If rows were scored since the last report, report the metrics."""
        if self.rows > self._reported:
            self._report(run_context.original_args())

    def figures(self) -> dict[str, float]:
        """Return auc, log_loss, calibration (predicted / observed) and drift of the window.

        A metric that is not defined, such as the AUC of a single class, is NaN.

        Raises:
            ValueError: no row has been scored.
        """
        if not self.rows:
            raise ValueError("no row was scored yet")
        prediction = np.concatenate([part[0] for part in self._parts])[-self.window :]
        label = np.concatenate([part[1] for part in self._parts])[-self.window :]
        loss = self._log_loss(label, prediction)
        rate = functional.sigmoid(prediction) if self.from_logits else prediction
        observed = float(label.mean())
        return {
            "auc": functional.auc(label, prediction),
            "log_loss": loss,
            "calibration": float(rate.mean()) / observed if observed else math.nan,
            "drift": loss - self._loss_sum / self.rows,
        }

    def _take(self, prediction: np.ndarray, label: np.ndarray) -> None:
        if not len(label):
            return
        self.rows += len(label)
        self._loss_sum += self._log_loss(label, prediction) * len(label)
        self._parts.append((prediction, label))
        self._held += len(label)
        while self._held - len(self._parts[0][1]) >= self.window:
            self._held -= len(self._parts.pop(0)[1])

    def _log_loss(self, label: np.ndarray, prediction: np.ndarray) -> float:
        return float(functional.log_loss(label, prediction, from_logits=self.from_logits))

    def _report(self, run: Any) -> None:
        self._reported = self.rows
        figures = self.figures()
        self.history.append((int(run.cur_step_num), self.rows, figures))
        run.metrics = {**(run.get("metrics") or {}), **figures}

    # ---- state

    def state_dict(self) -> dict[str, Any]:
        """Return the scored rows as NumPy arrays and numbers. A restart restores them."""
        empty = (np.zeros(0, np.float32), np.zeros(0, bool))
        parts = self._parts or [empty]
        return {
            "rows": self.rows,
            "loss_sum": self._loss_sum,
            "reported": self._reported,
            "prediction": np.concatenate([part[0] for part in parts])[-self.window :],
            "label": np.concatenate([part[1] for part in parts])[-self.window :],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the scored rows; `history` starts empty."""
        prediction, label = np.array(state["prediction"]), np.array(state["label"])
        check_same_length(prediction=prediction, label=label)
        self.rows, self._reported = int(state["rows"]), int(state["reported"])
        self._loss_sum = float(state["loss_sum"])
        self._held = len(label)
        self._parts = [(prediction, label)] if len(label) else []
        self.history = []


def _of_all(
    group: Group, prediction: np.ndarray, label: np.ndarray, rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return all workers' predictions and labels; this worker has `rows` rows, 0 if idle."""
    mine = pack_arrays({"prediction": prediction[:rows], "label": label[:rows]})
    by_worker = [unpack_arrays(each) for each in group.all_gather(mine)]
    return (
        np.concatenate([each["prediction"] for each in by_worker]),
        np.concatenate([each["label"] for each in by_worker]).astype(bool),
    )


def _scorer(model: Any) -> Callable[[tuple[Tensor, ...]], Any]:
    if hasattr(model, "predict"):
        if getattr(model, "_loss_fn", None) is None:
            raise ValueError(
                "model must have a loss_fn; without one, give a function from a batch's columns to "
                "predictions"
            )
        return lambda batch: model.predict(*batch[:-1])
    if not callable(model):
        raise TypeError(f"model must be a RecModel or a function, got {type(model).__name__}")
    return lambda batch: model(*batch)


def _array(values: Any) -> np.ndarray:
    return values.asnumpy() if isinstance(values, Tensor) else np.asarray(values)
