# SPDX-License-Identifier: Apache-2.0
"""SchemaFeatures: the arrays of a schema, for networks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from mindspore import Tensor, nn

from mindspore_rec.common.columns.lists import PADDING_KEY
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.rows.policies import CountAdmission, Eviction
from mindspore_rec.train.models.features import Features
from mindspore_rec.train.nn.bag import EmbeddingBag
from mindspore_rec.train.nn.lookup import TableLookup
from mindspore_rec.train.parameter.hash_table import HashTable
from mindspore_rec.train.parameter.table_config import TableConfig

__all__ = ["SchemaFeatures"]


class _Window(NamedTuple):
    """Consecutive columns of `ids` that one lookup reads: keys of one table, or one bag."""

    group: int
    start: int
    stop: int
    is_bag: bool

    @property
    def vectors(self) -> int:
        """Number of vectors that the lookup returns."""
        return 1 if self.is_bag else self.stop - self.start


@dataclass(frozen=True)
class SchemaFeatures(Features):
    """The arrays `ids` and `numbers` of a schema.

    Neighbouring fields of one table have one lookup. A list or text has an `EmbeddingBag`, which
    returns the mean of the vectors of its values. All lookups of a table share the table.

    The table of all columns without own settings has the name of the cell. Each further table's
    name is the cell's name, a dot, and the name of the table in the schema. If the table has no
    name there, its number in `Schema.tables` is used.

    Args:
        schema: the schema.
    """

    schema: Schema

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of floats in the vector of each field."""
        groups = _groups_of_fields(self.schema)
        return tuple(self.schema.tables[group].embedding_dim for group in groups)

    @property
    def numbers(self) -> int:
        """Number of floats in a row of the array `numbers`."""
        return len(self.schema.numbers)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the labels."""
        return tuple(self.schema.tasks)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the fields."""
        return tuple(field.name for field in self.schema.fields)

    def embedding(self, name: str, seed: int) -> nn.Cell:
        """Return a cell that returns the vectors of all fields."""
        return SchemaEmbedding(self.schema, name, seed)

    def sums(self, name: str, seed: int) -> nn.Cell:
        """Return a cell that returns the sum of one weight per field."""
        return SchemaSum(self.schema, name, seed)


class SchemaEmbedding(nn.Cell):
    """Lookup of the vectors of all fields of a schema.

    Args:
        schema: the schema.
        name: name of the first table, and prefix of the names of further tables.
        seed: seed of the tables' initial values.

    Inputs:
        ids: int64 Tensor `[B, W]`, the schema's array `ids`.

    Outputs:
        Tuple of float32 Tensors `[B, vectors, dim]`, one for each of `parts`.

    Attributes:
        parts: the pairs (vectors, dim) of the outputs.
    """

    def __init__(self, schema: Schema, name: str, seed: int) -> None:
        super().__init__()
        windows = list(_windows(schema))
        tables: dict[int, HashTable] = {}
        configs = {
            window.group: _table_config(schema, window.group, name, seed) for window in windows
        }
        self.parts = tuple((w.vectors, configs[w.group].embedding_dim) for w in windows)
        self.lookups = nn.CellList()
        for window in windows:
            combiner = "mean" if window.is_bag else None
            self.lookups.append(_WindowLookup(window, combiner, configs[window.group], tables))

    def construct(self, ids: Tensor) -> Any:
        """Return the vectors."""
        vectors: tuple[Tensor, ...] = ()
        for k in range(len(self.lookups)):
            vectors += (self.lookups[k](ids).reshape((-1, *self.parts[k])),)
        return vectors


class SchemaSum(nn.Cell):
    """Lookup of one weight per key, summed over the fields of a schema: the first-order term.

    The weight of a list is the mean of the weights of its values. All weights start at 0.

    Args: as for `SchemaEmbedding`.

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
        self.lookups = nn.CellList()
        for window in _windows(schema):
            config = _table_config(schema, window.group, name, seed, weights=True)
            combiner = "mean" if window.is_bag else "sum"
            self.lookups.append(_WindowLookup(window, combiner, config, tables))

    def construct(self, ids: Tensor) -> Tensor:
        """Return the sum of the weights."""
        total = self.lookups[0](ids)
        for k in range(1, len(self.lookups)):
            total = total + self.lookups[k](ids)
        return total


class _WindowLookup(nn.Cell):
    """Lookup of some columns of ids, combined or not, in the table of their group.

    Args:
        window: the columns.
        combiner: 'mean' or 'sum', or None for separate rows.
        config: description of the group's table.
        tables: tables by group; the group's table is added if it is missing.
    """

    def __init__(
        self,
        window: _Window,
        combiner: str | None,
        config: TableConfig,
        tables: dict[int, HashTable],
    ) -> None:
        super().__init__()
        self.start, self.stop = window.start, window.stop
        table = tables.get(window.group)
        if table is None:
            table = tables[window.group] = HashTable(config)
        if combiner is None:
            self.table: nn.Cell = TableLookup(table=table)
        else:
            padding = PADDING_KEY if window.is_bag else None
            self.table = EmbeddingBag(mode=combiner, table=table, padding_key=padding)

    def construct(self, ids: Tensor) -> Tensor:
        return self.table(ids[:, self.start : self.stop])


def _windows(schema: Schema) -> Iterator[_Window]:
    """Yield the columns of each lookup, in the order of the fields."""
    window: _Window | None = None
    for field, group in zip(schema.fields, _groups_of_fields(schema), strict=True):
        if window is not None:
            if group == window.group and not (field.is_bag or window.is_bag):
                window = window._replace(stop=field.stop)
                continue
            yield window
        window = _Window(group, field.start, field.stop, field.is_bag)
    if window is not None:
        yield window


def _groups_of_fields(schema: Schema) -> list[int]:
    """Return the index in `schema.tables` of each field's table."""
    groups = [0] * len(schema.fields)
    for number, group in enumerate(schema.tables):
        for field in group.fields:
            groups[field] = number
    return groups


def _table_config(
    schema: Schema, group: int, name: str, seed: int, weights: bool = False
) -> TableConfig:
    """Return the description of a group's table.

    Args:
        schema: the schema.
        group: index of the group in `schema.tables`.
        name: name of the first group's table.
        seed: seed of the initial values.
        weights: True for a table of first-order weights. Default: False.
    """
    described = schema.tables[group]
    seconds = described.eviction
    settings = (described.embedding_dim, described.admission, seconds)
    if described.name is None and settings != (schema.embedding_dim, None, None):
        name += f".{group}"
        if str(group) in [each.name for each in schema.tables]:
            raise ValueError(
                f"table '{group}' of the schema has the name of a table that is numbered: choose "
                "a name that is no number"
            )
    elif described.name is not None:
        name += f".{described.name}"
    return TableConfig(
        1 if weights else described.embedding_dim,
        name=name,
        initializer="zeros" if weights else "normal",
        seed=seed,
        admission=None if described.admission is None else CountAdmission(described.admission),
        eviction=None if seconds is None else Eviction(max_idle_seconds=seconds),
        unknown_value=0.0,
    )
