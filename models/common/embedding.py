# SPDX-License-Identifier: Apache-2.0
"""Cells that look up ids in the tables that a configuration describes."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec import (
    EmbeddingBag,
    EmbeddingLookup,
    GroupedEmbedding,
    HashEmbeddingLookup,
    MapParameter,
    TableConfig,
    convert,
)
from models.common.checks import check_least
from models.common.embedding_config import EmbeddingConfig

__all__ = ["EmbeddingConfig", "FieldEmbedding", "FieldSum", "embedding_parameters"]


class FieldEmbedding(nn.Cell):
    """Lookup of the embeddings for all fields of a row.

    Args:
        fields: number of fields F, at least 1.
        config: settings of the embeddings.
        name: name of the table, or prefix of the tables' names.
        seed: seed of the initial values. Default: 0.
        dim: number of floats in an embedding. Default: the configuration's.
        initializer: initial values. Default: normal values with the configuration's standard
            deviation.

    Inputs:
        ids: int64 Tensor `[B, F]`.

    Outputs:
        Tuple of one float32 Tensor `[B, F, dim]`.

    Attributes:
        dim: number of floats in an embedding.
        parts: the tuple `((F, dim),)`; `(F, dim)` is the shape of a row of the output.
        table: the cell that looks up rows.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> embedding = FieldEmbedding(3, EmbeddingConfig(embedding_dim=4), "doc.fields")
        >>> embedding(Tensor([[1, 2, 3]], ms.int64))[0].shape
        (1, 3, 4)
    """

    def __init__(
        self,
        fields: int,
        config: EmbeddingConfig,
        name: str,
        seed: int = 0,
        *,
        dim: int | None = None,
        initializer: Any = None,
    ) -> None:
        super().__init__()
        check_least("fields", fields, 1, 1 << 16)
        described = config.table(name, seed, dim=dim, initializer=initializer)
        self.dim = described.embedding_dim
        self.parts = ((fields, self.dim),)
        self.rows = _RowOfId(config)
        self.table = _lookup_of(fields, config, described)

    def construct(self, ids: Tensor) -> tuple[Tensor, ...]:
        """Return a tuple that contains the embeddings of `ids`."""
        return (self.table(self.rows(ids)),)


class FieldSum(nn.Cell):
    """Sums one weight per id over the ids of a row: the first-order term of a model.

    Args: the same as for `FieldEmbedding`. The weights start at 0.

    Inputs:
        ids: int64 Tensor `[B, F]`.

    Outputs:
        float32 Tensor `[B, 1]`.

    Attributes:
        out_features: width of the output, always 1.
    """

    out_features = 1

    def __init__(self, fields: int, config: EmbeddingConfig, name: str, seed: int = 0) -> None:
        super().__init__()
        self.rows = _RowOfId(config)
        # An `EmbeddingBag` computes the sum inside the lookup's operator. An `EmbeddingBag` needs a
        # single table on the host.
        self.sums = config.tables == "one" and config.host_device_mix and config.kind != "converted"
        if self.sums:
            described = config.table(name, seed, dim=1, initializer="zeros")
            self.table = EmbeddingBag(mode="sum", config=described)
        else:
            each = FieldEmbedding(fields, config, name, seed, dim=1, initializer="zeros")
            self.table = each.table

    def construct(self, ids: Tensor) -> Tensor:
        """Return, for each row, the sum of the weights of the row's ids."""
        weights = self.table(self.rows(ids))
        return weights if self.sums else weights.sum(1)


def embedding_parameters(net: nn.Cell) -> list[Parameter]:
    """Return the parameters of a network's `FieldEmbedding` and `FieldSum` cells.

    Example:
        >>> embedding = FieldEmbedding(2, EmbeddingConfig(), "doc.embedding_parameters")
        >>> net = nn.SequentialCell(embedding, nn.Dense(16, 1))
        >>> len(embedding_parameters(net)), len(net.trainable_params())
        (1, 3)
    """
    cells = [
        each for _, each in net.cells_and_names() if isinstance(each, FieldEmbedding | FieldSum)
    ]
    parameters = {id(p): p for cell in cells for p in cell.trainable_params()}
    return list(parameters.values())


def _lookup_of(fields: int, config: EmbeddingConfig, described: TableConfig) -> nn.Cell:
    """Return the cell that looks up ids `[B, F]` in one table, or in one table per field."""
    if config.kind == "converted":
        return _converted(config, described)
    if config.tables == "per_field":
        names = [f"{described.name}.{f}" for f in range(fields)]
        return GroupedEmbedding(
            config=[dataclasses.replace(described, name=name) for name in names]
        )
    if config.multi_lookup:
        return _LookupPerField(fields, MapParameter(config=described))
    if described.vocab_size is None:
        return HashEmbeddingLookup(config=described)
    if config.host_device_mix:
        return EmbeddingLookup(config=described)
    size, dim = described.vocab_size, described.embedding_dim
    return EmbeddingLookup(size, dim, described.initializer, target="DEVICE", sparse=False)


def _converted(config: EmbeddingConfig, described: TableConfig) -> nn.Cell:
    """Return the lookup in a hash table that `convert` makes from an `nn.Embedding`."""
    if config.buckets is None:
        raise ValueError(
            "'embedding.buckets' must be the size of the vocabulary with kind 'converted'"
        )
    prefix, dot, last = str(described.name).rpartition(".")
    plain = nn.Embedding(
        config.buckets, described.embedding_dim, embedding_table=described.initializer
    )
    holder = nn.SequentialCell(OrderedDict([(last, plain)]))
    convert(holder, prefix=prefix + dot, config=dataclasses.replace(described, name=None))
    return holder[0]


class _LookupPerField(nn.Cell):
    """Looks up the ids of all fields in one common table, with a separate lookup per field."""

    def __init__(self, fields: int, table: MapParameter) -> None:
        super().__init__()
        self.lookups = nn.CellList(
            [HashEmbeddingLookup(table.dim, table=table) for _ in range(fields)]
        )

    def construct(self, ids: Tensor) -> Tensor:
        rows: tuple[Tensor, ...] = ()
        for f in range(len(self.lookups)):
            rows += (self.lookups[f](ids[:, f]),)
        return ops.stack(rows, 1)


class _RowOfId(nn.Cell):
    """Returns the row index of each id: the id's remainder if a table has buckets, else the id."""

    def __init__(self, config: EmbeddingConfig) -> None:
        super().__init__()
        self.buckets = None if config.numbers_ids else config.buckets
        # MindSpore computes int64 remainders in floating point, which is exact only for small
        # numbers.
        self.low_bits = Tensor((1 << 31) - 1, ms.int64)

    def construct(self, ids: Tensor) -> Tensor:
        if self.buckets is None:
            return ids
        return ops.bitwise_and(ids, self.low_bits) % self.buckets
