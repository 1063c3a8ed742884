# SPDX-License-Identifier: Apache-2.0
"""Requests and responses of the Open Inference Protocol, version 2, over gRPC.

The source of the protocol is named in `open_inference.proto`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from mindspore_rec.common.columns.tensors import DATATYPES, TensorSpec, datatype_of
from mindspore_rec.serve.protocol.binary import array_of_bytes, bytes_of_array, check_bytes
from mindspore_rec.serve.protocol.json_tensor import (
    check_elements,
    check_ragged,
    checked_shape,
    fitted_input,
)
from mindspore_rec.serve.protocol.messages import InferRequest
from mindspore_rec.serve.protocol.open_inference import message
from mindspore_rec.serve.protocol.request_error import RequestError, named, shown
from mindspore_rec.serve.protocol.wire import InferParts, count_of, numbers_of, split_infer
from mindspore_rec.serve.server.served_model import ServedModel

__all__ = ["Asked", "infer_answer", "read_asked", "read_infer", "read_message"]

_MOST_ID = 1024
_Contents = dict[str, list[memoryview]]
_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
_NOT_KNOWN = ("shared_memory_region", "classification")
_ASKED, _ANSWER = message("ModelInferRequest"), message("ModelInferResponse")


def read_message(kind: Any, data: bytes) -> Any:
    """Decode `data` as a message of type `kind`.

    Raises:
        RequestError: the bytes are not a message of type `kind`.
    """
    try:
        return kind.FromString(data)
    except (DecodeError, UnicodeDecodeError):  # the latter by protobuf without its C library
        raise RequestError(f"the request must be a {kind.DESCRIPTOR.full_name}") from None


@dataclass(frozen=True)
class Asked:
    """ModelInferRequest whose numbers are not decoded yet.

    Attributes:
        request: the message without its numbers.
        parts: the request's numbers, as bytes.
    """

    request: Any
    parts: InferParts


def read_asked(data: bytes, *most_fields: int) -> Asked:
    """Return a ModelInferRequest.

    Args:
        data: bytes of the ModelInferRequest.
        most_fields: see `split_infer`.

    Raises:
        ManyFieldsError, RequestError: see `split_infer`.
    """
    parts = split_infer(data, *most_fields)
    return Asked(read_message(_ASKED, parts.rest), parts)


def read_infer(asked: Asked, model: ServedModel) -> InferRequest:
    """Read and check a request, as `parse_request` does for HTTP.

    Args:
        asked: a ModelInferRequest, with data in `raw_input_contents` or in `contents`.
        model: model to which the request is sent.

    Raises:
        RequestError: the request does not fit this model, or is too large.
    """
    try:
        return _read(asked.request, asked.parts, model)
    except UnicodeDecodeError:  # of a text, which is read when it is first looked at
        raise RequestError("texts of the request must be UTF-8") from None


def _read(request: Any, parts: InferParts, model: ServedModel) -> InferRequest:
    if len(request.id) > _MOST_ID:
        raise RequestError(f"id must have at most {_MOST_ID} characters, got {len(request.id)}")
    raw = parts.raw
    if raw and len(raw) != len(request.inputs):
        raise RequestError(
            f"raw_input_contents must be one for each of the {len(request.inputs)} inputs, "
            f"got {len(raw)}"
        )
    tensors: dict[str, tuple[Any, _Contents | None, memoryview | None]] = {}
    known = [spec.name for spec in model.inputs]
    for place, each in enumerate(request.inputs):
        if each.name in tensors:
            raise RequestError(f"inputs has {named(each.name)} twice")
        if each.name not in known:
            raise RequestError(f"input {named(each.name)} is not one of the model's, {known}")
        _check_parameters(f"input '{each.name}'", each.parameters)
        tensors[each.name] = each, parts.contents[place], raw[place] if raw else None
    arrays = []
    left = model.limits.elements
    for spec in model.inputs:
        if spec.name not in tensors:
            raise RequestError(f"input '{spec.name}' is missing")
        arrays.append(_array(spec, *tensors[spec.name], model.limits.rows, left))
        left -= arrays[-1].size
    check_ragged(model.inputs, arrays)
    wanted = _wanted(request.outputs, model.outputs)
    return InferRequest(request.id or None, arrays, wanted, {None: True})


def infer_answer(
    request: InferRequest, model: ServedModel, version: int, outputs: Sequence[np.ndarray]
) -> Any:
    """Return the ModelInferResponse, with data in `raw_output_contents`."""
    answer = _ANSWER(model_name=model.name, model_version=str(version), id=request.id or "")
    for spec, array in zip(model.outputs, outputs, strict=True):
        if request.outputs is not None and spec.name not in request.outputs:
            continue
        answer.outputs.add(
            name=spec.name, datatype=datatype_of(array.dtype), shape=list(array.shape)
        )
        answer.raw_output_contents.append(bytes_of_array(array))
    return answer


def _check_parameters(where: str, parameters: Any) -> None:
    for name in _NOT_KNOWN:
        if name in parameters:
            raise RequestError(f"{where}: parameters: {name} is not supported")


def _wanted(requested: Any, outputs: Sequence[TensorSpec]) -> list[str] | None:
    known = [spec.name for spec in outputs]
    for each in requested:
        if each.name not in known:
            raise RequestError(f"output {named(each.name)} is not one of the model's, {known}")
        _check_parameters(f"output '{each.name}'", each.parameters)
    wanted = [each.name for each in requested]
    if len(set(wanted)) != len(wanted):
        raise RequestError(f"outputs has {named(max(wanted, key=wanted.count))} twice")
    return wanted or None


def _array(
    spec: TensorSpec,
    tensor: Any,
    contents: _Contents | None,
    raw: memoryview | None,
    rows: int,
    elements: int,
) -> np.ndarray:
    where = f"input '{spec.name}'"
    if tensor.datatype not in DATATYPES:
        raise RequestError(
            f"{where}: datatype must be {spec.datatype}, got {shown(tensor.datatype)}"
        )
    dtype = DATATYPES[tensor.datatype]
    shape = checked_shape(spec, list(tensor.shape))
    if raw is not None:
        if contents is not None:
            raise RequestError(f"{where} must have contents or raw_input_contents, not both")
        check_bytes(where, raw, shape, dtype)
        check_elements(spec, shape, rows, elements)
        return fitted_input(spec, array_of_bytes(where, raw, shape, dtype))
    check_elements(spec, shape, rows, elements)
    return fitted_input(spec, _of_contents(where, tensor.datatype, contents or {}, dtype, shape))


def _of_contents(
    where: str, datatype: str, contents: _Contents, dtype: np.dtype, shape: list[int]
) -> np.ndarray:
    field = _CONTENTS.get(datatype)
    if field is None:
        raise RequestError(f"{where} of {datatype} must be in raw_input_contents")
    others = [name for name in contents if name != field]
    if others:
        raise RequestError(f"{where} of {datatype} must be in {field}, not in {others[0]}")
    pieces = contents.get(field, [])
    size, count = math.prod(shape), count_of(field, pieces)
    if count != size:
        raise RequestError(f"{where}: shape {shape} has {size} elements, {field} has {count}")
    array = numbers_of(field, pieces, count)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        if size and not (info.min <= array.min() and array.max() <= info.max):
            raise RequestError(
                f"{where}: data must be integers of {dtype}, from {info.min} to {info.max}"
            )
        array = array.astype(dtype, copy=False)
    elif dtype.kind == "f" and not np.isfinite(array).all():
        raise RequestError(f"{where}: data must be finite numbers")
    return array.reshape(shape)
