# SPDX-License-Identifier: Apache-2.0
"""Requests and responses of the Open Inference Protocol, version 2, over HTTP.

Source: https://github.com/kserve/open-inference-protocol, specification/protocol/inference_rest.md.
The data of inputs and outputs are numbers in the JSON. With the binary tensor extension
(`binary.py`), data may also be bytes that follow the JSON. If the model has features, a request may
have raw rows or columns in place of inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.common.columns.tensors import TensorSpec, datatype_of
from mindspore_rec.serve.protocol.binary import bytes_of_array, parts_of_inputs
from mindspore_rec.serve.protocol.json_body import dump_json, read_json
from mindspore_rec.serve.protocol.json_tensor import check_ragged, tensor_of_json
from mindspore_rec.serve.protocol.limits import Limits
from mindspore_rec.serve.protocol.ragged import with_starts
from mindspore_rec.serve.protocol.request_error import RequestError, named, shown
from mindspore_rec.serve.protocol.rows import read_rows

__all__ = [
    "InferRequest",
    "RawColumns",
    "RequestError",
    "infer_response",
    "parse_request",
]

_MOST_ID = 1024
# Parameters of other servers. Requests with these parameters are refused, because the answer would
# be wrong if the parameters were ignored.
_NOT_KNOWN = ("shared_memory_region", "classification")


@dataclass(frozen=True)
class InferRequest:
    """A request after it was read and checked.

    Attributes:
        id: id of the request, if it has one.
        inputs: arrays, in the order of the network's arguments; or raw rows.
        outputs: names of the requested outputs; None: all outputs.
        binary: dict with output names as keys; a value is True if the output's data follow the JSON
            in the response. The value of the key None applies to all outputs that are not in the
            dict.
    """

    id: str | None
    inputs: list[np.ndarray] | pa.RecordBatch
    outputs: list[str] | None
    binary: dict[str | None, bool]


@dataclass(frozen=True)
class RawColumns:
    """The raw columns that a model's features read.

    Attributes:
        names: names of the columns; None: a request may have any columns.
        lists: names of the columns that may have lists of any length.
    """

    names: list[str] | None
    lists: frozenset[str] = frozenset()


def parse_request(
    body: bytes | bytearray,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    limits: Limits | None = None,
    raw: RawColumns | None = None,
    json_bytes: int | None = None,
) -> InferRequest:
    """Read and check a request.

    Types and sizes are checked before any conversion, so the time and memory for a request are
    proportional to the size of its body.

    Args:
        body: JSON in UTF-8, followed by data if the request has binary data.
        inputs: the network's inputs.
        outputs: the network's outputs.
        limits: size limits of a request. Default: the limits for a network whose input sizes are
            unknown.
        raw: the raw columns that a request may contain in place of inputs. Default: none.
        json_bytes: number of JSON bytes in the body, as returned by `header_length`. Default: all
            bytes of the body; no data follow the JSON.

    Raises:
        RequestError: the body is not a request, or the request does not fit this network.

    Example:
        >>> body = b'{"inputs": [{"name": "x", "shape": [2], "datatype": "INT64", "data": [1, 2]}]}'
        >>> parse_request(body, [TensorSpec("x", "INT64", (-1,))], []).inputs
        [array([1, 2])]
    """
    limits = Limits() if limits is None else limits
    data: memoryview | None = None
    if json_bytes is not None:
        if len(body) > limits.body_bytes:
            raise RequestError(
                f"the body must have at most {limits.body_bytes} bytes, got {len(body)}"
            )
        data = memoryview(body)[json_bytes:]
        body = body[:json_bytes]

    def checked(request: Any) -> InferRequest:
        return _checked(request, inputs, outputs, limits, raw, data)

    return checked(read_json(body, limits, checked))


def _checked(
    request: Any,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    limits: Limits,
    raw: RawColumns | None,
    data: memoryview | None,
) -> InferRequest:
    if not isinstance(request, dict):
        raise RequestError("the body must be a JSON object")
    number = request.get("id")
    if number is not None and (not isinstance(number, str) or len(number) > _MOST_ID):
        raise RequestError(
            f"id must be a string of at most {_MOST_ID} characters, got {shown(number)}"
        )
    binary: dict[str | None, bool] = {
        None: _flag("parameters: binary_data_output", _parameters("parameters", request))
    }
    if _is_raw(request, raw):
        assert raw is not None
        parts_of_inputs({}, data)
        rows = read_rows(request, raw.names, limits, raw.lists)
        return InferRequest(number, rows, *_wanted(request.get("outputs"), outputs, binary))
    tensors = _by_name("inputs", request.get("inputs"))
    known = {spec.name for spec in inputs}
    for name, each in tensors.items():
        if name not in known:
            raise RequestError(f"input {named(name)} is not one of the model's, {sorted(known)}")
        _parameters(f"input '{name}': parameters", each)
    parts = parts_of_inputs(tensors, data)
    tensors = with_starts(inputs, tensors)
    arrays = []
    left = limits.elements
    for spec in inputs:
        if spec.name not in tensors:
            raise RequestError(f"input '{spec.name}' is missing")
        part = parts.get(spec.name)
        arrays.append(tensor_of_json(spec, tensors[spec.name], limits.rows, left, part))
        left -= arrays[-1].size
    check_ragged(inputs, arrays)
    return InferRequest(number, arrays, *_wanted(request.get("outputs"), outputs, binary))


def _is_raw(request: dict[str, Any], raw: RawColumns | None) -> bool:
    """Return True if a request has raw rows."""
    members = [name for name in ("rows", "columns") if name in request]
    if not members or (raw is None and "inputs" in request):
        return False
    if raw is None:
        raise RequestError(f"{members[0]}: the model has no features, so inputs must be given")
    if len(members) > 1 or "inputs" in request:
        raise RequestError("a request must have one of inputs, rows and columns")
    return True


def infer_response(
    request: InferRequest,
    model: str,
    version: int,
    specs: Sequence[TensorSpec],
    outputs: Sequence[np.ndarray],
) -> tuple[bytes, int | None]:
    """Return the response's body; if data follow the JSON, also return the number of JSON bytes.

    Raises:
        ArithmeticError: an output has a number that is not finite, which JSON cannot represent.
    """
    tensors: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for spec, array in zip(specs, outputs, strict=True):
        if request.outputs is not None and spec.name not in request.outputs:
            continue
        made: dict[str, Any] = {
            "name": spec.name,
            "datatype": datatype_of(array.dtype),
            "shape": list(array.shape),
        }
        if request.binary.get(spec.name, request.binary[None]):
            parts.append(bytes_of_array(array))
            made["parameters"] = {"binary_data_size": len(parts[-1])}
        elif array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ArithmeticError(f"output '{spec.name}' has numbers that are not finite")
        else:
            made["data"] = np.ascontiguousarray(array.reshape(-1))
        tensors.append(made)
    answer: dict[str, Any] = {
        "model_name": model,
        "model_version": str(version),
        "outputs": tensors,
    }
    if request.id is not None:
        answer["id"] = request.id
    text = dump_json(answer)
    return (b"".join((text, *parts)), len(text)) if parts else (text, None)


def _parameters(what: str, of: dict[str, Any]) -> dict[str, Any]:
    parameters = of.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise RequestError(f"{what} must be an object, got {shown(parameters)}")
    for name in _NOT_KNOWN:
        if name in parameters:
            raise RequestError(f"{what}: {name} is not supported")
    return parameters


def _flag(what: str, parameters: dict[str, Any]) -> bool:
    """Return the bool parameter that the last word of `what` names; False by default."""
    value = parameters.get(what.rpartition(" ")[2], False)
    if type(value) is not bool:
        raise RequestError(f"{what} must be true or false, got {shown(value)}")
    return value


def _by_name(what: str, tensors: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(tensors, list):
        raise RequestError(f"{what} must be a list, got {shown(tensors)}")
    by_name: dict[str, dict[str, Any]] = {}
    for each in tensors:
        name = each.get("name") if isinstance(each, dict) else None
        if not isinstance(name, str):
            raise RequestError(f"each of {what} must be an object with a name, got {shown(each)}")
        if name in by_name:
            raise RequestError(f"{what} has {named(name)} twice")
        by_name[name] = each
    return by_name


def _wanted(
    requested: Any, outputs: Sequence[TensorSpec], binary: dict[str | None, bool]
) -> tuple[list[str] | None, dict[str | None, bool]]:
    if requested is None:
        return None, binary
    wanted = _by_name("outputs", requested)
    known = [spec.name for spec in outputs]
    for name, each in wanted.items():
        if name not in known:
            raise RequestError(f"output {named(name)} is not one of the model's, {known}")
        parameters = _parameters(f"output '{name}': parameters", each)
        if "binary_data" in parameters:
            binary[name] = _flag(f"output '{name}': parameters: binary_data", parameters)
    return list(wanted), binary
