# SPDX-License-Identifier: Apache-2.0
"""Packed data sets and MindSpore's data sets divided by worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore.dataset as ds
import numpy as np
import pytest

from datasets.common import batches, write_packed
from mindspore_rec.stream import batch_source

ROWS, BLOCK = 2605, 10


@pytest.fixture(scope="module", params=["parquet", "mindrecord"])
def packed(request: Any, tmp_path_factory: Any) -> Path:
    path = tmp_path_factory.mktemp("packed") / "train"
    rows = {"ids": np.arange(ROWS).reshape(-1, 1), "label": np.ones((ROWS, 1), np.float32)}
    write_packed([rows], path, request.param, block_rows=BLOCK)
    return path


def rows_of(source: Any) -> list[list[int]]:
    return [np.asarray(batch["ids"])[:, 0].tolist() for batch in source]


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("shuffle", [False, True])
def test_files_are_divided_by_blocks(packed: Path, workers: int, shuffle: bool) -> None:
    """Each row is read by one worker, in an order of the worker's and their number alone."""

    def part(worker: int) -> Any:
        stream = batches(packed, 32, shuffle=shuffle, seed=3)
        return stream.split_by_worker(worker, workers)

    parts = [part(worker) for worker in range(workers)]
    read = [rows_of(each) for each in parts]
    assert sorted(row for each in read for batch in each for row in batch) == list(range(ROWS))
    for worker, found in enumerate(read):
        assert len(found) == len(parts[worker])
        assert all(len(batch) == 32 // workers for batch in found[:-1])
        assert {row // BLOCK % workers for batch in found for row in batch} == {worker}
        assert rows_of(part(worker)) == found
        if shuffle:  # the next epoch has another order
            assert rows_of(parts[worker]) != found
    sizes = [sum(map(len, found)) for found in read]
    assert max(sizes) - min(sizes) <= BLOCK


def test_few_blocks_memory_and_odd_sizes_are_divided_by_rows(packed: Path) -> None:
    stream = batches(packed, 32)
    assert stream.split_by_worker(0, 8) is None  # 261 blocks
    assert batches(packed, 33).split_by_worker(0, 2) is None
    arrays: Any = {"ids": np.zeros((9999, 1), np.int64), "label": np.ones((9999, 1), np.float32)}
    assert batches(arrays, 2).split_by_worker(0, 2) is None
    source = batch_source(batches(arrays, 2))
    assert source.split_by_worker(0, 2) is None


def test_shards_of_a_dataset_are_the_workers() -> None:
    columns = {"ids": np.arange(8)}

    def sharded(**shards: int) -> Any:
        return batch_source(ds.NumpySlicesDataset(columns, shuffle=False, **shards).batch(2))

    source = sharded(num_shards=2, shard_id=1)
    assert source.split_by_worker(1, 2) is source
    assert sharded().split_by_worker(1, 2) is None
    with pytest.raises(ValueError, match="shard_id=0, the shard of this worker.*got shard 1 of 2"):
        source.split_by_worker(0, 2)
