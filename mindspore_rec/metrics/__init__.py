# SPDX-License-Identifier: Apache-2.0
"""Metrics of click prediction over batches, as MindSpore's `Metric` classes.

The same as NumPy functions over whole arrays are in `functional`.
"""

from mindspore_rec.common.metrics import functional
from mindspore_rec.common.metrics.functional import ReliabilityCurve
from mindspore_rec.train.metrics.auc import AUC
from mindspore_rec.train.metrics.calibration import Calibration
from mindspore_rec.train.metrics.gauc import GAUC
from mindspore_rec.train.metrics.log_loss import LogLoss, NormalizedEntropy
from mindspore_rec.train.metrics.streaming_auc import StreamingAUC

__all__ = [
    "AUC",
    "GAUC",
    "Calibration",
    "LogLoss",
    "NormalizedEntropy",
    "ReliabilityCurve",
    "StreamingAUC",
    "functional",
]
