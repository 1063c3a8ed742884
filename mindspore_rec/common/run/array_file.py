# SPDX-License-Identifier: Apache-2.0
"""Read and write named arrays as one safetensors file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from mindspore_rec.common.run.errors import CheckpointError, reading

__all__ = ["check_arrays", "read_arrays", "write_arrays"]

_MOST_HEADER = 16 << 20
_DTYPES = {
    "BOOL", "U8", "I8", "U16", "I16", "F16", "U32", "I32", "F32", "U64", "I64", "F64", "C64",
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
    with _opened(path) as file:
        return dict(file.get_tensors())


def check_arrays(path: Path) -> None:
    """Check only the header of a file, and raise the same errors as `read_arrays`."""
    with _opened(path):
        pass


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    with open(path, "rb") as plain:
        size = plain.seek(0, 2)
        plain.seek(0)
        header = int.from_bytes(plain.read(8), "little")
    if size < 8 or header > min(size - 8, _MOST_HEADER):
        most = min(max(size - 8, 0), _MOST_HEADER)
        raise CheckpointError(f"{path} is damaged: its header has {header} bytes of at most {most}")
    # safe_open checks shapes and offsets of all arrays against the size of the file.
    with reading(path), safe_open(path, "np") as file:
        for name in file.keys():  # noqa: SIM118
            array = file.get_slice(name)
            dtype, shape = array.get_dtype(), array.get_shape()
            if dtype not in _DTYPES or len(shape) > 32 or any(n >= 1 << 62 for n in shape):
                raise CheckpointError(
                    f"{path} is damaged: '{name!r:.100}' has dtype {dtype!s:.20} and shape "
                    f"{shape!s:.100}"
                )
        yield file
