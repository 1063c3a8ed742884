# SPDX-License-Identifier: Apache-2.0
"""Requests and answers of the Open Inference Protocol, version 2, as JSON.

Source: https://github.com/kserve/open-inference-protocol, specification/protocol/inference_rest.md.
Data are numbers in JSON; the binary extension of some servers is not known here. In place of inputs
a request may have raw rows or columns, where the model has features.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.serving.limits import Limits
from mindspore_rec.serving.request_error import RequestError, named, shown
from mindspore_rec.serving.rows import read_rows
from mindspore_rec.serving.tensors import DATATYPES, TensorSpec, as_input, datatype_of

__all__ = [
    "SMALL_BODY",
    "InferRequest",
    "RawColumns",
    "RequestError",
    "infer_response",
    "parse_request",
]

SMALL_BODY = 8192
"""Bytes of a body that is read in well under a millisecond, whatever is in it."""

_EXACT = float(1 << 53)  # up to here all integers are floats too
_MOST_NESTED = 32
_MOST_ID = 1024
_MOST_DIGITS = 400  # more than any float64 has before its point
_MOST_SIZE = (1 << 63) - 1


@dataclass(frozen=True)
class InferRequest:
    """A request that was read and checked.

    Attributes:
        id: of the request, if it has one.
        inputs: arrays, in the order of the network's arguments; or raw rows.
        outputs: names of the outputs it wants; None: all.
    """

    id: str | None
    inputs: list[np.ndarray] | pa.RecordBatch
    outputs: list[str] | None


@dataclass(frozen=True)
class RawColumns:
    """Raw columns that a model's features read.

    Attributes:
        names: of them; None: those that come.
    """

    names: list[str] | None


def parse_request(
    body: bytes | bytearray,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    limits: Limits | None = None,
    raw: RawColumns | None = None,
) -> InferRequest:
    """Read and check a request.

    Nothing is converted before its types and sizes are known to be right: what it costs in time
    and memory is in proportion to the body.

    Args:
        body: JSON, in UTF-8.
        inputs: what the network takes.
        outputs: what it gives.
        limits: how much a request may have. Default: as for a network of unknown sizes.
        raw: the columns that a request may have in place of inputs. Default: none.

    Raises:
        RequestError: it is no request, or not one for this network.

    Example:
        >>> body = b'{"inputs": [{"name": "x", "shape": [2], "datatype": "INT64", "data": [1, 2]}]}'
        >>> parse_request(body, [TensorSpec("x", "INT64", (-1,))], []).inputs
        [array([1, 2])]
    """
    limits = Limits() if limits is None else limits
    text = _text(body, limits)
    try:
        request = _DECODER.decode(text)
    except RecursionError:
        raise RequestError("the body must be JSON that is not nested so deeply") from None
    except RequestError:
        raise
    except ValueError as error:
        raise RequestError(f"the body must be JSON: {_reason(error, text, inputs, raw)}") from None
    return _checked(request, inputs, outputs, limits, raw)


def _text(body: bytes | bytearray, limits: Limits) -> str:
    if len(body) > limits.body_bytes:
        raise RequestError(f"the body must have at most {limits.body_bytes} bytes, got {len(body)}")
    if len(body) > SMALL_BODY:
        for sign, most, what in (
            (b",", limits.commas, "commas"),
            (b"[", limits.lists, "lists; data may be one flat list"),
            (b"{", limits.objects, "objects"),
            (b'"', 2 * limits.strings, "quotation marks"),
        ):
            if body.count(sign) > most:
                raise RequestError(f"the body must be JSON with at most {most} {what}")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(f"the body must be JSON in UTF-8: {error.reason}") from None


def _checked(
    request: Any,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    limits: Limits,
    raw: RawColumns | None,
) -> InferRequest:
    if not isinstance(request, dict):
        raise RequestError("the body must be a JSON object")
    number = request.get("id")
    if number is not None and (not isinstance(number, str) or len(number) > _MOST_ID):
        raise RequestError(
            f"id must be a string of at most {_MOST_ID} characters, got {shown(number)}"
        )
    _parameters("parameters", request)
    if _is_raw(request, raw):
        assert raw is not None
        rows = read_rows(request, raw.names, limits)
        return InferRequest(number, rows, _wanted(request.get("outputs"), outputs))
    given = _by_name("inputs", request.get("inputs"))
    known = {spec.name for spec in inputs}
    for name in given:
        if name not in known:
            raise RequestError(f"input {named(name)} is not one of the model's, {sorted(known)}")
    arrays = []
    left = limits.elements
    for spec in inputs:
        if spec.name not in given:
            raise RequestError(f"input '{spec.name}' is missing")
        arrays.append(_array(spec, given[spec.name], limits.rows, left))
        left -= arrays[-1].size
    return InferRequest(number, arrays, _wanted(request.get("outputs"), outputs))


def _is_raw(request: dict[str, Any], raw: RawColumns | None) -> bool:
    """Return whether a request has raw rows."""
    found = [name for name in ("rows", "columns") if name in request]
    if not found or (raw is None and "inputs" in request):
        return False
    if raw is None:
        raise RequestError(f"{found[0]}: the model has no features, so inputs must be given")
    if len(found) > 1 or "inputs" in request:
        raise RequestError("a request must have one of inputs, rows and columns")
    return True


def infer_response(
    request: InferRequest,
    model: str,
    version: int,
    specs: Sequence[TensorSpec],
    outputs: Sequence[np.ndarray],
) -> dict[str, Any]:
    """Return the answer as JSON's objects.

    Raises:
        ArithmeticError: a number in it is not finite, which JSON cannot say.
    """
    found = []
    for spec, array in zip(specs, outputs, strict=True):
        if request.outputs is not None and spec.name not in request.outputs:
            continue
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ArithmeticError(f"output '{spec.name}' has numbers that are not finite")
        found.append(
            {
                "name": spec.name,
                "datatype": datatype_of(array.dtype),
                "shape": list(array.shape),
                "data": array.reshape(-1).tolist(),
            }
        )
    answer: dict[str, Any] = {"model_name": model, "model_version": str(version), "outputs": found}
    if request.id is not None:
        answer["id"] = request.id
    return answer


class _ConstantError(ValueError):
    """A text has NaN or an infinity, which JSON does not."""


def _no_constant(name: str) -> None:
    raise _ConstantError(f"{name} is not JSON, numbers must be finite")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise RequestError(
                    f"the body must be JSON without repetition, has {named(name)} "
                    "twice in an object"
                )
            seen.add(name)
    return made


def _long_integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else math.inf


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)
_LENIENT = json.JSONDecoder(object_pairs_hook=_object, parse_int=_long_integer)


def _reason(
    error: ValueError, text: str, inputs: Sequence[TensorSpec], raw: RawColumns | None
) -> str:
    """Return what is wrong with a text; where it is a number, also which input has it."""
    if isinstance(error, json.JSONDecodeError):
        return str(error)
    words = str(error)
    if not isinstance(error, _ConstantError):  # of Python's int(), about more than 4300 digits
        words = f"numbers must have at most {_MOST_DIGITS} digits"
    try:
        _checked(_LENIENT.decode(text), inputs, (), Limits(), raw)
    except RequestError as where:
        return f"{words}; {where}"
    except (ValueError, RecursionError):
        pass
    return words


def _parameters(what: str, of: dict[str, Any]) -> dict[str, Any]:
    given = of.get("parameters")
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise RequestError(f"{what} must be an object, got {shown(given)}")
    return given


def _by_name(what: str, given: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(given, list):
        raise RequestError(f"{what} must be a list, got {shown(given)}")
    found: dict[str, dict[str, Any]] = {}
    for each in given:
        name = each.get("name") if isinstance(each, dict) else None
        if not isinstance(name, str):
            raise RequestError(f"each of {what} must be an object with a name, got {shown(each)}")
        if name in found:
            raise RequestError(f"{what} has {named(name)} twice")
        found[name] = each
    return found


def _wanted(given: Any, outputs: Sequence[TensorSpec]) -> list[str] | None:
    if given is None:
        return None
    wanted = _by_name("outputs", given)
    known = [spec.name for spec in outputs]
    for name, each in wanted.items():
        if name not in known:
            raise RequestError(f"output {named(name)} is not one of the model's, {known}")
        _parameters(f"output '{name}': parameters", each)
    return list(wanted)


def _array(spec: TensorSpec, given: dict[str, Any], rows: int, elements: int) -> np.ndarray:
    where = f"input '{spec.name}'"
    datatype, shape = given.get("datatype"), given.get("shape")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise RequestError(f"{where}: datatype must be {spec.datatype}, got {shown(datatype)}")
    if not isinstance(shape, list) or not all(
        type(size) is int and 0 <= size <= _MOST_SIZE for size in shape
    ):
        raise RequestError(
            f"{where}: shape must be a list of sizes from 0 to {_MOST_SIZE}, got {shown(shape)}"
        )
    if len(shape) != len(spec.shape):
        raise RequestError(
            f"{where} must have shape {list(spec.shape)}, -1 for any size of at least 1, got "
            f"{shown(shape)}"
        )
    if "binary_data_size" in _parameters(f"{where}: parameters", given):
        raise RequestError(f"{where}: data must be JSON, binary data are not supported")
    data = given.get("data")
    if not isinstance(data, list):
        raise RequestError(f"{where}: data must be a list, got {shown(data)}")
    data = _flat(where, data)
    if len(data) != math.prod(shape):
        raise RequestError(
            f"{where}: shape {shape} has {math.prod(shape)} elements, data has {len(data)}"
        )
    if 0 < rows < shape[0] and spec.shape[0] == -1:
        raise RequestError(
            f"{where} has {shape[0]} rows: a request must have at most {rows} (--max-batch-rows)"
        )
    if len(data) > elements:
        raise RequestError(
            f"{where} has {len(data)} elements: a request must have at most {elements} that other "
            "inputs do not have"
        )
    try:
        return as_input(spec, _numbers(where, data, spec, DATATYPES[datatype]).reshape(shape))
    except RequestError:
        raise
    except (TypeError, ValueError) as error:
        raise RequestError(str(error)) from None


def _flat(where: str, data: list[Any]) -> list[Any]:
    """Return the elements of lists in lists, which must have one length at each level."""
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


def _numbers(where: str, data: list[Any], spec: TensorSpec, dtype: np.dtype) -> np.ndarray:
    """Return the numbers of a list unchanged; types are checked before anything else."""
    if not data:
        return np.empty(0, dtype)
    types = set(map(type, data))
    allowed: set[type] = {int, float}
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
        # An int64 is in the range of all but the half floats; of NaN the comparison is false.
        fits = (array.dtype.kind == "i" and limit > _MOST_SIZE) or bool(
            np.abs(array.astype(np.float64, copy=False)).max() <= limit
        )
    else:
        if array.dtype.kind == "f" and bool((np.abs(array) <= _EXACT).all()):
            # To JSON 1.0 and 1 are one number, and some clients write all of them with a point.
            whole = array.astype(np.int64)
            array = whole if np.array_equal(whole, array) else array
        fits = array.dtype.kind == "i"
        if fits and dtype != np.int64:
            fits = bool(info.min <= array.min() and array.max() <= info.max)
    if not fits:
        raise wrong
    return array.astype(dtype, copy=False)
