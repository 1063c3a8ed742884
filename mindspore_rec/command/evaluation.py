# SPDX-License-Identifier: Apache-2.0
"""Compute predictions for rows with labels, and tables of metrics from the predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mindspore_rec.command.figures import by_group, calibration_bins, figures_of, number_figures
from mindspore_rec.common.columns.schema.schema import Schema

__all__ = [
    "Scored",
    "Table",
    "metric_table",
    "score",
    "tables_of_scores",
    "task_figures",
]

Predict = Callable[[pa.RecordBatch], npt.NDArray[np.floating]]
Table = tuple[Sequence[str], Sequence[Sequence[Any]]]


@dataclass(frozen=True)
class Scored:
    """Labels and predictions of rows.

    Attributes:
        label: labels `[N, T]`.
        prediction: predictions `[N, T]`.
        weight: weights of the rows `[N]`, or None.
        group: group of each row as text `[N]`, or None.
    """

    label: npt.NDArray[np.float32]
    prediction: npt.NDArray[np.float32]
    weight: npt.NDArray[np.float32] | None
    group: npt.NDArray[Any] | None

    def constant(self, rates: npt.ArrayLike) -> Scored:
        """Return a copy whose predictions for each task are the task's value in `rates`."""
        prediction = np.broadcast_to(np.asarray(rates, np.float32), self.label.shape)
        return Scored(self.label, prediction, self.weight, self.group)


def score(predict: Predict, schema: Schema, batches: Iterable[pa.RecordBatch]) -> Scored:
    """Return labels and predictions of all rows.

    Args:
        predict: function from rows to predictions `[N]` or `[N, T]`.
        schema: description of the rows.
        batches: record batches of rows with labels.

    Raises:
        ValueError: there is no row.
    """
    labels, predictions, weights, groups = [], [], [], []
    for batch in batches:
        if not batch.num_rows:
            continue
        labels.append(schema.labels_of(batch))
        predictions.append(np.asarray(predict(batch)).reshape(batch.num_rows, -1))
        weight = schema.weights_of(batch)
        if weight is not None:
            weights.append(weight)
        if schema.group is not None:
            groups.append(_texts(batch.column(schema.group.name)))
    if not labels:
        raise ValueError("there is no row to evaluate")
    return Scored(
        np.concatenate(labels),
        np.concatenate(predictions),
        np.concatenate(weights) if weights else None,
        np.concatenate(groups) if groups else None,
    )


def _texts(column: pa.Array) -> npt.NDArray[Any]:
    texts = column.cast(pa.string()).fill_null("")
    return np.asarray(texts.to_pylist(), dtype=np.str_)


def task_figures(schema: Schema, scored: Scored) -> dict[str, dict[str, float]]:
    """Return the metrics of each task, by the label's name."""
    figures = {}
    for k, label in enumerate(schema.labels):
        of = (scored.label[:, k], scored.prediction[:, k], scored.weight)
        figures[label.name] = (
            figures_of(*of, group=scored.group) if label.binary else number_figures(*of)
        )
    return figures


def metric_table(figures: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    """Return a table with a line for each model and task.

    Args:
        figures: for each model's name, a dict from the labels' names to the metrics.

    Example:
        >>> metric_table({"dcn_v2": {"clicked": {"auc": 0.75}}, "base rate": {"clicked": {}}})
        (['', 'auc'], [['dcn_v2', 0.75], ['base rate', nan]])
    """
    names: list[str] = []
    for of_model in figures.values():
        for metrics in of_model.values():
            names += [name for name in metrics if name not in names]
    rows = []
    for model, of_model in figures.items():
        for task, metrics in of_model.items():
            title = model if len(of_model) == 1 else f"{model}, {task}"
            rows.append([title, *(metrics.get(name, float("nan")) for name in names)])
    return ["", *names], rows


def tables_of_scores(schema: Schema, scored: Scored) -> dict[str, Table]:
    """Return tables of calibration, and of metrics by group, as a dict from headings to tables."""
    tables: dict[str, Table] = {}
    several = len(schema.labels) > 1
    for k, task in enumerate(schema.labels):
        if not task.binary:
            continue
        of = f" of {task.name}" if several else ""
        label, prediction = scored.label[:, k], scored.prediction[:, k]
        bins = [asdict(each) for each in calibration_bins(label, prediction, scored.weight)]
        tables[f"Calibration{of}"] = (
            ["from", "to", "rows", "predicted", "observed"],
            [[each["low"], each["high"], *list(each.values())[2:]] for each in bins],
        )
        if scored.group is not None and schema.group is not None:
            groups = by_group(label, prediction, scored.group, scored.weight)
            tables[f"Metrics{of} by {schema.group.name}"] = (
                [schema.group.name, "rows", *groups[0].metrics],
                [[each.value, each.rows, *each.metrics.values()] for each in groups],
            )
    return tables
