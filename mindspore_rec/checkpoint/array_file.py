# SPDX-License-Identifier: Apache-2.0
"""Arrays by name as one safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save

__all__ = ["read_arrays", "write_arrays"]


def write_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Writes them, in order of their names.

    Raises:
        OSError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "arrays.safetensors"
        >>> write_arrays({"weight": np.ones(2, np.float32)}, path)
        >>> read_arrays(path)
        {'weight': array([1., 1.], dtype=float32)}
    """
    # Its own writing raises errors that are no OSError.
    path.write_bytes(save(dict(sorted(arrays.items()))))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """What `write_arrays` wrote."""
    return load_file(path)
