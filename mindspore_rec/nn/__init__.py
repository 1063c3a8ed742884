# SPDX-License-Identifier: Apache-2.0
"""Cells: embeddings over tables, and the blocks that models are made of.

`HashEmbeddingLookup` looks up any int64, `EmbeddingLookup` ids of a vocabulary, `EmbeddingBag` one
combined row a bag, `GroupedEmbedding` several tables at once; `tables_of` finds the tables of a
network. The others are layers between embeddings and prediction, and a loss.
"""

from mindspore_rec.nn.fused import FusedLayer
from mindspore_rec.train.nn.cross import CrossNet, CrossNetV2
from mindspore_rec.train.nn.cross_mix import CrossNetMix
from mindspore_rec.train.nn.dot_interaction import DotInteraction
from mindspore_rec.train.nn.embedding import (
    EmbeddingBag,
    EmbeddingLookup,
    HashEmbeddingLookup,
    tables_of,
)
from mindspore_rec.train.nn.factorization import FactorizationMachine
from mindspore_rec.train.nn.fused_graph import FusedGraph
from mindspore_rec.train.nn.grouped import GroupedEmbedding
from mindspore_rec.train.nn.loss import BCEWithLogitsLoss
from mindspore_rec.train.nn.mlp import MLP
from mindspore_rec.train.nn.mmoe import MMoE
from mindspore_rec.train.nn.number_embedding import NumberEmbedding
from mindspore_rec.train.nn.sequential import FusedSequential
from mindspore_rec.train.nn.sum import Sum

__all__ = [
    "BCEWithLogitsLoss",
    "CrossNet",
    "CrossNetMix",
    "CrossNetV2",
    "DotInteraction",
    "EmbeddingBag",
    "EmbeddingLookup",
    "FactorizationMachine",
    "FusedGraph",
    "FusedLayer",
    "FusedSequential",
    "GroupedEmbedding",
    "HashEmbeddingLookup",
    "MLP",
    "MMoE",
    "NumberEmbedding",
    "Sum",
    "tables_of",
]
