# SPDX-License-Identifier: Apache-2.0
"""Cells: embeddings over tables, and the blocks models are made of."""

from mindspore_rec.nn.embedding import EmbeddingBag, EmbeddingLookup, HashEmbeddingLookup, tables_of

__all__ = ["EmbeddingBag", "EmbeddingLookup", "HashEmbeddingLookup", "tables_of"]
