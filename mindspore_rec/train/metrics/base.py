# SPDX-License-Identifier: Apache-2.0
"""Base class of the metrics of binary tasks: reads and checks the batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from mindspore.train import rearrange_inputs

from mindspore_rec.common.metrics.inputs import (
    FloatArray,
    as_labels,
    as_predictions,
    as_weights,
    check_same_length,
    single_column,
    task_column,
)
from mindspore_rec.train.metrics.merged import MergedMetric, check_integer

__all__ = ["BinaryMetric"]


class BinaryMetric(MergedMetric):
    """Base class of the metrics for one binary task; a ``mindspore.train.Metric``.

    ``mindspore.Model(net, loss_fn, metrics={"auc": AUC(from_logits=True)}).eval(dataset)`` passes
    ``(prediction, label)`` to :meth:`update`. With an ``eval_network`` but no ``eval_indexes``, the
    Model passes all outputs of the ``eval_network``; select two outputs with
    ``set_indexes([i_prediction, i_label])``.

    A rejected batch leaves the metric unchanged. The metric keeps no references to a batch's
    arrays.

    :meth:`merge` combines metrics of different rows, for example the metrics of all workers.
    `RecModel.eval` merges the workers' metrics automatically.

    A metric with ``weighted=True`` reads the weights of the rows as its last input. A row of weight
    w counts as w equal rows. If the network was made from a schema, `RecModel.eval` passes the
    weights to the metric.

    Args:
        from_logits: whether the predictions are logits. If False, predictions must be in ``[0,
            1]``. Default: False.
        task: index of the column to use if predictions or labels are ``[B, T]``. Default: 0.
        weighted: whether the rows have weights; True only for metrics that support weights.
            Default: False.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: ``task`` is below 0, or ``weighted`` is True although the metric does not
            support weights.
    """

    inputs: ClassVar[tuple[str, ...]] = ("prediction", "label")
    """Names of the arguments of :meth:`update`, in order."""

    undefined_if: ClassVar[str] = "all labels are of one class"
    """Description of the rows for which :meth:`eval` returns NaN."""

    takes_weights: ClassVar[bool] = False
    """Whether the rows can have weights."""

    def __init__(self, *, from_logits: bool = False, task: int = 0, weighted: bool = False) -> None:
        super().__init__()
        if not isinstance(from_logits, bool):
            raise TypeError(f"from_logits must be a bool, got {from_logits!r}")
        self.from_logits = from_logits
        self.task = check_integer(task, "task", minimum=0)
        self.weigh(weighted)

    @property
    def weighted(self) -> bool:
        """True if the rows have weights."""
        return self._weighted

    @property
    def weightless(self) -> bool:
        """True if the rows have weights, and all weights are 0."""
        return self._weighted and not self._weight

    def weigh(self, weighted: bool) -> None:
        """Set whether the rows have weights, and drop all rows.

        Raises:
            TypeError: `weighted` is not a bool.
            ValueError: `weighted` is True although the metric does not support weights.
        """
        if not isinstance(weighted, bool):
            raise TypeError(f"weighted must be a bool, got {weighted!r}")
        if weighted and not self.takes_weights:
            raise ValueError(f"weighted must be False: {type(self).__name__} takes no weights")
        self._weighted = weighted
        if weighted:
            self.inputs = (*type(self).inputs, "weight")  # type: ignore[misc]
        else:
            self.__dict__.pop("inputs", None)
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        super().clear()
        self._weight = 0.0

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Add one batch ``(prediction, label)``; a batch without rows is valid.

        Args:
            *inputs: MindSpore Tensors, NumPy arrays or lists, each ``[B]``, ``[B, 1]`` or ``[B,
                T]``. Predictions must be finite numbers. Labels must be 0 or 1, of any dtype. If
                the metric is weighted, the last input is the weights, ``[B]`` or ``[B, 1]``.

        Raises:
            TypeError: an input is not an array of numbers.
            ValueError: the number of inputs, a shape or a length is wrong, or labels are not 0 or
                1. A ValueError is also raised if predictions are NaN or infinite, or if
                ``from_logits`` is False and predictions are outside ``[0, 1]``.
        """
        if len(inputs) != len(self.inputs):
            raise ValueError(
                f"{type(self).__name__}.update takes ({', '.join(self.inputs)}), got "
                f"{len(inputs)} inputs; set_indexes chooses among more"
            )
        arrays = [self._convert_data(data) for data in inputs]
        prediction, label = (
            task_column(array, name, self.task)
            for array, name in zip(arrays[:2], self.inputs[:2], strict=True)
        )
        if self.task and all(array.ndim == 1 or array.shape[1] == 1 for array in arrays[:2]):
            # Either the predictions or the labels may have a single column for all tasks, but not
            # both.
            raise ValueError(f"task must be 0 where there is one column only, got {self.task}")
        scores, labels = self._checked(prediction, label)
        check_same_length(prediction=scores, label=labels)
        others = arrays[2:]
        if self._weighted:
            others = [self._weights_of(others[0], labels)]
        self._add(labels, scores, *others)
        self._count(len(labels), others)

    def _checked(
        self, prediction: npt.NDArray[Any], label: npt.NDArray[Any]
    ) -> tuple[FloatArray, npt.NDArray[Any]]:
        """Check the predictions and labels of a batch, and return them as arrays `[B]`."""
        scores = as_predictions(prediction, self.inputs[0], from_logits=self.from_logits)
        return scores, as_labels(label, self.inputs[1])

    def _weights_of(self, weight: Any, label: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return checked weights `[B]` of a batch."""
        weights = as_weights(single_column(weight, "weight"), "weight")
        check_same_length(label=label, weight=weights)
        return weights

    def _count(self, rows: int, others: Any) -> None:
        """Count a batch's rows, and add up their weights."""
        self._rows += rows
        if self._weighted:
            self._weight += float(others[0].sum())

    @property
    def _total(self) -> float:
        """Sum of the rows' weights; if the metric is not weighted, the number of rows."""
        return self._weight if self._weighted else self._rows

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return the metric's state as arrays by name, for `merge_states` of another process."""
        state = super().state_dict()
        return {**state, "weight": np.array(self._weight)} if self._weighted else state

    def _take(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        super()._take(state)
        self._weight += float(state["weight"]) if self._weighted else 0.0

    def _settings(self) -> npt.NDArray[np.float64]:
        """Return the settings that must be equal in two metrics before they can be merged."""
        return np.array([self.from_logits, self.task], np.float64)

    @abstractmethod
    def _add(self, label: npt.NDArray[Any], prediction: FloatArray, *others: Any) -> None:
        """Add checked rows ``[B]``; ``others`` are the inputs after prediction and label.

        If the metric is weighted, ``others`` contains the checked weights.
        """
