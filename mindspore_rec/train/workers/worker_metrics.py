# SPDX-License-Identifier: Apache-2.0
"""WorkerMetrics: metrics of an evaluation over all workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from mindspore import Tensor

from mindspore_rec.common.parallel.array_message import pack_arrays, unpack_arrays
from mindspore_rec.common.parallel.channel import Group
from mindspore_rec.train.metrics.merged import MergedMetric

__all__ = ["WorkerMetrics", "whole_outputs"]


class WorkerMetrics:
    """Metrics that, at the end of an evaluation, cover the rows of all workers.

    With one worker, all metrics are updated with the outputs of this worker, and nothing is merged.

    With several workers, metrics of `mindspore_rec.metrics` are updated with this worker's rows and
    merged at the end. Metrics of MindSpore, and metrics that depend on the order of rows, are
    updated in every step with the outputs of all workers. The results are the same as in a single
    process that evaluates all workers' batches as one batch. With several workers, a loss is the
    mean of the workers' losses, weighted by the workers' row counts.

    Args:
        group: the workers.
        metrics: maps names to metrics, which the caller has already cleared.
        summed: True if a loss is a sum over rows, False if a loss is a mean.
    """

    def __init__(self, group: Group, metrics: Mapping[str, Any], summed: bool) -> None:
        self._group = group
        self._summed = summed
        self._merged = {
            name: metric
            for name, metric in metrics.items()
            if group.size == 1 or (isinstance(metric, MergedMetric) and not metric.order_matters)
        }
        self._fed = {name: metric for name, metric in metrics.items() if name not in self._merged}

    def update(
        self,
        outputs: Any,
        samples: Sequence[int],
        update: Callable[[Mapping[str, Any], Any], None],
    ) -> None:
        """Update the metrics with the outputs of a step.

        Args:
            outputs: outputs of the evaluation network.
            samples: number of rows of each worker in the step.
            update: function that updates metrics, called as `update(metrics, outputs)`; `metrics`
                is a dict from names to metrics.
        """
        idle = self._group.size > 1 and samples[self._group.rank] == 0
        if not idle and self._merged:
            update(self._merged, outputs)
        if not self._fed:
            return
        tensors = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        arrays = {} if idle else {str(i): _array(each) for i, each in enumerate(tensors)}
        received = [unpack_arrays(each) for each in self._group.all_gather(pack_arrays(arrays))]
        parts = [
            (rows, [arrays[str(i)] for i in range(len(tensors))])
            for rows, arrays in zip(samples, received, strict=True)
            if rows
        ]
        for each in whole_outputs(parts, self._summed):
            update(self._fed, tuple(Tensor(array) for array in each))

    def merge(self) -> None:
        """Merge the metrics of all workers into this worker's metrics."""
        if self._group.size == 1:
            return
        states = {name: metric.state_dict() for name, metric in self._merged.items()}
        flat = {
            f"{name}/{key}": value for name, state in states.items() for key, value in state.items()
        }
        if not flat:
            return
        of_all = [unpack_arrays(each) for each in self._group.all_gather(pack_arrays(flat))]
        for name, metric in self._merged.items():
            metric.clear()  # all workers merge in one order, so that they get equal bits
            metric.merge_states(
                [{key: arrays[f"{name}/{key}"] for key in states[name]} for arrays in of_all]
            )


def whole_outputs(
    parts: Sequence[tuple[int, list[np.ndarray]]], summed: bool
) -> list[list[np.ndarray]]:
    """Return all workers' outputs: as one batch if possible, otherwise as one batch per worker.

    Args:
        parts: for each worker that has rows, a pair (number of rows, outputs).
        summed: True if a single-number output is a sum over rows, False if the output is a mean.

    Example:
        >>> parts = [(1, [np.array(2.0), np.array([7])]), (3, [np.array(6.0), np.array([8, 9, 9])])]
        >>> [each.tolist() for each in whole_outputs(parts, summed=False)[0]]
        [5.0, [7, 8, 9, 9]]
    """
    made = []
    for each in zip(*(outputs for _, outputs in parts), strict=True):
        rows = [rows for rows, _ in parts]
        if all(array.ndim and len(array) == count for array, count in zip(each, rows, strict=True)):
            made.append(np.concatenate(each))
        elif all(array.ndim == 0 for array in each):
            total = sum(float(a) * (1 if summed else n) for a, n in zip(each, rows, strict=True))
            made.append(np.array(total / (1 if summed else sum(rows)), each[0].dtype))
        else:
            return [outputs for _, outputs in parts]
    return [made]


def _array(output: Any) -> np.ndarray:
    return output.asnumpy() if isinstance(output, Tensor) else np.asarray(output)
