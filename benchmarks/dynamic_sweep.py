# SPDX-License-Identifier: Apache-2.0
"""Second part of `dynamic_features.py`: pauses while nearly all rows of a table are evicted."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from dynamic_table import (  # type: ignore[import-not-found]
    SWEEP_STEPS,
    TIME,
    Sample,
    Stream,
    Subject,
    choose,
)
from mindspore import Tensor
from tqdm import tqdm

from mindspore_rec import Eviction

BEFORE = 60  # steps before the sweep: give the median, and look up the rows that stay
AFTER = 40
IDLE = 100_000

# The key is the name of a sweep, the value is (eviction rules at the start, `recorded`). If
# `recorded` is True, changes are recorded for a delta, and each step also fetches the evicted keys,
# as EvictedKeysCallback does. The step's time includes the time to record changes and to fetch
# keys.
SWEEPS: dict[str, tuple[Eviction, bool]] = {
    "evict_by_callback": (Eviction(max_idle_steps=IDLE, trigger="callback"), False),
    "max_idle_steps": (Eviction(max_idle_steps=IDLE), False),
    "max_idle_seconds": (Eviction(max_idle_seconds=IDLE), False),
    "recorded": (Eviction(max_idle_steps=IDLE, trigger="callback"), True),
    "capacity_lowered": (Eviction(max_rows=1 << 40), False),
}


def run(args: Any) -> dict[str, dict[str, float]]:
    """Measure the chosen sweeps and print each result at once."""
    wanted = choose(list(SWEEPS), args.sweeps, "--sweeps")
    results = {}
    if wanted:
        print(f"{'sweep':20s} longest / median step (ms), ratio; rows before, after; steps")
    for name in wanted:
        figures = results[name] = sweep(name, args)
        print(
            f"{name:20s} {figures['longest_ms']:.1f} / {figures['median_ms']:.1f}  "
            f"{figures['stall_ratio']:.2f}; {figures['rows_before']:,.0f}, "
            f"{figures['rows_after']:,.0f}; {figures['steps']:.0f}",
            flush=True,
        )
    return results


def sweep(name: str, args: Any) -> dict[str, float]:
    """Measure steps around the moment at which nearly all rows become due for eviction."""
    rules, recorded = SWEEPS[name]
    shape = (args.batch, args.fields)
    subject = Subject(f"dynamic_sweep.{name}", args.fields, args.dim, eviction=rules)
    rows = args.sweep_rows
    # Rows of age `age` become due for eviction just after the first `BEFORE` steps. With the
    # trigger "callback", the rows become due when the eviction is triggered. Rows that the first
    # `BEFORE` steps look up do not become due for eviction.
    age = IDLE - BEFORE - (rules.trigger == "step")
    subject.fill(rows, (age, age), 0, args.seed)
    if recorded:
        subject.table.marks.new()
        subject.table.collect_evicted(True)
    stream = Stream(shape, rows, args.zipf, args.new, "returning", rows, args.seed)
    label = Tensor((np.random.default_rng(1).random(args.batch) < 0.3).astype(np.float32))
    samples: list[Sample] = []

    def step(event_time: int) -> None:
        timed = event_time if (rules.max_idle_seconds or -1) > 0 else None
        sample = subject.step(Tensor.from_numpy(stream.batch()), label, timed)
        if recorded:
            start = time.perf_counter()
            subject.table.take_evicted()
            sample = Sample(sample.step + time.perf_counter() - start, sample.table)
        samples.append(sample)

    for i in tqdm(range(BEFORE), desc=f"{name}: before", leave=False, disable=None):
        step(TIME + i)
    before = subject.table.stats()
    now = TIME + BEFORE
    start = time.perf_counter()
    if rules.trigger == "callback":
        subject.table.evict()
    elif name == "max_idle_seconds":
        now += 1
    elif rules.has_capacity:
        subject.table.set_eviction(Eviction(max_rows=rows // 10))
    asked = time.perf_counter() - start
    during = SWEEP_STEPS + 8
    if name == "capacity_lowered":
        # A step evicts at most 16,384 rows plus twice the number of rows that the step inserted.
        during = int(rows * 0.95 / (16384 + 2 * stream.fresh)) + 8
    for i in tqdm(range(during), desc=f"{name}: sweep", leave=False, disable=None):
        step(now + i)
    after = subject.table.stats()
    for i in tqdm(range(AFTER), desc=f"{name}: after", leave=False, disable=None):
        step(now + during + i)
    subject.close()
    times = np.array([each.step for each in samples]) * 1e3
    inside = np.array([each.table for each in samples]) * 1e3
    # The first step includes the call that starts the eviction.
    times[BEFORE] += asked * 1e3
    quiet = times[BEFORE // 4 : BEFORE]  # the first steps compile the graph and touch memory
    swept = slice(BEFORE, BEFORE + during)
    median = float(np.median(quiet))
    return {
        "median_ms": median,
        "longest_before_ms": float(quiet.max()),
        "longest_ms": float(times[swept].max()),
        "median_sweeping_ms": float(np.median(times[swept])),
        "longest_after_ms": float(times[BEFORE + during :].max()),
        "table_median_ms": float(np.median(inside[BEFORE // 4 : BEFORE])),
        "table_longest_ms": float(inside[swept].max()),
        "table_median_sweeping_ms": float(np.median(inside[swept])),
        "asked_ms": asked * 1e3,
        "stall_ratio": float(times[swept].max()) / median,
        "table_stall_ratio": float(inside[swept].max() / np.median(inside[BEFORE // 4 : BEFORE])),
        "rows_before": float(before["rows"]),
        "rows_after": float(after["rows"]),
        "evicted": float(after["evicted"] - before["evicted"]),
        "steps": float(during),
    }
