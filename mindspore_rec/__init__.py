# SPDX-License-Identifier: Apache-2.0
"""Recommendation models with huge, sparse, ever-changing embedding tables on MindSpore."""

from mindspore_rec.checkpoint import load_checkpoint, save_checkpoint
from mindspore_rec.metrics import (
    AUC,
    GAUC,
    Calibration,
    LogLoss,
    NormalizedEntropy,
    StreamingAUC,
)
from mindspore_rec.native import (
    NoOptimizerError,
    OutOfMemoryError,
    TableClosedError,
    get_num_threads,
    set_num_threads,
)
from mindspore_rec.nn.embedding import EmbeddingBag, EmbeddingLookup, HashEmbeddingLookup, tables_of
from mindspore_rec.nn.mlp import MLP
from mindspore_rec.optim import (
    FTRL,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    CombinedOptimizer,
    LazyAdam,
    Momentum,
    RMSProp,
    RowWiseAdagrad,
    check_covered,
)
from mindspore_rec.parameter import MapParameter, StaticParameter
from mindspore_rec.train import (
    EarlyStopping,
    EvalCallback,
    PlacementMonitor,
    ProgressBar,
    RecModel,
    StopOnNaN,
    TimeMonitor,
    TrainStep,
    TrainSummary,
    placement_report,
)
from mindspore_rec.version import __version__

__all__ = [
    "AUC",
    "Adagrad",
    "Adam",
    "AdamW",
    "Calibration",
    "CombinedOptimizer",
    "EarlyStopping",
    "EmbeddingBag",
    "EmbeddingLookup",
    "EvalCallback",
    "FTRL",
    "GAUC",
    "HashEmbeddingLookup",
    "LazyAdam",
    "LogLoss",
    "MLP",
    "MapParameter",
    "Momentum",
    "NoOptimizerError",
    "NormalizedEntropy",
    "OutOfMemoryError",
    "PlacementMonitor",
    "ProgressBar",
    "RMSProp",
    "RecModel",
    "RowWiseAdagrad",
    "SGD",
    "StaticParameter",
    "StopOnNaN",
    "StreamingAUC",
    "TableClosedError",
    "TimeMonitor",
    "TrainStep",
    "TrainSummary",
    "__version__",
    "check_covered",
    "get_num_threads",
    "load_checkpoint",
    "placement_report",
    "save_checkpoint",
    "set_num_threads",
    "tables_of",
]
