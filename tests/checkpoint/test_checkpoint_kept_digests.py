# SPDX-License-Identifier: Apache-2.0
"""Deltas have the digest that the trainer keeps, wherever the rows of its tables are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from mindspore_rec import (
    CacheConfig,
    EmbeddingLookup,
    Eviction,
    HashEmbeddingLookup,
    LazyAdam,
    RecCheckpoint,
    RecModel,
    SsdConfig,
    tables_of,
)
from mindspore_rec.common.run.chain import entries, newest_chain
from mindspore_rec.common.run.command import main
from mindspore_rec.common.run.digests import saved_digest, table_digest_at
from mindspore_rec.common.run.merge import merge_chain
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.usefixtures("graph_mode")


def lookup_of(kind: str, name: str, path: Path, start_redis: Callable[..., RedisServer]) -> Any:
    if kind == "static":
        return EmbeddingLookup(400, 16, name=name)
    if kind == "aged":
        eviction = Eviction(max_idle_steps=8)
        return HashEmbeddingLookup(16, ms.int64, name=name, eviction=eviction)
    if kind == "redis":
        cache = CacheConfig(host_rows=64, remote=start_redis().url)
    elif kind == "static_ssd":
        cache = CacheConfig(host_rows=64, ssd=SsdConfig(path / "ssd"))
        return EmbeddingLookup(400, 16, name=name, cache=cache)
    else:
        cache = CacheConfig(host_rows=64, ssd=SsdConfig(path / "ssd"))
    return HashEmbeddingLookup(16, ms.int64, name=name, cache=cache)


@pytest.mark.parametrize("kind", ["aged", "ssd", "redis", "static", "static_ssd"])
def test_deltas_have_the_digest_of_their_state(
    tmp_path: Path,
    unique: Any,
    kind: str,
    start_redis: Callable[..., RedisServer],
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = unique()
    lookup = lookup_of(kind, name, tmp_path, start_redis)
    net = nn.SequentialCell(lookup, nn.Flatten(), nn.Dense(32, 1))
    model = RecModel(net, nn.MSELoss(), LazyAdam(net.trainable_params(), 0.1))
    rng = np.random.default_rng(5)
    batches = [(rng.integers(0, 400, (16, 2)), np.ones((16, 1), np.float32)) for _ in range(60)]
    run = tmp_path / "run"
    checkpoint = RecCheckpoint(run, every_steps=30, delta_every_steps=5, data_starts_over=True)
    model.online_train(batches, [checkpoint], progress=False)
    deltas = [entry for entry in entries(run) if entry.kind == "delta"]
    assert deltas
    for entry in deltas:
        saved = saved_digest(entry.manifest["tables"][name])
        assert saved is not None
        assert saved == table_digest_at(newest_chain(run, entry.step), name).digest
    table = next(iter(tables_of(model.train_network)))
    assert saved_digest(deltas[-1].manifest["tables"][name]) == table.digest().digest
    assert main(["verify", str(run)]) == 0
    assert "BAD" not in capsys.readouterr().out
    merge_chain(newest_chain(run), tmp_path / "merged")  # compares, or raises
    table.close()
