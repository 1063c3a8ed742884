# SPDX-License-Identifier: Apache-2.0
"""Finds and opens oneDNN: MindSpore's copy, or the library that an environment variable names."""

from __future__ import annotations

import functools
import os
import warnings
from pathlib import Path

import mindspore

from mindspore_rec import _native

__all__ = ["VARIABLE", "has_onednn"]

VARIABLE = "MINDSPORE_REC_ONEDNN"
"""Environment variable with the path of oneDNN's library; 'off' for MindSpore's own layers."""


@functools.cache
def has_onednn() -> bool:
    """Return whether oneDNN can be used; the first call opens oneDNN.

    Warns:
        RuntimeWarning: oneDNN cannot be used, so dense layers run as MindSpore's layers, which are
            slower.
    """
    setting = os.environ.get(VARIABLE, "")
    if setting == "off":
        return False
    path = Path(setting) if setting else Path(mindspore.__file__).parent / "lib" / "libdnnl.so.3"
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
