# SPDX-License-Identifier: Apache-2.0
"""Recommendation models on MindSpore, with huge, sparse embedding tables that keep changing.

Most programs need only the names that this package exports. Submodules export further names:
readers of files in `mindspore_rec.data`, whole models in `.models`, blocks of models in `.nn`,
optimizers in `.optim`, metrics in `.metrics`, callbacks and reports in `.train`, tables and their
rules in `.parameter`, streams from Kafka in `.stream`, columns and hashing in `.feature`, tiers in
`.cache`, predictors in `.serving`.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily
from mindspore_rec.common.leftovers import warn_of_upstream
from mindspore_rec.common.old_names import ALIASES, SENTENCES
from mindspore_rec.native_core import find_elsewhere
from mindspore_rec.version import __version__ as __version__

warn_of_upstream()
find_elsewhere()

if TYPE_CHECKING:
    from mindspore_rec import (
        cache as cache,
        checkpoint as checkpoint,
        data as data,
        feature as feature,
        metrics as metrics,
        models as models,
        nn as nn,
        optim as optim,
        parameter as parameter,
        train as train,
    )
    from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline as FeaturePipeline
    from mindspore_rec.common.columns.feature_spec import FeatureSpec as FeatureSpec
    from mindspore_rec.common.columns.hashing import category_keys as category_keys
    from mindspore_rec.common.columns.schema.schema import Schema as Schema
    from mindspore_rec.common.rows.policies import (
        CountAdmission as CountAdmission,
        Eviction as Eviction,
        ProbabilityAdmission as ProbabilityAdmission,
        SketchAdmission as SketchAdmission,
    )
    from mindspore_rec.common.run.errors import CheckpointError as CheckpointError
    from mindspore_rec.common.tiers.config import CacheConfig as CacheConfig
    from mindspore_rec.common.tiers.ssd_config import SsdConfig as SsdConfig
    from mindspore_rec.compat.convert import convert as convert, revert as revert
    from mindspore_rec.compat.create_table import create_table as create_table
    from mindspore_rec.compat.embedding_lookup import EmbeddingLookup as EmbeddingLookup
    from mindspore_rec.compat.get_insert_func import get_insert_func as get_insert_func
    from mindspore_rec.compat.hash_embedding_lookup import (
        HashEmbeddingLookup as HashEmbeddingLookup,
    )
    from mindspore_rec.compat.map_parameter import MapParameter as MapParameter
    from mindspore_rec.compat.session import init as init, terminate as terminate
    from mindspore_rec.compat.sparse_lookup import (
        SparseLookup as SparseLookup,
        sparse_lookup as sparse_lookup,
    )
    from mindspore_rec.compat.variables import (
        get_dense_and_sparse_variable as get_dense_and_sparse_variable,
    )
    from mindspore_rec.train.callbacks.event_time import EventTime as EventTime
    from mindspore_rec.train.callbacks.evict import EvictCallback as EvictCallback
    from mindspore_rec.train.callbacks.plateau import (
        EarlyStopping as EarlyStopping,
        ReduceLROnPlateau as ReduceLROnPlateau,
    )
    from mindspore_rec.train.callbacks.progress import EvalCallback as EvalCallback
    from mindspore_rec.train.callbacks.progressive import (
        ProgressiveValidation as ProgressiveValidation,
    )
    from mindspore_rec.train.callbacks.table_stats import TableStats as TableStats
    from mindspore_rec.train.checkpoint.directory import (
        load_checkpoint as load_checkpoint,
        save_checkpoint as save_checkpoint,
    )
    from mindspore_rec.train.checkpoint.rec_checkpoint import RecCheckpoint as RecCheckpoint
    from mindspore_rec.train.data.feature_batches import FeatureBatches as FeatureBatches
    from mindspore_rec.train.graph.operators import (
        NoOptimizerError as NoOptimizerError,
        OutOfMemoryError as OutOfMemoryError,
        StaleHandleError as StaleHandleError,
        TableClosedError as TableClosedError,
        get_num_threads as get_num_threads,
        set_num_threads as set_num_threads,
    )
    from mindspore_rec.train.loop.rec_model import RecModel as RecModel
    from mindspore_rec.train.loop.saved_model import load as load
    from mindspore_rec.train.loop.step import TrainStep as TrainStep
    from mindspore_rec.train.metrics.auc import AUC as AUC
    from mindspore_rec.train.metrics.gauc import GAUC as GAUC
    from mindspore_rec.train.metrics.log_loss import LogLoss as LogLoss
    from mindspore_rec.train.nn.bag import EmbeddingBag as EmbeddingBag
    from mindspore_rec.train.nn.fused.device import (
        get_dense_device as get_dense_device,
        set_dense_device as set_dense_device,
    )
    from mindspore_rec.train.nn.grouped import GroupedEmbedding as GroupedEmbedding
    from mindspore_rec.train.nn.tables import tables_of as tables_of
    from mindspore_rec.train.optim.adagrad import Adagrad as Adagrad
    from mindspore_rec.train.optim.adam import Adam as Adam, LazyAdam as LazyAdam
    from mindspore_rec.train.optim.combined import CombinedOptimizer as CombinedOptimizer
    from mindspore_rec.train.optim.ftrl import FTRL as FTRL
    from mindspore_rec.train.optim.sgd import SGD as SGD
    from mindspore_rec.train.parameter.static_parameter import StaticParameter as StaticParameter
    from mindspore_rec.train.parameter.table_config import TableConfig as TableConfig
else:
    __getattr__, __dir__, __all__ = lazily(__name__, ALIASES, SENTENCES)
    __all__ += ["__version__"]
