# SPDX-License-Identifier: Apache-2.0
"""The binary tensor extension of the Open Inference Protocol: arrays behind the JSON of a body.

    JSON, of as many bytes as the header Inference-Header-Content-Length says
    data of the first input that has the parameter binary_data_size, then of the second, ...

Data are row-major and little-endian, without padding. Nothing is converted before its size is known
to fit its shape and datatype. In an answer, outputs for which the request has the parameter
`binary_data`, or all of them by `binary_data_output`, come the same way.

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
    """Return the bytes of JSON in a body, as the header says.

    Args:
        text: of the header.
        body: bytes of the body.

    Raises:
        RequestError: the header is no number from 1 to `body`.

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
        inputs: inputs of a request by name, in its order; their parameters are objects.
        data: the bytes behind the JSON; None if there must be none.

    Raises:
        RequestError: a binary_data_size is wrong, or their sum is not the size of `data`.
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
    """Return data as an array of its own, which may be read only.

    Args:
        where: 'input ...', for messages.
        data: the bytes.
        shape: sizes, of at least 0.
        dtype: of numbers or bool.

    Raises:
        RequestError: another number of bytes; a number that is not finite; a bool that is neither 0
            nor 1.

    Example:
        >>> array_of_bytes("input 'x'", bytes([1, 0, 2, 0]), [2], np.dtype(np.int16))
        array([1, 2], dtype=int16)
    """
    check_bytes(where, data, shape, dtype)
    # A copy, because numbers need an aligned address.
    array = np.frombuffer(bytes(data), dtype)
    if sys.byteorder == "big":
        array = array.byteswap()
    if dtype.kind == "b" and len(data) and array.view(np.uint8).max() > 1:
        raise RequestError(f"{where}: data must be true or false, bytes of 1 or 0")
    if dtype.kind == "f" and not np.isfinite(array).all():
        raise RequestError(f"{where}: data must be finite numbers")
    return array.reshape(shape)


def check_bytes(where: str, data: memoryview | bytes, shape: list[int], dtype: np.dtype) -> None:
    """Raise RequestError if data have another size than a shape has; as `array_of_bytes`."""
    size = math.prod(shape) * dtype.itemsize
    if len(data) != size:
        raise RequestError(
            f"{where}: shape {shown(shape)} of {dtype} has {size} bytes, the data have {len(data)}"
        )


def bytes_of_array(array: np.ndarray) -> bytes:
    """Return the numbers of an array, row-major and little-endian."""
    if sys.byteorder == "big":
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.tobytes()
