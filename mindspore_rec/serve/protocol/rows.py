# SPDX-License-Identifier: Apache-2.0
"""Convert a request's raw columns from JSON lists and objects to an Arrow record batch."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.serve.protocol.limits import Limits
from mindspore_rec.serve.protocol.request_error import RequestError, named, shown

__all__ = ["read_rows"]

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def read_rows(
    request: dict[str, Any],
    columns: Sequence[str] | None,
    limits: Limits,
    lists_of: Collection[str] = (),
) -> pa.RecordBatch:
    """Return the rows of a request from its `rows` or its `columns`.

    Args:
        request: the decoded request. `rows` is a list of objects. If an object lacks a column, the
            value is missing. In place of `rows`, a request may have `columns`, an object of lists.
            Values are strings, numbers, booleans, null, or lists of such values; all values of a
            column have one of these types. All lists in a column have the same length, except in
            the columns named in `lists_of`.
        columns: names of the columns to read; None: all columns.
        limits: limits on the numbers of rows, values and characters.
        lists_of: names of the columns that contain lists of any length; null counts as an empty
            list. Default: none.

    Raises:
        RequestError: the request is invalid or too large.

    Example:
        >>> request = {"rows": [{"user": "ann", "age": 7}, {"user": "bob"}]}
        >>> read_rows(request, None, Limits()).to_pydict()
        {'user': ['ann', 'bob'], 'age': [7, None]}
    """
    if "rows" in request:
        lists = _of_rows(request["rows"], columns, limits)
    else:
        lists = _of_columns(request["columns"], columns, limits)
    arrays = {}
    left = limits.elements
    for name, values in lists.items():
        where = f"column {named(name)}"
        offsets = None
        if name in lists_of and any(type(each) is list for each in values):
            flat, offsets = _ragged(where, values)
            width = 0
        else:
            flat, width = _flat(where, values)
        if len(flat) > left:
            raise RequestError(f"{where}: a request must have at most {limits.elements} values")
        left -= len(flat)
        array = _array(where, flat, limits)
        if offsets is not None:
            array = pa.ListArray.from_arrays(offsets, array)
        arrays[name] = array if width == 0 else pa.FixedSizeListArray.from_arrays(array, width)
    return pa.RecordBatch.from_pydict(arrays)


def _of_rows(rows: Any, columns: Sequence[str] | None, limits: Limits) -> dict[str, list[Any]]:
    if not isinstance(rows, list) or not rows:
        raise RequestError(f"rows must be a list of objects, at least one, got {shown(rows)}")
    _check_count(len(rows), limits)
    for row in rows:
        if not isinstance(row, dict):
            raise RequestError(f"each of rows must be an object, got {shown(row)}")
    there = dict.fromkeys(name for row in rows for name in row)
    names = [name for name in there if columns is None or name in columns]
    if len(names) * len(rows) > limits.elements:
        raise RequestError(f"rows must have at most {limits.elements} values, missing ones too")
    if not names:
        raise RequestError(f"rows must have a column, of {shown(columns)}")
    return {name: [row.get(name) for row in rows] for name in names}


def _of_columns(raw: Any, columns: Sequence[str] | None, limits: Limits) -> dict[str, list[Any]]:
    if not isinstance(raw, dict):
        raise RequestError(f"columns must be an object of lists, got {shown(raw)}")
    lists = {n: values for n, values in raw.items() if columns is None or n in columns}
    lengths = set()
    for name, values in lists.items():
        if not isinstance(values, list):
            raise RequestError(f"column {named(name)} must be a list, got {shown(values)}")
        lengths.add(len(values))
    if len(lengths) > 1:
        raise RequestError(f"columns must have the same number of rows, got {sorted(lengths)}")
    if not lengths or 0 in lengths:
        raise RequestError("columns must have at least one row")
    _check_count(lengths.pop(), limits)
    return lists


def _check_count(rows: int, limits: Limits) -> None:
    if 0 < limits.rows < rows:
        raise RequestError(
            f"a request must have at most {limits.rows} rows (--max-batch-rows), got {rows}"
        )


def _flat(where: str, values: list[Any]) -> tuple[list[Any], int]:
    """Return the concatenated lists and their common length; without lists, `values` and 0."""
    if type(values[0]) is not list:
        return values, 0
    widths = {len(each) if type(each) is list else -1 for each in values}
    if len(widths) > 1 or 0 in widths:
        raise RequestError(f"{where} must have lists of the same length, at least 1, or none")
    return [each for part in values for each in part], widths.pop()


def _ragged(where: str, values: list[Any]) -> tuple[list[Any], pa.Array]:
    """Return the values of lists of any length, and the offsets of the lists."""
    wrong = [each for each in values if each is not None and type(each) is not list]
    if wrong:
        raise RequestError(f"{where} must have a list in each row, got {shown(wrong[0])}")
    lists = [each or [] for each in values]
    offsets = np.cumsum([0, *map(len, lists)])
    return [each for part in lists for each in part], pa.array(offsets, pa.int32())


def _array(where: str, values: list[Any], limits: Limits) -> pa.Array:
    types = set(map(type, values)) - {type(None)}
    if not types:
        return pa.nulls(len(values))
    if types == {str}:
        return _texts(where, values, limits)
    if types == {bool}:
        return pa.array(values, pa.bool_())
    if not types <= {int, float}:
        wrong = [each for each in values if type(each) not in (str, int, float, bool, type(None))]
        raise RequestError(
            f"{where} must be all strings, all numbers or all booleans, got "
            + (shown(wrong[0]) if wrong else "a mixture")
        )
    numbers = [each for each in values if each is not None]
    if types == {int}:
        if min(numbers) < _LEAST or max(numbers) > _MOST:
            raise RequestError(f"{where} must be of integers from {_LEAST} to {_MOST}")
        return pa.array(values, pa.int64())
    try:
        finite = all(map(math.isfinite, map(float, numbers)))
    except OverflowError:
        finite = False
    if not finite:
        greatest = float(np.finfo(np.float64).max)
        raise RequestError(f"{where} must be of numbers from {-greatest:g} to {greatest:g}")
    return pa.array([None if each is None else float(each) for each in values], pa.float64())


def _texts(where: str, values: list[Any], limits: Limits) -> pa.Array:
    longest = max((len(each) for each in values if each is not None), default=0)
    if longest > limits.string_length:
        raise RequestError(
            f"{where} must be of strings of at most {limits.string_length} characters, "
            f"got {longest}"
        )
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError as error:
        raise RequestError(f"{where} must be of Unicode text: {error.reason}") from None
