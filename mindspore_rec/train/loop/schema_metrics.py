# SPDX-License-Identifier: Apache-2.0
"""Metrics by name for the labels of a schema."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from mindspore.train import Metric

from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.metrics.accuracy import Accuracy
from mindspore_rec.train.metrics.auc import AUC
from mindspore_rec.train.metrics.calibration import Calibration
from mindspore_rec.train.metrics.gauc import GAUC
from mindspore_rec.train.metrics.log_loss import LogLoss, NormalizedEntropy
from mindspore_rec.train.metrics.number_errors import MAE, MSE, RMSE

__all__ = ["metrics_of"]

_BINARY: dict[str, Any] = {
    "auc": AUC,
    "log_loss": LogLoss,
    "normalized_entropy": NormalizedEntropy,
    "calibration": Calibration,
    "accuracy": Accuracy,
    "gauc": GAUC,
}
_NUMBER: dict[str, Any] = {"rmse": RMSE, "mse": MSE, "mae": MAE}
_DEFAULT = ("auc", "log_loss", "rmse")


def metrics_of(names: Sequence[str] | None, schema: Schema) -> dict[str, Metric]:
    """Return the metrics of all labels.

    Args:
        names: names of metrics. For labels with two values, the names are 'auc', 'log_loss',
            'normalized_entropy', 'calibration', 'accuracy' and, if the schema has a group, 'gauc'.
            For labels that are numbers, the names are 'rmse', 'mse' and 'mae'. None selects 'auc',
            'log_loss' and 'rmse'.
        schema: the schema.

    Returns:
        Metrics by name. If there are several labels, each name ends in '.' and the name of a label,
        as in 'auc.clicked'.

    Raises:
        ValueError: a name is unknown, none of the labels fits the metric, or the metric needs a
            group that the schema lacks.
    """
    known = {**_BINARY, **_NUMBER}
    made: dict[str, Metric] = {}
    for name in _DEFAULT if names is None else [str(each).lower() for each in names]:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f": {near[0]!r} is similar" if near else f": known are {', '.join(known)}"
            raise ValueError(f"metric {name!r} is not known{hint}")
        if name == "gauc" and schema.group is None:
            raise ValueError(
                "metric 'gauc' needs a group: a GroupColumn, or a CategoryColumn with group=True"
            )
        of_labels = {
            _ending(name, label.name, schema): _made(name, task)
            for task, label in enumerate(schema.labels)
            if label.binary is (name in _BINARY)
        }
        if not of_labels and names is not None:
            kind = "with two values" if name in _BINARY else "that are numbers"
            other = ", ".join(_NUMBER if name in _BINARY else _BINARY)
            raise ValueError(
                f"metric {name!r} is for labels {kind}, and there are none: for these labels, name "
                f"{other}, or leave metrics out"
            )
        made |= of_labels
    return made


def _ending(name: str, label: str, schema: Schema) -> str:
    return name if len(schema.labels) == 1 else f"{name}.{label}"


def _made(name: str, task: int) -> Metric:
    if name in _NUMBER:
        metric: Metric = _NUMBER[name](task=task)
    else:
        metric = _BINARY[name](from_logits=True, task=task)
    return metric
