# SPDX-License-Identifier: Apache-2.0
"""A table with a device tier trains as one without: the same bits where memory is shared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec import (
    CacheConfig,
    CountAdmission,
    EmbeddingBag,
    EmbeddingLookup,
    Eviction,
    HashEmbeddingLookup,
    MapParameter,
    StaticParameter,
    TableConfig,
)
from mindspore_rec.nn import GroupedEmbedding
from mindspore_rec.optim import LazyAdam, Momentum
from mindspore_rec.train import TrainStep
from tests.cache.device_run import DIM, MOST, OPTIMIZERS, assert_same, run, sorted_rows
from tests.support.networks import Quadratic

Names = Callable[[], str]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_gives_the_same_bits(graph_mode: None, unique: Names, optimizer: str):
    name = unique()
    plain = run(name, None, optimizer)
    cached = run(name, CacheConfig(device_rows=MOST), optimizer)
    assert_same(plain, cached)
    # It was a cache that did it: rows came and went.
    assert cached["stats"]["device_misses"] > cached["stats"]["device_capacity_rows"]
    assert cached["stats"]["device_hits"] > 0


@pytest.mark.parametrize("policy", ["lru", "lfu"])
@pytest.mark.parametrize("times", [1, 3, 20])
def test_any_number_of_slots(mode: str, unique: Names, policy: str, times: int):
    name = unique()
    plain = run(name, None, "lazy_adam", seed=times, steps=20)
    config = CacheConfig(device_rows=MOST * times, policy=policy)
    assert_same(plain, run(name, config, "lazy_adam", seed=times, steps=20))


@pytest.mark.parametrize(
    "table",
    [
        {"permit_filter_value": 3},
        {"admission": CountAdmission(2), "unknown_value": 0.5},
        {"evict_filter_value": 4},
        {"eviction": Eviction(max_rows=60)},
        {"eviction": Eviction(min_norm=0.02)},
        {"eviction": Eviction(max_rows=70, order="lfu_decay", half_life_steps=5.0)},
    ],
    ids=lambda table: "-".join(table),
)
def test_admission_and_eviction(graph_mode: None, unique: Names, table: dict[str, Any]):
    name = unique()
    plain = run(name, None, "adagrad", **table)
    assert_same(plain, run(name, CacheConfig(device_rows=MOST), "adagrad", **table))


def train(net: Quadratic, ids: list[np.ndarray]) -> TrainStep:
    step = TrainStep(net, Momentum(net.trainable_params(), 0.05, 0.9)).set_train()
    for each in ids:
        step(Tensor(each))
    return step


def test_static_tables_and_vocab_cache_size(mode: str, unique: Names):
    rng = np.random.default_rng(3)
    ids = [rng.integers(0, 50, (6, 2)).astype(np.int32) for _ in range(12)]
    name = unique()
    values: list[np.ndarray] = []
    for size in (0, 12):
        lookup = EmbeddingLookup(50, DIM, name=name, vocab_cache_size=size)
        train(Quadratic(lookup), ids)
        values.append(lookup.embedding_table.asnumpy())
        lookup.embedding_table.close()
    np.testing.assert_array_equal(values[0], values[1])
    table = StaticParameter(50, DIM, cache=CacheConfig(device_rows=9), name=unique())
    assert table.stats()["device_capacity_rows"] == 9


def test_sizes_that_vary_compile_nothing_more(graph_mode: None, unique: Names):
    rng = np.random.default_rng(5)
    table = HashEmbeddingLookup(DIM, ms.int64, name=unique(), cache=CacheConfig(device_rows=400))
    net = Quadratic(table)
    step = TrainStep(net, LazyAdam(net.trainable_params())).set_train()
    swapped = set()
    for distinct in (400, 3, 50, 1, 200, 399):
        before = table.embedding_table.stats()["device_misses"]
        ids = np.resize(rng.permutation(10_000)[:distinct], 400).astype(np.int64)
        step(Tensor(ids))
        swapped.add(table.embedding_table.stats()["device_misses"] - before)
    assert len(swapped) == 6
    assert len(step.compile_cache) == 1


def test_too_few_rows_name_the_least_and_change_nothing(pynative: None, unique: Names):
    table = HashEmbeddingLookup(DIM, ms.int64, name=unique(), cache=CacheConfig(device_rows=4))
    net = Quadratic(table)
    step = TrainStep(net, LazyAdam(net.trainable_params())).set_train()
    step(Tensor(np.arange(4, dtype=np.int64)))
    before = table.embedding_table.export_rows(True)
    with pytest.raises(RuntimeError, match="device_rows must be at least 6, .* got 4"):
        step(Tensor(np.arange(3, 9, dtype=np.int64)))
    after = table.embedding_table.export_rows(True)
    for what, array in before.items():
        np.testing.assert_array_equal(array, after[what])
    step(Tensor(np.arange(5, 9, dtype=np.int64)))
    assert len(table.embedding_table.row_keys()) == 8


def test_the_cache_is_no_parameter_of_the_network(graph_mode: None, unique: Names, tmp_path: Path):
    net = Quadratic(
        HashEmbeddingLookup(DIM, ms.int64, name=unique(), cache=CacheConfig(device_rows=9))
    )
    step = train(net, [np.arange(6)])
    assert [p.name for p in net.get_parameters()] == [net.embedding.embedding_table.name]
    assert not any("device" in p.name for p in step.get_parameters())
    ms.save_checkpoint(net, str(tmp_path / "net.ckpt"))
    assert list(ms.load_checkpoint(str(tmp_path / "net.ckpt"))) == [
        net.embedding.embedding_table.name
    ]


def test_freezing_and_another_optimizer(mode: str, unique: Names):
    rng = np.random.default_rng(8)
    ids = [rng.integers(0, 40, (5, 2)) for _ in range(8)]
    name, seen = unique(), []
    for cache in (None, CacheConfig(device_rows=10)):
        net = Quadratic(HashEmbeddingLookup(DIM, ms.int64, name=name, cache=cache))
        table = net.embedding.embedding_table
        train(net, ids)
        table.requires_grad = False
        # More keys than slots over the whole of it, with no step to end a lookup.
        net.set_train()
        frozen = [net(Tensor(each)).asnumpy() for each in ids]
        table.requires_grad = True
        step = TrainStep(net, LazyAdam(net.trainable_params(), 0.1)).set_train()
        last = [step(Tensor(each)).asnumpy() for each in ids]
        seen.append((frozen, last, table.export_rows(True)["states"]))
        table.close()
    for a, b in zip(*seen, strict=True):
        np.testing.assert_array_equal(a, b)


def test_training_by_handle_beside_lookups(graph_mode: None, unique: Names):
    name, seen = unique(), []
    for cache in (None, CacheConfig(device_rows=10)):
        net = Quadratic(HashEmbeddingLookup(DIM, ms.int64, name=name, cache=cache))
        table = net.embedding.embedding_table
        optimizer = LazyAdam(net.trainable_params(), 0.1)
        step = TrainStep(net, optimizer).set_train()
        step(Tensor(np.arange(8)))
        rows, handles = table.lookup_with_handles(np.arange(4, 12))
        optimizer.apply_by_handle(rows.asnumpy(), handles)
        step(Tensor(np.arange(2, 10)))
        seen.append(table.export_rows(True))
        table.close()
    for what, array in seen[0].items():
        np.testing.assert_array_equal(array, seen[1][what])


@pytest.mark.parametrize("kind", ["sum", "mean", "sqrtn", "static", "grouped", "beside"])
def test_cells_that_combine_rows(mode: str, unique: Names, kind: str):
    rng = np.random.default_rng(7)
    drawn = [rng.zipf(1.4, (6, 3)) % 60 for _ in range(25)]
    name, found = unique(), []

    def net_of(cache: CacheConfig | None) -> tuple[nn.Cell, list[Any]]:
        if kind == "grouped":
            shape = {"key_dtype": ms.int64, "value_shape": DIM, "cache": cache}
            tables = [MapParameter(f"{name}.{t}", **shape) for t in range(2)]
            return GroupedEmbedding([*tables, tables[0]], padding_key=0), tables
        if kind == "static":
            bag = EmbeddingBag(
                TableConfig(DIM, name=name, vocab_size=60, cache=cache), padding_key=0
            )
            return bag, [bag.embedding_table]
        combined = "mean" if kind == "beside" else kind
        bag = EmbeddingBag(TableConfig(DIM, name=name, cache=cache), combined, padding_key=0)
        if kind != "beside":
            return bag, [bag.embedding_table]
        rows = HashEmbeddingLookup(DIM, table=bag.embedding_table)
        return Beside(bag, rows), [bag.embedding_table]

    for cache in (None, CacheConfig(device_rows=18)):
        made, tables = net_of(cache)
        net = Quadratic(made)
        step = TrainStep(net, LazyAdam(net.trainable_params(), 0.02)).set_train()
        ids = [each.astype(np.int32 if kind == "static" else np.int64) for each in drawn]
        losses = [step(Tensor(each)).asnumpy() for each in ids]
        made.set_train(False)
        losses.append(made(Tensor(ids[0])).asnumpy())
        for table in tables:
            rows = sorted_rows(table)
            found.append([*losses, *(rows[key] for key in sorted(rows))])
            stats = table.stats()
            table.close()
            if cache is not None:
                assert stats["device_misses"] > 18 and stats["device_hits"] > 0
    half = len(found) // 2
    for plain, cached in zip(found[:half], found[half:], strict=True):
        for one, other in zip(plain, cached, strict=True):
            np.testing.assert_array_equal(one, other)


class Beside(nn.Cell):
    """A bag and a plain lookup of one table."""

    def __init__(self, bag: nn.Cell, rows: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.bag = bag
        self.rows = rows

    def construct(self, ids: Tensor) -> Tensor:
        return self.bag(ids) + self.rows(ids).sum(1)


def test_too_few_slots_for_a_bag(graph_mode: None, unique: Names):
    bag = EmbeddingBag(TableConfig(DIM, name=unique(), cache=CacheConfig(device_rows=3)))
    net = Quadratic(bag)
    step = TrainStep(net, LazyAdam(net.trainable_params(), 0.02)).set_train()
    with pytest.raises(RuntimeError, match="device_rows must be at least 4"):
        step(Tensor([[1, 2], [3, 4]], ms.int64))
    assert bag.embedding_table.stats()["rows"] == 0


def test_cells_that_do_not_read_by_slot_refuse_it(unique: Names, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MINDSPORE_REC_DEVICE_TIER", "graph")  # as where memory is not shared
    cache = CacheConfig(device_rows=9)
    with pytest.raises(ValueError, match="device_rows must be None .* EmbeddingBag"):
        EmbeddingBag(TableConfig(DIM, name=unique(), key_dtype=ms.int32, cache=cache))
    with pytest.raises(ValueError, match="device_rows must be None .* EmbeddingBag"):
        EmbeddingBag(TableConfig(DIM, name=unique(), vocab_size=9, cache=cache))
    table = MapParameter(unique(), value_shape=DIM, cache=cache)
    with pytest.raises(ValueError, match="device_rows must be None .* EmbeddingBag"):
        EmbeddingBag(table=table)
    with pytest.raises(ValueError, match="device_rows must be None .* GroupedEmbedding"):
        GroupedEmbedding([table])
    with pytest.raises(ValueError, match=r"device_rows must be in \[1, 2\*\*30\]"):
        MapParameter(unique(), cache=CacheConfig(device_rows=1 << 31))
