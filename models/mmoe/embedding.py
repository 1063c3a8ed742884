# SPDX-License-Identifier: Apache-2.0
"""The ways MMoE may hold its embeddings, all with the same inputs and outputs."""

from __future__ import annotations

import sys
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from mindspore_rec import CacheConfig, EmbeddingLookup, HashEmbeddingLookup, MapParameter

__all__ = ["EMBEDDINGS", "make_embedding"]

EMBEDDINGS = ("hash", "static", "converted")


class MultiLookup(nn.Cell):
    """A lookup of its own for each field, all of one table.

    Inputs:
        ids: int64 Tensor `[B, F]`.

    Outputs:
        float32 Tensor `[B, F, dim]`.
    """

    def __init__(self, fields: int, table: MapParameter) -> None:
        super().__init__()
        self.lookups = nn.CellList(
            [HashEmbeddingLookup(table.dim, table=table) for _ in range(fields)]
        )

    def construct(self, ids: Tensor) -> Tensor:
        """Rows of ids."""
        rows: tuple[Tensor, ...] = ()
        for f in range(len(self.lookups)):
            rows += (self.lookups[f](ids[:, f]),)
        return ops.stack(rows, 1)


def make_embedding(
    kind: str,
    fields: int,
    dim: int,
    param_init: Any,
    *,
    vocabulary: int | None,
    multi_lookup: bool,
    admission_threshold: int,
    max_idle_steps: int | None,
    cache: CacheConfig | None,
    name: str,
    seed: int,
) -> nn.Cell:
    """The embeddings of all fields, ids `[B, F]` to rows `[B, F, dim]`.

    Args:
        kind: 'hash': a table that grows as ids come; 'static': a table of a fixed vocabulary;
            'converted': an ordinary `nn.Embedding`, for `mindspore_rec.convert` to replace.
        fields: number of fields.
        dim: floats of an embedding.
        param_init: first values.
        vocabulary: number of ids, where it is fixed.
        multi_lookup: of a hash table: a lookup for each field instead of one for all.
        admission_threshold: of a hash table, `permit_filter_value`.
        max_idle_steps: of a hash table, `evict_filter_value`.
        cache: the tiers of a hash or static table.
        name: of the table.
        seed: of its first values.

    Raises:
        ValueError: no vocabulary where it must be fixed.
    """
    if kind != "hash" and vocabulary is None:
        raise ValueError(f"vocabulary must be given with embedding={kind!r}")
    evict = sys.maxsize if max_idle_steps is None else max_idle_steps
    if kind == "static" and vocabulary is not None:
        return EmbeddingLookup(vocabulary, dim, param_init, name=name, seed=seed, cache=cache)
    if kind == "converted":
        return nn.Embedding(vocabulary, dim, embedding_table=param_init)
    if multi_lookup:
        table = MapParameter(
            name,
            key_dtype=ms.int64,
            value_shape=dim,
            default_value=param_init,
            permit_filter_value=admission_threshold,
            evict_filter_value=evict,
            seed=seed,
            cache=cache,
        )
        return MultiLookup(fields, table)
    return HashEmbeddingLookup(
        dim,
        ms.int64,
        param_init,
        permit_filter_value=admission_threshold,
        evict_filter_value=evict,
        name=name,
        seed=seed,
        cache=cache,
    )
