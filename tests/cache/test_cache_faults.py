# SPDX-License-Identifier: Apache-2.0
"""The SSD tier's disk on a bad day: a clear error, or training that goes on with memory's bits."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest

from mindspore_rec import CacheConfig, MapParameter, SsdConfig
from tests.cache.trained_alike import Trainer, insist
from tests.support.disks import mounted, remount
from tests.support.processes import start_python


def parameter(name: str, cache: CacheConfig, dim: int = 4) -> MapParameter:
    return MapParameter(name, key_dtype=ms.int64, value_shape=dim, cache=cache)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 96 MiB."""
    with mounted(tmp_path / "disk", 96) as path:
        yield path


def test_full_disk(small_disk, unique):
    """Training goes on for as long as memory takes what is on its way; then a clear error, and
    where there is space again training goes on from there."""
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (30 << 20))
    cache = CacheConfig(host_rows=6000, ssd=SsdConfig(small_disk / "rows", direct=False))
    trainer = Trainer(None, cache, name=unique(), keys=400_000, size=4000)
    began = time.monotonic()
    message = trainer.train_until_error(100)
    for word in (f"table '{trainer.parameters[-1].name}'", "No space left", str(small_disk)):
        assert word in message
    assert "No space left" in trainer.train_until_error(1)  # it stays one, and does no harm
    assert time.monotonic() - began < 120
    # Rows that the disk did not take are there, each by its key.
    keys = trainer.tables[0].keys()
    trainer.same(*(table.export_keys(keys, with_state=True) for table in trainer.tables))
    with pytest.raises(RuntimeError, match="No space left"):
        trainer.tables[-1].flush()
    # So they can go into a checkpoint on another disk.
    np.testing.assert_array_equal(np.sort(trainer.tables[-1].export_rows()["keys"]), np.sort(keys))
    filler.unlink()
    remount(small_disk, "size=700m")
    insist(trainer.tables[-1].flush)
    trainer.train_all(10)
    trainer.tables[-1].flush()
    trainer.check_same()
    trainer.close()


def test_ssd_directory_removed(tmp_path, unique):
    cache = CacheConfig(host_rows=2000, ssd=SsdConfig(tmp_path / "rows", direct=False))
    trainer = Trainer(None, cache, name=unique(), keys=10_000, size=1000)
    trainer.train_all(10)
    shutil.rmtree(tmp_path / "rows")
    with pytest.raises(RuntimeError, match=r"table 'test.*rows-"):
        for _ in range(200):
            trainer.train_all(1)
            trainer.tables[-1].flush()
    assert not (tmp_path / "rows").exists()
    # Files that are open are still read.
    trainer.tables[0].export_rows()
    trainer.close()


def test_read_only_file_system(small_disk, unique):
    remount(small_disk, "ro")
    cache = CacheConfig(host_rows=2000, ssd=SsdConfig(small_disk / "rows", direct=False))
    with pytest.raises(OSError, match="Read-only file system"):
        parameter(unique(), cache)


_HOLDER = """
import sys, time, mindspore as ms
from mindspore_rec import CacheConfig, SsdConfig, MapParameter
cache = CacheConfig(host_rows=9, ssd=SsdConfig(sys.argv[1], direct=False))
table = MapParameter("held", key_dtype=ms.int64, value_shape=4, cache=cache)
table.write_rows(__import__("numpy").arange(100), __import__("numpy").ones((100, 4), "float32"))
table.flush()
print("here", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("leftover", ["refuse", "keep", "discard"])
def test_a_second_process_is_refused(tmp_path, leftover, held):
    path = held()
    cache = CacheConfig(host_rows=9, ssd=SsdConfig(path, direct=False), leftover=leftover)
    with pytest.raises((OSError, ValueError, RuntimeError), match="held"):
        table = parameter("held", cache)
        _ = table.row_count
    files = list((path / "held").rglob("*.seg"))
    assert files  # nothing was removed


@pytest.fixture(scope="module")
def held(tmp_path_factory) -> Iterator[Callable[[], Path]]:
    """A path that another process has rows in."""
    processes: list[subprocess.Popen] = []
    path = tmp_path_factory.mktemp("held")

    def start() -> Path:
        if not processes:
            process = start_python("-c", _HOLDER, path)
            processes.append(process)
            assert process.stdout is not None and process.stdout.readline() == "here\n"
        return path

    yield start
    for process in processes:
        process.kill()
        process.wait()
