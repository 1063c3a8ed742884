# SPDX-License-Identifier: Apache-2.0
"""Recommendation models with huge, sparse, ever-changing embedding tables on MindSpore."""

from mindspore_rec.cache.config import CacheConfig
from mindspore_rec.checkpoint import (
    CheckpointError,
    RecCheckpoint,
    load_checkpoint,
    save_checkpoint,
)
from mindspore_rec.feature.convert import convert, revert
from mindspore_rec.feature.create_table import create_table
from mindspore_rec.feature.feature_spec import FeatureSpec
from mindspore_rec.feature.hashing import category_keys
from mindspore_rec.feature.insert_func import get_insert_func
from mindspore_rec.feature.session import init, terminate
from mindspore_rec.feature.sparse_lookup import SparseLookup, sparse_lookup
from mindspore_rec.feature.variables import get_dense_and_sparse_variable
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
    StaleHandleError,
    TableClosedError,
    get_num_threads,
    set_num_threads,
)
from mindspore_rec.nn.cross import CrossNet, CrossNetMix, CrossNetV2
from mindspore_rec.nn.dot_interaction import DotInteraction
from mindspore_rec.nn.embedding import EmbeddingBag, EmbeddingLookup, HashEmbeddingLookup, tables_of
from mindspore_rec.nn.factorization import FactorizationMachine
from mindspore_rec.nn.grouped import GroupedEmbedding
from mindspore_rec.nn.mlp import MLP
from mindspore_rec.nn.mmoe import MMoE
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
from mindspore_rec.parameter import (
    CountAdmission,
    EvictedKeys,
    Eviction,
    Explanation,
    MapParameter,
    ProbabilityAdmission,
    SketchAdmission,
    StaticParameter,
    TableConfig,
)
from mindspore_rec.train import (
    CountFirstEpoch,
    EarlyStopping,
    EvalCallback,
    EvictCallback,
    EvictedKeysCallback,
    PlacementMonitor,
    ProgressBar,
    ProgressiveValidation,
    RecModel,
    StopOnNaN,
    TableStats,
    TimeMonitor,
    TrainStep,
    TrainSummary,
    placement_report,
)
from mindspore_rec.train.event_time import EventTime
from mindspore_rec.train.feature_batches import FeatureBatches
from mindspore_rec.version import __version__

__all__ = [
    "AUC",
    "Adagrad",
    "Adam",
    "AdamW",
    "CacheConfig",
    "Calibration",
    "CheckpointError",
    "CombinedOptimizer",
    "CrossNet",
    "CrossNetMix",
    "CrossNetV2",
    "DotInteraction",
    "CountAdmission",
    "CountFirstEpoch",
    "EarlyStopping",
    "EmbeddingBag",
    "EmbeddingLookup",
    "EvalCallback",
    "EvictCallback",
    "EvictedKeys",
    "EvictedKeysCallback",
    "Eviction",
    "Explanation",
    "EventTime",
    "FTRL",
    "FactorizationMachine",
    "FeatureBatches",
    "FeatureSpec",
    "GAUC",
    "GroupedEmbedding",
    "HashEmbeddingLookup",
    "LazyAdam",
    "LogLoss",
    "MLP",
    "MMoE",
    "MapParameter",
    "Momentum",
    "NoOptimizerError",
    "NormalizedEntropy",
    "OutOfMemoryError",
    "PlacementMonitor",
    "ProbabilityAdmission",
    "ProgressBar",
    "ProgressiveValidation",
    "RMSProp",
    "RecCheckpoint",
    "RecModel",
    "RowWiseAdagrad",
    "SGD",
    "SketchAdmission",
    "StaleHandleError",
    "SparseLookup",
    "StaticParameter",
    "StopOnNaN",
    "StreamingAUC",
    "TableConfig",
    "TableStats",
    "TableClosedError",
    "TimeMonitor",
    "TrainStep",
    "TrainSummary",
    "__version__",
    "category_keys",
    "check_covered",
    "convert",
    "create_table",
    "get_dense_and_sparse_variable",
    "get_insert_func",
    "get_num_threads",
    "init",
    "load_checkpoint",
    "placement_report",
    "revert",
    "save_checkpoint",
    "set_num_threads",
    "sparse_lookup",
    "tables_of",
    "terminate",
]
