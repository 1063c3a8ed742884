# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the GPUs that the native core opens; programs stay on the CPU."""

from __future__ import annotations

import pytest

from mindspore_rec.train.nn.fused import device as module

__all__ = ["StandInGpus"]


class StandInGpus:
    """As many GPUs as `count`, with the functions of the native core."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.device = "cpu"
        self.opened: list[tuple[int, dict[str, str], str]] = []

    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> StandInGpus:
        """Return these GPUs, in a process that has chosen no device yet."""
        monkeypatch.setattr(module, "_native", self)
        monkeypatch.setattr(module, "_state", module._State())
        monkeypatch.delenv(module.VARIABLE, raising=False)
        return self

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
