# SPDX-License-Identifier: Apache-2.0
"""A scrubber beside all that a table over tiers does: it finds nothing, and changes no bit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec import _native
from tests.cache.table_twins import DictTier, Stores
from tests.cache.test_cache_table_machine import KEYS, Life
from tests.support.nightly import NIGHTLY


class Scrub:
    """A thread that scrubs a life's table as fast as it can."""

    def __init__(self, life: Life) -> None:
        self.rounds = self.rows = 0
        self.errors: list[BaseException] = []
        self._life = life
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Scrub:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        rng = np.random.default_rng(0)
        while not self._ended.is_set():
            try:
                rows, ended = self._life.twins.tiered.scrub_tiers(int(rng.integers(1, 3000)))
                self.rows += rows
                self.rounds += ended and self.rows > 0
            except _native.TableClosedError:  # the life goes on with another table
                pass
            except BaseException as error:
                self.errors.append(error)
                return


def life_of(seed: int, stores: Stores, threads: Callable[[int], None]) -> Life:
    """Return the first life from a seed on that has most rows below host memory."""
    while True:
        life = Life(seed, stores, threads)
        if life.host <= KEYS // 10 and not life.static:
            return life
        life.close()
        seed += 10_000


def scrubbed(life: Life, steps: int) -> int:
    """Run a life beside a scrubber and return the rounds that had rows."""
    try:
        with Scrub(life) as scrub:
            life.run(steps)
        assert not scrub.errors, scrub.errors
        return scrub.rounds
    finally:
        life.close()


def nothing_is_found(
    rounds: int, seed: int, stores: Callable[[int], Stores], threads: Callable[[int], None]
) -> None:
    """Run lives until there were so many rounds: how many one has depends on the processors."""
    for each in range(seed, seed + rounds):
        rounds -= scrubbed(life_of(each, stores(each), threads), 60)
        if rounds <= 0:
            return
    raise AssertionError(f"{rounds} rounds are missing")


@pytest.mark.parametrize("kind", ["ssd", "direct", "dict+ssd"])
def test_nothing_is_found_over_an_ssd(
    tmp_path: Path, threads: Callable[[int], None], kind: str
) -> None:
    rounds = 5000 if NIGHTLY else 50
    nothing_is_found(rounds, 500, lambda seed: Stores(kind, tmp_path / str(seed)), threads)


@pytest.mark.redis
@pytest.mark.parametrize("kind", ["redis", "redis+ssd"])
def test_nothing_is_found_over_redis(
    tmp_path: Path, redis_url: str, threads: Callable[[int], None], kind: str
) -> None:
    rounds = 500 if NIGHTLY else 3
    nothing_is_found(
        rounds, 600, lambda seed: Stores(kind, tmp_path / str(seed), redis_url), threads
    )


def table_over(tiers: list[Any], name: str) -> _native.Table:
    """A table of 300 rows, 40 of them in host memory."""

    def opens(row_bytes: int, generation: int) -> Any:
        tiers.append(DictTier(row_bytes))
        return tiers[-1]

    table = _native.Table(name=name, dim=4)
    table.set_cache(host_rows=40, levels=[{"kind": "remote", "open": opens}])
    table.bind_optimizer("adam")
    for first in range(0, 300, 20):
        table.put(np.arange(first, first + 20), np.ones((20, 4), np.float32))
    return table


def test_a_round_has_each_row_and_begins_anew(unique: Callable[[], str]) -> None:
    tiers: list[Any] = []
    table = table_over(tiers, unique())
    table.flush()
    seen: list[int] = []
    scan = tiers[0].scan

    def noted(cursor: int, most: int) -> Any:
        found = scan(cursor, most)
        seen.extend(found[1].tolist())
        return found

    tiers[0].scan = noted
    parts: list[tuple[int, bool]] = []
    while not parts or not parts[-1][1]:
        parts.append(table.scrub_tiers(70))
    assert [rows for rows, _ in parts] == [70, 70, 70, 70, 20] and sorted(seen) == [*range(300)]
    assert table.scrub_tiers(1000) == (300, True)
    # Another layout of rows is in other tiers, where the round begins anew.
    table.scrub_tiers(70)
    table.bind_optimizer("sgd")
    table.flush()
    assert len(tiers) == 2 and table.scrub_tiers(1000) == (300, True)
    table.scrub_tiers(70)
    table.clear()
    assert table.scrub_tiers(1000) == (0, True)
    with pytest.raises(ValueError, match="rows must be 1 or more, got 0"):
        table.scrub_tiers(0)
    table.close()


def test_a_table_without_tiers_has_nothing_to_look_through(unique: Callable[[], str]) -> None:
    table = _native.Table(name=unique(), dim=4)
    with pytest.raises(ValueError, match="has no tier below host memory to look through"):
        table.scrub_tiers(10)
    table.close()


def test_errors_of_a_tier_keep_their_kind(unique: Callable[[], str]) -> None:
    tiers: list[Any] = []
    name = unique()
    table = table_over(tiers, name)
    table.flush()
    error: list[Exception] = [_native.RowDamagedError("the row of key 7")]

    def fails(*_: object) -> None:
        raise error[0]

    good = tiers[0].scan, tiers[0].read
    tiers[0].scan = tiers[0].read = fails
    below = np.arange(300)
    for call in (
        lambda: table.scrub_tiers(10),
        lambda: table.lookup(below),
        lambda: table.export_rows(),
        lambda: table.prefetch_wait(table.prefetch(below[:30])),
    ):
        with pytest.raises(_native.RowDamagedError, match=f"table '{name}': the row of key 7"):
            call()
    error[0] = ConnectionError("is away")
    for call in (lambda: table.scrub_tiers(10), lambda: table.lookup(below)):
        with pytest.raises(RuntimeError, match=f"table '{name}': is away") as raised:
            call()
        assert not isinstance(raised.value, _native.RowDamagedError)
    tiers[0].scan, tiers[0].read = good
    assert table.scrub_tiers(1000)[1]
    assert (table.lookup(below) == 1).all()
    table.close()
