# SPDX-License-Identifier: Apache-2.0
"""Convert one column of a batch by its FeatureSpec: values to keys, timestamps to an event time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.common.columns.arrow_columns import is_text, values_array
from mindspore_rec.common.columns.batch_rows import flat_values
from mindspore_rec.common.columns.feature_spec import FeatureSpec
from mindspore_rec.common.columns.hashing import keys_of

__all__ = ["MAX_EVENT_TIME", "check_batch_size", "event_time", "key_column", "time_values"]

MAX_EVENT_TIME = (1 << 32) - 1  # seconds: a row keeps the time it was last seen in 4 bytes


def key_column(spec: FeatureSpec, column: Any) -> np.ndarray:
    """Return a feature's values as keys of its table, without applying its `transform`.

    The key of an integer is the integer itself. int32 stays int32, and all other integer types
    become int64. `category_keys` hashes strings, with the table's name as the field: if two
    features share a table, equal strings get the same key.

    Args:
        spec: the feature.
        column: array `[rows, ...]` of integers or strings, in which None is a missing value. An
            Arrow array of integers, of strings or of fixed-size lists is legal too.

    Returns:
        int32 or int64 array of the column's shape.

    Raises:
        TypeError: the values are neither integers nor strings.
        ValueError: the column is a single value, the number of rows is not `spec.batch_size`, or an
            integer is missing or does not fit int64.

    Example:
        >>> key_column(FeatureSpec("user"), np.array([[1, 2]], np.uint8))
        array([[1, 2]])
        >>> key_column(FeatureSpec("city", table_name="C1"), np.array(["68fd1e64"]))
        array([-7456674149910260318])
    """
    where = f"feature '{spec.name}': column '{spec.column}' must"
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        check_batch_size(spec, len(column))
        flat, shape = flat_values(where, column)
        return _flat_keys(where, str(spec.table_name), flat, shape)
    values = np.asarray(column)
    if not values.ndim:
        raise ValueError(f"{where} have a row a sample, got a single value")
    check_batch_size(spec, len(values))
    if values.dtype.kind in "iu":
        return _integer_keys(where, values)
    flat = values_array(where, values.reshape(-1), "be all integers or all strings")
    return _flat_keys(where, str(spec.table_name), flat, values.shape)


def check_batch_size(spec: FeatureSpec, rows: int) -> None:
    """Raise ValueError if the number of rows of a column is not `spec.batch_size`."""
    if spec.batch_size is not None and rows != spec.batch_size:
        raise ValueError(
            f"feature '{spec.name}': column '{spec.column}' must have {spec.batch_size} rows, the "
            f"feature's batch_size, got {rows}"
        )


def _flat_keys(where: str, table_name: str, values: pa.Array, shape: tuple[int, ...]) -> np.ndarray:
    kind = values.type
    if pa.types.is_dictionary(kind) and not is_text(kind):
        values = values.dictionary.take(values.indices)
        kind = values.type
    if pa.types.is_integer(kind):
        if values.null_count:
            raise ValueError(
                f"{where} have no missing integer, got {values.null_count}: "
                "transform=Category(...) has a key for missing ones"
            )
        return _integer_keys(where, values.to_numpy().reshape(shape))
    if pa.types.is_floating(kind):
        raise TypeError(
            f"{where} be of integers or strings, got {kind}: make integers of it, .astype(int), or "
            "give transform=Category(...) for whole numbers with missing ones, "
            "transform=QuantileBucket(...) for others"
        )
    return keys_of(table_name, values, where).reshape(shape)


def _integer_keys(where: str, values: np.ndarray) -> np.ndarray:
    if values.dtype == np.uint64 and values.size and values.max() >= 1 << 63:
        raise ValueError(f"{where} be in the range of int64, got {values.max()}")
    dtype = np.int32 if values.dtype == np.int32 else np.int64
    return np.ascontiguousarray(values, dtype)


def time_values(column: Any) -> np.ndarray:
    """Return a column of times as an array. A missing time in an Arrow array becomes NaN or NaT."""
    if not isinstance(column, (pa.Array, pa.ChunkedArray)):
        return np.asarray(column)
    values, shape = flat_values("times must", column)
    return values.to_numpy(zero_copy_only=False).reshape(shape)


def event_time(spec: FeatureSpec, column: Any) -> int:
    """Return the event time of a batch: the latest time in the timestamp column.

    Args:
        spec: the feature, which must be a timestamp.
        column: array or Arrow array of at least one time: integers or floats in seconds since 1970,
            or datetime64 (UTC).

    Returns:
        Whole seconds since 1970, at least 1.

    Raises:
        TypeError: the values are neither numbers nor datetime64.
        ValueError: the column is empty, or a time is missing or not between 1970 and 2106.

    Example:
        >>> event_time(FeatureSpec("time", is_timestamp=True), np.array([1700000000.5, 1.6e9]))
        1700000000
    """
    values = time_values(column)
    where = f"feature '{spec.name}': column '{spec.column}' must"
    if values.dtype.kind not in "iufM":
        raise TypeError(f"{where} be of seconds or datetime64, got {values.dtype}")
    if not values.size:
        raise ValueError(f"{where} have at least one time, got none")
    check_batch_size(spec, len(np.atleast_1d(values)))
    if values.dtype.kind == "M":
        if np.isnat(values).any():
            raise ValueError(f"{where} have no missing time, got NaT")
        values = values.astype("datetime64[s]").astype(np.int64)
    latest = values.max()
    if not 1 <= latest <= MAX_EVENT_TIME:  # NaN is in no range
        raise ValueError(
            f"{where} be in [1, {MAX_EVENT_TIME}] seconds since 1970, got {latest}"
            + (" (milliseconds?)" if latest > MAX_EVENT_TIME else "")
        )
    if values.min() < 0:
        raise ValueError(f"{where} have no time before 1970, got {values.min()} seconds")
    return int(latest)
