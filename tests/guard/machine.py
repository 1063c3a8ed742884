# SPDX-License-Identifier: Apache-2.0
"""Describe what decides bits besides the tree: the processor, the number of threads, versions."""

from __future__ import annotations

import os
import platform
from typing import Any

import mindspore
import numpy as np
import onnxruntime

from mindspore_rec import _native, get_num_threads
from mindspore_rec.command.doctor.machine import cpu_field, cpu_flags
from mindspore_rec.train.nn.fused.library import has_onednn

__all__ = ["machine"]

_FEATURES = ("avx", "amx", "fma", "asimd", "sve", "bf16", "i8mm")


def machine() -> dict[str, Any]:
    """Return a description of this machine and of the libraries that compute."""
    onednn = has_onednn()
    return {
        "processor": cpu_field("model name") or platform.machine(),
        "features": [each for each in cpu_flags() if any(name in each for name in _FEATURES)],
        "cpus": len(os.sched_getaffinity(0)),
        "threads": get_num_threads(),
        "row kernels": _native.simd(),
        "oneDNN": _native.onednn_version() if onednn else "none",
        "bfloat16 products": onednn and _native.onednn_has_bfloat16(),
        "Python": platform.python_version(),
        "MindSpore": mindspore.__version__,
        "ONNX Runtime": onnxruntime.__version__,
        "NumPy": np.__version__,
        "variables": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(("MINDSPORE_REC_", "ONEDNN_", "DNNL_", "OMP_"))
        },
    }
