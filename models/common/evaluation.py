# SPDX-License-Identifier: Apache-2.0
"""Metrics of a trained model on the test rows, by task and by group of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from mindspore_rec import RecModel
from mindspore_rec.metrics import AUC, LogLoss, ReliabilityCurve, functional
from mindspore_rec.parallel import WorkerGroup, worker_group
from models.common.data import Data

__all__ = ["Evaluation", "calibration", "evaluate", "predictions", "training_metrics"]

CURVE_BINS = 20


@dataclass(frozen=True)
class Evaluation:
    """Result of an evaluation of a model on the test rows.

    Args:
        metrics: `auc`, `log_loss`, `normalized_entropy`, `calibration` and, if rows have users,
            `gauc`. The normalized entropy is the log loss divided by the log loss of a model that
            always predicts the mean label. The calibration is the mean prediction divided by the
            mean label. GAUC is the mean of the users' AUCs, weighted by each user's number of rows.
            With several tasks, the name of each metric ends in `.<task>`. The name of a metric for
            a group of rows ends in `.<group>`, as in `auc.income.adult`.
        curves: for each task, the predicted and observed rates on all test rows, in bins of equal
            size. A single task has the name ''.
    """

    metrics: dict[str, float]
    curves: dict[str, ReliabilityCurve]


def training_metrics(data: Data) -> dict[str, Any]:
    """Return the metrics to evaluate during training: AUC and log loss of each task."""
    aucs = {f"auc{end}": AUC(from_logits=True, task=k) for k, end in enumerate(data.endings)}
    losses = {
        f"log_loss{end}": LogLoss(from_logits=True, task=k) for k, end in enumerate(data.endings)
    }
    return {**aucs, **losses}


def evaluate(model: RecModel, data: Data) -> Evaluation:
    """Evaluate a model on the test rows.

    Args:
        model: the trained model.
        data: the data that the model was trained on.
    """
    logit, label = predictions(model, data)
    metrics = {}
    for group, rows in _groups(data, len(label)):
        users = None if data.users is None else data.users[rows]
        each = [_metrics(logit[rows, k], label[rows, k], users) for k in range(len(data.tasks))]
        for name in each[0]:
            for end, of_task in zip(data.endings, each, strict=True):
                metrics[f"{name}{end}{group}"] = of_task[name]
    curves = {
        end.removeprefix("."): calibration(logit[:, k], label[:, k])
        for k, end in enumerate(data.endings)
    }
    return Evaluation(metrics, curves)


def calibration(logit: np.ndarray, label: np.ndarray) -> ReliabilityCurve:
    """Return predicted and observed rates, in bins of equal size.

    Args:
        logit: float32 `[rows]`.
        label: 0 or 1, `[rows]`.
    """
    rates = functional.sigmoid(logit.astype(np.float64))
    inner = np.unique(np.quantile(rates, np.arange(1, CURVE_BINS) / CURVE_BINS))
    inner = inner[(inner > 0) & (inner < 1)]
    return functional.reliability_curve(label, rates, bins=[0.0, *inner.tolist(), 1.0])


def predictions(model: RecModel, data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits and the labels of the test rows, two float32 arrays `[rows, tasks]`.

    With several workers, each worker predicts only its share of the batches, and then receives the
    logits of all batches. Batches are not split, so the logits are bit-identical to a single
    worker's logits.
    """
    group = worker_group()
    logits: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    batches = iter(data.test)
    while several := list(islice(batches, group.size)):
        # A worker without a batch must take part in the lookups, so the worker uses another
        # worker's batch.
        mine = several[group.rank if group.rank < len(several) else 0]
        inputs = (mine["ids"], mine["dense"]) if data.dense else (mine["ids"],)
        logit = model.predict(*inputs).asnumpy()
        of_workers = [logit] if group.size == 1 else _of_all(group, logit)
        logits.extend(of_workers[: len(several)])
        labels.extend(batch["label"] for batch in several)
    return np.concatenate(logits), np.concatenate(labels)


def _of_all(group: WorkerGroup, logit: np.ndarray) -> list[np.ndarray]:
    """Return the logits of each worker's batch."""
    every = group.all_gather(logit.tobytes())
    return [np.frombuffer(each, logit.dtype).reshape(-1, logit.shape[1]) for each in every]


def _groups(data: Data, rows: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield pairs (suffix of metric names, row mask): first for all rows, then for each group."""
    yield "", np.ones(rows, bool)
    for name, chosen in data.groups.items():
        if chosen.any():
            yield f".{name}", chosen


def _metrics(logit: np.ndarray, label: np.ndarray, users: np.ndarray | None) -> dict[str, float]:
    metrics = {
        "auc": functional.auc(label, logit),
        "log_loss": functional.log_loss(label, logit, from_logits=True),
        "normalized_entropy": functional.normalized_entropy(label, logit, from_logits=True),
        "calibration": functional.calibration(label, logit, from_logits=True),
    }
    if users is not None:
        metrics["gauc"] = functional.gauc(label, logit, users)
    return {name: float(value) for name, value in metrics.items()}
