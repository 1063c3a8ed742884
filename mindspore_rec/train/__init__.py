# SPDX-License-Identifier: Apache-2.0
"""Training: the model with its loop, the train step, callbacks and placement reports.

`RecModel` trains, evaluates and predicts. Its callbacks are MindSpore's `Callback` objects: those
of this package (stopping, validation, eviction, statistics) and your own.
"""

from mindspore_rec.train.admission import CountFirstEpoch
from mindspore_rec.train.callbacks import (
    EvalCallback,
    ProgressBar,
    StopOnNaN,
    TimeMonitor,
)
from mindspore_rec.train.event_time import EventTime
from mindspore_rec.train.evict import EvictCallback, EvictedKeysCallback
from mindspore_rec.train.feature_batches import FeatureBatches
from mindspore_rec.train.placement import (
    Placement,
    PlacementMonitor,
    PlacementReport,
    placement_report,
)
from mindspore_rec.train.plateau import EarlyStopping, ReduceLROnPlateau
from mindspore_rec.train.progressive import ProgressiveValidation
from mindspore_rec.train.rec_model import RecModel
from mindspore_rec.train.step import TrainStep
from mindspore_rec.train.summary import TableSummary, TrainSummary
from mindspore_rec.train.table_stats import TableStats

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
