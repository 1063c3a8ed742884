# SPDX-License-Identifier: Apache-2.0
"""Matrix products by the copy of oneDNN that MindSpore ships, through its C API."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import threading
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["BFLOAT16", "FLOAT32", "Matrix", "Product", "instructions", "version"]

# Values of oneDNN's enumerations (dnnl_types.h, dnnl_common_types.h of oneDNN 3).
_CPU, _IN_ORDER, _FORMAT_ANY, _SCRATCHPAD_USER, _UNDEFINED = 1, 1, 1, 1, 0
_QUERY_NAME, _QUERY_WEIGHTS, _QUERY_SCRATCHPAD = 8, 131, 136
_SOURCE, _DESTINATION, _WEIGHTS, _SCRATCHPAD = 1, 17, 33, 80
_MOST_DIMENSIONS = 12
_TYPES = {"bfloat16": 2, "float32": 3}
_SIZES = {"bfloat16": 2, "float32": 4}
BFLOAT16, FLOAT32 = "bfloat16", "float32"


class _Version(ctypes.Structure):
    _fields_ = [("numbers", c_int * 3), ("hash", c_char_p), ("runtimes", c_uint * 2)]


class _Argument(ctypes.Structure):
    _fields_ = [("number", c_int), ("memory", c_void_p)]


@functools.cache
def _library() -> ctypes.CDLL:
    spec = importlib.util.find_spec("mindspore")
    if spec is None or spec.origin is None:
        raise ImportError("mindspore must be installed: its copy of oneDNN is used")
    library = ctypes.CDLL(str(Path(spec.origin).parent / "lib" / "libdnnl.so.3"))
    library.dnnl_version.restype = POINTER(_Version)
    library.dnnl_primitive_desc_query_md.restype = c_void_p
    library.dnnl_memory_desc_get_size.restype = c_size_t
    library.dnnl_memory_desc_get_size.argtypes = [c_void_p]
    library.dnnl_primitive_execute.argtypes = [c_void_p, c_void_p, c_int, c_void_p]
    return library


@functools.cache
def _engine() -> c_void_p:
    engine = c_void_p()
    _call("engine_create", byref(engine), _CPU, c_size_t(0))
    return engine


def _call(name: str, *arguments: Any) -> None:
    status = getattr(_library(), f"dnnl_{name}")(*arguments)
    if status != 0:
        raise RuntimeError(f"dnnl_{name} failed with status {status}")


def version() -> str:
    """Return the library's version, such as '3.10.1'."""
    return ".".join(map(str, _library().dnnl_version().contents.numbers))


def instructions() -> list[str]:
    """Return the processor's instruction sets for products, in ascending order."""
    wanted = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("flags"):
            flags = set(line.split(":", 1)[1].split())
            return [each for each in wanted if each in flags]
    return []


@dataclass(frozen=True)
class Matrix:
    """The shape and the layout of a matrix.

    A transposed matrix is stored as `[columns, rows]`, and its columns start `ld` elements apart.
    """

    rows: int
    columns: int
    ld: int
    transposed: bool = False

    def descriptor(self, kind: str) -> c_void_p:
        """Return oneDNN's descriptor."""
        strides = (1, self.ld) if self.transposed else (self.ld, 1)
        made = c_void_p()
        dims = c_int64 * _MOST_DIMENSIONS
        _call(
            "memory_desc_create_with_strides", byref(made), 2, dims(self.rows, self.columns),
            _TYPES[kind], dims(*strides),
        )  # fmt: skip
        return made


class Product:
    """C = A B, or C += A B, computed by the calling thread.

    Args:
        a, b, c: the matrices; C is float32.
        kind: type of A and B, 'float32' or 'bfloat16'.
        packs: True if B is in oneDNN's preferred layout; `pack` writes this layout.
        adds: True if the product is added to C.

    Raises:
        RuntimeError: oneDNN does not support this product on this processor.
    """

    def __init__(
        self, a: Matrix, b: Matrix, c: Matrix, kind: str, packs: bool = False, adds: bool = False
    ) -> None:
        self.kind = kind
        self._given = b.descriptor(kind)
        self._a, self._b, self._c = a.descriptor(kind), self._given, c.descriptor(FLOAT32)
        if packs:
            self._b = c_void_p()
            dims = (c_int64 * _MOST_DIMENSIONS)(b.rows, b.columns)
            _call("memory_desc_create_with_tag", byref(self._b), 2, dims, _TYPES[kind], _FORMAT_ANY)
        # The calling thread computes the product; the library's own threads are not used.
        limit = getattr(_library(), "dnnl_threadpool_interop_set_max_concurrency", None)
        if limit is not None:
            limit(1)
        made = c_void_p()
        _call(
            "matmul_primitive_desc_create", byref(made), _engine(), self._a, self._b, None,
            self._c, _attributes(adds),
        )  # fmt: skip
        self._b = self._queried(made, _QUERY_WEIGHTS)
        self._scratchpad = self._queried(made, _QUERY_SCRATCHPAD)
        name = c_char_p()
        _call("primitive_desc_query", made, _QUERY_NAME, 0, byref(name))
        self.implementation = (name.value or b"").decode()
        self._primitive = c_void_p()
        _call("primitive_create", byref(self._primitive), made)

    @staticmethod
    def _queried(primitive: c_void_p, what: int) -> c_void_p:
        descriptor = c_void_p(_library().dnnl_primitive_desc_query_md(primitive, what, 0))
        copy = c_void_p()
        _call("memory_desc_clone", byref(copy), descriptor)
        return copy

    @property
    def packed_bytes(self) -> int:
        """Number of bytes of B in the layout that the product reads."""
        return int(_library().dnnl_memory_desc_get_size(self._b))

    def pack(self, b: np.ndarray, packed: np.ndarray) -> None:
        """Write B in the layout that the product reads."""
        made, primitive = c_void_p(), c_void_p()
        _call(
            "reorder_primitive_desc_create", byref(made), self._given, _engine(), self._b,
            _engine(), None,
        )  # fmt: skip
        _call("primitive_create", byref(primitive), made)
        memories = {_SOURCE: _memory(self._given, b), _DESTINATION: _memory(self._b, packed)}
        _call("primitive_execute", primitive, _stream(), *_listed(memories))

    def bind(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Callable[[], None]:
        """Return a function that computes the product; each matrix starts at its array's start.

        The function keeps references to the arrays, and has its own scratchpad.
        """
        bytes_needed = int(_library().dnnl_memory_desc_get_size(self._scratchpad))
        scratch = np.zeros(max(bytes_needed, 1), np.uint8)
        memories = {
            _SOURCE: _memory(self._a, a),
            _WEIGHTS: _memory(self._b, b),
            _DESTINATION: _memory(self._c, c),
            _SCRATCHPAD: _memory(self._scratchpad, scratch),
        }
        count, arguments = _listed(memories)
        execute, primitive = _library().dnnl_primitive_execute, self._primitive
        references = (self, a, b, c, scratch)

        def run() -> None:
            if execute(primitive, _stream(), count, arguments) != 0:
                raise RuntimeError(f"dnnl_primitive_execute failed, {references[0].implementation}")

        return run


@functools.cache
def _attributes(adds: bool) -> c_void_p:
    made, sums = c_void_p(), c_void_p()
    _call("primitive_attr_create", byref(made))
    _call("primitive_attr_set_scratchpad_mode", made, _SCRATCHPAD_USER)
    if adds:
        _call("post_ops_create", byref(sums))
        _call("post_ops_append_sum", sums, ctypes.c_float(1.0), ctypes.c_int32(0), _UNDEFINED)
        _call("primitive_attr_set_post_ops", made, sums)
    return made


_of_thread = threading.local()


def _stream() -> c_void_p:
    stream: c_void_p | None = getattr(_of_thread, "stream", None)
    if stream is None:
        stream = c_void_p()
        _call("stream_create", byref(stream), _engine(), _IN_ORDER)
        _of_thread.stream = stream
    return stream


def _memory(descriptor: c_void_p, array: np.ndarray) -> c_void_p:
    made = c_void_p()
    _call("memory_create", byref(made), descriptor, _engine(), c_void_p(array.ctypes.data))
    return made


def _listed(memories: dict[int, c_void_p]) -> tuple[int, Any]:
    listed = [_Argument(number, memory) for number, memory in memories.items()]
    return len(listed), (_Argument * len(listed))(*listed)
