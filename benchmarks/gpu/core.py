# SPDX-License-Identifier: Apache-2.0
"""The native core without MindSpore: importing the core, running its operators on NumPy arrays."""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

__all__ = ["HOST", "Core", "find_native", "to_bfloat16", "to_float32"]

HOST = "cpu"
_CORE = "mindspore_rec._native"
_ROOT = Path(__file__).resolve().parents[2]
# NumPy has no bfloat16 dtype, so uint16 numbers store the bits of bfloat16 numbers.
_NAMES = {
    "float32": b"float32",
    "uint16": b"bfloat16",
    "int64": b"int64",
    "int32": b"int32",
    "int8": b"int8",
}


def find_native() -> Path:
    """Return the path of the native core in this repository.

    Raises:
        FileNotFoundError: the core was not compiled.
    """
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = _ROOT / "mindspore_rec" / f"_native{suffix}"
        if path.is_file():
            return path
    raise FileNotFoundError(f"no native core in {_ROOT}: run `bash build.sh prepare`, or name one")


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Round float32 numbers to bfloat16, ties to even; return the bits."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def to_float32(values: np.ndarray) -> np.ndarray:
    """Return numbers as float32; uint16 numbers are the bits of bfloat16."""
    if values.dtype != np.uint16:
        return values
    return (values.astype(np.uint32) << 16).view(np.float32)


class Core:
    """The native core, opened by its path.

    Args:
        native: path of `_native*.so`.
        onednn: path of oneDNN's library.
        cuda: folder that contains libnvrtc and libcublasLt, at any depth. Default: no GPU is used.
        cache: folder for compiled kernels.

    Raises:
        RuntimeError: oneDNN cannot be used.
    """

    def __init__(
        self, native: Path, onednn: Path, cuda: Path | None = None, cache: Path | None = None
    ) -> None:
        self.module = _load(native)
        self._library = ctypes.CDLL(str(native))
        self._cuda, self._cache = cuda, cache
        self._opened = HOST
        problem = self.module.load_onednn(str(onednn))
        if problem:
            raise RuntimeError(f"oneDNN cannot be used: {problem}")

    def use(self, device: str) -> None:
        """Make later programs run on 'cpu' or 'cuda:<n>'.

        Raises:
            FileNotFoundError: a library of CUDA is missing.
        """
        if device == self._opened:
            return
        if self._opened != HOST:
            self.module.close_dense_device()
            self._opened = HOST
        if device != HOST:
            ordinal = int(device.removeprefix("cuda:"))
            libraries = {name: self._find(name) for name in ("nvrtc", "cublasLt")}
            self.module.open_cuda(ordinal, libraries, str(self._cache or ""))
        self._opened = device

    def _find(self, name: str) -> str:
        if self._cuda is None:
            raise FileNotFoundError("a GPU needs --cuda, the folder of CUDA's libraries")
        libraries = [p for p in self._cuda.rglob(f"lib{name}.so*") if "stubs" not in p.parts]
        if not libraries:
            raise FileNotFoundError(f"no lib{name}.so below {self._cuda}")
        return str(min(libraries))

    def bind(self, name: str, arrays: Sequence[np.ndarray]) -> Callable[[], None]:
        """Return a function that runs an operator on `arrays`: the inputs, then the outputs.

        An exception in the operator ends the process with the exception's message, because only
        MindSpore catches the operators' exceptions.

        Raises:
            ValueError: an array is not C-contiguous.
        """
        for i, array in enumerate(arrays):
            if not array.flags.c_contiguous:
                raise ValueError(f"argument {i} of {name} is not contiguous")
        n = len(arrays)
        shapes = [(ctypes.c_int64 * max(a.ndim, 1))(*a.shape) for a in arrays]
        each = [ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)) for shape in shapes]
        arguments = (
            n,
            (ctypes.c_void_p * n)(*(a.ctypes.data for a in arrays)),
            (ctypes.c_int * n)(*(a.ndim for a in arrays)),
            (ctypes.POINTER(ctypes.c_int64) * n)(*each),
            (ctypes.c_char_p * n)(*(_NAMES[a.dtype.name] for a in arrays)),
            None,
            None,
        )
        function = getattr(self._library, name)
        references = (list(arrays), shapes)

        def run() -> None:
            if function(*arguments) != 0:
                raise RuntimeError(f"{name} failed on {len(references[0])} arguments")

        return run


def _load(path: Path) -> Any:
    """Import the core from `path`; if its package is not imported, register an empty package."""
    if _CORE in sys.modules:
        return sys.modules[_CORE]
    package, _, _ = _CORE.partition(".")
    if package not in sys.modules:
        empty = ModuleType(package)
        empty.__path__ = []
        sys.modules[package] = empty
    spec = importlib.util.spec_from_file_location(_CORE, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"this Python cannot import {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_CORE] = module
    spec.loader.exec_module(module)
    return module
