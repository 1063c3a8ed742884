# SPDX-License-Identifier: Apache-2.0
"""Random networks trained by several workers are those that one process trains.

`MINDSPORE_REC_NETWORKS` is the number of networks, `MINDSPORE_REC_NETWORKS_FIRST` the number of the
first one, `MINDSPORE_REC_NETWORKS_WORKERS` the numbers of workers: "1,2,3,4".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cache.redis_server import RedisServer
from tests.parallel.networks.comparison import (
    assert_alike,
    assert_same_bits,
    count,
    redis_database,
    run,
)
from tests.parallel.networks.random_case import Case, draw_case
from tests.run_workers import need_mpi

FIRST = count("MINDSPORE_REC_NETWORKS_FIRST", 0)
COUNT = count("MINDSPORE_REC_NETWORKS", 6)
WORKERS = [int(n) for n in os.environ.get("MINDSPORE_REC_NETWORKS_WORKERS", "2,3").split(",")]
A_START = 12  # networks in one start: each leaves memory behind in MindSpore


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    need_mpi()
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server.url
    server.kill()


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, A_START))
def test_workers_train_what_one_process_trains(first: int, tmp_path: Path, redis: str) -> None:
    cases: list[Case] = [draw_case(n) for n in range(first, min(first + A_START, FIRST + COUNT))]
    one = run(tmp_path / "one", 1, cases, redis_database(redis, 1))
    for workers in WORKERS:
        many = run(tmp_path / f"{workers}", workers, cases, redis_database(redis, 2))
        for case in cases:
            assert_alike(case, many[case["seed"]], one[case["seed"]][0])
        if workers == WORKERS[0]:
            again = run(tmp_path / "again", workers, cases, redis_database(redis, 3))
            for case in cases:
                assert_same_bits(many[case["seed"]], again[case["seed"]], f"case {case}")
