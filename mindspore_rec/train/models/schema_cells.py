# SPDX-License-Identifier: Apache-2.0
"""Cells that look up the array `ids` of a schema."""

from __future__ import annotations

from typing import Any

from mindspore import Tensor, nn

from mindspore_rec.common.columns.lists import PADDING_KEY
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.models.schema_tables import Window, table_config, windows_of
from mindspore_rec.train.nn.bag import EmbeddingBag
from mindspore_rec.train.nn.checked_ids import CheckedIds
from mindspore_rec.train.nn.id_dropout import IdDropout
from mindspore_rec.train.nn.lookup import TableLookup
from mindspore_rec.train.parameter.hash_table import HashTable
from mindspore_rec.train.parameter.table_config import TableConfig

__all__ = ["SchemaEmbedding", "SchemaSum"]


class SchemaEmbedding(nn.Cell):
    """Lookup of the vectors for all fields of a schema.

    Args:
        schema: the schema.
        name: name of the first table; the names of all other tables begin with this name.
        seed: seed of the tables' initial values.

    Inputs:
        ids: int64 Tensor `[B, W]`, the schema's array `ids`.

    Outputs:
        Tuple of float32 Tensors `[B, vectors, dim]`, one Tensor for each pair in `parts`.

    Attributes:
        parts: tuple with a pair (vectors, dim) for each output.
        schema: the schema.

    Raises:
        ValueError: the number of ids in a row of `ids` differs from the schema.
    """

    def __init__(self, schema: Schema, name: str, seed: int) -> None:
        super().__init__()
        windows = list(windows_of(schema))
        tables: dict[int, HashTable] = {}
        configs = {
            group: table_config(schema, group, name, seed) for group in range(len(schema.tables))
        }
        self.schema = schema
        self.parts = tuple((w.vectors, configs[w.group].embedding_dim) for w in windows)
        self.checked = CheckedIds(windows[-1].stop)
        self.lookups = nn.CellList()
        for window in windows:
            combiner = "mean" if window.is_bag else None
            config = configs[window.group]
            self.lookups.append(_WindowLookup(window, combiner, config, tables, seed))
        self._configs = configs
        self._tables = tables

    def group_of(self, history: str) -> int | None:
        """Return the index of the table for a history's column; None if the column has numbers."""
        groups = enumerate(self.schema.tables)
        return next((number for number, each in groups if history in each.histories), None)

    def table_of(self, group: int) -> HashTable:
        """Return the table of a group; make the table if it does not exist yet."""
        if group not in self._tables:
            self._tables[group] = HashTable(self._configs[group])
        return self._tables[group]

    def construct(self, ids: Tensor) -> Any:
        """Return the vectors."""
        ids = self.checked(ids)
        vectors: tuple[Tensor, ...] = ()
        for k in range(len(self.lookups)):
            vectors += (self.lookups[k](ids).reshape((-1, *self.parts[k])),)
        return vectors


class SchemaSum(nn.Cell):
    """Lookup of one weight per key, summed over the fields of a schema: the first-order term.

    The weight of a list is the mean of the weights of its values. All weights start at 0.

    Args: see `SchemaEmbedding`.

    Inputs:
        ids: int64 Tensor `[B, W]`, the schema's array `ids`.

    Outputs:
        float32 Tensor `[B, 1]`.

    Attributes:
        out_features: width of the output, 1.
    """

    out_features = 1

    def __init__(self, schema: Schema, name: str, seed: int) -> None:
        super().__init__()
        tables: dict[int, HashTable] = {}
        windows = list(windows_of(schema))
        self.checked = CheckedIds(windows[-1].stop)
        self.lookups = nn.CellList()
        for window in windows:
            config = table_config(schema, window.group, name, seed, weights=True)
            combiner = "mean" if window.is_bag else "sum"
            self.lookups.append(_WindowLookup(window, combiner, config, tables, seed))

    def construct(self, ids: Tensor) -> Tensor:
        """Return the sum of the weights."""
        ids = self.checked(ids)
        total = self.lookups[0](ids)
        for k in range(1, len(self.lookups)):
            total = total + self.lookups[k](ids)
        return total


class _WindowLookup(nn.Cell):
    """Lookup of some columns of ids in one table; the rows are combined or returned separately.

    Args:
        window: the columns.
        combiner: 'mean' or 'sum', or None for separate rows.
        config: description of the group's table.
        tables: tables by group. If the group's table is missing, this cell adds the table.
        seed: seed of the random choice of dropped keys. Two lookups of the same columns drop the
            same keys.
    """

    def __init__(
        self,
        window: Window,
        combiner: str | None,
        config: TableConfig,
        tables: dict[int, HashTable],
        seed: int,
    ) -> None:
        super().__init__()
        self.start, self.stop = window.start, window.stop
        self.drops = window.drops
        if window.drops:
            self.dropout = IdDropout(window.dropout, PADDING_KEY, seed)
        padding = PADDING_KEY if window.is_bag or window.drops else None
        table = tables.get(window.group)
        if table is None:
            table = tables[window.group] = HashTable(config)
        if combiner is None:
            self.table: nn.Cell = TableLookup(table=table, padding_key=padding)
        else:
            self.table = EmbeddingBag(mode=combiner, table=table, padding_key=padding)

    def construct(self, ids: Tensor) -> Tensor:
        ids = ids[:, self.start : self.stop]
        return self.table(self.dropout(ids) if self.drops else ids)
