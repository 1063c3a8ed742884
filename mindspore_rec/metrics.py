# SPDX-License-Identifier: Apache-2.0
"""Metrics of click prediction and of rankings, as subclasses of MindSpore's `Metric`.

The module `functional` provides the metrics in the form of NumPy functions over whole arrays.
`rank_targets` and `top_items` compare users' vectors with the vectors of all items.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.common.metrics import functional as functional
    from mindspore_rec.common.metrics.functional import ReliabilityCurve as ReliabilityCurve
    from mindspore_rec.common.metrics.item_ranks import (
        rank_targets as rank_targets,
        top_items as top_items,
    )
    from mindspore_rec.train.metrics.auc import AUC as AUC
    from mindspore_rec.train.metrics.calibration import Calibration as Calibration
    from mindspore_rec.train.metrics.gauc import GAUC as GAUC
    from mindspore_rec.train.metrics.log_loss import (
        LogLoss as LogLoss,
        NormalizedEntropy as NormalizedEntropy,
    )
    from mindspore_rec.train.metrics.ranking import (
        MAP as MAP,
        MRR as MRR,
        NDCG as NDCG,
        Coverage as Coverage,
        HitRate as HitRate,
        Recall as Recall,
    )
    from mindspore_rec.train.metrics.streaming_auc import StreamingAUC as StreamingAUC
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
