# SPDX-License-Identifier: Apache-2.0
"""Training: the model with its loop, the step, callbacks, where things run."""

from mindspore_rec.train.callbacks import (
    EarlyStopping,
    EvalCallback,
    ProgressBar,
    StopOnNaN,
    TimeMonitor,
)
from mindspore_rec.train.placement import (
    Placement,
    PlacementMonitor,
    PlacementReport,
    placement_report,
)
from mindspore_rec.train.rec_model import RecModel
from mindspore_rec.train.step import TrainStep
from mindspore_rec.train.summary import TableSummary, TrainSummary

__all__ = [
    "EarlyStopping",
    "EvalCallback",
    "Placement",
    "PlacementMonitor",
    "PlacementReport",
    "ProgressBar",
    "RecModel",
    "StopOnNaN",
    "TableSummary",
    "TimeMonitor",
    "TrainStep",
    "TrainSummary",
    "placement_report",
]
