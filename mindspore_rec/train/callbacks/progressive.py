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
    as_weights,
    check_same_length,
    task_column,
)
from mindspore_rec.common.parallel.array_message import pack_arrays, unpack_arrays
from mindspore_rec.common.parallel.channel import Group
from mindspore_rec.common.parallel.group import worker_group

__all__ = ["ProgressiveValidation"]


class ProgressiveValidation(Callback):
    """Callback that predicts each batch before its training step, and evaluates the predictions.

    The model predicts each batch in evaluation mode just before the batch's training step. Every
    row of the stream is first predicted and then trained on, so no separate test data are needed.
    The metrics are AUC, log loss and calibration. The metrics are exact over the last `window`
    rows. The metrics and `drift` are shown in the progress bar and stored in
    `run_context.original_args().metrics`. `drift` is the log loss of the last `window` rows minus
    the log loss of all rows so far. A `drift` above 0 shows that the model has become worse.

    The callback costs one additional forward pass per step. With several workers, each worker
    computes the metrics over the rows of all workers, in the order of the workers. All workers get
    the same metrics.

    If the model was made from a schema and the rows have weights, all metrics use the weights.

    Args:
        model: the RecModel that is trained, or a function from a batch's columns to predictions. If
            `model` is a RecModel, it must have a `loss_fn`. The last column of a batch is the
            label.
        window: number of most recent rows over which the metrics are computed, at least 1 (default
            100,000).
        every_rows: rows between two reports, at least 1. Default: a tenth of the window.
        from_logits: whether predictions are logits (default True).
        task: index of the column to use if predictions or labels have shape ``[B, T]`` (default 0).

    Attributes:
        history: `(step, rows so far, metrics)` of each report.
        rows: number of rows scored.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range. During training, a
            ValueError means that a prediction is not finite, or a label is not 0 or 1.

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
        schema = getattr(model, "schema", None)
        self._inputs = None if schema is None else len(schema.inputs)
        self.history: list[tuple[int, int, dict[str, float]]] = []
        self.rows = 0
        self._loss_sum = 0.0
        self._weight_sum = 0.0
        self._reported = 0
        self._parts: list[dict[str, np.ndarray]] = []
        self._held = 0

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Predict the rows of the batch on which this step will train."""
        run = run_context.original_args()
        batch = run.train_dataset_element
        prediction = as_predictions(
            task_column(_array(self._score(batch)), "prediction", self.task),
            "prediction",
            from_logits=self.from_logits,
        )
        label = as_labels(task_column(_array(batch[-1]), "label", self.task), "label")
        part = {"prediction": np.array(prediction), "label": np.array(label)}
        if self._inputs is not None and len(batch) > self._inputs + 1:
            weight = task_column(_array(batch[self._inputs]), "weight")
            part["weight"] = as_weights(weight, "weight").astype(np.float32)
        check_same_length(**part)
        group = worker_group()
        self._take(part if group.size == 1 else _of_all(group, part, run.batch_samples))
        if self.rows - self._reported >= self.every_rows:
            self._report(run)

    def on_train_end(self, run_context: RunContext) -> None:
        """If rows were scored since the last report, report the metrics."""
        if self.rows > self._reported:
            self._report(run_context.original_args())

    def figures(self) -> dict[str, float]:
        """Return auc, log_loss, calibration (predicted / observed) and drift, over the window.

        If a metric is not defined, such as the AUC of a single class, its value is NaN.

        Raises:
            ValueError: no row has been scored.
        """
        if not self.rows:
            raise ValueError("no row was scored yet")
        window = self._window()
        label, prediction, weight = window["label"], window["prediction"], window.get("weight")
        loss = self._log_loss(window)
        if weight is None:
            rate = functional.sigmoid(prediction) if self.from_logits else prediction
            observed = float(label.mean())
            calibration = float(rate.mean()) / observed if observed else math.nan
        else:
            logits = self.from_logits
            calibration = functional.calibration(label, prediction, weight, from_logits=logits)
        return {
            "auc": functional.auc(label, prediction, weight),
            "log_loss": loss,
            "calibration": calibration,
            "drift": loss - self._loss_sum / self._weight_sum if self._weight_sum else math.nan,
        }

    def _window(self) -> dict[str, np.ndarray]:
        """Return the arrays of the last `window` rows."""
        return {
            name: np.concatenate([part[name] for part in self._parts])[-self.window :]
            for name in self._parts[0]
        }

    def _take(self, part: dict[str, np.ndarray]) -> None:
        rows = len(part["label"])
        if not rows:
            return
        weight = float(part["weight"].sum(dtype=np.float64)) if "weight" in part else rows
        self.rows += rows
        if weight:
            self._loss_sum += self._log_loss(part) * weight
            self._weight_sum += weight
        self._parts.append(part)
        self._held += rows
        while self._held - len(self._parts[0]["label"]) >= self.window:
            self._held -= len(self._parts.pop(0)["label"])

    def _log_loss(self, part: Mapping[str, np.ndarray]) -> float:
        of = (part["label"], part["prediction"], part.get("weight"))
        return float(functional.log_loss(*of, from_logits=self.from_logits))

    def _report(self, run: Any) -> None:
        self._reported = self.rows
        figures = self.figures()
        self.history.append((int(run.cur_step_num), self.rows, figures))
        run.metrics = {**(run.get("metrics") or {}), **figures}

    # ---- state

    def state_dict(self) -> dict[str, Any]:
        """Return a dict of the window's rows (NumPy arrays) and sums over all rows (numbers)."""
        empty = {"prediction": np.zeros(0, np.float32), "label": np.zeros(0, bool)}
        state = {
            "rows": self.rows,
            "loss_sum": self._loss_sum,
            "reported": self._reported,
            **(self._window() if self._parts else empty),
        }
        return {**state, "weight_sum": self._weight_sum} if "weight" in state else state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the rows of the window and the sums over all rows; `history` starts empty."""
        names = ("prediction", "label", "weight")
        part = {name: np.array(state[name]) for name in names if name in state}
        check_same_length(**part)
        self.rows, self._reported = int(state["rows"]), int(state["reported"])
        self._loss_sum = float(state["loss_sum"])
        self._weight_sum = float(state.get("weight_sum", self.rows))
        self._held = len(part["label"])
        self._parts = [part] if self._held else []
        self.history = []


def _of_all(group: Group, part: Mapping[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
    """Concatenate the arrays of all workers; this worker contributes its first `rows` rows."""
    mine = pack_arrays({name: array[:rows] for name, array in part.items()})
    by_worker = [unpack_arrays(each) for each in group.all_gather(mine)]
    made = {name: np.concatenate([each[name] for each in by_worker]) for name in part}
    return {**made, "label": made["label"].astype(bool)}


def _scorer(model: Any) -> Callable[[tuple[Tensor, ...]], Any]:
    if hasattr(model, "predict"):
        if getattr(model, "_loss_fn", None) is None:
            raise ValueError(
                "model must have a loss_fn; without one, give a function from a batch's columns to "
                "predictions"
            )
        schema = getattr(model, "schema", None)
        inputs = -1 if schema is None else len(schema.inputs)  # a weight is not an input
        return lambda batch: model.predict(*batch[:inputs])
    if not callable(model):
        raise TypeError(f"model must be a RecModel or a function, got {type(model).__name__}")
    return lambda batch: model(*batch)


def _array(values: Any) -> np.ndarray:
    return values.asnumpy() if isinstance(values, Tensor) else np.asarray(values)
