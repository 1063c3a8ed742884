# SPDX-License-Identifier: Apache-2.0
"""Tables of a conversion: their descriptions, and the lookups that stand for embeddings."""

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
    """Check what a conversion is given as `config`, from which its tables' descriptions are made.

    Args:
        config: the config.
        kind: 'hash' or 'static'.
        keep_weights: whether rows start as the weights are.

    Raises:
        ValueError: the config says what each embedding says for itself.

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
    """Return the description of the table that takes an embedding's rows.

    Args:
        target: the embedding.
        template: what all tables of the conversion have in common.
        kind: 'hash' or 'static'.
        keep_weights: whether rows start as the weights are.
        prefix: text before the embedding's path in the table's name.

    Raises:
        ValueError: the template has another `dim`, or is of no use for this kind.
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
    """Return the lookup that stands for an embedding; make its table unless there is one already.

    Args:
        target: the embedding.
        config: the description of its table.
        keep_weights: whether rows start as the weights are.
        tables: tables of the conversion by the id of the weight they stand for; a new one is added.

    Raises:
        NameTakenError: an open table has the name.
    """
    old, weight, padding = target.cell, target.weight, target.padding
    table = tables.get(id(weight))
    if table is None:
        new = _lookup_in_new_table(config, padding)
        tables[id(weight)] = new.embedding_table
        if keep_weights:
            _put_rows(new.embedding_table, target)
        new.embedding_table.requires_grad = weight.requires_grad and config.requires_grad
        # Cells rename what is assigned to them; nothing is assigned when this cell is put in place.
        new.embedding_table.anchor.name = config.name
    elif config.vocab_size is None:
        new = HashEmbeddingLookup(target.dim, table=table, padding_key=padding)
    else:
        new = TableLookup(table=table, padding_key=padding)
    # Attributes that code around an embedding may read.
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
    """Give a new table the embedding's rows."""
    if table.config.vocab_size is not None:
        table.start_from(target.weight)
        return
    keys = np.arange(target.rows, dtype=np.int64)
    table.write_rows(keys, np.ascontiguousarray(target.weight.asnumpy()))
