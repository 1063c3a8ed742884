# SPDX-License-Identifier: Apache-2.0
"""ServedTable: a table for lookups only, without MindSpore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mindspore_rec import _native
from mindspore_rec._native import NameTakenError
from mindspore_rec.common.rows.host_table import HostTable
from mindspore_rec.common.rows.table_scope import current_scope

__all__ = ["ServedTable"]


class ServedTable(HostTable):
    """Native table of a predictor: rows without optimizer state and without counters.

    If two tables of a scope (`own_scope`) have the same name, the newer table is used. The same
    rule applies to `TableParameter` objects.

    Args:
        arguments: the arguments of `_native.Table`, from `TableConfig.native_arguments`.
        key_dtype: 'Int32' or 'Int64'.

    Attributes:
        dim: number of floats in a row.
        key_dtype: the argument `key_dtype`.
        drops_old_rows: True if the table evicts rows by age.

    Example:
        >>> import numpy as np
        >>> table = ServedTable({"name": "doc.served_table", "dim": 2}, "Int64")
        >>> table.write_rows(np.array([7]), np.ones((1, 2), np.float32))
        >>> table.read_rows(np.array([7, 8])).tolist()
        [[1.0, 1.0], [0.0, 0.0]]
        >>> table.close()
    """

    counts_keys = False

    def __init__(self, arguments: Mapping[str, Any], key_dtype: str) -> None:
        named = {**arguments, "scope": current_scope()}
        try:
            self._table = _native.Table(**named)
        except NameTakenError:
            self._table = _native.Table(**named, replace=True)
        self._table_name = self._table.name
        self.dim = self._table.dim
        self.key_dtype = key_dtype
        limits = [arguments.get(f"max_idle_{what}", -1) for what in ("steps", "seconds")]
        self.drops_old_rows = any(limit >= 0 for limit in limits)

    def _synchronised(self) -> _native.Table:
        return self._table

    def stats(self) -> dict[str, Any]:
        """Return the counts of rows, bytes and operations, as `TableParameter.stats` does."""
        return self._table.stats()

    def close(self) -> None:
        """Free the table's rows and its name."""
        self._table.close()
