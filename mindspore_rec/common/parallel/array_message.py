# SPDX-License-Identifier: Apache-2.0
"""Messages that contain arrays: first the arrays' names, types and shapes, then their bytes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

__all__ = ["pack_arrays", "unpack_arrays"]

_LENGTH = 8  # bytes of the length of the description
# Pattern of the dtypes that `pack_arrays` writes.
_KIND = re.compile(r"[<>|](b1|[iu][1248]|f(2|4|8|12|16)|c(8|16|24|32))")
_MOST_AXES = 32  # of NumPy


def pack_arrays(arrays: Mapping[str, npt.NDArray[np.generic]]) -> bytes:
    """Pack arrays of numbers and bools into one message.

    Args:
        arrays: arrays by name. NumPy lacks bfloat16, so an array of bfloat16 becomes float32.

    Raises:
        TypeError: an array contains objects or texts.

    Example:
        >>> unpack_arrays(pack_arrays({"ids": np.array([[7], [8]])}))["ids"].tolist()
        [[7], [8]]
    """
    described, parts = [], []
    for name, original in arrays.items():
        array = original.astype(np.float32) if original.dtype.name == "bfloat16" else original
        if array.dtype.kind not in "biufc":
            raise TypeError(f"{name} must be an array of numbers, got dtype {array.dtype}")
        described.append([name, array.dtype.str, list(array.shape)])
        parts.append(np.ascontiguousarray(array).tobytes())
    head = json.dumps(described).encode()
    return b"".join([len(head).to_bytes(_LENGTH, "little"), head, *parts])


def unpack_arrays(message: bytes) -> dict[str, npt.NDArray[np.generic]]:
    """Return the arrays of a message, as writable copies.

    Raises:
        ValueError: the message does not come from `pack_arrays`.
    """
    start = _LENGTH + int.from_bytes(message[:_LENGTH], "little")
    arrays = {}
    for name, kind, shape in _described(message[_LENGTH:start]):
        dtype, count = np.dtype(kind), math.prod(shape)
        if count * dtype.itemsize > len(message) - start:
            raise ValueError(f"a message between workers ends within its array {name!r}")
        array = np.frombuffer(message, dtype, count, start)
        arrays[name] = array.reshape(shape).copy()
        start += array.nbytes
    if start != len(message):
        raise ValueError("a message between workers has more than its arrays")
    return arrays


def _described(head: bytes) -> list[tuple[str, str, list[int]]]:
    """Return name, dtype and shape of each array of a message."""
    try:
        described = json.loads(head)
    except RecursionError as error:
        raise ValueError("a message between workers is nested deeply") from error
    if not isinstance(described, list):
        raise ValueError(f"a message between workers has no list of arrays: {described!r:.80}")
    for each in described:
        match each:
            case [str(), str(kind), list(shape)] if (
                _KIND.fullmatch(kind)
                and len(shape) <= _MOST_AXES
                and all(type(size) is int and size >= 0 for size in shape)
            ):
                continue
        raise ValueError(f"a message between workers has no array in {each!r:.80}")
    return described
