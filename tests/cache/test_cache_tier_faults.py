# SPDX-License-Identifier: Apache-2.0
"""Rows of a training on Redis that are damaged: read first, away, or replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mindspore_rec import CacheConfig, MapParameter, _native
from tests.cache.trained_tiers import DIM, HOST, KEYS, Training
from tests.support.redis_server import RedisServer


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
