# SPDX-License-Identifier: Apache-2.0
"""Simulated feature workers lose and double no row, and what would make them do so is found."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.defects import with_defect
from tests.simulation.run import first_finding
from tests.simulation.worker_defects import WORKER_DEFECTS
from tests.simulation.worker_world import simulate_workers
from tests.support.nightly import NIGHTLY

SCHEDULES = 120
NIGHTLY_SECONDS = 600.0
MOST = 400  # schedules in which a defect is found


def _check(counts: Counter[str], seeds: range, seconds: float = float("inf")) -> None:
    found = first_finding(seeds, seconds, counts, simulation=simulate_workers)
    if found is not None:
        print("\n".join(found.trace))
        pytest.fail(
            f"python -m tests.simulation.run --workers --seeds {found.seed}: {found.finding}"
        )


def test_workers_lose_and_double_nothing() -> None:
    counts = Counter[str]()
    _check(counts, range(SCHEDULES))
    # Each kind of trouble was among them.
    least = {"kills": 50, "power": 10, "stops": 50, "ends": 20, "errors": 5, "replaced": 10}
    assert all(counts[name] >= most for name, most in least.items()), counts


@pytest.mark.skipif(not NIGHTLY, reason="ten minutes")
def test_other_workers_lose_and_double_nothing() -> None:
    first = time.time_ns() % (1 << 31)
    _check(Counter(), range(first, first + (1 << 30)), NIGHTLY_SECONDS)


@pytest.mark.parametrize("seed", [5, 42])
def test_a_seed_is_one_schedule(seed: int) -> None:
    one, other = (simulate_workers(seed, keep_trace=True) for _ in range(2))
    assert one.counts == other.counts
    assert one.trace == other.trace


@pytest.mark.parametrize(
    ("defect", "settings"),
    [pytest.param(*each, id=each[0].__name__) for each in WORKER_DEFECTS.items()],
)
def test_defects_are_found(defect: Callable[[], Any], settings: dict[str, Any]) -> None:
    with with_defect(defect):
        found = first_finding(range(MOST), fixed=settings, simulation=simulate_workers)
    assert found is not None
    assert found.finding is not None
    assert found.finding.startswith(("FindingError", "ValueError")), found.finding
    print(f"seed {found.seed}: {found.finding}")
