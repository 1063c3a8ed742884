# SPDX-License-Identifier: Apache-2.0
"""The table whose lower tiers are golden, and Redis keys as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from mindspore_rec import _native
from mindspore_rec.common.tiers.attach import attach
from mindspore_rec.common.tiers.config import CacheConfig

__all__ = ["NAME", "STORE_ROW", "dump_redis", "load_redis", "open_table", "rows_of", "train"]

NAME = "golden/{tiers} é"
STORE_ROW = 13  # bytes of a row of the store without a table
_DIM = 3
_HOST_ROWS = 16


def open_table(cache: CacheConfig) -> Any:
    """Return a native table over these tiers, with what they have of it."""
    table = _native.Table(name=NAME, dim=_DIM, seed=7, init_kind="normal", init_b=0.1)
    attach(table, cache)
    table.bind_optimizer("adam")
    return table


def cache_of(leftover: str, **below: Any) -> CacheConfig:
    return CacheConfig(host_rows=_HOST_ROWS, leftover=leftover, **below)


def train(table: Any) -> None:
    """Train, erase and put rows, so that tiers have old and new versions of them."""
    rng = np.random.default_rng(7)
    for step in range(1, 9):
        ids = rng.zipf(1.4, 12).astype(np.int64) % 60 * 0x9E3779B97F4A7C1
        ids[:3] = (-(1 << 63), (1 << 63) - 1, -1)
        table.set_event_time(1_700_000_000 + step)
        _, ticket = table.lookup_train(ids)
        table.accumulate(ticket, rng.normal(size=(len(ids), _DIM)).astype(np.float32))
        table.apply(0.1, step=step)
        table.erase(ids[3:5].copy())


def rows_of(table: Any) -> dict[str, np.ndarray]:
    """Return all rows of a table, sorted by key."""
    rows = table.export_rows(with_state=True)
    order = np.argsort(rows["keys"])
    return {name: values[order] for name, values in rows.items()}


def dump_redis(client: Any, path: Path) -> None:
    """Write the hashes of a server: {key as text: {field in hex: value in hex}}."""
    found = {
        key.decode(): {
            field.hex(): value.hex() for field, value in sorted(client.hgetall(key).items())
        }
        for key in sorted(client.keys())
    }
    path.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")


def load_redis(client: Any, path: Path) -> None:
    """Put what `dump_redis` wrote onto a server."""
    for key, fields in json.loads(path.read_text(encoding="utf-8")).items():
        items = {bytes.fromhex(field): bytes.fromhex(value) for field, value in fields.items()}
        client.hset(key, mapping=items)
