# SPDX-License-Identifier: Apache-2.0
"""Lower tiers of every version that has written golden files are read, bit for bit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec import SsdConfig
from mindspore_rec.common.tiers.ssd_command import main
from mindspore_rec.ssd import SsdStore
from mindspore_rec.stream import Journal
from tests.golden.golden_run import FILES
from tests.golden.golden_tiers import STORE_ROW, cache_of, load_redis, open_table, rows_of
from tests.support.redis_server import RedisServer

VERSIONS = sorted(path.name for path in FILES.iterdir())


@pytest.fixture(params=VERSIONS)
def files(request: pytest.FixtureRequest) -> Path:
    return FILES / str(request.param)


def expect_rows(table: Any, path: Path) -> None:
    found = rows_of(table)
    with np.load(path) as expected:
        assert found.keys() == set(expected)
        for name, values in found.items():
            np.testing.assert_array_equal(values, expected[name], err_msg=name)
    table.close()


def test_a_table_over_an_ssd(files: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(files / "ssd.zip", tmp_path / "ssd")
    expect_rows(
        open_table(cache_of("keep", ssd=SsdConfig(tmp_path / "ssd", direct=False))),
        files / "ssd.npz",
    )


def test_a_store_that_nobody_closed(files: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.unpack_archive(files / "ssd_store.zip", path)
    assert main(["verify", str(path)]) == 0
    with np.load(files / "ssd_store.npz") as expected, SsdStore(path, direct=False) as store:
        assert store.row_bytes == STORE_ROW
        np.testing.assert_array_equal(np.sort(store.keys()), np.sort(expected["keys"]))
        rows, found = store.read(expected["keys"])
        assert found.all()
        np.testing.assert_array_equal(rows, expected["rows"])
        assert [each["sealed"] for each in store.segments()] == [True] * 3
        assert store.verify() == []


@pytest.mark.redis
def test_a_table_over_redis(files: Path, start_redis: Callable[..., RedisServer]) -> None:
    import redis

    server = start_redis()
    with redis.Redis.from_url(server.url) as client:
        load_redis(client, files / "redis.json")
    expect_rows(open_table(cache_of("keep", remote=server.url)), files / "redis.npz")


def test_a_journal(files: Path, tmp_path: Path) -> None:
    journal = Journal(shutil.copy(files / "journal.jsonl", tmp_path))
    found = [tuple(journal[number]) for number in range(len(journal))]
    assert found == [(3, "leave", 1), (7, "join", 1), (1 << 40, "cut", -1)]
