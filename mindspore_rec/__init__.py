# SPDX-License-Identifier: Apache-2.0
"""Recommendation models with huge, sparse, ever-changing embedding tables on MindSpore.

Here is what most programs need. The rest is in the rooms: blocks of models in `mindspore_rec.nn`,
all optimizers in `.optim`, all metrics in `.metrics`, callbacks and reports in `.train`, tables and
their rules in `.parameter`, streams from Kafka in `.stream`, hashing and specs of features in
`.feature`, tiers in `.cache`, predictors in `.serving`.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily
from mindspore_rec.common.leftovers import warn_of_upstream
from mindspore_rec.common.old_names import ALIASES, SENTENCES
from mindspore_rec.native_core import find_elsewhere
from mindspore_rec.version import __version__

warn_of_upstream()
find_elsewhere()

if TYPE_CHECKING:
    from mindspore_rec import cache as cache
    from mindspore_rec import checkpoint as checkpoint
    from mindspore_rec import feature as feature
    from mindspore_rec import metrics as metrics
    from mindspore_rec import nn as nn
    from mindspore_rec import optim as optim
    from mindspore_rec import parameter as parameter
    from mindspore_rec import train as train
    from mindspore_rec.checkpoint import (
        CheckpointError,
        RecCheckpoint,
        load_checkpoint,
        save_checkpoint,
    )
    from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
    from mindspore_rec.common.columns.feature_spec import FeatureSpec
    from mindspore_rec.common.columns.hashing import category_keys
    from mindspore_rec.common.tiers.config import CacheConfig
    from mindspore_rec.compat.convert import convert, revert
    from mindspore_rec.compat.create_table import create_table
    from mindspore_rec.compat.get_insert_func import get_insert_func
    from mindspore_rec.compat.session import init, terminate
    from mindspore_rec.compat.sparse_lookup import SparseLookup, sparse_lookup
    from mindspore_rec.compat.variables import get_dense_and_sparse_variable
    from mindspore_rec.metrics import (
        AUC,
        GAUC,
        LogLoss,
    )
    from mindspore_rec.optim import (
        FTRL,
        SGD,
        Adagrad,
        Adam,
        CombinedOptimizer,
        LazyAdam,
    )
    from mindspore_rec.parameter import (
        CountAdmission,
        Eviction,
        MapParameter,
        ProbabilityAdmission,
        SketchAdmission,
        StaticParameter,
        TableConfig,
    )
    from mindspore_rec.train import (
        EarlyStopping,
        EvalCallback,
        EvictCallback,
        ProgressiveValidation,
        RecModel,
        ReduceLROnPlateau,
        TableStats,
        TrainStep,
    )
    from mindspore_rec.train.callbacks.event_time import EventTime
    from mindspore_rec.train.data.feature_batches import FeatureBatches
    from mindspore_rec.train.graph.operators import (
        NoOptimizerError,
        OutOfMemoryError,
        StaleHandleError,
        TableClosedError,
        get_num_threads,
        set_num_threads,
    )
    from mindspore_rec.train.nn.embedding import (
        EmbeddingBag,
        EmbeddingLookup,
        HashEmbeddingLookup,
        tables_of,
    )
    from mindspore_rec.train.nn.fused.device import get_dense_device, set_dense_device
    from mindspore_rec.train.nn.grouped import GroupedEmbedding
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            __name__: [
                "cache",
                "checkpoint",
                "feature",
                "metrics",
                "nn",
                "optim",
                "parameter",
                "train",
            ],
            "mindspore_rec.common.tiers.config": ["CacheConfig"],
            "mindspore_rec.checkpoint": [
                "CheckpointError",
                "RecCheckpoint",
                "load_checkpoint",
                "save_checkpoint",
            ],
            "mindspore_rec.compat.convert": ["convert", "revert"],
            "mindspore_rec.compat.create_table": ["create_table"],
            "mindspore_rec.common.columns.feature_pipeline": ["FeaturePipeline"],
            "mindspore_rec.common.columns.feature_spec": ["FeatureSpec"],
            "mindspore_rec.common.columns.hashing": ["category_keys"],
            "mindspore_rec.compat.get_insert_func": ["get_insert_func"],
            "mindspore_rec.compat.session": ["init", "terminate"],
            "mindspore_rec.compat.sparse_lookup": ["SparseLookup", "sparse_lookup"],
            "mindspore_rec.compat.variables": ["get_dense_and_sparse_variable"],
            "mindspore_rec.metrics": ["AUC", "GAUC", "LogLoss"],
            "mindspore_rec.train.graph.operators": [
                "NoOptimizerError",
                "OutOfMemoryError",
                "StaleHandleError",
                "TableClosedError",
                "get_num_threads",
                "set_num_threads",
            ],
            "mindspore_rec.train.nn.embedding": [
                "EmbeddingBag",
                "EmbeddingLookup",
                "HashEmbeddingLookup",
                "tables_of",
            ],
            "mindspore_rec.train.nn.fused.device": ["get_dense_device", "set_dense_device"],
            "mindspore_rec.train.nn.grouped": ["GroupedEmbedding"],
            "mindspore_rec.optim": [
                "FTRL",
                "SGD",
                "Adagrad",
                "Adam",
                "CombinedOptimizer",
                "LazyAdam",
            ],
            "mindspore_rec.parameter": [
                "CountAdmission",
                "Eviction",
                "MapParameter",
                "ProbabilityAdmission",
                "SketchAdmission",
                "StaticParameter",
                "TableConfig",
            ],
            "mindspore_rec.train": [
                "EarlyStopping",
                "EvalCallback",
                "EvictCallback",
                "ProgressiveValidation",
                "RecModel",
                "ReduceLROnPlateau",
                "TableStats",
                "TrainStep",
            ],
            "mindspore_rec.train.callbacks.event_time": ["EventTime"],
            "mindspore_rec.train.data.feature_batches": ["FeatureBatches"],
        },
        ALIASES,
        SENTENCES,
    )

__all__ = [
    "AUC",
    "Adagrad",
    "Adam",
    "CacheConfig",
    "CheckpointError",
    "CombinedOptimizer",
    "CountAdmission",
    "EarlyStopping",
    "EmbeddingBag",
    "EmbeddingLookup",
    "EvalCallback",
    "EvictCallback",
    "Eviction",
    "EventTime",
    "FTRL",
    "FeatureBatches",
    "FeaturePipeline",
    "FeatureSpec",
    "GAUC",
    "GroupedEmbedding",
    "HashEmbeddingLookup",
    "LazyAdam",
    "LogLoss",
    "MapParameter",
    "NoOptimizerError",
    "OutOfMemoryError",
    "ProbabilityAdmission",
    "ProgressiveValidation",
    "RecCheckpoint",
    "RecModel",
    "ReduceLROnPlateau",
    "SGD",
    "SketchAdmission",
    "StaleHandleError",
    "SparseLookup",
    "StaticParameter",
    "TableConfig",
    "TableStats",
    "TableClosedError",
    "TrainStep",
    "__version__",
    "category_keys",
    "convert",
    "create_table",
    "get_dense_and_sparse_variable",
    "get_dense_device",
    "get_insert_func",
    "get_num_threads",
    "init",
    "load_checkpoint",
    "revert",
    "save_checkpoint",
    "set_dense_device",
    "set_num_threads",
    "sparse_lookup",
    "tables_of",
    "terminate",
]
