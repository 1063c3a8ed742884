# SPDX-License-Identifier: Apache-2.0
"""A training over Redis or an SSD, and faults of one bit in the rows that it has there."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec import CacheConfig, MapParameter, _native
from mindspore_rec.common.digests.scrub import Scrub
from mindspore_rec.ssd import SsdStore
from mindspore_rec.train.checkpoint.scrub import TierRows

DIM, KEYS, HOST = 8, 1500, 64
Fault = tuple[int, Callable[[], None], str]


class Training:
    """A table over tiers that is trained, and the scrubber that a training has."""

    def __init__(self, name: str, cache: CacheConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        # As fast as it can, without the pauses that leave the training its time.
        monkeypatch.setattr("mindspore_rec.common.digests.scrub._MOST_SHARE", 1.0)
        self.rng = np.random.default_rng(5)
        self.table = MapParameter(name, value_shape=DIM, cache=cache)
        self.native = self.table._synchronised()
        self.native.bind_optimizer("adam")
        self.train(100)
        self.scrub = Scrub(TierRows([self.table]), 1e-3)

    def train(self, steps: int) -> None:
        """Train, erase, and have all rows written down and nothing on its way."""
        for _ in range(steps):
            ids = self.rng.integers(0, KEYS, 40) * 0x9E3779B97F4A7C1
            _, ticket = self.native.lookup_train(ids)
            self.native.accumulate(ticket, self.rng.standard_normal((40, DIM)).astype(np.float32))
            self.native.apply(0.1)
            self.native.erase(ids[:1])
        self.table.flush()

    def finds_nothing(self) -> None:
        """Scrub for two whole rounds."""
        enough = self.scrub.rounds + 2
        while self.scrub.rounds < enough:
            self.scrub.step()

    def finding(self) -> str:
        """Scrub until a row is found damaged, for a round and what was left of one."""
        enough = self.scrub.rounds + 2
        while self.scrub.rounds < enough:
            try:
                self.scrub.step()
            except _native.RowDamagedError as error:
                return str(error)
        raise AssertionError("nothing was found")

    def faults(self, path: Path, url: str = "") -> RedisFaults | SsdFaults:
        """Return the faults of rows in the tier: on Redis if it has a URL."""
        return RedisFaults(self.table, url) if url else SsdFaults(self.table, path)


def records(tier: Path, copy: Path) -> dict[int, tuple[Path, int, int]]:
    """File, offset and bytes of each key's newest record."""

    def listing() -> list[tuple[str, int]]:
        return sorted((each.name, each.stat().st_mtime_ns) for each in tier.iterdir())

    before: list[tuple[str, int]] = []
    while before != (now := listing()):  # garbage collection may still move records
        before = now
        time.sleep(0.2)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(tier, copy)
    assert listing() == before
    found: dict[int, tuple[Path, int, int]] = {}
    with SsdStore(copy, read_only=True, direct=False) as store:
        size = 16 + -(-store.row_bytes // 8) * 8
        live = set(store.keys().tolist())
        for segment in store.segments():
            content = (tier / segment["name"]).read_bytes()
            for slot in range(segment["records"]):
                at = 3 * 4096 + slot * size
                if content[at + 4] == 1:  # a row
                    key = int.from_bytes(content[at + 8 : at + 16], "little", signed=True)
                    found[key] = tier / segment["name"], at, size
    return {key: place for key, place in found.items() if key in live}


def flip(path: Path, at: int, bit: int) -> None:
    with path.open("r+b", 0) as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ bit]))


class RedisFaults:
    """Faults of keys and rows on Redis."""

    def __init__(self, table: MapParameter, url: str) -> None:
        import redis

        self.client: Any = redis.Redis.from_url(url)
        self.table = table
        self.places: list[tuple[bytes, bytes]] = []

    def look(self) -> None:
        """Find the rows, which training has moved."""
        self.places = [
            (bucket, field)
            for bucket in self.client.keys(f"emb{{{self.table.name}/*}}v")
            for field in self.client.hkeys(bucket)
            if len(field) == 8
        ]
        assert len(self.places) == self.table.stats()["remote_rows"] > KEYS // 2

    def make(self, rng: np.random.Generator) -> Fault:
        """Change a bit; return the row's key, a function that takes it back, and the message."""
        bucket, field = self.places[rng.integers(len(self.places))]
        value = self.client.hget(bucket, field)
        assert len(value) == _native.row_sizes(self.table.dim, 2 * self.table.dim).block + 4
        at, bit = int(rng.integers(8 + len(value))), 1 << int(rng.integers(8))
        entry = bytearray(field + value)
        entry[at] ^= bit
        wrong = bytes(entry[:8])
        assert wrong == field or not self.client.hexists(bucket, wrong)
        self.client.hdel(bucket, field)
        self.client.hset(bucket, wrong, bytes(entry[8:]))
        key = int.from_bytes(wrong, "little", signed=True)

        def undo() -> None:
            self.client.hdel(bucket, wrong)
            self.client.hset(bucket, field, value)

        said = rf"remote tier redis://\S*, .*the rows of keys {key} do not match their checksums"
        return key, undo, said


class SsdFaults:
    """Faults of records on an SSD."""

    def __init__(self, table: MapParameter, path: Path) -> None:
        self.table, self.path = table, path
        self.places: dict[int, tuple[Path, int, int]] = {}

    def look(self) -> None:
        """Find the rows, which training has moved."""
        (tier,) = {each.parent for each in (self.path / "ssd").rglob("*.seg")}
        self.places = records(tier, self.path / "copy")
        assert len(self.places) == self.table.stats()["ssd_rows"] > KEYS // 2

    def make(self, rng: np.random.Generator) -> Fault:
        """Change a bit; return the row's key, a function that takes it back, and the message."""
        key = sorted(self.places)[rng.integers(len(self.places))]
        path, at, size = self.places[key]
        at, bit = at + int(rng.integers(size)), 1 << int(rng.integers(8))
        flip(path, at, bit)
        said = rf"its ssd tier: \S*{path.name} is damaged at byte.*the row of key {key}, does not"
        return key, lambda: flip(path, at, bit), said + " match its checksum"
