# SPDX-License-Identifier: Apache-2.0
"""Probes of Python, the native core, MindSpore, oneDNN and a GPU.

Each probe runs in a process of its own, since a library that does not fit the machine may crash.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import platform
import sys

from mindspore_rec.command.doctor.line import (
    BROKEN,
    MISSING,
    OFF,
    OK,
    ONLY_SERVES,
    PACKAGE,
    SLOW,
    Asked,
    Line,
    has_training,
)
from mindspore_rec.command.doctor.machine import cpu_flags
from mindspore_rec.version import __version__

__all__ = ["core", "gpu", "mindspore", "onednn", "python"]

_INSTALL = "Install the wheel of mindspore_rec again, or run `bash build.sh prepare` in a clone."
_MINDSPORE = "pip install 'mindspore>=2.10,<2.11' 'numpy>=1.25,<2'"
_SIMD = "MINDSPORE_REC_SIMD"


def python(_: Asked) -> Line:
    """Return the version of Python, and the folder of mindspore_rec."""
    version = platform.python_version()
    figures = {
        "version": version,
        "executable": sys.executable,
        "mindspore_rec": __version__,
        "folder": str(PACKAGE),
    }
    meaning = f"{version}, {sys.executable}; mindspore_rec {__version__} in {PACKAGE}"
    if not (3, 10) <= sys.version_info[:2] <= (3, 12):
        remedy = "Use Python 3.10 to 3.12, for which MindSpore 2.10 has wheels."
        return Line(BROKEN, meaning, remedy, figures)
    return Line(OK, meaning, "", figures)


def core(_: Asked) -> Line:
    """Load the native core, and return the kernels that the core has chosen."""
    try:
        from mindspore_rec import _native
    except ImportError as error:
        return Line(BROKEN, f"the native core cannot be loaded ({error})", _INSTALL)
    kernels, wanted = _native.simd(), os.environ.get(_SIMD, "")
    glibc = " ".join(platform.libc_ver())
    figures = {
        "file": _native.__file__,
        "kernels": kernels,
        "threads": _native.get_num_threads(),
        "architecture": platform.machine(),
        "libc": glibc,
    }
    meaning = (
        f"{kernels} kernels on {_native.get_num_threads()} threads ({platform.machine()}, {glibc})"
    )
    if wanted not in ("", kernels):
        remedy = f"Remove {_SIMD}: the values are base, avx2 and avx512, if the processor has them."
        return Line(SLOW, f"{meaning}, although {_SIMD}={wanted} asks for others", remedy, figures)
    if kernels == "base" and "avx2" in cpu_flags():
        remedy = f"Remove {_SIMD} from the environment."
        return Line(SLOW, f"{meaning}, although the processor has AVX2", remedy, figures)
    return Line(OK, meaning, "", figures)


def mindspore(_: Asked) -> Line:
    """Import MindSpore, compute one sum, and import a training module of mindspore_rec."""
    if not has_training():
        return Line(OFF, ONLY_SERVES)
    if not _is_installed("mindspore"):
        return Line(MISSING, "nothing can be trained", f"Run {_MINDSPORE}.")
    try:
        package = importlib.import_module("mindspore")
        total = (package.Tensor([1.0, 2.0]) + package.Tensor([3.0, 4.0])).asnumpy()
    except Exception as error:
        return Line(BROKEN, f"MindSpore does not work ({_short(error)})", f"Run {_MINDSPORE}.")
    figures = {"version": package.__version__}
    if total.tolist() != [4.0, 6.0]:
        return Line(BROKEN, f"MindSpore adds wrongly: {total}", f"Run {_MINDSPORE}.", figures)
    if not package.__version__.startswith("2.10."):
        return Line(
            BROKEN,
            f"MindSpore is {package.__version__}, and mindspore_rec was made for 2.10",
            f"Run {_MINDSPORE}.",
            figures,
        )
    try:
        importlib.import_module("mindspore_rec.train.loop.rec_model")
    except Exception as error:
        meaning = f"{package.__version__} works, but nothing can be trained ({_short(error)})"
        return Line(BROKEN, meaning, _INSTALL, figures)
    return Line(OK, f"{package.__version__} imports and computes on the CPU", "", figures)


def onednn(_: Asked) -> Line:
    """Open the library that computes the dense layers."""
    from mindspore_rec import _native
    from mindspore_rec.train.nn.fused.library import VARIABLE, onednn_path

    try:
        path = onednn_path()
    except ImportError:
        return Line(MISSING, "MindSpore, which ships oneDNN, is missing", f"Run {_MINDSPORE}.")
    if path is None:
        return Line(
            OFF,
            f"MindSpore's own layers are used, which are slower, because of {VARIABLE}=off",
            f"Remove {VARIABLE} from the environment.",
        )
    problem = _native.load_onednn(str(path))
    figures: dict[str, object] = {"path": str(path)}
    if problem:
        return Line(
            SLOW,
            f"MindSpore's own layers are used, which are slower, since oneDNN cannot be opened: "
            f"{problem}",
            f"Remove {VARIABLE} from the environment, or correct its path."
            if os.environ.get(VARIABLE)
            else f"Name a oneDNN of 3.4 or later, built for thread pools, by {VARIABLE}=PATH.",
            figures,
        )
    fast = _native.onednn_has_bfloat16()
    copy = str(path) if os.environ.get(VARIABLE) else "MindSpore's copy"
    figures |= {"version": _native.onednn_version(), "bfloat16": fast}
    return Line(
        OK,
        f"{_native.onednn_version()}, {copy}, computes the dense layers; bfloat16 "
        + ("is faster than float32" if fast else "is no faster than float32 on this processor"),
        "",
        figures,
    )


def gpu(_: Asked) -> Line:
    """Open the first GPU, if there is a driver."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Line(OFF, "there is no driver of an NVIDIA GPU; dense layers run on the processor")
    from mindspore_rec.train.nn.fused.device import VARIABLE, describe, set_dense_device

    name = os.environ.get(VARIABLE, "")
    device = name if name.startswith("cuda:") else "cuda:0"
    try:
        set_dense_device(device)
    except (RuntimeError, ValueError) as error:
        return Line(BROKEN, str(error), "Mend this, or run dense layers on the processor.")
    figures = {"device": device, "description": describe(device)}
    if not name.startswith("cuda:"):
        remedy = f"Set {VARIABLE}={device} in the environment to use it."
        return Line(OFF, f"{describe(device)} works, and is not used", remedy, figures)
    return Line(OK, f"{describe(device)} computes the dense layers", "", figures)


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _short(error: Exception) -> str:
    """Return the type and the first line of an error."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
