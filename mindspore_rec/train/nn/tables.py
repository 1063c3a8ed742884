# SPDX-License-Identifier: Apache-2.0
"""tables_of: the tables in a network."""

from __future__ import annotations

from mindspore import nn

from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = ["tables_of"]


def tables_of(net: nn.Cell) -> list[TableParameter]:
    """Return all tables of a network, each once, in the order of the network's cells.

    Args:
        net: any Cell.

    Example:
        >>> from mindspore_rec import HashEmbeddingLookup
        >>> [table.name for table in tables_of(HashEmbeddingLookup(2, name="doc.tables_of"))]
        ['doc.tables_of']
    """
    tables: list[TableParameter] = []
    for _, cell in net.cells_and_names():
        if isinstance(cell, TableParameter) and cell not in tables:
            tables.append(cell)
    return tables
