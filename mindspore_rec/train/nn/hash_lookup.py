# SPDX-License-Identifier: Apache-2.0
"""HashEmbeddingLookup: rows of any ids, from a hash table; and how it and its siblings get one."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import mindspore as ms

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.rows.policies import Admission, Eviction
from mindspore_rec.common.rows.table_scope import next_number
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.train.nn.lookup import (
    TableLookup,
    check_coefficient,
    check_max_norm,
    check_padding_key,
    check_sparse,
)
from mindspore_rec.train.parameter.initializers import row_initializer
from mindspore_rec.train.parameter.map_parameter import MapParameter
from mindspore_rec.train.parameter.static_parameter import StaticParameter
from mindspore_rec.train.parameter.table_config import MAX_DIM, TableConfig
from mindspore_rec.train.parameter.table_parameter import TableParameter
from mindspore_rec.train.parameter.upstream import (
    REQUIRED,
    admission_by_filter,
    check_described_once,
    check_hash_config,
    describing_arguments,
    eviction_by_filter,
)

__all__ = ["HashEmbeddingLookup", "hash_config", "new_hash_table", "new_table", "shared_table"]


class HashEmbeddingLookup(TableLookup):
    """Embedding lookup in a hash table: any id is legal, and gets a row when it is seen.

    In training (`set_train()` on the network) an unknown id gets a row; in evaluation the table
    does not change and an unknown or not admitted id reads zeros (or `param_init`, if that is a
    number). Several lookups of one table in one network are one optimizer step over the summed
    gradients.

    Args:
        embedding_size: floats in a row, 1 to 8192.
        key_dtype: dtype of the keys, `int32` or `int64`; a table of int32 refuses ids of int64.
            Default: `int32`.
        param_init: first value of a row, as `MapParameter`'s `default_value`. Default: 'normal'.
        sparse: must be True: gradients of a table are per key.
        max_norm: rows with a larger L2 norm are scaled to it on the way out. Default: no limit.
        permit_filter_value: number of occurrences of an id by which it gets a row. Default: 1.
        evict_filter_value: number of training steps after which a row that was not seen is evicted.
            Default: never.
        vocab_cache_size: must be 0; upstream's rows on the device are `cache`'s `device_rows`.
        name: the table's name; of two open tables with one name only the newer can be used.
            Default: `hash_embedding_<n>`.
        padding_key: id that reads zeros and is never trained. Default: none.
        table: an existing MapParameter to share; what describes a table is then left out.
        seed: seed of the first values. Default: 0.
        admission: as for `TableConfig`, instead of `permit_filter_value`.
        eviction: as for `TableConfig`, instead of `evict_filter_value`.
        unknown_value: as for `TableConfig`.
        serving_unknown_value: as for `TableConfig`.
        faae_coefficient: number of occurrences that one occurrence of an id in this lookup counts
            as, for admission and for eviction by frequency, 1 to 2**20; after the coefficient of
            "feature admission and eviction" of Rec SDK. Default: 1.
        cache: as for `TableConfig`. Default: all rows in host memory.
        config: the table as a `TableConfig`, instead of the arguments above that describe one;
            `max_norm`, `padding_key`, `faae_coefficient` and `output_dtype` are the lookup's and
            stay.
        output_dtype: dtype of the rows that are returned and of the gradient that they take, after
            FBGEMM's argument. `float32`; or, for a table with bfloat16 values and without
            `max_norm`, `bfloat16`: the rows' own bits, half as many bytes (`docs/precision.md`).
            Default: `float32`.

    Inputs:
        ids: int32 or int64 Tensor of any shape, static or dynamic.

    Outputs:
        Tensor `[*ids.shape, embedding_size]` of `output_dtype`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        RuntimeError: ids of another dtype; training without an optimizer that covers the table.

    After `mindspore_rec.HashEmbeddingLookup` of MindRec 0.3.

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
            table = new_hash_table("HashEmbeddingLookup", config)
        super().__init__(table, max_norm, padding_key, faae_coefficient, output_dtype)
        self.key_dtype = table.key_dtype


def hash_config(
    *,
    embedding_size: int,
    key_dtype: Any,
    param_init: Any,
    permit_filter_value: int,
    evict_filter_value: int,
    name: str | None,
    seed: int,
    admission: Admission | None,
    eviction: Eviction | None,
    unknown_value: Any,
    serving_unknown_value: Any,
    cache: CacheConfig | None,
) -> TableConfig:
    """Return the description of a hash table from the arguments of MindRec's signature.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
    """
    size = check_int("embedding_size", embedding_size, 1, MAX_DIM)
    row_initializer(param_init, fan_in=size, fan_out=size, argument="param_init")
    where = "" if name is None else f"table '{name}': "
    return TableConfig(
        size,
        name=name,
        key_dtype=key_dtype,
        initializer=param_init,
        seed=seed,
        admission=admission_by_filter(where, admission, permit_filter_value),
        eviction=eviction_by_filter(where, eviction, evict_filter_value),
        unknown_value=unknown_value,
        serving_unknown_value=serving_unknown_value,
        cache=cache,
    )


def new_table(maker: str, config: TableConfig) -> TableParameter:
    """Make the table of an embedding cell, of the kind that its description asks for.

    Args:
        maker: name of the cell's class, for messages.
        config: the table's description.
    """
    if config.vocab_size is None:
        return new_hash_table(maker, config)
    return StaticParameter(config=config)


def new_hash_table(maker: str, config: TableConfig) -> MapParameter:
    """Make the hash table of an embedding cell; one without a name is `hash_embedding_<n>`.

    Args:
        maker: name of the cell's class, for messages.
        config: the table's description.

    Raises:
        ValueError: the config is of a static table.
    """
    check_hash_config(maker, config)
    if config.name is None:
        config = dataclasses.replace(config, name=f"hash_embedding_{next_number('hash_embedding')}")
    return MapParameter(config=config)


def shared_table(table: Any, embedding_size: int, describing: list[str]) -> MapParameter:
    """Return the table that a cell was given as `table=`, which then nothing may describe.

    Args:
        table: what was given.
        embedding_size: what the cell was given as its size, or REQUIRED.
        describing: names of the given arguments that describe a table.

    Raises:
        TypeError: `table` is no MapParameter.
        ValueError: an argument describes a new table, or the size is not the table's.
    """
    if not isinstance(table, MapParameter):
        raise TypeError(f"table must be a MapParameter, got {type(table).__name__}")
    for argument in describing:
        if argument != "embedding_size":
            raise ValueError(f"{argument} describes a new table; with table= it must be left out")
    if embedding_size is REQUIRED:
        return table
    if check_int("embedding_size", embedding_size, 1, MAX_DIM) != table.dim:
        raise ValueError(
            f"embedding_size must be that of table '{table.name}', {table.dim}, "
            f"got {embedding_size}"
        )
    return table


def _refuse_vocab_cache(vocab_cache_size: int) -> None:
    if check_int("vocab_cache_size", vocab_cache_size, 0, 1 << 40) != 0:
        raise ValueError(
            f"vocab_cache_size must be 0 for a hash table, got {vocab_cache_size}: rows on the "
            "device over a table on the host are "
            f"cache=CacheConfig(device_rows={vocab_cache_size}), without a parameter server"
        )
