# SPDX-License-Identifier: Apache-2.0
"""Training: the model with its training loop, the train step, callbacks and placement reports.

`RecModel` trains, evaluates and predicts. Callbacks are `Callback` objects of MindSpore. Callbacks
may come from this package (early stopping, validation, eviction, statistics) or from your own code.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.train.callbacks.admission import CountFirstEpoch as CountFirstEpoch
    from mindspore_rec.train.callbacks.averaging import WeightAverage as WeightAverage
    from mindspore_rec.train.callbacks.event_time import EventTime as EventTime
    from mindspore_rec.train.callbacks.evict import (
        EvictCallback as EvictCallback,
        EvictedKeysCallback as EvictedKeysCallback,
    )
    from mindspore_rec.train.callbacks.plateau import (
        EarlyStopping as EarlyStopping,
        ReduceLROnPlateau as ReduceLROnPlateau,
    )
    from mindspore_rec.train.callbacks.progress import (
        EvalCallback as EvalCallback,
        ProgressBar as ProgressBar,
        StopOnNaN as StopOnNaN,
        TimeMonitor as TimeMonitor,
    )
    from mindspore_rec.train.callbacks.progressive import (
        ProgressiveValidation as ProgressiveValidation,
    )
    from mindspore_rec.train.callbacks.rates import RateSchedule as RateSchedule
    from mindspore_rec.train.callbacks.table_stats import TableStats as TableStats
    from mindspore_rec.train.data.feature_batches import FeatureBatches as FeatureBatches
    from mindspore_rec.train.loop.placement import (
        Placement as Placement,
        PlacementMonitor as PlacementMonitor,
        PlacementReport as PlacementReport,
        placement_report as placement_report,
    )
    from mindspore_rec.train.loop.rec_model import RecModel as RecModel
    from mindspore_rec.train.loop.step import TrainStep as TrainStep
    from mindspore_rec.train.metrics.summary import (
        TableSummary as TableSummary,
        TrainSummary as TrainSummary,
    )
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
