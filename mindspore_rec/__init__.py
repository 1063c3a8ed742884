# SPDX-License-Identifier: Apache-2.0
"""Recommendation models with huge, sparse, ever-changing embedding tables on MindSpore."""

from mindspore_rec.native import (
    NoOptimizerError,
    OutOfMemoryError,
    TableClosedError,
    get_num_threads,
    set_num_threads,
)
from mindspore_rec.nn.embedding import EmbeddingBag, EmbeddingLookup, HashEmbeddingLookup, tables_of
from mindspore_rec.parameter import MapParameter, StaticParameter
from mindspore_rec.version import __version__

__all__ = [
    "EmbeddingBag",
    "EmbeddingLookup",
    "HashEmbeddingLookup",
    "MapParameter",
    "NoOptimizerError",
    "OutOfMemoryError",
    "StaticParameter",
    "TableClosedError",
    "__version__",
    "get_num_threads",
    "set_num_threads",
    "tables_of",
]
