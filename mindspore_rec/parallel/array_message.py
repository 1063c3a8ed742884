# SPDX-License-Identifier: Apache-2.0
"""Arrays as messages between workers: their names, types and shapes, then their bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

__all__ = ["pack_arrays", "unpack_arrays"]

_LENGTH = 8  # bytes of the length of the description


def pack_arrays(arrays: Mapping[str, npt.NDArray[np.generic]]) -> bytes:
    """Return arrays of numbers and bools as one message.

    Args:
        arrays: arrays by name; a type that NumPy does not know (bfloat16) becomes float32.

    Raises:
        TypeError: an array of objects or texts.

    Example:
        >>> unpack_arrays(pack_arrays({"ids": np.array([[7], [8]])}))["ids"].tolist()
        [[7], [8]]
    """
    described, parts = [], []
    for name, given in arrays.items():
        array = given.astype(np.float32) if given.dtype.name == "bfloat16" else given
        if array.dtype.kind not in "biufc":
            raise TypeError(f"{name} must be an array of numbers, got dtype {array.dtype}")
        described.append([name, array.dtype.str, list(array.shape)])
        parts.append(np.ascontiguousarray(array).tobytes())
    head = json.dumps(described).encode()
    return b"".join([len(head).to_bytes(_LENGTH, "little"), head, *parts])


def unpack_arrays(message: bytes) -> dict[str, npt.NDArray[np.generic]]:
    """Return the arrays of a message, which may be written to."""
    start = _LENGTH + int.from_bytes(message[:_LENGTH], "little")
    found = {}
    for name, dtype, shape in json.loads(message[_LENGTH:start]):
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(message, np.dtype(dtype), count, start)
        found[name] = array.reshape(shape).copy()
        start += array.nbytes
    return found
