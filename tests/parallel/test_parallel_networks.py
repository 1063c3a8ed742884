# SPDX-License-Identifier: Apache-2.0
"""Random networks trained by several workers are those that one process trains.

The settings of tests/support/settings.py say which networks, and how many workers train them:
``MINDSPORE_REC_TESTS="networks=200,network_workers=1/2/3/4,network_changes=2-3/3-2/2-1/1-4"``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.parallel.networks.comparison import (
    Saved,
    assert_same_bits,
    compare,
    redis_database,
    run,
)
from tests.parallel.networks.random_case import SHRUNK, Case, draw_case
from tests.support.nightly import NIGHTLY
from tests.support.redis_server import RedisServer
from tests.support.settings import SETTINGS
from tests.support.workers import need_mpi

FIRST, COUNT = SETTINGS.first_network, SETTINGS.networks
WORKERS = [int(n) for n in SETTINGS.network_workers]
MODE = SETTINGS.network_mode
A_START = 25  # networks in one start: each leaves memory behind in MindSpore


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    need_mpi()
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


Results = dict[int, list[Saved]]
Alone = Callable[[list[Case]], Results]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, redis: str) -> Alone:
    """Results of one process, which trains each case once for all tests."""
    trained: Results = {}

    def results(cases: list[Case]) -> Results:
        missing = [case for case in cases if case["seed"] not in trained]
        if missing:
            directory = tmp_path_factory.mktemp("alone") / "run"
            trained.update(run(directory, None, missing, redis_database(redis, 1)))
        return trained

    return results


def assert_all_alike(cases: list[Case], many: Results, one: Results) -> None:
    found = [compare(case, many[case["seed"]], one[case["seed"]][0]) for case in cases]
    differ = [each for each in found if each]
    assert not differ, f"{len(differ)} of {len(cases)} cases differ:\n" + "\n\n".join(differ)
    for case in cases:
        if case["evict_rows"]:
            assert len(one[case["seed"]][0]["evictions"]) > 0
        # Of four workers some have so few rows that all stay in host memory.
        prefetches = case["tables"][0]["prefetch"] > 0 and len(many[case["seed"]]) < 4
        if case in SHRUNK and prefetches:
            moved = np.sum([saved["table/0/moved"] for saved in many[case["seed"]]], axis=0)
            assert (moved > 0).all(), f"case {case}: rows read ahead and written down: {moved}"


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, A_START))
def test_workers_train_what_one_process_trains(
    first: int, tmp_path: Path, redis: str, alone: Alone
) -> None:
    cases: list[Case] = [
        draw_case(n, MODE) for n in range(first, min(first + A_START, FIRST + COUNT))
    ]
    cases += SHRUNK if first == FIRST else ()
    one = alone(cases)
    for workers in WORKERS:
        many = run(tmp_path / f"{workers}", workers, cases, redis_database(redis, 2))
        assert_all_alike(cases, many, one)
        for case in cases if workers == 1 else ():
            assert_same_bits(many[case["seed"]], one[case["seed"]], f"case {case}")
        if workers == WORKERS[0] and NIGHTLY:
            again = run(tmp_path / "again", workers, cases, redis_database(redis, 3))
            for case in cases:
                assert_same_bits(many[case["seed"]], again[case["seed"]], f"case {case}")


@pytest.mark.parametrize("change", SETTINGS.network_changes)
def test_another_number_of_workers_goes_on(
    change: str, tmp_path: Path, redis: str, alone: Alone
) -> None:
    """Half of the steps by some workers, the rest from their checkpoint by others."""
    before, after = (int(n) for n in change.split("-"))
    cases = [draw_case(n, MODE) for n in range(FIRST, FIRST + COUNT)]
    one = alone(cases)
    half = tmp_path / "half"
    run(half, before, cases, redis_database(redis, 5), "first")
    many = run(tmp_path / "rest", after, cases, redis_database(redis, 6), "rest", half)
    assert_all_alike(cases, many, one)
