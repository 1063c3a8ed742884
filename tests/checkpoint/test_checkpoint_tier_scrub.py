# SPDX-License-Identifier: Apache-2.0
"""A training ends at a row on Redis or on an SSD that changed by itself; a restart goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec import CacheConfig, MapParameter, RecModel, SsdConfig
from mindspore_rec.checkpoint import RowChecks
from mindspore_rec.common.digests.scrub import Scrub
from mindspore_rec.train.checkpoint.scrub import TierRows
from tests.cache.test_cache_tier_faults import flip, records
from tests.checkpoint.test_checkpoint_scrub import After, checkpoint_at, model_of, rows_of, train

pytestmark = pytest.mark.usefixtures("graph_mode")

OTHERS = np.arange(1000, 4000)  # which no batch has


def over(name: str, leftover: Any, **tier: Any) -> RecModel:
    return model_of(name, cache=CacheConfig(host_rows=64, leftover=leftover, **tier))


def ends_and_goes_on(
    run: Path, name: str, tier: dict[str, Any], damage: Callable[[], int], named: str
) -> None:
    model = over(name, "refuse", **tier)
    table = rows_of(model)
    values = np.random.default_rng(1).standard_normal((len(OTHERS), 16), np.float32)
    table.write_rows(OTHERS, values)
    keys: list[int] = []

    def fault() -> None:
        table.flush()
        keys.append(damage())

    checkpoint = checkpoint_at(run, row_checks=RowChecks(scrub_seconds=0.1))
    with pytest.raises(RuntimeError, match=f"table '{name}': {named}") as raised:
        train(model, checkpoint, 3000, After(20, fault))
    assert f"key{'s' * ('keys' in named)} {keys[0]}" in str(raised.value)
    assert 20 <= checkpoint.step < 3000
    table.close()
    again = over(name, "discard", **tier)
    checkpoint = checkpoint_at(run, row_checks=RowChecks(scrub_seconds=0.1))
    assert checkpoint.restore(again) is not None
    np.testing.assert_array_equal(rows_of(again).read_rows(OTHERS), values)
    train(again, checkpoint, 60, After(1, lambda: None))
    assert checkpoint.scrub_rounds > 1
    rows_of(again).close()


@pytest.mark.redis
def test_a_damaged_row_on_redis_ends_a_training(
    tmp_path: Path, unique: Any, redis_url: str
) -> None:
    import redis

    name = unique()
    client: Any = redis.Redis.from_url(redis_url)

    def damage() -> int:
        for bucket in client.keys(f"emb{{{name}/*}}v"):
            for field in client.hkeys(bucket):
                key = int.from_bytes(field, "little", signed=True)
                if len(field) == 8 and key in OTHERS:
                    value = client.hget(bucket, field)
                    client.hset(bucket, field, bytes([value[0] ^ 4]) + value[1:])
                    return key
        raise AssertionError("no row")

    named = r"remote tier redis://\S*, table '\S*': the rows of keys"
    ends_and_goes_on(tmp_path / "run", name, {"remote": redis_url}, damage, named)
    client.close()


def test_a_damaged_row_on_an_ssd_ends_a_training(tmp_path: Path, unique: Any) -> None:
    def damage() -> int:
        (tier,) = {path.parent for path in (tmp_path / "ssd").rglob("*.seg")}
        found = records(tier, tmp_path / "copy")
        path, at, _ = found[1234]
        flip(path, at + 40, 4)
        return 1234

    tier = {"ssd": SsdConfig(tmp_path / "ssd", direct=False)}
    named = "its ssd tier: .* is damaged at byte"
    ends_and_goes_on(tmp_path / "run", unique(), tier, damage, named)


def test_rows_are_gone_through_in_the_time_that_is_given(
    tmp_path: Path, unique: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers = CacheConfig(host_rows=64, ssd=SsdConfig(tmp_path / "ssd", direct=False))
    table = MapParameter(unique(), value_shape=2, cache=tiers)
    keys = np.arange(30_000)
    table.write_rows(keys, np.ones((30_000, 2), np.float32))
    table.flush()
    looked: list[int] = []
    now = [0.0]
    monkeypatch.setattr("mindspore_rec.common.digests.scrub.time.monotonic", lambda: now[0])
    call = MapParameter.scrub_tiers

    def counted(self: Any, rows: int) -> tuple[int, bool]:
        found = call(self, rows)
        looked.append(found[0])
        return found

    monkeypatch.setattr(MapParameter, "scrub_tiers", counted)
    scrub = Scrub(TierRows([table, MapParameter(unique(), value_shape=2)]), 100.0)
    scrub.step()
    assert looked == [] and scrub.active
    now[0] = 50.0
    scrub.step()
    assert 15_000 <= sum(looked) <= 15_000 + 2048
    now[0] = 99.9
    scrub.step()
    assert scrub.rounds == 0
    now[0] = 100.1
    scrub.step()
    assert sum(looked) == 30_000 and scrub.rounds == 1
    scrub.step()
    assert sum(looked) == 30_000
    table.close()
    assert not Scrub(TierRows([MapParameter(unique(), value_shape=2)]), 1.0).active


def test_training_keeps_three_quarters_of_the_time(
    tmp_path: Path, unique: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers = CacheConfig(host_rows=64, ssd=SsdConfig(tmp_path / "ssd", direct=False))
    table = MapParameter(unique(), value_shape=2, cache=tiers)
    table.write_rows(np.arange(100), np.ones((100, 2), np.float32))
    now, busy = [0.0], [0.0]
    monkeypatch.setattr("mindspore_rec.common.digests.scrub.time.monotonic", lambda: now[0])

    def slow(self: Any, rows: int) -> tuple[int, bool]:
        now[0] += 3.0
        busy[0] += 3.0
        return 10, False

    monkeypatch.setattr(MapParameter, "scrub_tiers", slow)
    scrub = Scrub(TierRows([table]), 1e-3)
    for _ in range(1000):
        now[0] += 1.0
        scrub.step()
    assert 0.2 <= busy[0] / now[0] <= 0.26
    assert scrub.rounds == 0
    table.close()
