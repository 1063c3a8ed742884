# SPDX-License-Identifier: Apache-2.0
"""Metrics of a trained model on the test rows, beyond what is evaluated on the way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mindspore_rec import RecModel
from mindspore_rec.metrics import ReliabilityCurve
from mindspore_rec.metrics import functional as metrics
from models.common.data import Data

__all__ = ["Evaluation", "calibration", "evaluate", "predictions"]

CURVE_BINS = 20


@dataclass(frozen=True)
class Evaluation:
    """How good a click model is.

    Args:
        metrics: `auc`, `log_loss`, `normalized_entropy` (log loss by that of always predicting the
            mean), `calibration` (mean prediction by mean label) and, where rows have users, `gauc`,
            the users' AUC weighted by their rows.
        curve: predicted and observed rate, by bins with as many rows each.
    """

    metrics: dict[str, float]
    curve: ReliabilityCurve


def evaluate(model: RecModel, data: Data) -> Evaluation:
    """Evaluate a click model on the test rows.

    Args:
        model: trained.
        data: what it was trained on.
    """
    logit, label = (each[:, 0] for each in predictions(model, data))
    found = {
        "auc": metrics.auc(label, logit),
        "log_loss": metrics.log_loss(label, logit, from_logits=True),
        "normalized_entropy": metrics.normalized_entropy(label, logit, from_logits=True),
        "calibration": metrics.calibration(label, logit, from_logits=True),
    }
    if data.users is not None:
        found["gauc"] = metrics.gauc(label, logit, data.users)
    together = {name: float(value) for name, value in found.items()}
    return Evaluation(together, calibration(logit, label))


def calibration(logit: np.ndarray, label: np.ndarray) -> ReliabilityCurve:
    """Predicted and observed rate, by bins with as many rows each.

    Args:
        logit: float32 `[rows]`.
        label: 0 or 1, `[rows]`.
    """
    rates = metrics.sigmoid(logit.astype(np.float64))
    inner = np.unique(np.quantile(rates, np.arange(1, CURVE_BINS) / CURVE_BINS))
    inner = inner[(inner > 0) & (inner < 1)]
    return metrics.reliability_curve(label, rates, bins=[0.0, *inner.tolist(), 1.0])


def predictions(model: RecModel, data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of the test rows, float32 `[rows, tasks]` each."""
    logits, labels = [], []
    for batch in data.test:
        inputs = (batch["ids"], batch["dense"]) if data.dense else (batch["ids"],)
        logits.append(model.predict(*inputs).asnumpy())
        labels.append(batch["label"])
    return np.concatenate(logits), np.concatenate(labels)
