# SPDX-License-Identifier: Apache-2.0
"""Convert record batches to NumPy arrays, and rows of other types to record batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "as_array",
    "is_list",
    "is_text",
    "join_rows",
    "nulls_of_nan",
    "one_array",
    "to_array",
    "to_arrays",
    "to_column",
    "to_record_batch",
    "values_array",
]


def to_arrays(rows: pa.RecordBatch, *, text: bool = False) -> dict[str, np.ndarray]:
    """Return columns as arrays: ``[B]`` for plain values, ``[B, N]`` for fixed-size lists.

    Args:
        rows: columns of numbers, of bools, or of fixed-size lists of numbers or bools. A missing
            float becomes NaN; a missing integer, bool or list is illegal.
        text: True if columns of text are legal too. A text column becomes an array ``[B]`` of str
            and None, as a `FeatureSpec` requires. Default: False.

    Returns:
        Arrays by column name. An array may be read-only and share the batch's memory.

    Raises:
        ValueError: a column has illegal missing values, or values of an illegal type.

    Example:
        >>> rows = to_record_batch({"ids": np.array([[1, 2], [3, 4]]), "label": np.zeros(2)})
        >>> {name: array.shape for name, array in to_arrays(rows).items()}
        {'ids': (2, 2), 'label': (2,)}
    """
    return {name: to_array(name, rows.column(i), text) for i, name in enumerate(rows.schema.names)}


def to_array(name: str, column: pa.Array, text: bool = False) -> np.ndarray:
    """Convert one column to an array; see `to_arrays` for the types and the errors."""
    kind = column.type
    if text and is_text(kind):
        return column.to_numpy(zero_copy_only=False)
    if pa.types.is_fixed_size_list(kind):
        if column.null_count:
            raise ValueError(f"column {name!r} has missing lists")
        return to_array(name, column.flatten(), text).reshape(len(column), kind.list_size)
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        if column.null_count and pa.types.is_integer(kind):
            raise _missing(name, kind)
        return column.to_numpy(zero_copy_only=False)
    if pa.types.is_boolean(kind):
        if column.null_count:
            raise _missing(name, kind)
        return column.to_numpy(zero_copy_only=False)
    raise ValueError(f"column {name!r} is {kind}, not numbers: a transform has to make some of it")


def _missing(name: str, kind: pa.DataType) -> ValueError:
    return ValueError(
        f"column {name!r} of {kind} has missing values: let a Category or a Number read it, or "
        "fill them"
    )


def as_array(name: str, column: Any, text: bool = False) -> Any:
    """Convert an Arrow array with `to_array`, and return any other column unchanged."""
    return to_array(name, column, text) if isinstance(column, pa.Array) else column


def is_text(kind: pa.DataType) -> bool:
    """Return True for a text type, and for a dictionary type with text values."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(text or pa.types.is_string_view(kind))


def is_list(kind: pa.DataType) -> bool:
    """Return True if the type is an Arrow list type: list, large list, or fixed-size list."""
    known = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(each(kind) for each in known)


def to_record_batch(rows: Any) -> pa.RecordBatch:
    """Return rows of any kind as one record batch.

    Args:
        rows: an Arrow RecordBatch or Table, a pandas DataFrame, or a dict of arrays ``[B]`` or
            ``[B, N]``.

    Raises:
        TypeError: `rows` is of an unsupported type.
        ValueError: two columns have different lengths, or an array does not have 1 or 2 dimensions.

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
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    if not isinstance(rows, pa.Table):
        import pandas as pd

        if not isinstance(rows, pd.DataFrame):
            raise TypeError(
                "rows must be an Arrow RecordBatch or Table, a DataFrame or a dict of arrays, "
                f"got {type(rows).__name__}"
            )
        names = [str(name) for name in rows.columns]
        made = [to_column(name, rows.iloc[:, place]) for place, name in enumerate(names)]
        return pa.RecordBatch.from_arrays(made, names=names)
    batches = rows.to_batches()
    if not batches:
        return pa.RecordBatch.from_pylist([], rows.schema)
    return join_rows(batches)


def to_column(name: str, values: Any) -> pa.Array:
    """Return values ``[B]`` or ``[B, N]`` as an Arrow array.

    Args:
        name: name of the column, for error messages.
        values: a list, an array, a pandas Series or an Arrow array. In a Python list, each element
            may be None or a list of any length.

    Raises:
        TypeError: the values have several types, or a type that Arrow lacks.
        ValueError: `values` does not have 1 or 2 dimensions, or mixes single values and lists.
    """
    where = f"column {name!r} must"
    if isinstance(values, list) and (lists := _ragged(where, values)) is not None:
        return lists
    dims = _dims(where, values)
    if dims == 1:
        return values_array(where, values)
    if dims != 2:
        raise ValueError(f"column {name!r} must have 1 or 2 dimensions, got {dims}")
    array = np.asarray(values)
    flat = values_array(where, np.ascontiguousarray(array).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, array.shape[1])


def values_array(where: str, values: Any, legal: str = "have values of one type") -> pa.Array:
    """Return one-dimensional values of any container as one Arrow array.

    All readers of columns convert values with this function, so all readers support the same types
    and raise the same errors. None, `pandas.NA`, NaT and NaN become missing values, but NaN in an
    Arrow array or in a NumPy array of numbers stays NaN.

    Args:
        where: text before the word "must" in error messages.
        values: a list, a NumPy array, a pandas Series, Index or Categorical, or an Arrow array or
            chunked array. Bytes in a NumPy array must be UTF-8 text.
        legal: text after the word "must" in the error message for values of several types.

    Returns:
        One array that is not chunked, not run-end encoded, and not of a text-view type.

    Raises:
        TypeError: the values have several types, or a type that Arrow lacks.
        ValueError: the values are not one-dimensional, a text is not Unicode, or an integer does
            not fit int64.

    Example:
        >>> values_array("column 'x' must", np.array(["a", None], object)).to_pylist()
        ['a', None]
        >>> halves = pa.chunked_array([["a"], ["b"]])
        >>> values_array("column 'x' must", halves).to_pylist()
        ['a', 'b']
    """
    if isinstance(values, pa.ChunkedArray):
        return one_array(values)
    if isinstance(values, pa.Array):
        return _plain(values)
    dims = _dims(where, values)
    if dims != 1:
        raise ValueError(f"{where} be one-dimensional, got {dims} dimensions")
    try:
        if isinstance(values, np.ndarray) and values.dtype.kind == "S":
            values = np.char.decode(values, "utf-8")
        # NaN in a NumPy array of numbers is not converted to null, because the conversion would
        # need a mask and a copy.
        numbers = isinstance(values, np.ndarray) and values.dtype.kind in "fiu"
        made = pa.array(values, from_pandas=not numbers)
    except UnicodeError as error:
        raise ValueError(f"{where} be Unicode text or integers of int64: {_line(error)}") from error
    except OverflowError as error:
        raise _too_large(where) from error
    except (pa.ArrowInvalid, TypeError, NotImplementedError) as error:
        raise TypeError(f"{where} {legal}: {_line(error)}") from error
    # A pandas text array is chunked if it was read from a file or joined from several frames.
    return one_array(made) if isinstance(made, pa.ChunkedArray) else _plain(made)


def _too_large(where: str) -> ValueError:
    return ValueError(
        f"{where} have integers of int64, and one is larger: convert all to texts, .astype(str)"
    )


def _ragged(where: str, values: list[Any]) -> pa.Array | None:
    """Convert lists to Arrow if their lengths differ or a list is missing, else return None."""
    rows = [each for each in values if each is not None]
    if not rows or not all(isinstance(each, (list, tuple)) for each in rows):
        return None
    lengths = {len(each) for each in rows}
    if len(rows) == len(values) and len(lengths) == 1 and lengths != {0}:
        return None  # an array of 2 dimensions
    try:
        return pa.array(values)
    except OverflowError as error:
        raise _too_large(where) from error
    except (pa.ArrowInvalid, TypeError):
        return None


def _dims(where: str, values: Any) -> int:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return 1
    try:
        return int(values.ndim) if hasattr(values, "ndim") else int(np.ndim(values))
    except ValueError as error:  # of NumPy: lists of several lengths
        raise ValueError(f"{where} have one shape a row: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def join_rows(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate one or more record batches of one schema into a single record batch."""
    if len(parts) == 1:
        return parts[0]
    table = pa.Table.from_batches(parts)
    arrays = [one_array(table.column(i)) for i in range(table.num_columns)]
    fields = [
        field if field.type == array.type else field.with_type(array.type)
        for field, array in zip(parts[0].schema, arrays, strict=True)
    ]
    schema = pa.schema(fields, parts[0].schema.metadata)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return the chunks of a column as one array without run-end encoding or text views."""
    chunks = [_plain(chunk) for chunk in column.chunks]
    if len(chunks) == 1:
        return chunks[0]
    if not chunks:
        return _plain(pa.array([], column.type))
    if not pa.types.is_dictionary(chunks[0].type):
        return pa.concat_arrays(chunks)
    try:  # each chunk may have a dictionary of its own
        merged = pa.chunked_array(chunks).unify_dictionaries().combine_chunks()
    except (pa.ArrowInvalid, NotImplementedError):  # with a missing value, or of lists
        return pa.concat_arrays([decoded(chunk) for chunk in chunks])
    return merged if isinstance(merged, pa.Array) else merged.chunk(0)


def _plain(values: pa.Array) -> pa.Array:
    """Decode run-end encoded arrays and text views; some Arrow functions do not support them."""
    kind = values.type
    if pa.types.is_run_end_encoded(kind):
        return _plain(pc.run_end_decode(values))
    if pa.types.is_string_view(kind):
        return values.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return values.cast(pa.large_binary())
    if pa.types.is_dictionary(kind):
        known = _plain(values.dictionary)
        if pa.types.is_dictionary(known.type):
            return known.take(values.indices)
        if known.type != kind.value_type:
            return pa.DictionaryArray.from_arrays(values.indices, known)
    return values


def nulls_of_nan(values: pa.Array) -> pa.Array:
    """Return nulls if all values are NaN or missing, else the values unchanged.

    Pandas stores a column of texts or lists whose values are all missing as NaN.

    Example:
        >>> nulls_of_nan(pa.array([float("nan"), None])).type, nulls_of_nan(pa.array([1.5])).type
        (DataType(null), DataType(double))
    """
    if pa.types.is_floating(values.type) and pc.all(pc.is_nan(values), min_count=0).as_py():
        return pa.nulls(len(values))
    return values


def decoded(values: pa.Array) -> pa.Array:
    """Return a dictionary array, a run-end encoded array or a view as a plain array.

    Other arrays are returned unchanged.

    Example:
        >>> decoded(pa.array(["a", None, "a"]).dictionary_encode()).type
        DataType(string)
    """
    values = _plain(values)
    if pa.types.is_dictionary(values.type):
        return values.dictionary.take(values.indices)
    return values
