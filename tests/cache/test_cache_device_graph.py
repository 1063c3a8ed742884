# SPDX-License-Identifier: Apache-2.0
"""The device tier with operators of every device, run on the CPU: the same up to rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from mindspore_rec import CacheConfig, HashEmbeddingLookup
from mindspore_rec.optim import CombinedOptimizer, LazyAdam
from mindspore_rec.train import TrainStep
from mindspore_rec.train.parameter.device_cache import DeviceTier
from tests.cache.device_run import DIM, MOST, OPTIMIZERS, run
from tests.support.networks import Product, Quadratic

Names = Callable[[], str]

# Gradients of a key are added in another order, and MindSpore's pow is another. After 18 steps.
RELATIVE, ABSOLUTE = 2e-4, 2e-6


@pytest.fixture(autouse=True)
def in_graph(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tiers made in the test keep rows out of the host's reach."""
    monkeypatch.setenv("MINDSPORE_REC_DEVICE_TIER", "graph")
    yield


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_agrees(graph_mode: None, unique: Names, optimizer: str):
    name = unique()
    plain = run(name, None, optimizer)
    cached = run(name, CacheConfig(device_rows=MOST), optimizer)
    np.testing.assert_allclose(plain["losses"], cached["losses"], RELATIVE, ABSOLUTE)
    for what, array in plain["rows"].items():
        np.testing.assert_allclose(array, cached["rows"][what], RELATIVE, ABSOLUTE, err_msg=what)
    # The dense part sees no difference: as many graphs as for a table on the host.
    assert cached["compilations"] == plain["compilations"]
    assert cached["stats"]["device_misses"] > cached["stats"]["device_capacity_rows"]


def test_pynative_agrees(pynative: None, unique: Names):
    name = unique()
    plain = run(name, None, "lazy_adam", evict_filter_value=5)
    cached = run(name, CacheConfig(device_rows=MOST), "lazy_adam", evict_filter_value=5)
    for what, array in plain["rows"].items():
        np.testing.assert_allclose(array, cached["rows"][what], RELATIVE, ABSOLUTE, err_msg=what)


def sum_step(name: str, rows: int) -> tuple[HashEmbeddingLookup, TrainStep]:
    embedding = HashEmbeddingLookup(DIM, ms.int64, name=name, cache=CacheConfig(device_rows=rows))
    net = Quadratic(embedding)
    return embedding, TrainStep(net, LazyAdam(net.trainable_params())).set_train()


def tier_of(embedding: HashEmbeddingLookup) -> DeviceTier:
    tier = embedding.embedding_table.device
    assert tier is not None
    return tier


def test_sizes_that_vary_compile_nothing_more(graph_mode: None, unique: Names):
    rng = np.random.default_rng(5)
    embedding, step = sum_step(unique(), 400)
    tier = tier_of(embedding)
    assert tier._swap is not None
    compiled = []
    for distinct in (400, 3, 50, 1, 200, 399, 7):
        ids = np.resize(rng.permutation(10_000)[:distinct], 400).astype(np.int64)
        tier.prepare(ids)
        step(Tensor(ids))
        compiled.append((len(step.compile_cache), len(tier._swap.cell.compile_cache)))
    # MindSpore may forget the first compilation, with a network of before that is freed meanwhile.
    assert compiled[1] in [(1, 1), (1, 2)]
    assert compiled[2:] == compiled[1:2] * 5


def test_a_lookup_that_was_not_prepared_is_an_error(pynative: None, unique: Names):
    embedding, step = sum_step(unique(), 20)
    table = embedding.embedding_table
    with pytest.raises(RuntimeError, match=r"call device.prepare\(ids\) for it before the step"):
        step(Tensor(np.arange(4)))
    tier_of(embedding).prepare(np.arange(4))
    step(Tensor(np.arange(4)))
    assert table.row_count == 4
    with pytest.raises(ValueError, match="device_rows must be at least 21"):
        tier_of(embedding).prepare(np.arange(21))


def test_rows_on_the_device_are_never_read_stale(pynative: None, unique: Names):
    embedding, step = sum_step(unique(), 20)
    table, tier = embedding.embedding_table, tier_of(embedding)
    tier.prepare(np.arange(4))
    step(Tensor(np.arange(4)))
    embedding.set_train(False)
    with pytest.raises(RuntimeError, match=r"call device.sync\(\) first"):
        embedding(Tensor(np.arange(4)))
    tier.sync()
    rows = embedding(Tensor(np.arange(4))).asnumpy()
    np.testing.assert_array_equal(rows, table.read_rows(np.arange(4)))
    on_device = tier.values.asnumpy()
    assert all((on_device == row).all(1).any() for row in rows)


def test_what_works_on_host_rows_only_is_refused(pynative: None, unique: Names):
    embedding, _ = sum_step(unique(), 20)
    table = embedding.embedding_table
    with pytest.raises(ValueError, match="not possible with a device cache out of the host's"):
        table.lookup_with_handles(np.arange(3))


def test_one_optimizer_beside_another(graph_mode: None, unique: Names):
    names, seen = (unique(), unique()), []

    for cache in (None, CacheConfig(device_rows=10)):
        lookups = [
            HashEmbeddingLookup(DIM, ms.int64, name=names[0], cache=cache),
            HashEmbeddingLookup(DIM, ms.int64, name=names[1]),
        ]
        net = Product(*lookups)
        parts = [LazyAdam([each.embedding_table.anchor], 0.1) for each in lookups]
        step = TrainStep(net, CombinedOptimizer(parts, clip_global_norm=0.01)).set_train()
        for first in range(5):
            ids = np.arange(first, first + 8)
            if cache is not None:
                tier_of(net.first).prepare(ids)
            step(Tensor(ids))
        tables = [each.embedding_table for each in lookups]
        seen.append([table.read_rows(np.arange(12)) for table in tables])
        for table in tables:
            table.close()
    np.testing.assert_allclose(seen[0], seen[1], RELATIVE, ABSOLUTE)
