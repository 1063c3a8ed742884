# SPDX-License-Identifier: Apache-2.0
"""Redis on a bad day, in training: a clear error, or a run that goes on with the bits of memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback

from mindspore_rec import CacheConfig, HashEmbeddingLookup, LazyAdam, RecModel
from tests.cache.trained_alike import Trainer, insist
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.redis

Start = Callable[..., RedisServer]
FIELDS, ROWS = 4, 16


def batches(steps: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(2)
    return [
        (
            rng.integers(0, 800, (ROWS, FIELDS)),
            (rng.random((ROWS, 1)) < 0.5).astype(np.float32),
        )
        for _ in range(steps)
    ]


class At(Callback):
    """Does something at the end of some steps."""

    def __init__(self, what: Callable[[int], None]) -> None:
        super().__init__()
        self.what = what

    def on_train_step_end(self, run_context: Any) -> None:
        self.what(run_context.original_args().cur_step_num)


def run_model(
    name: str, cache: CacheConfig | None, what: Callable[[int], None], steps: int
) -> dict[str, np.ndarray]:
    """Everything a trained model has of its table, and its last loss."""
    ms.set_seed(4)
    lookup = HashEmbeddingLookup(8, ms.int64, name=name, param_init="zeros", cache=cache)
    net = nn.SequentialCell(lookup, nn.Flatten(), nn.Dense(FIELDS * 8, 1))
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params(), 0.05))
    try:
        summary = model.train(1, batches(steps), [At(what)], progress=False)
        rows = Trainer.sorted(lookup.embedding_table.export_rows(with_state=True))
        return rows | {"loss": np.array(summary.loss)}
    finally:
        lookup.embedding_table.close()


def nothing(_: int) -> None:
    pass


def test_redis_killed_and_restarted(graph_mode, start_redis: Start, unique):
    expected = run_model(unique(), None, nothing, 60)
    server = start_redis("appendonly yes", "appendfsync always")
    starters: list[threading.Timer] = []

    def kill(step: int) -> None:
        if step % 20 != 10:
            return
        server.kill()
        starters.append(threading.Timer(0.3, server.start, kwargs={"wait": False}))
        starters[-1].start()

    cache = CacheConfig(host_rows=200, remote=server.url + "?timeout=2&retry_seconds=20")
    found = run_model(unique(), cache, kill, 60)
    for starter in starters:
        starter.join()
    assert len(starters) == 3
    Trainer.same(found, expected)


def test_redis_restarted_empty(graph_mode, start_redis: Start, unique):
    server = start_redis()

    def restart(step: int) -> None:
        if step == 20:
            server.kill()
            server.start()

    name = unique()
    cache = CacheConfig(host_rows=200, remote=server.url + "?timeout=2&retry_seconds=2")
    began = time.monotonic()
    with pytest.raises(Exception, match="restarted without persistence") as caught:
        run_model(name, cache, restart, 60)
    assert f"table '{name}'" in str(caught.value)
    assert time.monotonic() - began < 120


def test_redis_away_for_good(graph_mode, start_redis: Start, unique):
    server = start_redis()
    name = unique()
    cache = CacheConfig(host_rows=200, remote=server.url + "?timeout=1&retry_seconds=2")
    began = time.monotonic()
    with pytest.raises(Exception, match=f"127.0.0.1:{server.port}") as caught:
        run_model(name, cache, lambda step: server.kill() if step == 20 else None, 60)
    assert f"table '{name}'" in str(caught.value)
    assert time.monotonic() - began < 120


def test_redis_out_of_memory(start_redis: Start, unique):
    server = start_redis("maxmemory 8mb", "maxmemory-policy noeviction")
    cache = CacheConfig(host_rows=3000, remote=server.url + "?timeout=2&retry_seconds=1")
    trainer = Trainer(None, cache, name=unique(), keys=400_000, size=2000)
    began = time.monotonic()
    message = trainer.train_until_error(200)
    for word in (f"table '{trainer.parameters[-1].name}'", "maxmemory", str(server.port)):
        assert word in message
    assert time.monotonic() - began < 120
    server.cli("config", "set", "maxmemory", "0")
    insist(trainer.tables[-1].flush)
    trainer.train_all(10)
    trainer.check_same()
    trainer.close()
