# SPDX-License-Identifier: Apache-2.0
"""Tables of a conversion: their configs, and the lookups that replace the embeddings."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from mindspore import nn

from mindspore_rec.compat.conversion_targets import Target
from mindspore_rec.compat.embedding_lookup import EmbeddingLookup
from mindspore_rec.compat.hash_embedding_lookup import HashEmbeddingLookup
from mindspore_rec.train.graph.operators import NameTakenError
from mindspore_rec.train.nn.lookup import TableLookup
from mindspore_rec.train.parameter.table_config import TableConfig
from mindspore_rec.train.parameter.table_parameter import open_tables

__all__ = ["check_template", "config_of", "new_lookup"]


def check_template(config: TableConfig, kind: str, keep_weights: bool) -> None:
    """Check the `config` of a conversion, from which the config of each table is made.

    Args:
        config: the config.
        kind: 'hash' or 'static'.
        keep_weights: True to start rows with the values of the weights.

    Raises:
        ValueError: the config has a name or a `vocab_size`; or `kind` is 'static', `keep_weights`
            is True, and the config has an initializer, which would have no effect.

    Example:
        >>> check_template(TableConfig(8), "hash", True)
    """
    if config.name is not None:
        raise ValueError(
            f"config must have no name, got '{config.name}': tables are named prefix + path"
        )
    if config.vocab_size is not None:
        raise ValueError(
            "config must have no vocab_size: for tables of the embeddings' vocabularies give "
            "kind='static'"
        )
    if (
        kind == "static"
        and keep_weights
        and config != dataclasses.replace(config, initializer="normal")
    ):
        raise ValueError("initializer of config is for kind='hash' or keep_weights=False")


def config_of(
    target: Target, template: TableConfig, kind: str, keep_weights: bool, prefix: str
) -> TableConfig:
    """Return the config of the table that replaces an embedding.

    Args:
        target: the embedding.
        template: the settings that all tables of the conversion share.
        kind: 'hash' or 'static'.
        keep_weights: True to start rows with the values of the weights.
        prefix: the first part of the table's name; the embedding's path follows.

    Raises:
        ValueError: the template's `embedding_dim` differs from the embedding's dim, or the template
            does not fit a table of this `kind`.
    """
    if template.embedding_dim != target.dim:
        raise ValueError(
            f"config must have the dim of the embeddings converted: '{target.path}' has "
            f"{target.dim}, config {template.embedding_dim}; convert embeddings of one dim at a "
            "time, by names="
        )
    config = dataclasses.replace(template, name=prefix + target.path)
    if kind == "hash":
        return config
    return dataclasses.replace(
        config,
        vocab_size=target.rows,
        out_of_range="zeros" if target.reads_zeros_outside else "error",
        initializer=0.0 if keep_weights else config.initializer,
    )


def new_lookup(
    target: Target, config: TableConfig, keep_weights: bool, tables: dict[int, Any]
) -> nn.Cell:
    """Return the lookup that replaces an embedding; make the lookup's table if necessary.

    Args:
        target: the embedding.
        config: config of the embedding's table.
        keep_weights: True to start rows with the values of the weights.
        tables: dict that maps `id(weight)` of an old weight to the table that replaces the weight;
            the function adds new tables.

    Raises:
        NameTakenError: an open table has the same name.
    """
    old, weight, padding = target.cell, target.weight, target.padding
    table = tables.get(id(weight))
    if table is None:
        new = _lookup_in_new_table(config, padding)
        tables[id(weight)] = new.embedding_table
        if keep_weights:
            _put_rows(new.embedding_table, target)
        new.embedding_table.requires_grad = weight.requires_grad and config.requires_grad
        # Assigning a parameter to a cell would rename the parameter. `replace_in` does not rename
        # the parameter, so set the parameter's name here.
        new.embedding_table.anchor.name = config.name
    elif config.vocab_size is None:
        new = HashEmbeddingLookup(target.dim, table=table, padding_key=padding)
    else:
        new = TableLookup(table=table, padding_key=padding)
    # Copy attributes from the embedding to the lookup, because other code may read the attributes.
    for attribute in ("vocab_size", "embedding_size", "num_embeddings", "embedding_dim"):
        if attribute in vars(old):
            setattr(new, attribute, getattr(old, attribute))
    new.set_train(old.training)
    return new


def _lookup_in_new_table(config: TableConfig, padding: int | None) -> Any:
    name = config.name or ""
    remedy = f"give another prefix=, got the name '{name}'"
    if open_tables(name):
        raise NameTakenError(
            f"name '{name}' is already used by an open table; close that table; {remedy}"
        )
    try:
        if config.vocab_size is None:
            return HashEmbeddingLookup(config=config, padding_key=padding)
        return EmbeddingLookup(config=config, padding_key=padding)
    except NameTakenError as error:
        raise NameTakenError(f"{error}; {remedy}") from error


def _put_rows(table: Any, target: Target) -> None:
    """Write the embedding's rows to a new table."""
    if table.config.vocab_size is not None:
        table.start_from(target.weight)
        return
    keys = np.arange(target.rows, dtype=np.int64)
    table.write_rows(keys, np.ascontiguousarray(target.weight.asnumpy()))
