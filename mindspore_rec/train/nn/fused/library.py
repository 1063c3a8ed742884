# SPDX-License-Identifier: Apache-2.0
"""Finds and opens oneDNN: MindSpore's copy, or the library that an environment variable names."""

from __future__ import annotations

import functools
import importlib.util
import os
import warnings
from pathlib import Path

from mindspore_rec import _native

__all__ = ["VARIABLE", "has_onednn", "onednn_path"]

VARIABLE = "MINDSPORE_REC_ONEDNN"
"""Environment variable with the path of oneDNN's library; 'off' for MindSpore's own layers."""


def onednn_path() -> Path | None:
    """Return the path of the library to open; None if the environment variable is 'off'.

    Raises:
        ImportError: the environment variable is not set, and MindSpore is not installed.
    """
    setting = os.environ.get(VARIABLE, "")
    if setting:
        return None if setting == "off" else Path(setting)
    # `mindspore-rec doctor` calls this function without importing MindSpore, because the import may
    # crash.
    spec = importlib.util.find_spec("mindspore")
    if spec is None or spec.origin is None:
        raise ImportError("oneDNN is MindSpore's copy, and MindSpore is not installed")
    return Path(spec.origin).parent / "lib" / "libdnnl.so.3"


@functools.cache
def has_onednn() -> bool:
    """Return whether oneDNN can be used; the first call opens oneDNN.

    Warns:
        RuntimeWarning: oneDNN cannot be used, so dense layers run as MindSpore's layers, which are
            slower.
    """
    path = onednn_path()
    if path is None:
        return False
    problem = _native.load_onednn(str(path))
    if problem:
        warnings.warn(
            f"the dense layers are MindSpore's own, which are slower, for oneDNN cannot be used: "
            f"{problem}. Name another copy by the environment variable {VARIABLE}, or 'off' "
            "against this warning",
            RuntimeWarning,
            stacklevel=2,
        )
    return not problem
