# SPDX-License-Identifier: Apache-2.0
"""Check and convert the data of a request's tensor: JSON numbers, or bytes that follow the JSON."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mindspore_rec.common.columns.tensors import DATATYPES, TensorSpec, as_input, check_starts
from mindspore_rec.serve.protocol.binary import array_of_bytes, check_bytes
from mindspore_rec.serve.protocol.request_error import RequestError, shown

__all__ = ["check_elements", "check_ragged", "checked_shape", "fitted_input", "tensor_of_json"]

_EXACT = float(1 << 53)  # up to here all integers are floats too
_MOST_NESTED = 32
_MOST_SIZE = (1 << 63) - 1
_NUMBERS = {int, float}
_SURE = 3e38  # float32 has all numbers up to here


def tensor_of_json(
    spec: TensorSpec,
    given: dict[str, Any],
    rows: int,
    elements: int,
    part: memoryview | None = None,
) -> np.ndarray:
    """Return one input of a request, converted for the network.

    Args:
        spec: name, type and shape of the network's input.
        given: `datatype`, `shape` and, if `part` is None, `data` from the request.
        rows: maximum number of rows in a request; 0: any number of rows.
        elements: maximum number of elements in this input.
        part: the input's data as bytes, if the data follow the JSON; None otherwise.

    Raises:
        RequestError: the input is invalid or too large.
    """
    where = f"input '{spec.name}'"
    datatype, shape = given.get("datatype"), given.get("shape")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise RequestError(f"{where}: datatype must be {spec.datatype}, got {shown(datatype)}")
    shape = checked_shape(spec, shape)
    dtype = DATATYPES[datatype]
    if part is not None:
        if "data" in given:
            raise RequestError(f"{where} must have data or binary_data_size, not both")
        check_bytes(where, part, shape, dtype)
        check_elements(spec, shape, rows, elements)
        return fitted_input(spec, array_of_bytes(where, part, shape, dtype))
    data = given.get("data")
    if not isinstance(data, list):
        raise RequestError(f"{where}: data must be a list, got {shown(data)}")
    data = _flat(where, data)
    if len(data) != math.prod(shape):
        raise RequestError(
            f"{where}: shape {shown(shape)} has {math.prod(shape)} elements, data has {len(data)}"
        )
    check_elements(spec, shape, rows, elements)
    array = _usual_numbers(data, dtype) if dtype == spec.dtype else None
    if array is None:
        array = _numbers(where, data, spec, dtype)
    return fitted_input(spec, array.reshape(shape))


def checked_shape(spec: TensorSpec, shape: Any) -> list[int]:
    """Check and return the shape of an input; arguments and errors are as for `tensor_of_json`."""
    where = f"input '{spec.name}'"
    if (
        not isinstance(shape, list)
        or set(map(type, shape)) != {int}
        or min(shape) < 0
        or max(shape) > _MOST_SIZE
    ):
        raise RequestError(
            f"{where}: shape must be a list of sizes from 0 to {_MOST_SIZE}, got {shown(shape)}"
        )
    if len(shape) != len(spec.shape):
        raise RequestError(
            f"{where} must have shape {list(spec.shape)}, -1 for any size of at least 1, got "
            f"{shown(shape)}"
        )
    return shape


def check_elements(spec: TensorSpec, shape: list[int], rows: int, elements: int) -> None:
    """Raise RequestError if a shape has too many rows or elements; see `tensor_of_json`."""
    if 0 < rows < shape[0] and spec.shape[0] == -1 and spec.offsets is None:
        raise RequestError(
            f"input '{spec.name}' has {shape[0]} rows: a request must have at most {rows} "
            "(--max-batch-rows)"
        )
    if math.prod(shape) > elements:
        raise RequestError(
            f"input '{spec.name}' has {math.prod(shape)} elements: a request must have at most "
            f"{elements} that other inputs do not have"
        )


def check_ragged(inputs: Sequence[TensorSpec], arrays: Sequence[np.ndarray]) -> None:
    """Raise RequestError if offsets do not match the number of values."""
    try:
        check_starts(inputs, arrays)
    except ValueError as error:
        raise RequestError(str(error)) from None


def fitted_input(spec: TensorSpec, array: np.ndarray) -> np.ndarray:
    """Return an array converted to the network's type.

    Raises:
        RequestError: the array has a wrong type or shape, or has a number that is too large for the
            network's type.
    """
    try:
        if array.dtype == spec.dtype:
            return as_input(spec, array)
        with np.errstate(over="ignore"):
            made = as_input(spec, array)
    except (TypeError, ValueError) as error:
        raise RequestError(str(error)) from None
    if made.dtype.kind == "f" and not np.isfinite(made).all():
        greatest = float(np.finfo(made.dtype).max)
        raise RequestError(
            f"input '{spec.name}': data must be numbers of {made.dtype}, from {-greatest:g} to "
            f"{greatest:g}"
        )
    return made


def _flat(where: str, data: list[Any]) -> list[Any]:
    """Return the elements of nested lists; at each level, all lists must have the same length."""
    for _ in range(_MOST_NESTED):
        if not data or type(data[0]) is not list:
            break
        regular = set(map(type, data)) == {list} and len(set(map(len, data))) == 1
        if not regular:
            raise RequestError(f"{where}: data must be numbers, or lists of the same length")
        data = list(itertools.chain.from_iterable(data))
    if data and type(data[0]) is list:
        raise RequestError(f"{where}: data must be nested at most {_MOST_NESTED} deep")
    return data


def _usual_numbers(data: list[Any], dtype: np.dtype) -> np.ndarray | None:
    """Convert the numbers to an array by a fast path; return None if each number needs a check.

    NumPy converts all numbers at once, without releasing the interpreter's lock, because releasing
    and regaining the lock would take longer than the conversion.
    """
    types = set(map(type, data))
    with contextlib.suppress(OverflowError):
        if dtype == np.int64 and types == {int}:
            return np.array(data, np.int64)
        if dtype == np.float32 and types and types <= _NUMBERS:
            if max(data) < _SURE and min(data) > -_SURE:  # of NaN false, or it is seen below
                array = np.array(data, np.float32)
                return array if np.isfinite(array).all() else None
    return None


def _numbers(where: str, data: list[Any], spec: TensorSpec, dtype: np.dtype) -> np.ndarray:
    """Check the types of a list's numbers, and return the numbers unchanged."""
    if not data:
        return np.empty(0, dtype)
    types = set(map(type, data))
    allowed: set[type] = _NUMBERS
    if dtype.kind == "b":
        legal, allowed = "true or false", {bool}
    elif dtype.kind == "f":
        limit = float(np.finfo(dtype).max)
        if spec.dtype.kind == "f":
            limit = min(limit, float(np.finfo(spec.dtype).max))
        legal = f"numbers of {dtype}, from {-limit:g} to {limit:g}"
    else:
        info = np.iinfo(dtype)
        legal = f"integers of {dtype}, from {info.min} to {info.max}"
    wrong = RequestError(f"{where}: data must be {legal}")
    if not types <= allowed:
        other = next(each for each in data if type(each) not in allowed)
        if type(other) is list:
            raise RequestError(f"{where}: data must be numbers, or lists of the same length")
        raise RequestError(f"{wrong}, got {shown(other)}")
    if dtype.kind == "b":
        return np.array(data, dtype)
    try:
        array = np.array(data, np.int64 if types == {int} else np.float64)
    except OverflowError:  # an integer above 2^63
        if dtype.kind != "f":
            raise wrong from None
        try:
            array = np.array(data, np.float64)
        except OverflowError:
            raise wrong from None
    if dtype.kind == "f":
        # The range of every float type except float16 includes all int64 numbers. If `array`
        # contains NaN, the comparison `<= limit` is false.
        fits = (array.dtype.kind == "i" and limit > _MOST_SIZE) or bool(
            np.abs(array.astype(np.float64, copy=False)).max() <= limit
        )
    else:
        if array.dtype.kind == "f" and bool((np.abs(array) <= _EXACT).all()):
            # In JSON, 1.0 and 1 are the same number, and some clients write all numbers with a
            # decimal point.
            whole = array.astype(np.int64)
            array = whole if np.array_equal(whole, array) else array
        fits = array.dtype.kind == "i"
        if fits and dtype != np.int64:
            fits = bool(info.min <= array.min() and array.max() <= info.max)
    if not fits:
        raise wrong
    return array.astype(dtype, copy=False)
