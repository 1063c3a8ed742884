# SPDX-License-Identifier: Apache-2.0
"""Requests and answers of the Open Inference Protocol, version 2, as JSON.

Source: https://github.com/kserve/open-inference-protocol, specification/protocol/inference_rest.md.
Data are numbers in JSON; the binary extension of some servers is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mindspore_rec.serving.tensors import DATATYPES, TensorSpec, as_input, datatype_of

__all__ = ["InferRequest", "RequestError", "infer_response", "parse_request"]

_LIMIT_FP32 = float(np.finfo(np.float32).max)
_EXACT = float(1 << 53)  # up to here all integers are floats too


class RequestError(ValueError):
    """A request that is answered with status 400; the message says what is wrong with it."""


@dataclass(frozen=True)
class InferRequest:
    """What a request asks.

    Attributes:
        id: of the request, if it has one.
        inputs: arrays, in the order of the network's arguments.
        outputs: names of the outputs it wants; None: all.
    """

    id: str | None
    inputs: list[np.ndarray]
    outputs: list[str] | None


def parse_request(
    body: bytes, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> InferRequest:
    """Reads and checks a request.

    Args:
        body: JSON.
        inputs: what the network takes.
        outputs: what it gives.

    Raises:
        RequestError: it is no request, or not one for this network.

    Example:
        >>> body = b'{"inputs": [{"name": "x", "shape": [2], "datatype": "INT64", "data": [1, 2]}]}'
        >>> parse_request(body, [TensorSpec("x", "INT64", (-1,))], []).inputs
        [array([1, 2])]
    """
    try:
        request = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body must be JSON: {error}") from None
    if not isinstance(request, dict):
        raise RequestError("the body must be a JSON object")
    number = request.get("id")
    if number is not None and not isinstance(number, str):
        raise RequestError(f"id must be a string, got {number!r:.100}")
    given = _by_name("inputs", request.get("inputs"))
    known = {spec.name for spec in inputs}
    for name in given:
        if name not in known:
            raise RequestError(f"input '{name}' is not one of the model's, {sorted(known)}")
    arrays = []
    for spec in inputs:
        if spec.name not in given:
            raise RequestError(f"input '{spec.name}' is missing")
        arrays.append(_array(spec, given[spec.name]))
    return InferRequest(number, arrays, _wanted(request.get("outputs"), outputs))


def infer_response(
    request: InferRequest,
    model: str,
    version: int,
    specs: Sequence[TensorSpec],
    outputs: Sequence[np.ndarray],
) -> dict[str, Any]:
    """The answer.

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


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _by_name(what: str, given: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(given, list):
        raise RequestError(f"{what} must be a list, got {given!r:.100}")
    found: dict[str, dict[str, Any]] = {}
    for each in given:
        name = each.get("name") if isinstance(each, dict) else None
        if not isinstance(name, str):
            raise RequestError(f"each of {what} must be an object with a name, got {each!r:.100}")
        if name in found:
            raise RequestError(f"{what} has '{name}' twice")
        found[name] = each
    return found


def _wanted(given: Any, outputs: Sequence[TensorSpec]) -> list[str] | None:
    if given is None:
        return None
    wanted = list(_by_name("outputs", given))
    known = [spec.name for spec in outputs]
    for name in wanted:
        if name not in known:
            raise RequestError(f"output '{name}' is not one of the model's, {known}")
    return wanted


def _array(spec: TensorSpec, given: dict[str, Any]) -> np.ndarray:
    where = f"input '{spec.name}'"
    datatype, shape = given.get("datatype"), given.get("shape")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise RequestError(f"{where}: datatype must be {spec.datatype}, got {datatype!r:.100}")
    if not isinstance(shape, list) or any(type(size) is not int or size < 0 for size in shape):
        raise RequestError(f"{where}: shape must be a list of sizes, got {shape!r:.100}")
    if "binary_data_size" in (given.get("parameters") or {}):
        raise RequestError(f"{where}: data must be JSON, binary data are not supported")
    data = given.get("data")
    if not isinstance(data, list):
        raise RequestError(f"{where}: data must be a list, got {data!r:.100}")
    array = _numbers(where, data, DATATYPES[datatype])
    size = 1
    for length in shape:
        size *= length
    if array.size != size:
        raise RequestError(f"{where}: shape {shape} has {size} elements, data has {array.size}")
    try:
        return as_input(spec, array.reshape(shape))
    except (TypeError, ValueError) as error:
        raise RequestError(str(error)) from None


def _numbers(where: str, data: list[Any], dtype: np.dtype) -> np.ndarray:
    """The numbers of a list, or of lists in it, none of them changed."""
    try:
        array = np.array(data)
    except (ValueError, OverflowError):
        raise RequestError(f"{where}: data must be numbers, or lists of the same length") from None
    if array.size == 0:
        return np.empty(0, dtype)
    if dtype.kind == "b":
        fits, legal = array.dtype.kind == "b", "true or false"
    elif dtype.kind == "f":
        limit = _LIMIT_FP32 if dtype == np.float32 else float(np.finfo(dtype).max)
        fits = array.dtype.kind in "iuf" and bool((np.abs(array) <= limit).all())
        legal = f"numbers of {dtype}"
    else:
        info = np.iinfo(dtype)
        if array.dtype.kind == "f" and bool((np.abs(array) <= _EXACT).all()):
            # To JSON 1.0 and 1 are one number, and some clients write all of them with a point.
            whole = array.astype(np.int64)
            array = whole if np.array_equal(whole, array) else array
        fits = array.dtype.kind in "iu" and info.min <= array.min() and array.max() <= info.max
        legal = f"integers of {dtype}"
    if not fits:
        raise RequestError(f"{where}: data must be {legal}")
    return array.astype(dtype)
