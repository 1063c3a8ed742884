# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the GPUs that the native core opens; programs stay on the CPU."""

from __future__ import annotations

__all__ = ["StandInGpus"]


class StandInGpus:
    """As many GPUs as `count`, with the functions of the native core."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.device = "cpu"
        self.opened: list[tuple[int, dict[str, str], str]] = []

    def open_cuda(self, ordinal: int, libraries: dict[str, str], cache_dir: str) -> None:
        if ordinal >= self.count:
            raise RuntimeError(f"there is no GPU {ordinal}, {self.count} are here")
        self.opened.append((ordinal, libraries, cache_dir))
        self.device = f"cuda:{ordinal}"

    def close_dense_device(self) -> None:
        self.device = "cpu"

    def dense_device(self) -> str:
        return self.device

    def dense_device_description(self) -> str:
        return f"Some GPU {self.device[-1]}, driver 13.0"
