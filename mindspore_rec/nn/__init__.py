# SPDX-License-Identifier: Apache-2.0
"""Cells: embeddings over tables, and the blocks that models are made of.

`HashEmbeddingLookup` looks up any int64, `EmbeddingLookup` ids of a vocabulary, `EmbeddingBag` one
combined row a bag, `GroupedEmbedding` several tables at once; `tables_of` finds the tables of a
network. The others are layers between embeddings and prediction.
"""

from mindspore_rec.nn.cross import CrossNet, CrossNetMix, CrossNetV2
from mindspore_rec.nn.dot_interaction import DotInteraction
from mindspore_rec.nn.embedding import EmbeddingBag, EmbeddingLookup, HashEmbeddingLookup, tables_of
from mindspore_rec.nn.factorization import FactorizationMachine
from mindspore_rec.nn.fused import FusedLayer
from mindspore_rec.nn.grouped import GroupedEmbedding
from mindspore_rec.nn.mlp import MLP
from mindspore_rec.nn.mmoe import MMoE
from mindspore_rec.nn.sequential import FusedSequential

__all__ = [
    "CrossNet",
    "CrossNetMix",
    "CrossNetV2",
    "DotInteraction",
    "EmbeddingBag",
    "EmbeddingLookup",
    "FactorizationMachine",
    "FusedLayer",
    "FusedSequential",
    "GroupedEmbedding",
    "HashEmbeddingLookup",
    "MLP",
    "MMoE",
    "tables_of",
]
