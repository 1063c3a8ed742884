# SPDX-License-Identifier: Apache-2.0
"""NVRTC by ctypes: CUDA's compiler at run time, which needs no GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

__all__ = ["Nvrtc"]

# As in mindspore_rec/csrc/cuda/kernel_module.cc.
FLAGS = ("--std=c++17",)


class Nvrtc:
    """The library.

    Args:
        path: what `dlopen` takes.

    Raises:
        OSError: it is not there.
    """

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def cubin(self, source: str, headers: Mapping[str, str], architecture: str) -> bytes:
        """Compile a source for one architecture, and return the machine code.

        Args:
            source: text of the source.
            headers: texts of what it includes, by name.
            architecture: 'sm_80' for example.

        Raises:
            RuntimeError: it does not compile; the message is the compiler's.
        """
        program = ctypes.c_void_p()
        texts = (ctypes.c_char_p * len(headers))(*(text.encode() for text in headers.values()))
        names = (ctypes.c_char_p * len(headers))(*(name.encode() for name in headers))
        self._call(
            "CreateProgram",
            ctypes.byref(program),
            source.encode(),
            b"kernels.cu",
            len(headers),
            texts,
            names,
        )
        try:
            flags = [f"--gpu-architecture={architecture}".encode(), *map(str.encode, FLAGS)]
            given = (ctypes.c_char_p * len(flags))(*flags)
            if self._library.nvrtcCompileProgram(program, len(flags), given):
                raise RuntimeError(self._text(program, "ProgramLog").decode())
            return self._text(program, "CUBIN")
        finally:
            self._call("DestroyProgram", ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"Get{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", program, text)
        return text.raw

    def _call(self, name: str, *arguments: object) -> None:
        result = getattr(self._library, f"nvrtc{name}")(*arguments)
        if result:
            raise RuntimeError(f"nvrtc{name} failed with {result}")
