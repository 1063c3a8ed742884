# SPDX-License-Identifier: Apache-2.0
"""Read and write named arrays as one safetensors file."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
from safetensors.numpy import save

from mindspore_rec.common.run.errors import CheckpointError, reading

__all__ = ["check_arrays", "read_arrays", "write_arrays"]

_MOST_HEADER = 16 << 20
_DTYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4",
    "I32": "<i4", "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8", "C64": "<c8",
}  # fmt: skip


def write_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Write arrays, in the order of their names.

    Raises:
        OSError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "arrays.safetensors"
        >>> write_arrays({"weight": np.ones(2, np.float32)}, path)
        >>> read_arrays(path)
        {'weight': array([1., 1.], dtype=float32)}
    """
    # If safetensors itself writes the file, a failed write raises an error other than OSError.
    path.write_bytes(save(dict(sorted(arrays.items()))))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays that `write_arrays` wrote.

    Raises:
        CheckpointError: the file is damaged.
        OSError: reading the file failed.
    """
    # The file is not mapped: if a mapped file is truncated, the next access ends the process.
    with reading(path), open(path, "rb") as file:
        arrays = {}
        for name, (dtype, shape) in _types(path, file).items():
            data = bytearray(math.prod(shape) * dtype.itemsize)
            if file.readinto(data) != len(data):
                raise CheckpointError(f"{path} is damaged: it was truncated while it was read")
            arrays[name] = np.frombuffer(data, dtype).reshape(shape)
        return arrays


def check_arrays(path: Path) -> None:
    """Check only the header of a file, and raise the same errors as `read_arrays`."""
    with reading(path), open(path, "rb") as file:
        _types(path, file)


def _types(path: Path, file: BinaryIO) -> dict[str, tuple[np.dtype, list[int]]]:
    """Read and check the header of a file; return dtypes and shapes in the order of the bytes."""
    size = file.seek(0, 2) - 8
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    most = min(max(size, 0), _MOST_HEADER)
    if size < 0 or length > most:
        raise CheckpointError(f"{path} is damaged: its header has {length} bytes of at most {most}")
    header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    types, end = {}, 0
    for name, field in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape = np.dtype(_DTYPES[field["dtype"]]), [*map(operator.index, field["shape"])]
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        is_legal = len(shape) <= 32 and all(0 <= n < 1 << 62 for n in shape)
        if not is_legal or field["data_offsets"] != [begin, end]:
            raise CheckpointError(f"{path} is damaged: {name!r:.100} has {field!s:.200}")
        types[name] = dtype, shape
    if end != size - length:
        raise CheckpointError(f"{path} is damaged: its arrays have {end} bytes of {size - length}")
    return types
