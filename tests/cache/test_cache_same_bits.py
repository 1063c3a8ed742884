# SPDX-License-Identifier: Apache-2.0
"""Where a row lives changes nothing: training with tiers and prefetch equals training in memory."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from mindspore_rec import (
    FTRL,
    CacheConfig,
    CountAdmission,
    EmbeddingLookup,
    Eviction,
    HashEmbeddingLookup,
    LazyAdam,
    RecModel,
    SsdConfig,
)

FIELDS, BATCH, STEPS = 4, 16, 30


def stream(seed):
    """Skewed ids, some of them new, over the same labels for all."""
    rng = np.random.default_rng(seed)
    made = []
    for step in range(STEPS):
        ids = (rng.zipf(1.3, (BATCH, FIELDS)) % 600).astype(np.int64)
        ids[0] = 1000 + step * FIELDS + np.arange(FIELDS)
        made.append((ids, (rng.random((BATCH, 1)) < 0.5).astype(np.float32)))
    return made


def run(lookup, optimizer=LazyAdam, epochs=2):
    """Everything there is to know of a trained model."""
    ms.set_seed(3)
    net = nn.SequentialCell(lookup, nn.Flatten(), nn.Dense(FIELDS * 4, 1))
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer(net.trainable_params(), 0.05))
    losses = []
    for _ in range(epochs):
        losses.append(model.train(1, stream(1), progress=False).loss)
    table = lookup.embedding_table
    rows = table.export_rows(with_state=True)
    order = np.argsort(rows["keys"])
    found = {name: array[order] for name, array in rows.items() if len(array) == len(order)}
    found["predictions"] = model.predict(np.arange(1400).reshape(-1, FIELDS)).asnumpy()
    found["losses"] = np.array(losses)
    found["size"] = np.array(table.row_count)
    stats = table.stats()
    table.close()
    return found, stats


def assert_same(one, other):
    assert one.keys() == other.keys()
    assert len(one["keys"]) > 70
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.fixture(scope="module")
def in_memory():
    """Runs in memory, once for each kind of table."""
    done = {}

    def get(name, make, **arguments):
        if name not in done:
            done[name] = run(make(None), **arguments)[0]
        return done[name]

    return get


def hash_table(cache):
    return HashEmbeddingLookup(4, ms.int64, name="same_bits.hash", cache=cache)


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_prefetch(graph_mode, tmp_path, in_memory, prefetch, policy):
    expected = in_memory("hash", hash_table)
    cache = CacheConfig(
        host_rows=64 * (1 + prefetch),
        ssd=SsdConfig(tmp_path, direct=False),
        policy=policy,
        prefetch=prefetch,
    )
    found, stats = run(hash_table(cache))
    assert_same(expected, found)
    assert stats["ssd_hits"] > 0
    assert (stats["prefetched_rows"] > 0) == (prefetch > 0)
    assert stats["host_rows"] <= stats["host_capacity_rows"]


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_size_of_the_host_tier(graph_mode, tmp_path, in_memory, share):
    expected = in_memory("hash", hash_table)
    rows = max(192, int(share * len(expected["keys"])))
    cache = CacheConfig(host_rows=rows, ssd=SsdConfig(tmp_path, direct=False))
    assert_same(expected, run(hash_table(cache))[0])


def test_bytes_as_the_limit(graph_mode, tmp_path, in_memory):
    expected = in_memory("hash", hash_table)
    row = 32 + 4 * 4 * 3
    cache = CacheConfig(host_bytes=row * 200, ssd=SsdConfig(tmp_path, direct=False))
    found, stats = run(hash_table(cache))
    assert_same(expected, found)
    assert stats["host_capacity_rows"] == 200


def test_pynative(pynative, tmp_path):
    expected = run(hash_table(None))[0]
    cache = CacheConfig(host_rows=192, ssd=SsdConfig(tmp_path, direct=False))
    found, stats = run(hash_table(cache))
    assert_same(expected, found)
    assert stats["prefetched_rows"] > 0


@pytest.mark.redis
@pytest.mark.parametrize("spill", [False, True])
def test_remote(graph_mode, tmp_path, redis_url, in_memory, spill):
    expected = in_memory("hash", hash_table)
    below: dict[str, Any] = (
        {"remote_rows": 50, "ssd": SsdConfig(tmp_path, direct=False)} if spill else {}
    )
    cache = CacheConfig(host_rows=192, remote=redis_url, leftover="discard", **below)
    found, stats = run(hash_table(cache))
    assert_same(expected, found)
    assert stats["remote_hits"] > 0
    assert not spill or stats["ssd_hits"] > 0


def static(cache):
    return EmbeddingLookup(1400, 4, name="same_bits.static", cache=cache)


def test_static_table(graph_mode, tmp_path, in_memory):
    expected = in_memory("static", static)
    found, stats = run(static(CacheConfig(host_rows=192, ssd=SsdConfig(tmp_path, direct=False))))
    assert_same(expected, found)
    assert stats["ssd_hits"] > 0


def dynamic(cache):
    return HashEmbeddingLookup(
        4,
        ms.int64,
        name="same_bits.dynamic",
        admission=CountAdmission(2),
        eviction=Eviction(max_idle_steps=10),
        cache=cache,
    )


def test_admission_and_eviction(graph_mode, tmp_path, in_memory):
    expected = in_memory("dynamic", dynamic, optimizer=FTRL)
    cache = CacheConfig(host_rows=64, ssd=SsdConfig(tmp_path, direct=False), prefetch=1)
    found, stats = run(dynamic(cache), optimizer=FTRL)
    assert_same(expected, found)
    assert stats["ssd_hits"] > 0
    assert stats["evicted"] > 0
