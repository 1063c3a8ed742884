# SPDX-License-Identifier: Apache-2.0
"""Runs of the guard that train `Clicks`: modes, types, tiers, admission, eviction, optimizers."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import mindspore as ms

from mindspore_rec import (
    CacheConfig,
    CountAdmission,
    Eviction,
    ProbabilityAdmission,
    SketchAdmission,
    SsdConfig,
    optim,
)
from tests.guard.clicks import EventTimes, trained
from tests.support.redis_server import RedisServer

__all__ = [
    "counted_with_capacity",
    "evicted_on_ssd",
    "float32",
    "in_redis",
    "narrow_products",
    "narrow_rows",
    "on_device",
    "on_ssd",
    "optimizers",
    "pynative",
    "sketched_with_ages",
]

_HOST_ROWS = 200  # of about 420
_OPTIMIZERS: dict[str, Any] = {
    "Adagrad": optim.Adagrad,
    "Adam": optim.Adam,
    "AdamW": optim.AdamW,
    "FTRL": functools.partial(optim.FTRL, l1=1e-3),
    "Momentum": functools.partial(optim.Momentum, momentum=0.9),
    "RMSProp": optim.RMSProp,
    "RowWiseAdagrad": optim.RowWiseAdagrad,
    "SGD": optim.SGD,
}


def float32(folder: Path) -> dict[str, str]:
    """All rows in memory, in GRAPH_MODE."""
    return trained()


def pynative(folder: Path) -> dict[str, str]:
    """All rows in memory, in PYNATIVE_MODE."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    return trained()


def narrow_products(folder: Path) -> dict[str, str]:
    """Factors of the dense layers' products in bfloat16."""
    return trained(compute_dtype="bfloat16")


def narrow_rows(folder: Path) -> dict[str, str]:
    """Rows and moving averages in bfloat16; between workers gradients as well."""
    return trained(value_dtype=ms.bfloat16, state_dtype=ms.bfloat16, gradient_dtype=ms.bfloat16)


def on_ssd(folder: Path) -> dict[str, str]:
    """Half of the rows on an SSD."""
    cache = CacheConfig(host_rows=_HOST_ROWS, ssd=SsdConfig(folder / "rows", direct=False))
    return trained(cache=cache)


def in_redis(folder: Path) -> dict[str, str]:
    """Half of the rows on a Redis server."""
    with RedisServer(folder / "redis") as server:
        return trained(cache=CacheConfig(host_rows=_HOST_ROWS, remote=server.url))


def on_device(folder: Path) -> dict[str, str]:
    """Half of the rows in the device cache, some on an SSD."""
    tiers: dict[str, Any] = {
        "host_rows": _HOST_ROWS,
        "ssd": SsdConfig(folder / "rows", direct=False),
    }
    return trained(cache=CacheConfig(device_rows=_HOST_ROWS, **tiers))


def counted_with_capacity(folder: Path) -> dict[str, str]:
    """Rows from a key's second occurrence on, and at most 60 of them."""
    return trained(admission=CountAdmission(2), eviction=Eviction(max_rows=60, order="lfu"))


def evicted_on_ssd(folder: Path) -> dict[str, str]:
    """At most 300 rows; each of three workers has 60 in memory and the others on an SSD."""
    cache = CacheConfig(host_rows=60, ssd=SsdConfig(folder / "rows", direct=False), prefetch=1)
    return trained(eviction=Eviction(max_rows=300), cache=cache)


def sketched_with_ages(folder: Path) -> dict[str, str]:
    """Rows by an approximate count; those go that were not seen for some time or steps."""
    return trained(
        [EventTimes()],
        admission=SketchAdmission(2, sketch_bytes=1 << 10),
        eviction=Eviction(max_idle_seconds=90, max_idle_steps=12),
    )


def optimizers(folder: Path) -> dict[str, str]:
    """Six steps of each optimizer, with keys that are admitted by chance."""
    found: dict[str, str] = {}
    for name, optimizer in _OPTIMIZERS.items():
        digests = trained(optimizer=optimizer, steps=6, admission=ProbabilityAdmission(0.5))
        found |= {f"{name}: {what}": each for what, each in digests.items()}
    return found
