# SPDX-License-Identifier: Apache-2.0
"""GroupedEmbedding: looks up several tables, with one operator for each row size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindspore import Tensor, nn, ops

from mindspore_rec.train.nn.grouped_lookup import GroupedLookup
from mindspore_rec.train.nn.join import join_columns
from mindspore_rec.train.nn.lookup import check_coefficient, check_counts, check_padding_key
from mindspore_rec.train.nn.new_tables import new_table
from mindspore_rec.train.parameter.table_config import TableConfig
from mindspore_rec.train.parameter.table_parameter import TableParameter
from mindspore_rec.train.parameter.upstream import REQUIRED

__all__ = ["GroupedEmbedding"]


class GroupedEmbedding(nn.Cell):
    """Look up column t of the ids in table t; tables with equal row sizes share one operator.

    With one operator, many small tables take little more time than one large table. Separate
    lookups would slice the ids, wake the threads and concatenate the rows once per table. Separate
    lookups of the tables would give bit-identical rows and bit-identical trained values.

    Args:
        tables: a HashTable or StaticParameter for each column. A table may serve several columns,
            which are then looked up from left to right. The rows of different tables may differ in
            size.
        config: a `TableConfig` with a different name for each column, in place of `tables`. The
            cell makes a new table for each config. The table is a StaticParameter if the config has
            `vocab_size`, otherwise a HashTable. Default: none.
        padding_key: id whose lookup returns zeros and trains no row, in all tables. Default: none.
        faae_coefficient: number that each occurrence of an id adds to the id's count, 1 to 2**20.
            Pass one number for all columns, or one number per column. Columns of static tables have
            coefficient 1. Default: 1.

    Inputs:
        ids: int32 or int64 Tensor `[..., tables]`.

    Outputs:
        float32 Tensor `[..., tables, dim]` if all rows have the same size `dim`. If the sizes
        differ, the output is a float32 Tensor `[..., sum of the dims]`, which contains the
        concatenated rows of the tables.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        ValueError, RuntimeError: the ids have the wrong number of columns.
        RuntimeError: ids have the wrong dtype or are outside a vocabulary, or the cell is in
            training and its tables have no optimizer.

    The cell is modelled on the merged (grouped) embeddings of Rec SDK and the table batching of
    FBGEMM.

    Example:
        >>> import mindspore as ms
        >>> from mindspore import Tensor
        >>> from mindspore_rec import GroupedEmbedding, MapParameter, TableConfig
        >>> tables = [MapParameter(f"doc.grouped.{t}", value_shape=4) for t in range(3)]
        >>> GroupedEmbedding(tables)(Tensor([[1, 2, 3], [4, 5, 6]], ms.int32)).shape
        (2, 3, 4)
        >>> configs = [TableConfig(4, name=f"doc.grouped.config.{t}") for t in range(2)]
        >>> GroupedEmbedding(config=configs)(Tensor([[1, 2]], ms.int64)).shape
        (1, 2, 4)
        >>> configs = [TableConfig(dim, name=f"doc.grouped.mixed.{dim}") for dim in (4, 16)]
        >>> GroupedEmbedding(config=configs)(Tensor([[1, 2]], ms.int64)).shape
        (1, 20)
    """

    def __init__(
        self,
        tables: Sequence[TableParameter] = REQUIRED,
        *,
        config: Sequence[TableConfig] | None = None,
        padding_key: int | None = None,
        faae_coefficient: int | Sequence[int] = 1,
    ) -> None:
        super().__init__()
        self.padding_key = check_padding_key(padding_key)
        if tables is REQUIRED and config is None:
            raise TypeError("tables must be given, or config=[TableConfig(...), ...]")
        if tables is not REQUIRED and config is not None:
            raise ValueError("tables must be left out if config= is passed, which makes them")
        columns: list[Any] = list(tables if config is None else config)
        coefficients = _coefficients(faae_coefficient, columns)
        if config is not None:
            columns = _new_tables(columns)
        _check_tables(columns)
        self.tables = nn.CellList(columns, auto_prefix=False)
        by_size: dict[int, list[int]] = {}
        for number, table in enumerate(columns):
            by_size.setdefault(table.dim, []).append(number)
        self.groups = tuple(tuple(numbers) for numbers in by_size.values())
        lookups = [
            GroupedLookup([columns[t] for t in g], self.padding_key, [coefficients[t] for t in g])
            for g in self.groups
        ]
        # Do not assign the cells to an attribute, because the attribute's name would become a
        # prefix of the parameters' names.
        self.insert_child_to_cell("lookups", nn.CellList(lookups, auto_prefix=False))
        order = [t for group in self.groups for t in group]
        self.places = tuple(order.index(t) for t in range(len(columns)))
        self.join = join_columns(len(columns))
        # Do not use `ops.cat`: in mixed precision O1, MindSpore parses called functions, and cannot
        # parse `ops.cat`.
        self.concat = ops.Concat(-1)

    def construct(self, ids: Tensor) -> Tensor:
        """Return the rows of ids."""
        if isinstance(ids, (int, float, tuple, list)):
            raise TypeError("ids must be a Tensor, not a Python number, tuple or list")
        if len(self.groups) == 1:
            return self.lookups[0](ids)
        if len(ids.shape) == 0 or ids.shape[-1] != len(self.places):
            raise ValueError(f"ids must be [..., {len(self.places)}], one column a table")
        # Use `split`, because a slice of a Tensor without ids would end the process.
        columns = ops.split(ids, 1, -1)
        rows: tuple[Tensor, ...] = ()
        for number, lookup in enumerate(self.lookups):
            group = self.groups[number]
            # Do not use `stack`, because `stack` in MindIR would fix the number of rows to the
            # number of rows of the first batch.
            of_group = lookup(self.concat([columns[t] for t in group]))
            of_group = of_group.reshape((*ids.shape[:-1], len(group) * lookup.embedding_size))
            rows += ops.split(of_group, lookup.embedding_size, -1)
        in_order: tuple[Tensor, ...] = ()
        for place in self.places:
            in_order += (rows[place],)
        return self.join(*in_order)


def _check_tables(tables: list[TableParameter]) -> None:
    if not tables:
        raise ValueError("tables must have at least one table, got none")
    for table in tables:
        if not isinstance(table, TableParameter):
            raise TypeError(
                f"tables must hold Map- or StaticParameters, got {type(table).__name__}"
            )
        table.refuse_device("a GroupedEmbedding")


def _new_tables(configs: list[TableConfig]) -> list[TableParameter]:
    """Make a table from each config; if an error occurs, close the tables that are already made."""
    names: set[str] = set()
    for config in configs:
        if not isinstance(config, TableConfig):
            raise TypeError(f"config must hold TableConfigs, got {type(config).__name__}")
        if config.name is not None and config.name in names:
            raise ValueError(f"config must have different names, got '{config.name}' twice")
        names |= {config.name or ""}
    tables: list[TableParameter] = []
    try:
        for config in configs:
            tables.append(new_table("GroupedEmbedding", config))
    except BaseException:
        for table in tables:
            table.close()
        raise
    return tables


def _coefficients(numbers: Any, columns: list[Any]) -> list[int]:
    """Return each column's coefficient, which must be 1 unless the table is a hash table."""
    count = len(columns)
    each = list(numbers) if isinstance(numbers, (list, tuple)) else [numbers] * count
    if len(each) != count:
        raise ValueError(f"faae_coefficient must be one number or {count}, got {len(each)}")
    each = [check_coefficient(value) for value in each]
    for coefficient, column in zip(each, columns, strict=True):
        check_counts(column.config if isinstance(column, TableParameter) else column, coefficient)
    return each
