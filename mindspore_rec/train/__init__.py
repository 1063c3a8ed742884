# SPDX-License-Identifier: Apache-2.0
"""Training: the model with its loop, the train step, callbacks and placement reports.

`RecModel` trains, evaluates and predicts. Its callbacks are MindSpore's `Callback` objects: those
of this package (stopping, validation, eviction, statistics) and your own.
"""

from mindspore_rec.train.callbacks.admission import CountFirstEpoch
from mindspore_rec.train.callbacks.event_time import EventTime
from mindspore_rec.train.callbacks.evict import EvictCallback, EvictedKeysCallback
from mindspore_rec.train.callbacks.plateau import EarlyStopping, ReduceLROnPlateau
from mindspore_rec.train.callbacks.progress import (
    EvalCallback,
    ProgressBar,
    StopOnNaN,
    TimeMonitor,
)
from mindspore_rec.train.callbacks.progressive import ProgressiveValidation
from mindspore_rec.train.callbacks.table_stats import TableStats
from mindspore_rec.train.data.feature_batches import FeatureBatches
from mindspore_rec.train.loop.placement import (
    Placement,
    PlacementMonitor,
    PlacementReport,
    placement_report,
)
from mindspore_rec.train.loop.rec_model import RecModel
from mindspore_rec.train.loop.step import TrainStep
from mindspore_rec.train.metrics.summary import TableSummary, TrainSummary

__all__ = [
    "CountFirstEpoch",
    "EarlyStopping",
    "EvalCallback",
    "EventTime",
    "EvictCallback",
    "EvictedKeysCallback",
    "FeatureBatches",
    "Placement",
    "PlacementMonitor",
    "PlacementReport",
    "ProgressBar",
    "ProgressiveValidation",
    "RecModel",
    "ReduceLROnPlateau",
    "StopOnNaN",
    "TableStats",
    "TableSummary",
    "TimeMonitor",
    "TrainStep",
    "TrainSummary",
    "placement_report",
]
