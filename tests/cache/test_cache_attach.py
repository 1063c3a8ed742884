# SPDX-License-Identifier: Apache-2.0
"""Opening the tiers of a table: directories, rows of earlier runs, refusals."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from mindspore_rec import (
    CacheConfig,
    EmbeddingBag,
    EmbeddingLookup,
    Eviction,
    HashEmbeddingLookup,
    LazyAdam,
    MapParameter,
    RecModel,
    SsdConfig,
    StaticParameter,
    TableConfig,
    create_table,
)
from mindspore_rec.common.tiers.ssd_directory import SsdDirectory
from mindspore_rec.ssd import SsdStore

KEYS = np.arange(50, dtype=np.int64)


def config(path, leftover="refuse", **arguments):
    return CacheConfig(
        **{"host_rows": 20, "ssd": SsdConfig(path, direct=False), "leftover": leftover} | arguments
    )


def rows_of(row_bytes, number=0):
    return np.full((len(KEYS), row_bytes), number, np.uint8)


def write(path, row_bytes, name="t", generation=0, number=0):
    with SsdDirectory(name, config(path, "keep")).open(row_bytes, generation) as store:
        store.write(KEYS, rows_of(row_bytes, number))


# ---- the directory


@pytest.mark.parametrize(
    ("name", "directory"),
    [
        ("t", "t"),
        ("users/eu", "users%2Feu"),
        ("..", "%2E."),
        (".", "%2E"),
        ("a b%2F", "a%20b%252F"),
        ("Kühe", "K%C3%BChe"),
    ],
)
def test_every_name_has_a_directory_of_its_own(tmp_path, name, directory):
    with SsdDirectory(name, config(tmp_path)).open(36, 0) as store:
        assert store.path == str(tmp_path / directory / "rows-0")
    assert [each.name for each in tmp_path.iterdir()] == [directory]


def worker_store(path, worker, workers, leftover="refuse"):
    return SsdDirectory("t", config(path, leftover), worker, workers).open(36, 0)


def test_each_worker_has_a_directory_of_its_own(tmp_path):
    stores = [worker_store(tmp_path, worker, 3) for worker in range(3)]
    for worker, store in enumerate(stores):
        assert store.path == str(tmp_path / "t" / f"worker-{worker}-of-3" / "rows-0")
        store.write(KEYS, rows_of(36, worker))
    for store in stores:
        store.close()
    with worker_store(tmp_path, 2, 3, "keep") as store:
        assert store.read(KEYS)[0][0, 0] == 2
    with pytest.raises(ValueError, match="ssd has rows of an earlier run in .*worker-1-of-3"):
        worker_store(tmp_path, 1, 3)


@pytest.mark.parametrize(("before", "now"), [(3, 2), (2, 3), (1, 2), (2, 1)])
def test_rows_of_another_number_of_workers(tmp_path, before, now):
    """No worker keeps rows that another number of workers divided, and one removes them."""
    for worker in range(before):
        with worker_store(tmp_path, worker, before) as store:
            store.write(KEYS, rows_of(36))
    with pytest.raises(ValueError, match=f"are the rows of {before} worker.* {now}: start as"):
        worker_store(tmp_path, 0, now, "keep")
    with pytest.raises(ValueError, match="rows of an earlier run"):
        worker_store(tmp_path, 0, now)
    stores = [worker_store(tmp_path, worker, now, "discard") for worker in range(now)]
    for worker in range(before):
        old = tmp_path / "t" / (f"worker-{worker}-of-{before}" if before > 1 else "")
        assert list(old.glob("rows-*")) == []
    for store in stores:
        assert store.stats()["rows"] == 0
        store.close()


def test_a_name_that_is_too_long(tmp_path):
    with pytest.raises(ValueError, match="at most 255 characters when it is URL-quoted, got 300"):
        SsdDirectory("ü" * 50, config(tmp_path))
    assert not list(tmp_path.iterdir())


def test_rows_of_an_earlier_run_are_refused(tmp_path):
    write(tmp_path, 36)
    with pytest.raises(ValueError, match="table 't': ssd has rows of an earlier run") as error:
        SsdDirectory("t", config(tmp_path))
    assert "leftover='keep'" in str(error.value)
    assert "'discard'" in str(error.value)
    with SsdStore(tmp_path / "t" / "rows-0", direct=False) as store:
        assert len(store) == len(KEYS), "nothing was touched"


def test_rows_of_an_earlier_run_are_discarded(tmp_path):
    write(tmp_path, 36)
    write(tmp_path, 68, "other")
    with SsdDirectory("t", config(tmp_path, "discard")).open(52, 0) as store:
        assert len(store) == 0
        assert store.row_bytes == 52
    assert (tmp_path / "other").exists()


def test_rows_of_an_earlier_run_are_kept(tmp_path):
    write(tmp_path, 36, number=7)
    with SsdDirectory("t", config(tmp_path, "keep")).open(36, 0) as store:
        rows, found = store.read(KEYS)
        assert found.all()
        np.testing.assert_array_equal(rows, rows_of(36, 7))


def test_rows_are_kept_whatever_their_generation_was(tmp_path):
    write(tmp_path, 68, generation=2, number=7)
    kept = SsdDirectory("t", config(tmp_path, "keep"))
    with kept.open(36, 0) as store:  # the table has no optimizer yet
        assert len(store) == 0
    with kept.open(68, 1) as store:
        rows, found = store.read(KEYS)
        assert found.all() and (rows == 7).all()
    assert sorted(each.name for each in (tmp_path / "t").iterdir()) == ["rows-0", "rows-1"]


def test_rows_of_another_size_cannot_be_kept(tmp_path):
    write(tmp_path, 68, generation=1)
    kept = SsdDirectory("t", config(tmp_path, "keep"))
    kept.open(36, 0).close()
    with pytest.raises(ValueError, match="68 bytes, and the table's have 52: give it the dim and"):
        kept.open(52, 1)
    with SsdStore(tmp_path / "t" / "rows-1", direct=False) as store:
        assert len(store) == len(KEYS)


def test_of_several_generations_the_last_is_kept(tmp_path):
    for generation, row_bytes in ((0, 36), (1, 68)):
        path = tmp_path / "t" / f"rows-{generation}"
        with SsdStore(path, row_bytes, direct=False) as store:
            store.write(KEYS, rows_of(row_bytes, generation))
    with SsdDirectory("t", config(tmp_path, "keep")).open(68, 0) as store:
        assert (store.read(KEYS)[0] == 1).all()
    assert [each.name for each in (tmp_path / "t").iterdir()] == ["rows-0"]


def test_a_tier_that_was_never_written_to_is_nothing_left(tmp_path):
    SsdDirectory("t", config(tmp_path)).open(36, 0).close()
    with SsdDirectory("t", config(tmp_path)).open(52, 0) as store:
        assert store.row_bytes == 52


def test_old_generations_go_when_they_are_not_needed(tmp_path):
    directory = SsdDirectory("t", config(tmp_path))
    for generation in range(4):
        with directory.open(36 + 8 * generation, generation) as store:
            store.write(KEYS, rows_of(36 + 8 * generation))
    assert sorted(each.name for each in (tmp_path / "t").iterdir()) == ["rows-2", "rows-3"]


@pytest.mark.parametrize("leftover", ["discard", "keep"])
def test_what_another_table_has_open_is_left_alone(tmp_path, leftover):
    with SsdDirectory("t", config(tmp_path)).open(36, 0) as store:
        store.write(KEYS, rows_of(36, 3))
        with pytest.raises(OSError, match="open|lock|use"):
            SsdDirectory("t", config(tmp_path, leftover)).open(36, 0)
        assert (store.read(KEYS)[0] == 3).all()


# ---- the table


def model_over(lookup):
    net = nn.SequentialCell(lookup, nn.Flatten(), nn.Dense(2 * 4, 1))
    return RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params(), 0.1))


def batches(count, seed=0):
    rng = np.random.default_rng(seed)
    return [
        (rng.integers(0, 400, (8, 2)), (rng.random((8, 1)) < 0.5).astype(np.float32))
        for _ in range(count)
    ]


def content(table):
    rows = table.export_rows(with_state=True)
    order = np.argsort(rows["keys"])
    return {name: array[order] for name, array in rows.items() if len(array) == len(order)}


def test_rows_go_down_and_come_up(graph_mode, unique, tmp_path):
    lookup = HashEmbeddingLookup(4, ms.int64, name=unique(), cache=config(tmp_path))
    model_over(lookup).train(1, batches(40), progress=False)
    stats = lookup.embedding_table.stats()
    assert stats["host_rows"] <= stats["host_capacity_rows"] == 20
    assert stats["ssd_written_rows"] > 0
    assert stats["ssd_hits"] > 0
    assert lookup.embedding_table.row_count == len(
        np.unique(np.concatenate([ids for ids, _ in batches(40)]))
    )


def test_a_failing_tier_leaves_the_name_free(tmp_path, unique):
    name = unique()
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(OSError):
        MapParameter(name, cache=config(tmp_path / "file"))
    with pytest.raises(ValueError, match="device_rows|remote"):
        MapParameter(name, cache=config(tmp_path, remote="redis://host:port"))
    MapParameter(name).close()


def train_rows(table, keys):
    _, handles = table.lookup_with_handles(keys)
    table.accumulate_by_handle(handles, np.ones((len(keys), 1), np.float32))
    table.apply_gradients(0.1)


@pytest.mark.parametrize("clock", [0, 20])
def test_kept_rows_are_idle_since_their_last_step_if_the_clock_is_set(unique, tmp_path, clock):
    """The new table's clock is 0, so without `set_clock`, kept rows outlive rows of the new run."""
    name = unique()
    rows = []
    for leftover, steps in (("refuse", range(20)), ("keep", range(20, 26))):
        table = MapParameter(
            name,
            value_shape=1,
            cache=config(tmp_path, leftover),
            eviction=Eviction(max_idle_steps=5),
        )
        table.bind_optimizer("sgd")
        if leftover == "keep":
            assert table.step == 0
            table.set_clock(clock, 0)
        for step in steps:
            train_rows(table, KEYS[step : step + 1])
            table.evict_due()
            rows.append(table.row_count)
        table.flush()
        table.close()
    assert rows[19] == 5
    assert rows[20:] == ([5] * 6 if clock else [6, 7, 8, 9, 10, 10])


def test_a_table_goes_on_with_the_rows_it_flushed(graph_mode, unique, tmp_path):
    name = unique()
    lookup = HashEmbeddingLookup(4, ms.int64, name=name, cache=config(tmp_path))
    model_over(lookup).train(1, batches(20), progress=False)
    lookup.embedding_table.flush()
    before = content(lookup.embedding_table)
    lookup.embedding_table.close()
    with pytest.raises(ValueError, match=f"table '{name}': ssd has rows of an earlier run"):
        HashEmbeddingLookup(4, ms.int64, name=name, cache=config(tmp_path))
    lookup = HashEmbeddingLookup(4, ms.int64, name=name, cache=config(tmp_path, "keep"))
    net = nn.SequentialCell(lookup)
    LazyAdam(net.trainable_params(), 0.1)
    after = content(lookup.embedding_table)
    assert before.keys() == after.keys()
    for key, array in before.items():
        np.testing.assert_array_equal(array, after[key], err_msg=key)


def test_discarded_rows_are_gone(graph_mode, unique, tmp_path):
    name = unique()
    lookup = HashEmbeddingLookup(4, ms.int64, name=name, cache=config(tmp_path))
    model_over(lookup).train(1, batches(20), progress=False)
    lookup.embedding_table.close()
    lookup = HashEmbeddingLookup(4, ms.int64, name=name, cache=config(tmp_path, "discard"))
    assert lookup.embedding_table.row_count == 0


def test_one_config_serves_several_tables(graph_mode, unique, tmp_path):
    shared = config(tmp_path)
    first = HashEmbeddingLookup(4, ms.int64, name=unique(), cache=shared)
    second = HashEmbeddingLookup(4, ms.int64, name=unique(), cache=shared)
    clone = first.embedding_table.clone()
    for seed, lookup in enumerate((first, second)):
        model_over(lookup).train(1, batches(20, seed), progress=False)
    assert clone.cache is shared
    assert len(list(tmp_path.iterdir())) >= 2
    assert first.embedding_table.row_count != 0
    assert set(first.embedding_table.row_keys()) == set(
        np.concatenate([ids.reshape(-1) for ids, _ in batches(20, 0)])
    )


def test_every_way_to_a_table_takes_a_cache(unique, tmp_path):
    cache = config(tmp_path)
    tables = [
        MapParameter(unique(), cache=cache),
        StaticParameter(9, 2, name=unique(), cache=cache),
        EmbeddingLookup(9, 2, name=unique(), cache=cache).embedding_table,
        HashEmbeddingLookup(2, name=unique(), cache=cache).embedding_table,
        EmbeddingBag(
            TableConfig(2, name=unique(), key_dtype=ms.int32, cache=cache)
        ).embedding_table,
        EmbeddingBag(TableConfig(2, name=unique(), vocab_size=9, cache=cache)).embedding_table,
        create_table(ms.int64, 2, unique(), "ones", cache=cache),
    ]
    for table in tables:
        assert table.cache is cache
        assert table.stats()["host_capacity_rows"] == 20


def test_sizes_of_create_table(unique, tmp_path):
    table = create_table(
        ms.int64,
        2,
        unique(),
        "ones",
        host_vocabulary_size=30,
        ssd_vocabulary_size=10_000,
        ssd_data_path=[tmp_path],
    )
    assert table.stats()["host_capacity_rows"] == 30
    assert table.cache == CacheConfig(host_rows=30, ssd=SsdConfig(tmp_path, max_bytes=64 << 20))


def test_flush_needs_a_tier(unique):
    with pytest.raises(ValueError, match="has no tier below host memory"):
        MapParameter(unique()).flush()


def test_a_shared_table_has_its_own_cache(unique, tmp_path):
    table = MapParameter(unique(), value_shape=2)
    with pytest.raises(ValueError, match="cache describes a new table"):
        HashEmbeddingLookup(2, table=table, cache=config(tmp_path))


def test_vocab_cache_size(unique, tmp_path):
    with pytest.raises(ValueError, match="vocab_cache_size is the device_rows of cache"):
        EmbeddingLookup(9, 2, name=unique(), cache=config(tmp_path), vocab_cache_size=5)
    with pytest.raises(ValueError, match=r"vocab_cache_size must be in \[0, "):
        EmbeddingLookup(9, 2, name=unique(), vocab_cache_size=-1)
    with pytest.raises(ValueError, match="cache is for target='CPU' only"):
        EmbeddingLookup(9, 2, target="DEVICE", sparse=False, cache=config(tmp_path))
