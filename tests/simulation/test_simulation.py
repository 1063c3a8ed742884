# SPDX-License-Identifier: Apache-2.0
"""Simulated schedules keep all promises. A nightly run takes seeds that nobody ran before."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests.simulation.run import first_finding
from tests.simulation.world import simulate
from tests.support.nightly import NIGHTLY

SCHEDULES = 1200 if NIGHTLY else 300
PARTS = SCHEDULES // 300
NIGHTLY_SECONDS = 900.0


def _check(counts: Counter[str], seeds: range, seconds: float = float("inf")) -> None:
    found = first_finding(seeds, seconds, counts)
    if found is not None:
        print("\n".join(found.trace))
        pytest.fail(f"python -m tests.simulation.run --seeds {found.seed}: {found.finding}")


@pytest.mark.parametrize("part", range(PARTS))
def test_schedules_keep_all_promises(part: int) -> None:
    counts = Counter[str]()
    _check(counts, range(part * SCHEDULES // PARTS, (part + 1) * SCHEDULES // PARTS))
    # Each kind of trouble was among them.
    least = {
        "kills": 50, "power": 50, "errors": 250, "restores": 150, "switches": 50_000, "grown": 20,
        "anew": 5, "quiet": 50, "erased": 50, "asked": 3,
    }  # fmt: skip
    assert all(counts[name] >= most for name, most in least.items()), counts


@pytest.mark.skipif(not NIGHTLY, reason="a quarter of an hour")
def test_other_schedules_keep_all_promises() -> None:
    first = time.time_ns() % (1 << 31)
    _check(Counter(), range(first, first + (1 << 30)), NIGHTLY_SECONDS)


# 29 and 35 have a table with a tier whose reads fail.
@pytest.mark.parametrize("seed", [3, 9, 29, 35, 162])
def test_a_seed_is_one_schedule(seed: int) -> None:
    one, other = simulate(seed, keep_trace=True), simulate(seed, keep_trace=True)
    assert one.counts == other.counts
    assert one.trace == other.trace
