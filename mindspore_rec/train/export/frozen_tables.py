# SPDX-License-Identifier: Apache-2.0
"""Lookups with MindSpore's own operators, in tables whose rows no longer change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec.train.export.lookup_marks import exchange
from mindspore_rec.train.nn.bag import EmbeddingBag
from mindspore_rec.train.nn.grouped_lookup import GroupedLookup
from mindspore_rec.train.nn.lookup import TableLookup
from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = ["FrozenTable", "frozen"]

_GROUP = "frozen_group"


class FrozenTable(nn.Cell):
    """Table stored in two Parameters: the sorted keys, and the rows in the order of the keys.

    Args:
        table: the table to copy the rows from.
        padding_key: id whose lookup returns zeros, or None.
        mode: 'sum', 'mean' or 'sqrtn', the way in which `pool_eval` combines a bag's rows. Default:
            'sum'.

    Inputs:
        * **ids** (Tensor) - int32 or int64, of any shape.

    Outputs:
        float32 Tensor `[*ids.shape, dim]`. For an id without a row, the output is the value that
        the table returns for unknown ids.
    """

    def __init__(self, table: TableParameter, padding_key: int | None, mode: str = "sum") -> None:
        super().__init__(auto_prefix=False)
        keys, rows, unknown = _rows_of(table)
        if not len(keys):  # searchsorted needs at least one key
            keys, rows = np.zeros(1, np.int64), unknown
        zeros = np.zeros((1, table.dim), np.float32)
        together = np.concatenate([rows.astype(np.float32), unknown, zeros])
        self.count = len(keys)
        self.padding_key, self.mode = padding_key, mode
        self.keys = Parameter(Tensor(keys), name=f"{table.name}.keys", requires_grad=False)
        self.rows = Parameter(Tensor(together), name=f"{table.name}.rows", requires_grad=False)

    def update_parameters_name(self, prefix: str = "", recurse: bool = True) -> None:
        """Keep the parameters' names, so that a file stores the rows of a table with several
        lookups only once.
        """

    def construct(self, ids: Tensor) -> Tensor:
        """Return the rows of the ids."""
        return self.rows_of(ids)

    def rows_of(self, ids: Tensor) -> Tensor:
        """Return the rows of the ids; called by `construct` and `lookup_eval`."""
        flat = ids.astype(ms.int64).reshape((-1,))
        place = ops.minimum(ops.searchsorted(self.keys, flat), self.count - 1)
        known = ops.gather(self.keys, place, 0) == flat
        place = ops.select(known, place, ops.full_like(place, self.count))
        if self.padding_key is not None:
            padding = flat == self.padding_key
            place = ops.select(padding, ops.full_like(place, self.count + 1), place)
        return ops.gather(self.rows, place, 0).reshape((*ids.shape, -1))

    def lookup_eval(self, ids: Tensor, descriptor: Tensor, narrow: bool = False) -> Tensor:
        """Return the rows of the ids; this method replaces `TableParameter.lookup_eval`."""
        return self.rows_of(ids)

    def pool_eval(self, ids: Tensor, offsets: Any, weights: Any, descriptor: Tensor) -> Tensor:
        """Return one combined row per bag, like `TableParameter.pool_eval`."""
        if offsets is not None or weights is not None:
            raise ValueError("bags with offsets or weights have no form as MindIR")
        total = self.rows_of(ids).sum(1)
        if self.mode == "sum":
            return total
        counted = ops.ones_like(ids) if self.padding_key is None else ids != self.padding_key
        count = ops.maximum(counted.astype(ms.float32).sum(1, keepdims=True), 1.0)
        return total / (count if self.mode == "mean" else ops.sqrt(count))


class _FrozenGroup(nn.Cell):
    """Rows of several tables, with one table for each column of ids."""

    def __init__(self, tables: list[FrozenTable]) -> None:
        super().__init__(auto_prefix=False)
        self.tables = nn.CellList(tables)

    def construct(self, ids: Tensor, descriptor: Tensor, like: Tensor, anchor: Tensor) -> Tensor:
        rows: tuple[Tensor, ...] = ()
        for i, table in enumerate(self.tables):
            rows += (table(ids[..., i]),)
        return ops.stack(rows, -2)


@contextmanager
def frozen(network: nn.Cell) -> Iterator[None]:
    """Inside the context, replace the tables of a network's lookups by `FrozenTable`s.

    Raises:
        ValueError: a lookup has bfloat16 output, which MindIR does not support.
    """
    replaced: list[tuple[nn.Cell, str, Any]] = []

    def replace(cell: nn.Cell, attribute: str, stand_in: nn.Cell) -> None:
        replaced.append((cell, attribute, exchange(cell, attribute, stand_in)))

    try:
        for _, cell in list(network.cells_and_names()):
            if isinstance(cell, EmbeddingBag):
                table = FrozenTable(cell.embedding_table, cell.padding_key, cell.mode)
                replace(cell, "embedding_table", table)
            elif isinstance(cell, TableLookup):
                if cell.narrow:
                    raise ValueError("lookups with output_dtype bfloat16 have no MindIR")
                table = FrozenTable(cell.embedding_table, cell.padding_key)
                replace(cell, "embedding_table", table)
            elif isinstance(cell, GroupedLookup):
                tables = [FrozenTable(table, cell.padding_key) for table in cell.tables]
                group = _FrozenGroup(tables)
                replace(cell, "_eval", group)
                cell._cells[_GROUP] = group  # an export finds only Parameters in cells
        yield
    finally:
        for _, cell in list(network.cells_and_names()):
            cell._cells.pop(_GROUP, None)
        for cell, attribute, value in reversed(replaced):
            exchange(cell, attribute, value)
        network.compile_cache.clear()


def _rows_of(table: TableParameter) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return sorted keys, their rows, and the row `[1, dim]` for ids without a row."""
    if table.vocabulary:
        keys = np.arange(table.vocabulary, dtype=np.int64)
        return keys, table.read_rows(keys), np.zeros((1, table.dim), np.float32)
    parts = table.export_rows()
    order = np.argsort(parts["keys"])
    keys = parts["keys"][order].astype(np.int64)
    without_row = np.setdiff1d(np.arange(len(keys) + 1), keys)[:1]
    return keys, parts["values"][order], table.read_rows(without_row)
