# SPDX-License-Identifier: Apache-2.0
"""Finds NVIDIA's libraries and the folder of compiled kernels, for dense programs on a GPU.

This file imports nothing from the package, so that programs without MindSpore can run it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path

__all__ = ["find_cuda_libraries", "kernel_cache"]

# Paths of the libraries in the folder `nvidia` of installed wheels, for each major version of CUDA,
# newest first.
_IN_WHEELS = {
    13: {"nvrtc": "cu13/lib/libnvrtc.so.13", "cublasLt": "cu13/lib/libcublasLt.so.13"},
    12: {"nvrtc": "cuda_nvrtc/lib/libnvrtc.so.12", "cublasLt": "cublas/lib/libcublasLt.so.12"},
}


def find_cuda_libraries() -> dict[str, str]:
    """Find NVRTC and cuBLASLt of the same major version of CUDA, 13 if possible, otherwise 12.

    The function searches the wheels of this Python first, then the libraries that the system's
    loader finds (`LD_LIBRARY_PATH`, `ldconfig`).

    Returns:
        For "nvrtc" and "cublasLt", an argument of `dlopen`: a path in a wheel, or a name such as
        "libnvrtc.so.13". If a library is missing, the argument is the library's name, so that
        `dlopen` reports the missing file.

    Example:
        >>> sorted(find_cuda_libraries())
        ['cublasLt', 'nvrtc']
    """
    wheels = {major: _wheels_of(major) for major in _IN_WHEELS}
    for major, paths in wheels.items():
        if paths.keys() == _IN_WHEELS[major].keys():
            return paths
    for major, paths in wheels.items():
        names = {name: paths.get(name, Path(file).name) for name, file in _IN_WHEELS[major].items()}
        if all(name in paths or _opens(each) for name, each in names.items()):
            return names
    return {name: wheels[13].get(name, Path(file).name) for name, file in _IN_WHEELS[13].items()}


def _wheels_of(major: int) -> dict[str, str]:
    """Return a dict from library names to paths in installed wheels, for one version of CUDA."""
    spec = importlib.util.find_spec("nvidia")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    libraries = {}
    for name, file in _IN_WHEELS[major].items():
        paths = [Path(folder, file) for folder in folders if Path(folder, file).is_file()]
        if paths:
            libraries[name] = str(paths[0])
    return libraries


def _opens(name: str) -> bool:
    """Return whether the system's loader finds and opens a library."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def kernel_cache() -> str:
    """Return the folder for compiled kernels: `mindspore_rec/kernels` in the user's cache.

    The user's cache is `$XDG_CACHE_HOME`, or `~/.cache` if this variable is not set. The returned
    folder may not exist yet.

    Returns: Path of the folder, or "" if the user has no home folder. If the path is "", each
        process compiles its own kernels.

    Example:
        >>> kernel_cache().endswith("/mindspore_rec/kernels") or kernel_cache() == ""
        True
    """
    cache_home = os.environ.get("XDG_CACHE_HOME", "")
    home = os.path.expanduser("~")
    # According to the XDG specification, a relative path in `XDG_CACHE_HOME` is ignored.
    cache = Path(cache_home) if os.path.isabs(cache_home) else Path(home) / ".cache"
    return str(cache / "mindspore_rec" / "kernels") if cache.is_absolute() else ""
