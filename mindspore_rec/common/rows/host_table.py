# SPDX-License-Identifier: Apache-2.0
"""HostTable: rows and state of a table outside a graph, for checkpoints."""

from __future__ import annotations

from typing import Any

from mindspore_rec.common.rows.host_rows import HostRows
from mindspore_rec.common.rows.table_state import TableState

__all__ = ["HostTable"]


class HostTable(HostRows, TableState):
    """Base class of the tables of a network and of a predictor.

    Attributes:
        dim: number of floats in a row.
        key_dtype: 'Int32' or 'Int64', or MindSpore's type with this name.
        counts_keys: True if the table counts the occurrences of keys without a row.
        admission: the table's admission policy; the attribute exists only if `counts_keys` is True.
    """

    dim: int
    key_dtype: Any
    counts_keys: bool
    admission: Any

    @property
    def name(self) -> str:
        """Name of the table. The name and the seed determine every row's initial value."""
        return self._table_name

    def stats(self) -> dict[str, Any]:
        """Return the counts of rows, bytes and operations."""
        raise NotImplementedError
