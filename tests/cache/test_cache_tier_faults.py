# SPDX-License-Identifier: Apache-2.0
"""Faults of one bit in rows that a training has on Redis or on an SSD: its scrubber names each."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec import CacheConfig, MapParameter, SsdConfig, _native
from mindspore_rec.common.digests.scrub import Scrub
from mindspore_rec.ssd import SsdStore
from mindspore_rec.train.checkpoint.scrub import TierRows
from tests.support.nightly import NIGHTLY
from tests.support.redis_server import RedisServer

FAULTS = 1000 if NIGHTLY else 30
BETWEEN = 25  # faults, then the training goes on
DIM, KEYS, HOST = 8, 1500, 64


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

    def no_checkpoint_has_it(self, key: int) -> None:
        """Read all rows, as a full checkpoint does."""
        with pytest.raises(_native.RowDamagedError, match=rf"keys? {key}\b"):
            self.native.export_rows()


@pytest.mark.redis
def test_in_redis(
    redis_url: str, unique: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import redis

    name = unique()
    cache = CacheConfig(host_rows=HOST, remote=redis_url)
    training = Training(name, cache, monkeypatch)
    rng = np.random.default_rng(6)
    client: Any = redis.Redis.from_url(redis_url)
    places: list[tuple[bytes, bytes]] = []
    value_bytes = _native.row_sizes(DIM, 2 * DIM).block + 4
    for number in range(FAULTS):
        if number % BETWEEN == 0:
            training.finds_nothing()
            training.train(3)
            places = [
                (bucket, field)
                for bucket in client.keys(f"emb{{{name}/*}}v")
                for field in client.hkeys(bucket)
                if len(field) == 8
            ]
            assert len(places) == training.table.stats()["remote_rows"] > KEYS // 2
        bucket, field = places[rng.integers(len(places))]
        value = client.hget(bucket, field)
        assert len(value) == value_bytes
        at, bit = int(rng.integers(8 + len(value))), 1 << int(rng.integers(8))
        entry = bytearray(field + value)
        entry[at] ^= bit
        wrong = bytes(entry[:8])
        assert wrong == field or not client.hexists(bucket, wrong)
        client.hdel(bucket, field)
        client.hset(bucket, wrong, bytes(entry[8:]))
        key = int.from_bytes(wrong, "little", signed=True)
        said = training.finding()
        assert f"table '{name}': remote tier redis://" in said
        assert f"the rows of keys {key} do not match their checksums" in said
        assert "No checkpoint has them so" in said
        if number % 10 == 0:
            training.no_checkpoint_has_it(key)
        client.hdel(bucket, wrong)
        client.hset(bucket, field, value)
    training.finds_nothing()
    training.train(3)
    client.close()
    training.table.close()


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


def test_on_an_ssd(
    tmp_path: Path, unique: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = unique()
    cache = CacheConfig(host_rows=HOST, ssd=SsdConfig(tmp_path / "ssd", direct=False))
    training = Training(name, cache, monkeypatch)
    rng = np.random.default_rng(7)
    places: dict[int, tuple[Path, int, int]] = {}
    keys: list[int] = []
    for number in range(FAULTS):
        if number % BETWEEN == 0:
            training.finds_nothing()
            training.train(3)
            (tier,) = {path.parent for path in (tmp_path / "ssd").rglob("*.seg")}
            places = records(tier, tmp_path / "copy")
            keys = sorted(places)
            assert len(keys) == training.table.stats()["ssd_rows"] > KEYS // 2
        key = keys[rng.integers(len(keys))]
        path, at, size = places[key]
        at, bit = at + int(rng.integers(size)), 1 << int(rng.integers(8))
        flip(path, at, bit)
        said = training.finding()
        assert re.search(rf"table '{name}': its ssd tier: \S*{path.name} is damaged at byte", said)
        assert f"the row of key {key}, does not match its checksum" in said
        if number % 10 == 0:
            training.no_checkpoint_has_it(key)
        flip(path, at, bit)
    training.finds_nothing()
    training.train(3)
    training.table.close()


@pytest.mark.redis
def test_a_row_that_training_reads_first(
    redis_url: str, unique: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading checks too: nothing is trained on it."""
    import redis

    name = unique()
    cache = CacheConfig(host_rows=HOST, remote=redis_url)
    training = Training(name, cache, monkeypatch)
    # Old rows of host memory go down for these.
    late = np.arange(KEYS, KEYS + HOST) * 0x9E3779B97F4A7C1
    training.native.put(late, np.ones((HOST, DIM), np.float32))
    training.table.flush()
    client: Any = redis.Redis.from_url(redis_url)
    bucket = next(each for each in client.keys(f"emb{{{name}/*}}v") if client.hlen(each) > 3)
    some = [int.from_bytes(f, "little", signed=True) for f in client.hkeys(bucket) if len(f) == 8]
    key = next(key for key in some if key not in late)
    field = key.to_bytes(8, "little", signed=True)
    value = client.hget(bucket, field)
    client.hset(bucket, field, value[:-9] + bytes([value[-9] ^ 16]) + value[-8:])
    ids = np.array([key, *late[:5]])
    for call in (
        lambda: training.native.lookup_train(ids),
        lambda: training.native.lookup(ids),
        lambda: training.native.prefetch_wait(training.native.prefetch(ids)),
        lambda: training.table.read_rows(ids),
    ):
        with pytest.raises(_native.RowDamagedError, match=f"'{name}'.* keys {key} do not match"):
            call()
    client.hset(bucket, field, value)
    training.native.lookup_train(ids)
    training.finds_nothing()
    client.close()
    training.table.close()


@pytest.mark.redis
def test_a_tier_that_is_away_is_no_damage(
    start_redis: Callable[..., RedisServer],
    unique: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = start_redis("appendonly yes", "appendfsync always")
    url = f"{server.url}?retry_seconds=0.2"
    training = Training(unique(), CacheConfig(host_rows=HOST, remote=url), monkeypatch)
    training.finds_nothing()
    server.kill()
    for _ in range(100):  # tries once, and not again in a minute
        training.scrub.step()
    said = [each.getMessage() for each in caplog.records if "cannot be scrubbed" in each.message]
    assert len(said) == 1 and "no success in" in said[0]
    server.start()
    training.scrub.step()
    assert training.scrub.rounds == 2
    training.scrub._not_before = 0.0
    training.finds_nothing()
    training.table.close()


@pytest.mark.redis
@pytest.mark.parametrize("fault", ["bit", "length"])
def test_a_damaged_row_on_redis_can_be_replaced(
    redis_url: str, unique: Callable[[], str], fault: str
) -> None:
    import redis

    name, keys = unique(), np.arange(300)
    cache = CacheConfig(host_rows=10, remote=redis_url)
    table = MapParameter(name, value_shape=2, cache=cache)
    table.marks.hold("test", table.marks.new())
    table.write_rows(keys, np.ones((300, 2), np.float32))
    table.flush()
    table.marks.keep_digest()
    client: Any = redis.Redis.from_url(redis_url)
    for bucket in client.keys(f"emb{{{name}/*}}v"):
        value = client.hget(bucket, keys[7].tobytes())
        if value is not None:
            damaged = bytes([value[0] ^ 1]) + value[1:] if fault == "bit" else value[:-1]
            client.hset(bucket, keys[7].tobytes(), damaged)
    with pytest.raises(_native.RowDamagedError, match=r"keys? 7\b"):
        table.read_rows(keys[7:8])
    table.import_rows(keys[7:8], np.full((1, 2), 3, np.float32))
    assert (table.read_rows(keys[7:8]) == 3).all()
    table.marks.hold("test", table.marks.new())
    table.flush()  # or what lies on the server is read, and damaged yet
    table.marks.keep_digest()  # it was dropped: what the row was is not known
    assert table.marks.kept_digest() == int(table.digest().digest, 16)
    table.close()
