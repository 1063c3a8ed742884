# SPDX-License-Identifier: Apache-2.0
"""BatchRows: the columns of one batch, by name or by place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from mindspore_rec.common.columns.arrow_columns import to_column, to_record_batch, values_array
from mindspore_rec.common.columns.shared_keys import SharedKeys

__all__ = ["BatchRows", "flat_values"]


class BatchRows:
    """Columns of a batch. Each column is converted to Arrow once, at the first use of the column.

    Args:
        rows: an Arrow RecordBatch or Table, a DataFrame, or a dict, tuple or list of arrays or
            Tensors.
        names: names of all columns of the batch, if the dict `rows` has only some of the columns.
            With `names`, features may refer to a column by name or by place. Default: features
            refer to the columns of a dict by name, and to the columns of a tuple by place.

    Attributes:
        names: names of the columns. If `rows` is a tuple or list, the names are '0', '1', and so
            on.
        by_place: True if features must refer to columns by place, False if features must refer to
            columns by name, None if both are legal.
        keys: the `SharedKeys` of the batch, which all outputs of a pipeline use.

    Raises:
        TypeError: `rows` is of an unsupported type.
        ValueError: two columns have the same name.

    Example:
        >>> rows = BatchRows((np.array([7, 9]), np.array(["a", "b"])))
        >>> rows.names, rows.raw("0"), rows.arrow("1").type
        (['0', '1'], array([7, 9]), DataType(string))
    """

    def __init__(self, rows: Any, names: Sequence[str] | None = None) -> None:
        self.by_place = None if names is not None else isinstance(rows, (tuple, list))
        self._columns: dict[str, Any]
        if self.by_place:
            self._columns = {str(place): column for place, column in enumerate(rows)}
        elif isinstance(rows, Mapping):
            self._columns = {str(name): column for name, column in rows.items()}
        else:
            batch = to_record_batch(rows)
            _check_names(batch.schema.names)
            self._columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        self.names = list(self._columns if names is None else names)
        self._known = frozenset(self.names)
        self._arrow: dict[str, pa.Array] = {}
        self.keys = SharedKeys()

    def name_of(self, column: str | int) -> str | None:
        """Return a column's name from its name or place; None if the batch lacks the column."""
        if isinstance(column, int):
            return self.names[column] if column < len(self.names) else None
        return column if column in self._known else None

    def as_record_batch(self) -> pa.RecordBatch:
        """Return all columns as one record batch."""
        return to_record_batch({name: self.arrow(name) for name in self._columns})

    def given(self, name: str) -> Any:
        """Return a column in its original form, without a conversion."""
        return self._columns[name]

    def raw(self, name: str) -> Any:
        """Return a column as an array. An Arrow column stays an Arrow array.

        A column of a pandas extension type, such as nullable integers, becomes an Arrow array.
        """
        column = self._columns[name]
        if hasattr(column, "asnumpy"):  # a Tensor
            return column.asnumpy()
        if isinstance(getattr(column, "dtype", None), pd.api.extensions.ExtensionDtype):
            return self.arrow(name)  # of pandas: text, integers with a missing one, ...
        if isinstance(column, (pa.Array, pa.ChunkedArray)):
            return column
        try:
            return np.asarray(column)
        except ValueError:  # of NumPy: lists of several lengths
            return self.arrow(name)  # raises with the column's name

    def arrow(self, name: str) -> pa.Array:
        """Return a column as an Arrow array."""
        if name not in self._arrow:
            column = self._columns[name]
            if hasattr(column, "asnumpy"):  # a Tensor
                column = column.asnumpy()
            self._arrow[name] = to_column(name, column)
        return self._arrow[name]


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"columns must have different names, got {name!r} twice")


def flat_values(where: str, column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, tuple[int, ...]]:
    """Flatten a column of fixed-size lists, and return the values and the column's shape.

    Args:
        where: text before the word "must" in error messages.
        column: array or chunked array ``[B]`` of values or of fixed-size lists. Lists may be
            nested.

    Raises:
        ValueError: a list is missing, or the Arrow type allows lists of different lengths.

    Example:
        >>> pairs = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4]), 2)
        >>> values, shape = flat_values("column 'x' must", pairs)
        >>> values.to_pylist(), shape
        ([1, 2, 3, 4], (2, 2))
    """
    shape: tuple[int, ...] = (len(column),)
    column = values_array(where, column)
    while pa.types.is_fixed_size_list(column.type):
        if column.null_count:
            raise ValueError(f"{where} have no missing list")
        shape = (*shape, column.type.list_size)
        column = values_array(where, column.flatten())
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        raise ValueError(
            f"{where} have one shape a row, got {column.type}: pandas.DataFrame(column.tolist()) "
            "makes a column of each place, and `Categories` read lists of any length"
        )
    return column, shape
