# SPDX-License-Identifier: Apache-2.0
"""Read and write named arrays as one safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import load, save

from mindspore_rec.common.run.errors import CheckpointError, reading

__all__ = ["read_arrays", "write_arrays"]

_MOST_HEADER = 16 << 20


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
    data = path.read_bytes()
    header = int.from_bytes(data[:8], "little")
    most = min(max(len(data) - 8, 0), _MOST_HEADER)
    if len(data) < 8 or header > most:
        raise CheckpointError(f"{path} is damaged: its header has {header} bytes of at most {most}")
    with reading(path):
        # safetensors checks the shapes and offsets of all arrays against the number of bytes.
        return load(data)
