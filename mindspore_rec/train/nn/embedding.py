# SPDX-License-Identifier: Apache-2.0
"""Embedding cells, ids in and rows out; each is in a file of its own."""

from mindspore_rec.train.nn.bag import EmbeddingBag
from mindspore_rec.train.nn.hash_lookup import HashEmbeddingLookup
from mindspore_rec.train.nn.static_lookup import EmbeddingLookup
from mindspore_rec.train.nn.tables import tables_of

__all__ = ["EmbeddingBag", "EmbeddingLookup", "HashEmbeddingLookup", "tables_of"]
