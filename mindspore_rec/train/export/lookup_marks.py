# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for a network's lookups during its export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec.train.export.not_exportable import NotExportableError
from mindspore_rec.train.export.onnx_rewrite import STARTS, WEIGHTS
from mindspore_rec.train.nn.bag import EmbeddingBag
from mindspore_rec.train.nn.grouped_lookup import GroupedLookup
from mindspore_rec.train.nn.lookup import TableLookup
from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = ["LookupMark", "exchange", "marked"]


class LookupMark(nn.Cell):
    """Stand-in for a lookup during the export: a Gather, followed by a sum for a bag."""

    def __init__(
        self,
        number: int,
        tables: Sequence[TableParameter],
        padding_key: int | None,
        combiner: str | None,
        grouped: bool = False,
    ) -> None:
        super().__init__(auto_prefix=False)
        self.tables = list(tables)
        self.padding_key, self.combiner, self.grouped = padding_key, combiner, grouped
        rows = np.zeros((3, tables[0].dim), np.float32)
        name = f"lookup:{number}"
        self.rows = Parameter(Tensor(rows), name=name, requires_grad=False)
        self.starts = Parameter(Tensor(rows), name=name + STARTS, requires_grad=False)
        self.weight = Parameter(
            Tensor(np.ones(1, np.float32)), name=name + WEIGHTS, requires_grad=False
        )

    def update_parameters_name(self, prefix: str = "", recurse: bool = True) -> None:
        """Leave the parameter's name unchanged, because the name identifies the lookup."""

    def lookup_eval(self, ids: Tensor, descriptor: Tensor, narrow: bool = False) -> Tensor:
        """Return the gathered rows of the ids in float32, the only dtype of exported networks."""
        return ops.gather(self.rows, ids, 0)

    def pool_eval(self, ids: Tensor, offsets: Any, weights: Any, descriptor: Tensor) -> Tensor:
        """Return a sum of gathered rows; the sum's graph contains all inputs of the bag."""
        rows = ops.gather(self.rows, ids, 0)
        if weights is not None:
            rows = rows * ops.expand_dims(weights * self.weight, -1)
        if offsets is None:
            return rows.sum(1)
        # The returned sum has the shape of the lookup's output, and depends on all inputs of the
        # lookup. The exported sum is never computed.
        return ops.gather(self.starts, offsets, 0) + rows.sum(0)

    def construct(self, ids: Tensor, descriptor: Tensor, like: Tensor, anchor: Tensor) -> Tensor:
        """Return the gathered rows of the ids.

        The arguments are the same as for a lookup in a group of tables.
        """
        return ops.gather(self.rows, ids, 0)


@contextmanager
def marked(network: nn.Cell) -> Iterator[dict[str, LookupMark]]:
    """Inside the context, replace the lookups of a network by stand-ins."""
    replaced: list[tuple[nn.Cell, str, Any]] = []
    marks: dict[str, LookupMark] = {}

    def mark(cell: nn.Cell, attribute: str, *described: Any) -> None:
        made = LookupMark(len(marks), *described)
        marks[made.rows.name] = made
        replaced.append((cell, attribute, exchange(cell, attribute, made)))

    try:
        for _, cell in list(network.cells_and_names()):
            if isinstance(cell, EmbeddingBag):
                tables = [cell.embedding_table]
                mark(cell, "embedding_table", tables, cell.padding_key, cell.mode)
            elif isinstance(cell, TableLookup):
                mark(cell, "embedding_table", [cell.embedding_table], cell.padding_key, None)
            elif isinstance(cell, GroupedLookup):
                mark(cell, "_eval", list(cell.tables), cell.padding_key, None, True)
        yield marks
    finally:
        for cell, attribute, value in replaced:
            exchange(cell, attribute, value)
        network.compile_cache.clear()


def exchange(cell: nn.Cell, attribute: str, value: Any) -> Any:
    """Set an attribute without the checks of `Cell`; return the attribute's old value."""
    holders = (cell.__dict__, cell._cells, getattr(cell, "_primitives", {}))
    for holder in holders:
        if attribute in holder:
            before = holder[attribute]
            holder[attribute] = value
            return before
    raise NotExportableError(f"{type(cell).__name__} has no {attribute}")
