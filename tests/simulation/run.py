# SPDX-License-Identifier: Apache-2.0
"""Simulate schedules of trainer, checkpoint writer, merger and predictor, or of feature workers,
each decided by a seed:

    python -m tests.simulation.run --seeds 0:1000
    python -m tests.simulation.run --seconds 600 --first 7000
    python -m tests.simulation.run --workers --seeds 0:1000

The first seed that breaks a promise ends it: what was found is printed, and the whole trace, which
is the same whenever that seed is run. `world.py` and `worker_world.py` say what is real and what is
not, `record.py` what must be true.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tests.simulation.worker_world import simulate_workers
from tests.simulation.world import Outcome, simulate

__all__ = ["first_finding"]


def first_finding(
    seeds: Iterable[int],
    seconds: float = float("inf"),
    counts: Counter[str] | None = None,
    fixed: Mapping[str, Any] | None = None,
    simulation: Callable[..., Outcome] = simulate,
) -> Outcome | None:
    """Run schedules until one breaks a promise; return that one with its trace, or None.

    Args:
        seeds: of the schedules.
        seconds: after which no further one begins. Default: no limit.
        counts: gets the sums of all schedules' counts, and their number as 'schedules'.
        fixed: as for the simulation.
        simulation: `simulate` (the default) or `simulate_workers`.
    """
    total = Counter[str]() if counts is None else counts
    began = time.monotonic()
    collects = gc.isenabled()
    gc.disable()  # a schedule leaves little, but its collections look at all that was imported
    try:
        for seed in seeds:
            if time.monotonic() - began >= seconds:
                return None
            outcome = simulation(seed, fixed=fixed)
            gc.collect(0)
            total.update(outcome.counts)
            total["schedules"] += 1
            if outcome.finding is not None:
                return simulation(seed, True, fixed)
    finally:
        if collects:
            gc.enable()
    return None


def _every(first: int) -> Iterator[int]:
    while True:
        yield first
        first += 1


def _range(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last) if last else int(first) + 1)


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seeds", type=_range, help="A:B, from A to B - 1, or one seed")
    what.add_argument("--seconds", type=float, default=60.0, help="default: 60")
    parser.add_argument("--first", type=int, default=0, help="seed with which --seconds begins")
    parser.add_argument(
        "--workers", action="store_true", help="feature workers, in place of trainer and predictor"
    )
    options = parser.parse_args()
    simulation = simulate_workers if options.workers else simulate
    simulation(0)  # imports and builds what all schedules use
    gc.freeze()
    counts = Counter[str]()
    began, used = time.monotonic(), time.process_time()
    seeds = _every(options.first) if options.seeds is None else options.seeds
    limit = options.seconds if options.seeds is None else float("inf")
    found = first_finding(seeds, limit, counts, simulation=simulation)
    took, used = time.monotonic() - began, time.process_time() - used
    schedules = counts.pop("schedules")
    print(f"{schedules} schedules in {took:.1f} s, {used:.1f} s of a processor; in all:")
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    if found is None:
        return 0
    print("\n".join(found.trace))
    print(f"seed {found.seed}: {found.finding}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
