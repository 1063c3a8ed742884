# SPDX-License-Identifier: Apache-2.0
"""Bandwidth between host memory and a GPU's memory, measured with CUDA's driver."""

from __future__ import annotations

import ctypes
import mmap
import time
from ctypes import byref, c_int, c_size_t, c_void_p
from typing import Any

__all__ = ["bus_gbs"]

_BYTES = 1 << 28
_ROUNDS = 5


def bus_gbs(ordinal: int) -> dict[str, float]:
    """Return GB/s of copies of 256 MiB to and from a GPU, for pinned and for ordinary memory.

    Raises:
        OSError: CUDA's driver is missing.
        RuntimeError: a function of the driver fails.
    """
    library = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: Any) -> None:
        status = getattr(library, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name} failed with {status}")

    device, context, memory, pinned = c_int(), c_void_p(), c_void_p(), c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", byref(device), ordinal)
    call("cuDevicePrimaryCtxRetain", byref(context), device)
    call("cuCtxPushCurrent_v2", context)
    try:
        call("cuMemAlloc_v2", byref(memory), c_size_t(_BYTES))
        call("cuMemAllocHost_v2", byref(pinned), c_size_t(_BYTES))
        usual = mmap.mmap(-1, _BYTES)
        view = ctypes.c_char.from_buffer(usual)
        ctypes.memset(byref(view), 1, _BYTES)
        rates = {}
        for kind, host in (("pinned", pinned), ("usual", c_void_p(ctypes.addressof(view)))):
            for way in ("to", "from"):
                times = []
                for _ in range(_ROUNDS):
                    begin = time.perf_counter()
                    if way == "to":
                        call("cuMemcpyHtoD_v2", memory, host, c_size_t(_BYTES))
                    else:
                        call("cuMemcpyDtoH_v2", host, memory, c_size_t(_BYTES))
                    times.append(time.perf_counter() - begin)
                rates[f"{kind}_{way}_gpu"] = _BYTES / min(times) / 1e9
        call("cuMemFree_v2", memory)
        call("cuMemFreeHost", pinned)
        return rates
    finally:
        call("cuCtxPopCurrent_v2", byref(c_void_p()))
        call("cuDevicePrimaryCtxRelease_v2", device)
