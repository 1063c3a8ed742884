# SPDX-License-Identifier: Apache-2.0
"""A table with tiers beside the same table in memory, through the same calls, compared bit by bit.

Rows below host memory: a dict, for speed; real SSD stores; a real Redis.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mindspore_rec import _native
from mindspore_rec.common.tiers.redis.tier import RedisTier

DIM = 4
_MASK = (1 << 64) - 1
_numbers = itertools.count()

Arrays = dict[str, np.ndarray]
Open = Callable[[int, int], Any]


def hash_of_name(name: str) -> int:
    """What the native core mixes into a table's seed: tables of two names can have one seed."""
    found = 0xCBF29CE484222325
    for byte in name.encode():
        found = (found ^ byte) * 0x100000001B3 & _MASK
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        found ^= found >> 33
        found = found * factor & _MASK
    return found ^ (found >> 33)


class DictTier:
    """The protocol of a tier, in the fewest lines."""

    def __init__(self, row_bytes: int) -> None:
        self.row_bytes = row_bytes
        self.rows: dict[int, bytes] = {}

    def read(self, keys: np.ndarray, rows: np.ndarray, found: np.ndarray) -> None:
        for i, key in enumerate(keys.tolist()):
            row = self.rows.get(key)
            found[i] = row is not None
            if row is not None:
                rows[i] = np.frombuffer(row, np.uint8)

    def write(self, keys: np.ndarray, rows: np.ndarray) -> None:
        for key, row in zip(keys.tolist(), rows, strict=True):
            self.rows[key] = row.tobytes()

    def erase(self, keys: np.ndarray) -> None:
        for key in keys.tolist():
            self.rows.pop(key, None)

    def scan(self, cursor: int, most: int) -> tuple[int, np.ndarray, np.ndarray]:
        every = sorted(self.rows.items())  # a snapshot: another thread may erase rows meanwhile
        keys = np.array([key for key, _ in every[cursor : cursor + most]], np.int64)
        rows = np.frombuffer(b"".join(row for _, row in every[cursor : cursor + most]), np.uint8)
        end = cursor + len(keys)
        return 0 if end >= len(every) else end, keys, rows.reshape(-1, self.row_bytes)

    def size(self) -> int:
        return len(self.rows)

    def clear(self) -> None:
        self.rows.clear()

    def stats(self) -> dict[str, int]:
        return {}

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class Stores:
    """Opens the tiers of a table's lives: each generation's afresh, but the first of a new life
    where the last one was left.

    Args:
        kind: 'dict', 'redis', 'ssd' or 'direct'; with '+', the second below the first.
        path: for the files of SSD stores.
        redis: URL of a server.
    """

    def __init__(self, kind: str, path: Path, redis: str = "") -> None:
        self._path, self._redis = path, redis
        self._name = f"stores.{next(_numbers)}"
        self._number = 0
        self._dicts: dict[tuple[bool, int], DictTier] = {}
        self.kinds = kind.split("+")

    def levels(self, remote_rows: int) -> list[dict[str, Any]]:
        first = self._number  # rows of an earlier life
        levels: list[dict[str, Any]] = []
        for kind in self.kinds:
            last = len(levels) + 1 == len(self.kinds)
            name = "ssd" if kind in ("ssd", "direct") else "remote"
            most = -1 if last else remote_rows
            levels.append({"kind": name, "open": self._open(kind, last, first), "max_rows": most})
        return levels

    def _open(self, kind: str, last: bool, first: int) -> Open:
        def opens(row_bytes: int, generation: int) -> Any:
            number = self._number = first + generation
            if kind == "dict":
                return self._dicts.setdefault((last, number), DictTier(row_bytes))
            if kind == "redis":
                return RedisTier(self._redis, self._name, row_bytes, number, leftover="keep")
            path = self._path / f"rows-{number}"
            path.mkdir(parents=True, exist_ok=True)
            direct = kind == "direct"
            # Small segments, so that garbage collection takes part.
            return _native.SsdStore(path, row_bytes, segment_bytes=1 << 16, direct=direct)

        return opens


def sorted_rows(rows: Arrays) -> Arrays:
    order = np.argsort(rows["keys"])
    return {name: array[order] for name, array in rows.items()}


class Twins:
    """Two tables of the same bits.

    Args:
        stores: what is below the second.
        host_rows: rows that it may have in host memory.
        arguments: of both tables.
    """

    def __init__(
        self,
        stores: Stores,
        host_rows: int,
        policy: str = "lru",
        remote_rows: int = -1,
        seed: int = 7,
        **arguments: Any,
    ) -> None:
        self.stores, self.host_rows = stores, host_rows
        self._cache = {"host_rows": host_rows, "policy": policy}
        self._remote_rows = remote_rows
        self._arguments = {"dim": DIM, "init_kind": "normal", "init_b": 0.1, **arguments}
        self._seed = seed
        self.static = arguments.get("vocabulary", 0) > 0
        self._ignored: set[str] = set()
        self.memory = self._make()
        self.tiered = self._make_tiered()

    def _make(self) -> Any:
        name = f"twins.{next(_numbers)}"
        return _native.Table(name=name, seed=self._seed ^ hash_of_name(name), **self._arguments)

    def _make_tiered(self) -> Any:
        table = self._make()
        table.set_cache(levels=self.stores.levels(self._remote_rows), **self._cache)
        return table

    def replica(self) -> Any:
        """Another table in memory."""
        return self._make()

    def reopen(self, optimizer: str) -> None:
        """Ends the second table and opens another over its rows, with the state that is no row's,
        as a checkpoint would have it."""
        # Nobody remembers evictions of an earlier life.
        self._ignored |= {"evicted_reason", "evicted_step", "evicted_time"}
        old = self.tiered
        old.flush()
        counters, clock, horizon = old.export_counters(), (old.step, old.event_time), old.horizon
        old.close()
        self.tiered = self._make_tiered()
        self.tiered.bind_optimizer(optimizer)
        self.tiered.set_clock(*clock)
        self.tiered.set_horizon(*horizon)
        if len(counters["keys"]):
            self.tiered.import_counters(**counters)

    def close(self) -> None:
        self.memory.close()
        self.tiered.close()

    def both(self, call: Callable[[Any], Any]) -> Any:
        """Calls on both tables; the answers are the same."""
        expected, found = call(self.memory), call(self.tiered)
        self.same(found, expected)
        return found

    def same(self, found: Any, expected: Any) -> None:
        if isinstance(expected, dict):
            assert found.keys() == expected.keys()
            for name, each in expected.items():
                if name not in self._ignored:
                    np.testing.assert_array_equal(found[name], each, err_msg=name)
        else:
            np.testing.assert_array_equal(found, expected)

    def same_rows(self) -> None:
        self.both(lambda table: sorted_rows(table.export_rows(with_state=True)))
        self.both(lambda table: np.sort(table.keys()))
        self.both(lambda table: table.size())

    def check_stats(self) -> None:
        """Whatever happened, the figures add up."""
        size = self.tiered.size()
        stats = self.tiered.stats()
        assert stats["host_rows"] <= self.host_rows
        assert stats["host_hits"] + stats["host_misses"] <= stats["looked_up_keys"]
        if not self.static:
            assert stats["host_rows"] + stats["below_rows"] >= size, (stats, size)
