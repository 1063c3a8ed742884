# SPDX-License-Identifier: Apache-2.0
"""Between Arrow record batches and whole-batch NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = [
    "as_array",
    "join_rows",
    "one_array",
    "to_array",
    "to_arrays",
    "to_column",
    "to_record_batch",
]


def to_arrays(rows: pa.RecordBatch, *, text: bool = False) -> dict[str, np.ndarray]:
    """Return the columns as arrays: ``[B]`` of plain values, ``[B, N]`` of fixed-size lists.

    Args:
        rows: numbers, or fixed-size lists of numbers, without missing values but for floats, where
            they are NaN.
        text: whether columns of text are taken too, as arrays ``[B]`` of str and None, which a
            `FeatureSpec` reads. Default: False.

    Returns:
        Arrays by name, which may be read only and share the batch's memory.

    Raises:
        ValueError: a column has missing values, or nothing of what is taken.

    Example:
        >>> rows = to_record_batch({"ids": np.array([[1, 2], [3, 4]]), "label": np.zeros(2)})
        >>> {name: array.shape for name, array in to_arrays(rows).items()}
        {'ids': (2, 2), 'label': (2,)}
    """
    return {name: to_array(name, rows.column(i), text) for i, name in enumerate(rows.schema.names)}


def to_array(name: str, column: pa.Array, text: bool = False) -> np.ndarray:
    """Return a column as `to_arrays` does, which raises the same."""
    kind = column.type
    if text and _is_text(kind):
        return column.to_numpy(zero_copy_only=False)
    if pa.types.is_fixed_size_list(kind):
        if column.null_count:
            raise ValueError(f"column {name!r} has missing lists")
        return to_array(name, column.flatten(), text).reshape(len(column), kind.list_size)
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        if column.null_count and pa.types.is_integer(kind):
            raise ValueError(f"column {name!r} of {kind} has missing values")
        return column.to_numpy(zero_copy_only=False)
    if pa.types.is_boolean(kind):
        if column.null_count:
            raise ValueError(f"column {name!r} of {kind} has missing values")
        return column.to_numpy(zero_copy_only=False)
    raise ValueError(f"column {name!r} is {kind}, not numbers: a transform has to make some of it")


def as_array(name: str, column: Any, text: bool = False) -> Any:
    """Return an Arrow array as `to_array` does, and any other column unchanged."""
    return to_array(name, column, text) if isinstance(column, pa.Array) else column


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def to_record_batch(rows: Any) -> pa.RecordBatch:
    """Return rows of any kind as one record batch.

    Args:
        rows: an Arrow RecordBatch or Table, a pandas DataFrame, or a dict of arrays ``[B]`` or
            ``[B, N]``.

    Raises:
        TypeError: it is none of them.
        ValueError: columns of different lengths, or arrays of more dimensions.

    Example:
        >>> to_record_batch({"ids": np.array([[1, 2]])}).schema.field("ids").type
        FixedSizeListType(fixed_size_list<item: int64>[2])
    """
    if isinstance(rows, pa.RecordBatch):
        return rows
    if hasattr(rows, "__arrow_c_array__"):  # what DataReceiver.recv returns, for example
        return pa.record_batch(rows)
    if isinstance(rows, Mapping):
        arrays = {str(name): to_column(str(name), values) for name, values in rows.items()}
        lengths = {name: len(array) for name, array in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns must have the same number of rows, got {lengths}")
        return pa.RecordBatch.from_pydict(arrays)
    if not isinstance(rows, pa.Table):
        import pandas as pd

        if not isinstance(rows, pd.DataFrame):
            raise TypeError(
                "rows must be an Arrow RecordBatch or Table, a DataFrame or a dict of arrays, "
                f"got {type(rows).__name__}"
            )
        rows = pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(None)
    batches = rows.to_batches()
    if not batches:
        return pa.RecordBatch.from_pylist([], rows.schema)
    return join_rows(batches)


def to_column(name: str, values: Any) -> pa.Array:
    """Return values ``[B]`` or ``[B, N]`` as an Arrow array.

    Args:
        name: of the column, for messages.
        values: a list, an array, a pandas Series or an Arrow array, which stays as it is.

    Raises:
        TypeError: they are of several types, or of one that Arrow has not.
        ValueError: they have more dimensions, or none, or lists of several lengths.
    """
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, pa.ChunkedArray):
        return one_array(values)
    try:
        array = np.asarray(values)
    except ValueError as error:  # of NumPy: lists of several lengths
        raise ValueError(f"column {name!r} must have one shape a row: {error}") from error
    if array.ndim == 1:
        try:
            return pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise TypeError(f"column {name!r} must have values of one type: {error}") from error
    if array.ndim != 2:
        raise ValueError(f"column {name!r} must have 1 or 2 dimensions, got {array.ndim}")
    flat = pa.array(np.ascontiguousarray(array).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, array.shape[1])


def join_rows(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of record batches of one schema, at least one, one after the other."""
    if len(parts) == 1:
        return parts[0]
    table = pa.Table.from_batches(parts)
    arrays = [one_array(table.column(i)) for i in range(table.num_columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=parts[0].schema)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return the chunks of a column as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    merged = column.combine_chunks()
    return merged if isinstance(merged, pa.Array) else merged.chunk(0)
