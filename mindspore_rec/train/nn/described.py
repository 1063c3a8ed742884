# SPDX-License-Identifier: Apache-2.0
"""Get the hash table of a cell, from MindRec's arguments or from the argument `table=`."""

from __future__ import annotations

from typing import Any

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.rows.policies import Admission, Eviction
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.train.parameter.hash_table import HashTable
from mindspore_rec.train.parameter.initializers import row_initializer
from mindspore_rec.train.parameter.table_config import MAX_DIM, TableConfig
from mindspore_rec.train.parameter.upstream import (
    REQUIRED,
    admission_by_filter,
    eviction_by_filter,
)

__all__ = ["hash_config", "shared_table"]


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
    """Return the description of a hash table, from arguments in the signature of MindRec.

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


def shared_table(table: Any, embedding_size: int, describing: list[str]) -> HashTable:
    """Check and return a cell's `table=` argument; other arguments must not describe a table.

    Args:
        table: the argument `table=` of the cell.
        embedding_size: the argument `embedding_size` of the cell; `REQUIRED` if the argument was
            omitted.
        describing: names of the passed arguments that describe a table.

    Raises:
        TypeError: `table` is not a HashTable.
        ValueError: an argument besides `table` describes a new table, or `embedding_size` differs
            from the table's row size.
    """
    if not isinstance(table, HashTable):
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
