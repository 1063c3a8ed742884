# SPDX-License-Identifier: Apache-2.0
"""One column of a batch by its FeatureSpec: values to keys, timestamps to an event time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from mindspore_rec.feature.arrow_columns import one_array
from mindspore_rec.feature.batch_rows import flat_values
from mindspore_rec.feature.feature_spec import FeatureSpec
from mindspore_rec.feature.hashing import category_keys
from mindspore_rec.feature.transforms import hashed_keys

__all__ = ["MAX_EVENT_TIME", "check_batch_size", "event_time", "key_column", "time_values"]

MAX_EVENT_TIME = (1 << 32) - 1  # seconds: a row keeps the time it was last seen in 4 bytes


def key_column(spec: FeatureSpec, column: Any) -> np.ndarray:
    """Return a feature's values as keys of its table; its `transform` is not looked at.

    Integers are keys as they are: int32 stays, other integers become int64. Strings are hashed by
    `category_keys` with the table's name, so that equal strings of two features of a table are one
    key.

    Args:
        spec: the feature.
        column: array `[rows, ...]` of integers or strings (None is a missing value), or an Arrow
            array of them or of fixed-size lists of them.

    Returns:
        int32 or int64 array of the column's shape.

    Raises:
        TypeError: values of another kind.
        ValueError: no dimension, other than `spec.batch_size` rows, or an integer that is missing
            or outside int64.

    Example:
        >>> key_column(FeatureSpec("user"), np.array([[1, 2]], np.uint8))
        array([[1, 2]])
        >>> key_column(FeatureSpec("city", table_name="C1"), np.array(["68fd1e64"]))
        array([-7456674149910260318])
    """
    where = f"feature '{spec.name}': column '{spec.column}' must"
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        check_batch_size(spec, len(column))
        return _arrow_keys(where, str(spec.table_name), column)
    values = np.asarray(column)
    if not values.ndim:
        raise ValueError(f"{where} have a row a sample, got a single value")
    check_batch_size(spec, len(values))
    if values.dtype.kind in "iu":
        return _integer_keys(where, values)
    if values.dtype.kind not in "USO":
        raise TypeError(f"{where} be of integers or strings, got {values.dtype}")
    texts = values.reshape(-1)
    if texts.dtype.kind == "S":
        texts = _decoded(where, texts)
    elif texts.dtype.kind == "O":
        kind = pd.api.types.infer_dtype(texts, skipna=True)
        if kind not in ("string", "empty"):
            raise TypeError(f"{where} be of integers or strings, got objects ({kind})")
    try:
        return category_keys(str(spec.table_name), texts).reshape(values.shape)
    except ValueError as error:
        raise ValueError(f"{where} be of Unicode text: {error}") from error


def check_batch_size(spec: FeatureSpec, rows: int) -> None:
    """Raise ValueError where a column has other than `spec.batch_size` rows."""
    if spec.batch_size is not None and rows != spec.batch_size:
        raise ValueError(
            f"feature '{spec.name}': column '{spec.column}' must have {spec.batch_size} rows, the "
            f"feature's batch_size, got {rows}"
        )


def _arrow_keys(where: str, table_name: str, column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    if isinstance(column, pa.ChunkedArray):
        column = one_array(column)
    values, shape = flat_values(where, column)
    kind = values.type
    if pa.types.is_dictionary(kind) and pa.types.is_integer(kind.value_type):
        values = values.dictionary_decode()
        kind = values.type
    if pa.types.is_integer(kind):
        if values.null_count:
            raise ValueError(f"{where} have no missing integer, got {values.null_count}")
        return _integer_keys(where, values.to_numpy().reshape(shape))
    try:
        return hashed_keys(table_name, values).reshape(shape)
    except TypeError as error:
        raise TypeError(f"{where} be of integers or strings, got {kind}") from error
    except ValueError as error:
        raise ValueError(f"{where} be of Unicode text: {error}") from error


def _integer_keys(where: str, values: np.ndarray) -> np.ndarray:
    if values.dtype == np.uint64 and values.size and values.max() >= 1 << 63:
        raise ValueError(f"{where} be in the range of int64, got {values.max()}")
    dtype = np.int32 if values.dtype == np.int32 else np.int64
    return np.ascontiguousarray(values, dtype)


def _decoded(where: str, texts: np.ndarray) -> np.ndarray:
    try:
        return np.char.decode(texts, "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} be of UTF-8 text: {error}") from error


def time_values(column: Any) -> np.ndarray:
    """Return a column of times as an array; of Arrow's, missing ones are NaN or NaT."""
    if not isinstance(column, (pa.Array, pa.ChunkedArray)):
        return np.asarray(column)
    if isinstance(column, pa.ChunkedArray):
        column = one_array(column)
    values, shape = flat_values("times must", column)
    return values.to_numpy(zero_copy_only=False).reshape(shape)


def event_time(spec: FeatureSpec, column: Any) -> int:
    """Return the time of a batch's events: the latest of its timestamps.

    Args:
        spec: the feature, a timestamp.
        column: at least one time: integers or floats in seconds since 1970, or datetime64 (UTC); or
            an Arrow array of them.

    Returns:
        Whole seconds since 1970, at least 1.

    Raises:
        TypeError: values of another kind.
        ValueError: no value; a time that is missing, before 1970 or past 2106.

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
