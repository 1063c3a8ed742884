# SPDX-License-Identifier: Apache-2.0
"""Cells: embeddings over tables, and the blocks models are made of."""

from mindspore_rec.nn.embedding import EmbeddingBag, EmbeddingLookup, HashEmbeddingLookup, tables_of
from mindspore_rec.nn.mlp import MLP

__all__ = ["EmbeddingBag", "EmbeddingLookup", "HashEmbeddingLookup", "MLP", "tables_of"]
