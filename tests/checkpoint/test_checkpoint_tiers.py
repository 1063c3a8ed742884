# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of tables whose rows live in several tiers, and the sort that writes them."""

from __future__ import annotations

from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from mindspore_rec import CacheConfig, HashEmbeddingLookup, SsdConfig, TrainStep
from mindspore_rec.checkpoint import load_checkpoint, save_checkpoint
from mindspore_rec.common.run.key_sort import KeySort
from mindspore_rec.optim import LazyAdam
from tests.support.networks import Quadratic


def _trained(cache: CacheConfig | None, steps: int) -> tuple[Quadratic, TrainStep]:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = Quadratic(HashEmbeddingLookup(4, name="checkpoint.tiers", cache=cache))
    step = TrainStep(net, LazyAdam(net.trainable_params(), learning_rate=0.1)).set_train()
    rng = np.random.default_rng(0)
    for _ in range(steps):
        step(Tensor(rng.integers(-2000, 2000, (64, 4)).astype(np.int32)))
    return net, step


def _files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.arrow")}


def test_the_files_are_those_of_a_table_in_memory(tmp_path: Path) -> None:
    net, step = _trained(None, 12)
    save_checkpoint(step, tmp_path / "memory")
    net.embedding.embedding_table.close()
    cache = CacheConfig(host_rows=300, ssd=SsdConfig(tmp_path / "ssd"))
    net, step = _trained(cache, 12)
    assert net.embedding.embedding_table.stats()["below_rows"] > 0
    save_checkpoint(step, tmp_path / "tiers")
    assert _files(tmp_path / "memory") == _files(tmp_path / "tiers")

    step(Tensor(np.arange(256, dtype=np.int32).reshape(64, 4)))  # to be forgotten
    load_checkpoint(step, tmp_path / "tiers")
    assert net.embedding.embedding_table.stats()["host_rows"] <= 300
    save_checkpoint(step, tmp_path / "again")
    assert _files(tmp_path / "again") == _files(tmp_path / "tiers")
    net.embedding.embedding_table.close()


@pytest.mark.parametrize("part_bytes", [1, 4096, 1 << 20])
def test_rows_come_in_the_order_of_their_keys(tmp_path: Path, part_bytes: int) -> None:
    kind = np.dtype([("key", "<i8"), ("value", "<f4", (2,))])
    rng = np.random.default_rng(1)
    keys = rng.permutation(3000) - 1500
    rows = np.empty(len(keys), kind)
    rows["key"] = keys
    rows["value"] = rng.normal(size=(len(keys), 2))
    sort = KeySort(tmp_path / "sort", kind, 100, part_bytes=part_bytes)
    for part in np.array_split(rows, 7):
        sort.add(part)
    found = np.concatenate(list(sort.sorted_parts()))
    sort.close()
    np.testing.assert_array_equal(found, rows[np.argsort(keys)])
    assert not (tmp_path / "sort").exists()


def test_no_more_rows_are_sorted_in_memory_than_a_part_has(tmp_path: Path) -> None:
    kind = np.dtype([("key", "<i8"), ("value", "<f4", (6,))])
    rows = np.zeros(3000, kind)
    rows["key"] = np.random.default_rng(1).permutation(3000)
    sort = KeySort(tmp_path / "sort", kind, len(rows), part_bytes=300 * kind.itemsize)
    sort.add(rows)
    lengths = [len(part) for part in sort.sorted_parts()]
    sort.close()
    assert sum(lengths) == 3000
    assert max(lengths) <= 301  # the bounds of the parts are keys of the first rows
