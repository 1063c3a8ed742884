# SPDX-License-Identifier: Apache-2.0
"""Faults of one bit in rows of predictors, wherever they keep them: the scrubber names each row."""

from __future__ import annotations

import mmap
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from mindspore_rec import (
    CacheConfig,
    HashEmbeddingLookup,
    LazyAdam,
    RecCheckpoint,
    RecModel,
    SsdConfig,
    _native,
    tables_of,
)
from mindspore_rec.common.columns.tensors import parsed_specs
from mindspore_rec.common.rows.quantise import to_bytes
from mindspore_rec.common.run.chain import entries
from mindspore_rec.common.run.network_file import NETWORK
from mindspore_rec.serve.following.followed_run import FollowedRun
from mindspore_rec.serve.shared.writer import ServedInSharedMemory
from mindspore_rec.serving import Predictor
from mindspore_rec.train.export.onnx import export_network
from tests.cache.test_cache_tier_faults import flip as flip_in_file, records
from tests.parameter.test_digest import addresses_of, flip, keys_alike
from tests.support.nightly import NIGHTLY

pytestmark = pytest.mark.usefixtures("graph_mode")

FAULTS = 1000 if NIGHTLY else 20
DIM, KEYS = 8, 400
NAME = "faults.rows"
ALL = keys_alike(np.random.default_rng(50), KEYS)
PLACE = {key: place for place, key in enumerate(ALL.tolist())}
BITS = {"int8": 8, "int4": 4}


def network() -> nn.Cell:
    return nn.SequentialCell(
        HashEmbeddingLookup(DIM, ms.int64, name=NAME, param_init="normal"),
        nn.Flatten(),
        nn.Dense(2 * DIM, 1),
    )


@pytest.fixture(scope="module")
def rows_and_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray, Path]:
    """A trained run of one table, and its rows of the keys `ALL`."""
    ms.set_context(mode=ms.GRAPH_MODE)
    net = network()
    model = RecModel(net, nn.MSELoss(), LazyAdam(net.trainable_params(), 0.1))
    ids = ALL.reshape(-1, 2)
    root = tmp_path_factory.mktemp("faults") / "run"
    batch = ids, np.ones((len(ids), 1), np.float32)
    checkpoint = RecCheckpoint(root, every_steps=3, data_starts_over=True)
    model.online_train([batch] * 3, checkpoint, progress=False)
    (table,) = tables_of(net)
    rows = table.read_rows(ALL)
    table.close()
    return rows, root


def until(of: Callable[[], dict[str, Any]], damaged: dict[str, list[int]]) -> None:
    """Wait until the damaged rows of a scrubber's report are these."""
    deadline = time.monotonic() + 60
    while True:
        tables = of()["tables"].items()
        found = {name: table["damaged_keys"] for name, table in tables if table["damaged_rows"]}
        if found == damaged:
            return
        assert time.monotonic() < deadline, (found, damaged)
        time.sleep(0.001)


def all_are_named(
    of: Callable[[], dict[str, Any]],
    name: str,
    faults: Callable[[], tuple[int, Callable[[], None]]],
) -> None:
    """Make faults, each of which returns the key and what takes it back."""
    until(of, {})
    for _ in range(FAULTS):
        key, undo = faults()
        until(of, {name: [key]})
        undo()
        until(of, {})
    assert of()["rounds"] > FAULTS // 2


def report(predictor: Predictor) -> dict[str, Any]:
    found = predictor.status().scrub
    assert found is not None
    return found


@pytest.mark.parametrize("rows", ["float32", "int8", "int4"])
def test_in_memory(rows_and_run: tuple[np.ndarray, Path], rows: str) -> None:
    rng = np.random.default_rng(1)
    values, root = rows_and_run
    with Predictor(
        root, network, inputs=["input_data:INT64:-1,2"], follow=False, rows=rows, scrub_seconds=1e-3
    ) as predictor:
        drawn = rng.choice(KEYS, 12, replace=False)
        keys, some = ALL[drawn], values[drawn]
        native = predictor._runner.tables[NAME]._synchronised()
        if rows != "float32":
            some = to_bytes(some, BITS[rows])
        places = addresses_of(native, keys, some, 20 if rows == "float32" else 8)
        assert places.keys() == set(keys.tolist())
        with open("/proc/self/mem", "r+b", 0) as memory:

            def fault() -> tuple[int, Callable[[], None]]:
                key = int(rng.choice(keys))
                at = places[key] + int(rng.integers(some[0].nbytes))
                bit = 1 << int(rng.integers(8))
                flip(memory, at, bit)
                return key, lambda: flip(memory, at, bit)

            all_are_named(lambda: report(predictor), NAME, fault)


def test_on_redis(rows_and_run: tuple[np.ndarray, Path], redis_url: str) -> None:
    import redis

    rng = np.random.default_rng(2)
    client: Any = redis.Redis.from_url(redis_url)
    tiers = CacheConfig(host_rows=64, remote=redis_url)
    with Predictor(
        rows_and_run[1], network, inputs=["input_data:INT64:-1,2"], follow=False, tiers=tiers,
        scrub_seconds=1e-3,
    ) as predictor:  # fmt: skip
        table = predictor._runner.tables[NAME]
        held = set(ALL.tolist())
        places: dict[int, tuple[bytes, bytes]] = {}
        for bucket in client.keys(f"emb{{*{NAME}/*}}v"):
            for field in client.hkeys(bucket):
                if len(field) == 8:
                    places[int.from_bytes(field, "little")] = bucket, field

        def change(key: int, at: int, bit: int) -> None:
            value = client.hget(*places[key])
            client.hset(*places[key], value[:at] + bytes([value[at] ^ bit]) + value[at + 1 :])

        for key in places:  # some are older copies of rows in memory, which nobody reads
            change(key, 0, 1)
            try:
                table.read_rows(np.array([key]))
            except _native.RowDamagedError as error:
                assert f"keys {key} do not match" in str(error)
                held.discard(key)
            change(key, 0, 1)
        below = sorted(set(places) - held)
        assert len(below) == KEYS - 64
        size = len(client.hget(*places[below[0]]))

        def fault() -> tuple[int, Callable[[], None]]:
            key = below[rng.integers(len(below))]
            at, bit = int(rng.integers(size)), 1 << int(rng.integers(8))
            change(key, at, bit)
            return key, lambda: change(key, at, bit)

        all_are_named(lambda: report(predictor), NAME, fault)
    client.close()


def test_on_an_ssd(rows_and_run: tuple[np.ndarray, Path], tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    tiers = CacheConfig(host_rows=64, ssd=SsdConfig(tmp_path / "ssd", direct=False))
    with Predictor(
        rows_and_run[1], network, inputs=["input_data:INT64:-1,2"], follow=False, tiers=tiers,
        scrub_seconds=1e-3,
    ) as predictor:  # fmt: skip
        table = predictor._runner.tables[NAME]
        table._synchronised().flush()
        (tier,) = {path.parent for path in (tmp_path / "ssd").rglob("*.seg")}
        places = records(tier, tmp_path / "copy")
        below = []
        for key, (path, at, _) in sorted(places.items()):
            flip_in_file(path, at + 30, 1)
            try:
                table.read_rows(np.array([key]))
            except _native.RowDamagedError as error:
                assert f"key {key}, does not match" in str(error)
                below.append(key)
            flip_in_file(path, at + 30, 1)
        assert len(below) == KEYS - 64

        def fault() -> tuple[int, Callable[[], None]]:
            key = below[rng.integers(len(below))]
            path, at, size = places[key]
            at, bit = at + int(rng.integers(size)), 1 << int(rng.integers(8))
            flip_in_file(path, at, bit)
            return key, lambda: flip_in_file(path, at, bit)

        all_are_named(lambda: report(predictor), NAME, fault)


@pytest.mark.parametrize("rows", ["float32", "int8", "int4"])
def test_in_memory_that_processes_share(
    rows_and_run: tuple[np.ndarray, Path], tmp_path: Path, rows: str
) -> None:
    """As with `--workers`: the process that follows the run finds them."""
    rng = np.random.default_rng(4)
    values, run = rows_and_run
    net = network()
    made = export_network(net, parsed_specs(["input_data:INT64:-1,2"]))
    for table in tables_of(net):
        table.close()
    root, copy = tmp_path / "follows", tmp_path / "copy"
    copy.mkdir()
    (root / NETWORK).mkdir(parents=True)
    made.write(root / NETWORK)
    last = next(entry for entry in entries(run) if (entry.step, entry.kind) == (3, "full"))
    shutil.copytree(last.path, root / last.path.name)
    fd = os.memfd_create("test")
    served = ServedInSharedMemory(root, copy, fd, rows)
    published = FollowedRun(root, served, 1.0, 0.1, scrub_seconds=1e-3)
    stored = values if rows == "float32" else to_bytes(values, BITS[rows])

    with mmap.mmap(fd, os.fstat(fd).st_size) as memory:

        def places(key: int) -> list[int]:
            """Return the place of a row's numbers, which come right after its key."""
            row = key.to_bytes(8, "little") + stored[PLACE[key]].tobytes()
            found: list[int] = []
            begin = 0
            while True:  # the file is sparse, and larger than memory
                try:
                    begin = os.lseek(fd, begin, os.SEEK_DATA)
                except OSError:
                    return found
                end = os.lseek(fd, begin, os.SEEK_HOLE)
                at = memory.find(row, begin, end)
                while at >= 0:
                    found.append(at + 8)
                    at = memory.find(row, at + 1, end)
                begin = end

        def fault() -> tuple[int, Callable[[], None]]:
            key = int(rng.choice(ALL))
            at, bit = int(rng.integers(stored[0].nbytes)), 1 << int(rng.integers(8))
            copies = places(key)
            assert copies

            def change() -> None:
                for place in copies:
                    memory[place + at] ^= bit

            change()
            return key, change

        def found() -> dict[str, Any]:
            assert published._scrubber is not None
            return published._scrubber.report()

        all_are_named(found, NAME, fault)
    published.close()
    os.close(fd)
