# SPDX-License-Identifier: Apache-2.0
"""`explain` names the tier that has the row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np

from mindspore_rec import CacheConfig, MapParameter, SsdConfig

KEYS = 300


def table(name: str, path: Path, **more: Any) -> MapParameter:
    cache = CacheConfig(host_rows=40, ssd=SsdConfig(path, direct=False), **more)
    made = MapParameter(key_dtype=ms.int64, value_shape=4, name=name, cache=cache)
    for first in range(0, KEYS, 20):
        keys = np.arange(first, first + 20)
        made.put(ms.Tensor(keys), ms.Tensor(np.ones((20, 4), np.float32)))
    made.flush()
    return made


def tiers(made: MapParameter) -> dict[str, int]:
    """Return the number of keys in each tier, as `explain` names them."""
    names = [made.explain(key).tier for key in range(KEYS)]
    return {name: names.count(name) for name in sorted(set(names))}


def test_rows_on_an_ssd(unique: Callable[[], str], tmp_path: Path) -> None:
    made = table(unique(), tmp_path)
    counts = tiers(made)
    assert set(counts) == {"host", "ssd"} and 0 < counts["host"] <= 40
    assert made.explain(KEYS).tier == ""
    below = next(key for key in range(KEYS) if made.explain(key).tier == "ssd")
    assert "a row in tier ssd" in str(made.explain(below))


def test_rows_in_redis_and_on_an_ssd(
    unique: Callable[[], str], redis_url: str, tmp_path: Path
) -> None:
    counts = tiers(table(unique(), tmp_path, remote=redis_url, remote_rows=50))
    assert set(counts) == {"host", "remote", "ssd"}
    assert counts["host"] <= 40 and counts["remote"] <= 50 and sum(counts.values()) == KEYS
