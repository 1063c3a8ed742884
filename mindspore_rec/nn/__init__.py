# SPDX-License-Identifier: Apache-2.0
"""Cells: embedding layers that use tables, and building blocks of models.

`TableLookup` looks up ids in a table, `EmbeddingBag` returns one combined row per bag, and
`GroupedEmbedding` returns rows of several tables at once. `HashEmbeddingLookup` takes the arguments
of MindRec's lookup, and `EmbeddingLookup` takes the arguments of MindSpore's lookup. `tables_of`
finds the tables of a network. This package also has losses, and layers between the embeddings and
the prediction.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.compat.embedding_lookup import EmbeddingLookup as EmbeddingLookup
    from mindspore_rec.compat.hash_embedding_lookup import (
        HashEmbeddingLookup as HashEmbeddingLookup,
    )
    from mindspore_rec.train.nn.bag import EmbeddingBag as EmbeddingBag
    from mindspore_rec.train.nn.cross import CrossNet as CrossNet, CrossNetV2 as CrossNetV2
    from mindspore_rec.train.nn.cross_mix import CrossNetMix as CrossNetMix
    from mindspore_rec.train.nn.dice import Dice as Dice, PReLU as PReLU
    from mindspore_rec.train.nn.dot_interaction import DotInteraction as DotInteraction
    from mindspore_rec.train.nn.factorization import FactorizationMachine as FactorizationMachine
    from mindspore_rec.train.nn.fuse import fuse as fuse
    from mindspore_rec.train.nn.fused.layer import FusedLayer as FusedLayer
    from mindspore_rec.train.nn.fused_graph import FusedGraph as FusedGraph
    from mindspore_rec.train.nn.grouped import GroupedEmbedding as GroupedEmbedding
    from mindspore_rec.train.nn.history_transformer import HistoryTransformer as HistoryTransformer
    from mindspore_rec.train.nn.hstu import HSTU as HSTU
    from mindspore_rec.train.nn.lookup import TableLookup as TableLookup
    from mindspore_rec.train.nn.loss import BCEWithLogitsLoss as BCEWithLogitsLoss
    from mindspore_rec.train.nn.mlp import MLP as MLP
    from mindspore_rec.train.nn.mmoe import MMoE as MMoE
    from mindspore_rec.train.nn.number_embedding import NumberEmbedding as NumberEmbedding
    from mindspore_rec.train.nn.padded import ToPadded as ToPadded, ToValues as ToValues
    from mindspore_rec.train.nn.periodic_embedding import PeriodicEmbedding as PeriodicEmbedding
    from mindspore_rec.train.nn.piecewise_linear import PiecewiseLinear as PiecewiseLinear
    from mindspore_rec.train.nn.ranking_loss import (
        BPRLoss as BPRLoss,
        SampledSoftmaxLoss as SampledSoftmaxLoss,
        SoftmaxLoss as SoftmaxLoss,
    )
    from mindspore_rec.train.nn.sequential import FusedSequential as FusedSequential
    from mindspore_rec.train.nn.sum import Sum as Sum
    from mindspore_rec.train.nn.tables import tables_of as tables_of
    from mindspore_rec.train.nn.target_attention import TargetAttention as TargetAttention
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
