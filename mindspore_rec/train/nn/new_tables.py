# SPDX-License-Identifier: Apache-2.0
"""Tables of embedding cells: new tables from a `TableConfig`, or existing tables."""

from __future__ import annotations

import dataclasses
from typing import Any

from mindspore_rec.common.rows.table_scope import next_number
from mindspore_rec.train.parameter.hash_table import HashTable
from mindspore_rec.train.parameter.static_parameter import StaticParameter
from mindspore_rec.train.parameter.table_config import TableConfig
from mindspore_rec.train.parameter.table_parameter import TableParameter
from mindspore_rec.train.parameter.upstream import check_hash_config

__all__ = ["named_hash_config", "new_table", "table_of"]


def table_of(maker: str, config: Any, table: Any) -> TableParameter:
    """Return the table of an embedding cell: a new table that `config` describes, or `table`.

    Args:
        maker: name of the cell's class, for error messages.
        config: the description of a new table, or None.
        table: an existing table, or None.

    Raises:
        TypeError: `config` and `table` are both None, or `config` or `table` has the wrong type.
        ValueError: `config` and `table` are both set.

    Example:
        >>> table_of("EmbeddingBag", TableConfig(8, name="doc.table_of"), None).dim
        8
    """
    if table is not None:
        if config is not None:
            raise ValueError("config describes a new table; with table= it must be left out")
        if not isinstance(table, TableParameter):
            raise TypeError(f"table must be a HashTable or StaticParameter, got {_kind(table)}")
        return table
    if config is None:
        raise TypeError(f"{maker} must be given config=TableConfig(...), or table=")
    if not isinstance(config, TableConfig):
        raise TypeError(f"config must be a TableConfig, got {config!r}")
    return new_table(maker, config)


def new_table(maker: str, config: TableConfig) -> TableParameter:
    """Return a new static table if the config has `vocab_size`, otherwise a new hash table.

    Args:
        maker: name of the cell's class, for error messages.
        config: the table's description.
    """
    if config.vocab_size is None:
        return HashTable(named_hash_config(maker, config))
    return StaticParameter(config=config)


def named_hash_config(maker: str, config: TableConfig) -> TableConfig:
    """Return the config of a hash table, named `hash_embedding_<n>` if the config has no name.

    Args:
        maker: name of the cell's class, for error messages.
        config: the table's description.

    Raises:
        ValueError: the config describes a static table.
    """
    check_hash_config(maker, config)
    if config.name is not None:
        return config
    return dataclasses.replace(config, name=f"hash_embedding_{next_number('hash_embedding')}")


def _kind(value: Any) -> str:
    return type(value).__name__
