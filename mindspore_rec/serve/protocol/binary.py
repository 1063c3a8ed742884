# SPDX-License-Identifier: Apache-2.0
"""Binary tensor extension of the Open Inference Protocol: arrays follow the JSON in a body.

A body starts with JSON; the header Inference-Header-Content-Length contains the number of JSON
bytes. If an input has the parameter binary_data_size, its data follow the JSON, in the order of the
inputs.

Data are row-major and little-endian, without padding. Data are converted only if the number of
bytes matches the shape and the datatype. In a response, an output is binary if the request sets
`binary_data` for this output, or `binary_data_output` for all outputs.

Source: https://github.com/triton-inference-server/server, docs/protocol/extension_binary_data.md.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from mindspore_rec.serve.protocol.request_error import RequestError, shown

__all__ = ["array_of_bytes", "bytes_of_array", "check_bytes", "header_length", "parts_of_inputs"]


def header_length(text: str, body: int) -> int:
    """Read the number of a body's JSON bytes from the value of a header.

    Args:
        text: value of the header Inference-Header-Content-Length.
        body: number of bytes of the body.

    Raises:
        RequestError: `text` is not an integer in the range from 1 to `body`.

    Example:
        >>> header_length("10", 12)
        10
    """
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and 0 < int(text) <= body):
        raise RequestError(
            "header Inference-Header-Content-Length must be the bytes of the JSON, 1 to the "
            f"{body} of the body, got {shown(text)}"
        )
    return int(text)


def parts_of_inputs(
    inputs: Mapping[str, Mapping[str, Any]], data: memoryview | None
) -> dict[str, memoryview]:
    """Return, by input name, the bytes of each input whose data follow the JSON in the body.

    Args:
        inputs: inputs of a request by name, in the request's order; the parameters of an input are
            a JSON object.
        data: the bytes after the JSON; None if no bytes may follow the JSON.

    Raises:
        RequestError: a binary_data_size is wrong, or the sizes do not sum to the size of `data`.
    """
    parts: dict[str, memoryview] = {}
    at = 0
    for name, tensor in inputs.items():
        size = (tensor.get("parameters") or {}).get("binary_data_size")
        if size is None:
            continue
        if data is None:
            raise RequestError(
                f"input '{name}' has binary_data_size: the request must have the header "
                "Inference-Header-Content-Length"
            )
        if type(size) is not int or not 0 <= size <= len(data) - at:
            raise RequestError(
                f"input '{name}': binary_data_size must be an integer from 0 to the "
                f"{len(data) - at} bytes that are left of the body, got {shown(size)}"
            )
        parts[name] = data[at : at + size]
        at += size
    if data is not None and at != len(data):
        raise RequestError(
            f"the body has {len(data)} bytes behind the JSON, the inputs have binary_data_size "
            f"for {at}"
        )
    return parts


def array_of_bytes(
    where: str, data: memoryview | bytes, shape: list[int], dtype: np.dtype
) -> np.ndarray:
    """Return the data as a separate array, which may be read-only.

    Args:
        where: start of error messages, such as "input 'ids'".
        data: the bytes.
        shape: sizes of the dimensions, each at least 0.
        dtype: a numeric dtype, or bool.

    Raises:
        RequestError: the number of bytes is wrong, a number is not finite, or the byte of a bool is
            neither 0 nor 1.

    Example:
        >>> array_of_bytes("input 'x'", bytes([1, 0, 2, 0]), [2], np.dtype(np.int16))
        array([1, 2], dtype=int16)
    """
    check_bytes(where, data, shape, dtype)
    # Copy the data, because an array of numbers needs an aligned address.
    array = np.frombuffer(bytes(data), dtype)
    if sys.byteorder == "big":
        array = array.byteswap()
    if dtype.kind == "b" and len(data) and array.view(np.uint8).max() > 1:
        raise RequestError(f"{where}: data must be true or false, bytes of 1 or 0")
    if dtype.kind == "f" and not np.isfinite(array).all():
        raise RequestError(f"{where}: data must be finite numbers")
    return array.reshape(shape)


def check_bytes(where: str, data: memoryview | bytes, shape: list[int], dtype: np.dtype) -> None:
    """Raise RequestError if the size of data does not match a shape; see `array_of_bytes`."""
    size = math.prod(shape) * dtype.itemsize
    if len(data) != size:
        raise RequestError(
            f"{where}: shape {shown(shape)} of {dtype} has {size} bytes, the data have {len(data)}"
        )


def bytes_of_array(array: np.ndarray) -> bytes:
    """Return the elements of an array as bytes, row-major and little-endian."""
    if sys.byteorder == "big":
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.tobytes()
