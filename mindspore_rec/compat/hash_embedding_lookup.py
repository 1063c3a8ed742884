# SPDX-License-Identifier: Apache-2.0
"""HashEmbeddingLookup: lookup in a hash table, with the arguments of MindRec."""

from __future__ import annotations

import sys
from typing import Any

import mindspore as ms

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.rows.policies import Admission, Eviction
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.compat.map_parameter import MapParameter
from mindspore_rec.train.nn.described import hash_config, shared_table
from mindspore_rec.train.nn.lookup import (
    TableLookup,
    check_coefficient,
    check_max_norm,
    check_padding_key,
    check_sparse,
)
from mindspore_rec.train.nn.new_tables import named_hash_config
from mindspore_rec.train.parameter.table_config import TableConfig
from mindspore_rec.train.parameter.upstream import (
    REQUIRED,
    check_described_once,
    describing_arguments,
)

__all__ = ["HashEmbeddingLookup"]


class HashEmbeddingLookup(TableLookup):
    """Embedding lookup in a hash table: any id is legal, and the table grows with the ids.

    In training (after `set_train()` on the network), an unknown id gets a row at its admission, by
    default at its first occurrence. In evaluation, the table does not change. For an id without a
    row, the lookup returns `unknown_value`; by default, this value is `param_init` if `param_init`
    is a number, otherwise zeros. If one network has several lookups of one table, the optimizer
    makes one step with the sum of the lookups' gradients.

    Args:
        embedding_size: number of floats in a row, 1 to 8192.
        key_dtype: dtype of the keys, `int32` or `int64`; an int32 table refuses int64 ids. Default:
            `int32`.
        param_init: initial value of a row, with the same choices as `default_value` of
            `MapParameter`. Default: 'normal'.
        sparse: must be True, because the gradient of a table always has one row per key.
        max_norm: upper limit of the L2 norm of returned rows. The lookup scales longer rows down to
            `max_norm`. Default: no limit.
        permit_filter_value: number of occurrences in training at which an id gets a row. Default:
            1.
        evict_filter_value: a row is evicted if its id has not occurred for this many training
            steps. Default: never.
        vocab_cache_size: must be 0; for rows on the device, set `device_rows` of `cache`.
        name: the table's name; if two open tables have the same name, only the newer table can be
            used. Default: `hash_embedding_<n>`.
        padding_key: id for which the lookup returns zeros; this id is never trained. Default: none.
        table: an existing MapParameter to share. If `table` is set, the arguments that describe a
            table must not be set.
        seed: seed of the initial values. Default: 0.
        admission: the argument `admission` of `TableConfig`, in place of `permit_filter_value`.
        eviction: the argument `eviction` of `TableConfig`, in place of `evict_filter_value`.
        unknown_value: value that lookups return for an id without a row (`TableConfig`).
        serving_unknown_value: value that lookups in evaluation return for an id without a row
            (`TableConfig`).
        faae_coefficient: number, 1 to 2**20, by which an occurrence of an id in this lookup
            increases the count of the id. Admission, and eviction by frequency, use the count.
            "faae" is short for "feature admission and eviction" in Rec SDK. Default: 1.
        cache: the tiers of the rows, a `CacheConfig`. Default: all rows in host memory.
        config: a `TableConfig`, in place of the arguments above that describe the table.
            `max_norm`, `padding_key`, `faae_coefficient` and `output_dtype` describe the lookup,
            and may be set together with `config`.
        output_dtype: dtype of the returned rows and of their gradient, like FBGEMM's
            `output_dtype`. `bfloat16` needs a table with bfloat16 values and no `max_norm`. With
            `bfloat16`, the lookup returns the stored bits of the rows, in half as many bytes as
            float32 (`docs/precision.md`). Default: `float32`.

    Inputs:
        ids: int32 or int64 Tensor of any shape, static or dynamic.

    Outputs:
        Tensor `[*ids.shape, embedding_size]` of `output_dtype`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        RuntimeError: the ids' dtype is not supported, or the network trains without an optimizer
            for the table.

    The class corresponds to `mindspore_rec.HashEmbeddingLookup` in MindRec 0.3.

    Example:
        >>> import mindspore as ms
        >>> from mindspore import Tensor
        >>> from mindspore_rec import HashEmbeddingLookup, TableConfig
        >>> embedding = HashEmbeddingLookup(4, ms.int64, "ones", name="doc.hash_embedding")
        >>> embedding(Tensor([[7, -1, 1 << 62]], ms.int64)).shape
        (1, 3, 4)
        >>> config = TableConfig(4, name="doc.hash_embedding.config", initializer="ones")
        >>> HashEmbeddingLookup(config=config)(Tensor([[7]], ms.int64)).shape
        (1, 1, 4)
    """

    def __init__(
        self,
        embedding_size: int = REQUIRED,
        key_dtype: Any = ms.int32,
        param_init: Any = "normal",
        sparse: bool = True,
        max_norm: float | None = None,
        permit_filter_value: int = 1,
        evict_filter_value: int = sys.maxsize,
        vocab_cache_size: int = 0,
        *,
        name: str | None = None,
        padding_key: int | None = None,
        table: MapParameter | None = None,
        seed: int = 0,
        admission: Admission | None = None,
        eviction: Eviction | None = None,
        unknown_value: Any = None,
        serving_unknown_value: Any = None,
        faae_coefficient: int = 1,
        cache: CacheConfig | None = None,
        config: TableConfig | None = None,
        output_dtype: Any = ms.float32,
    ) -> None:
        check_sparse(sparse)
        _refuse_vocab_cache(vocab_cache_size)
        check_max_norm(max_norm)
        check_padding_key(padding_key)
        faae_coefficient = check_coefficient(faae_coefficient)
        describing = describing_arguments(HashEmbeddingLookup.__init__, locals())
        if table is not None:
            table = shared_table(table, embedding_size, describing)
        else:
            check_described_once(describing, config, embedding_size=embedding_size)
            if config is None:
                config = hash_config(
                    embedding_size=embedding_size,
                    key_dtype=key_dtype,
                    param_init=param_init,
                    permit_filter_value=permit_filter_value,
                    evict_filter_value=evict_filter_value,
                    name=name,
                    seed=seed,
                    admission=admission,
                    eviction=eviction,
                    unknown_value=unknown_value,
                    serving_unknown_value=serving_unknown_value,
                    cache=cache,
                )
            table = MapParameter(config=named_hash_config("HashEmbeddingLookup", config))
        super().__init__(
            table=table,
            max_norm=max_norm,
            padding_key=padding_key,
            faae_coefficient=faae_coefficient,
            output_dtype=output_dtype,
        )
        self.key_dtype = table.key_dtype


def _refuse_vocab_cache(vocab_cache_size: int) -> None:
    if check_int("vocab_cache_size", vocab_cache_size, 0, 1 << 40) != 0:
        raise ValueError(
            f"vocab_cache_size must be 0 for a hash table, got {vocab_cache_size}: rows on the "
            "device over a table on the host are "
            f"cache=CacheConfig(device_rows={vocab_cache_size}), without a parameter server"
        )
