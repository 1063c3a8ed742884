# SPDX-License-Identifier: Apache-2.0
"""The runs of the guard by name, each a function that returns digests by what they are of."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tests.guard import served, setups, stream, zoo

__all__ = ["RUNS", "Run"]


@dataclasses.dataclass(frozen=True)
class Run:
    """A run: a function, called with an empty folder, in a process of its own.

    Args:
        record: returns the digests.
        workers: number of workers that call it, each with the same folder. Default: 1.
        lives: number of processes that call it, one after the other; all but the last are killed.
            Default: 1.
        needs: program that must be installed. Default: none.
    """

    record: Callable[[Path], dict[str, str]]
    workers: int = 1
    lives: int = 1
    needs: str | None = None

    @property
    def missing(self) -> str | None:
        """Return what is missing on this machine, or None."""
        found = self.needs is None or shutil.which(self.needs) is not None
        return None if found else f"{self.needs} is not installed"


RUNS: Mapping[str, Run] = {
    "float32": Run(setups.float32),
    "pynative": Run(setups.pynative),
    "bfloat16_products": Run(setups.narrow_products),
    "bfloat16_rows": Run(setups.narrow_rows),
    "ssd": Run(setups.on_ssd),
    "redis": Run(setups.in_redis, needs="redis-server"),
    "device": Run(setups.on_device),
    "count_capacity": Run(setups.counted_with_capacity),
    "sketch_age": Run(setups.sketched_with_ages),
    "optimizers": Run(setups.optimizers),
    "three_workers": Run(setups.float32, workers=3),
    "three_workers_bfloat16": Run(setups.narrow_rows, workers=3),
    "three_workers_ssd_eviction": Run(setups.evicted_on_ssd, workers=3),
    "served_mindspore": Run(served.by_mindspore),
    "served_onnx": Run(served.by_onnx),
    "stream_restarted": Run(stream.restarted, lives=2),
    **{f"zoo_{name}": Run(partial(zoo.model, name=name)) for name in zoo.MODELS},
}
