# SPDX-License-Identifier: Apache-2.0
"""Long training with all tiers (device, host, Redis and SSD), admission, eviction and prefetch.

Two models train on the same batches. The first model's table has tiers, and the second model's
table is in memory. Keys drift, so that rows are inserted and evicted. In the second half of the
run, memory may grow by at most `--most-growth-mib`, and at the end, both models must be equal bit
for bit.

    python benchmarks/soak.py --seconds 180 --json soak.json
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")

import bench_common
import mindspore as ms
import numpy as np
from cache_redis import running_redis  # type: ignore[import-not-found]
from mindspore import nn
from tqdm import tqdm

import mindspore_rec as mr

DIM, FIELDS, BATCH = 16, 8, 256
BLOCK = 20  # steps of one model before the other model trains on the same batches
IDLE = 100  # steps without a lookup after which a row is evicted
DRIFT = 200  # keys by which the range of keys moves in a step
SPREAD = 60_000  # number of keys in the range of a step
DEVICE_ROWS, HOST_ROWS, REMOTE_ROWS = 3000, 8000, 8000


class Keys:
    """Draw batches of keys from a range that moves; some keys are much more frequent."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._zipf = bench_common.Zipf(SPREAD, 1.05, self._rng)
        self._step = 0

    def block(self) -> list[tuple[np.ndarray, np.ndarray]]:
        made = []
        for _ in range(BLOCK):
            self._step += 1
            numbers = self._zipf.draw((BATCH, FIELDS)) + DRIFT * self._step
            labels = (self._rng.random((BATCH, 1)) < 0.3).astype(np.float32)
            made.append((bench_common.spread_keys(numbers), labels))
        return made


def make_model(name: str, cache: mr.CacheConfig | None) -> tuple[mr.RecModel, Any]:
    """Return a model and its table; all models start with the same weights."""
    ms.set_seed(1)
    lookup = mr.HashEmbeddingLookup(
        DIM,
        ms.int64,
        name=name,
        param_init="zeros",
        admission=mr.CountAdmission(2),
        eviction=mr.Eviction(max_idle_steps=IDLE),
        cache=cache,
    )
    net = nn.SequentialCell(
        lookup, nn.Flatten(), nn.Dense(FIELDS * DIM, 32, activation="relu"), nn.Dense(32, 1)
    )
    optimizer = mr.LazyAdam(net.trainable_params(), 0.01)
    return mr.RecModel(net, nn.BCEWithLogitsLoss(), optimizer), lookup.embedding_table


def resident_mib() -> float:
    """Return the resident memory of this process (VmRSS) in MiB."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("/proc/self/status has no VmRSS")


def growth_mib(samples: list[float]) -> float:
    """Return the median of a series' last quarter minus the median of its third quarter."""
    quarter = max(1, len(samples) // 4)
    return float(np.median(samples[-quarter:]) - np.median(samples[-2 * quarter : -quarter]))


def same_arrays(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    """True if two exports have the same rows, in any order."""
    orders = [np.argsort(rows["keys"]) for rows in (found, expected)]
    return all(
        np.array_equal(found[name][orders[0]], expected[name][orders[1]]) for name in expected
    )


def check(tiered: Any, memory: Any, seen: np.ndarray) -> dict[str, bool]:
    """Return a dict: name of an invariant -> result of its check."""
    for table in (tiered, memory):
        table.evict_due()
    stats = tiered.stats()
    keys, expected = tiered.row_keys(), memory.row_keys()
    absent = bench_common.spread_keys(np.arange(1 << 40, (1 << 40) + 1000))
    some = np.random.default_rng(0).choice(expected, min(2000, len(expected)), replace=False)
    invariants = {
        "size is that of memory": tiered.row_count == memory.row_count == len(keys),
        "each key once": len(np.unique(keys)) == len(keys),
        "keys are those of memory": bool(np.array_equal(np.sort(keys), np.sort(expected))),
        "contains finds them": bool(tiered.has_rows(some).all()),
        "contains finds no others": not tiered.has_rows(absent).any(),
        "contains is that of memory": bool(
            np.array_equal(tiered.has_rows(seen), memory.has_rows(seen))
        ),
        "rows, state and metadata are those of memory": same_arrays(
            tiered.export_rows(with_state=True), memory.export_rows(with_state=True)
        ),
        "host rows are within the limit": stats["host_rows"] <= HOST_ROWS,
        "remote rows are within the limit": stats["remote_rows"] <= REMOTE_ROWS + BATCH * FIELDS,
        "rows are above or below": stats["host_rows"] + stats["below_rows"] == tiered.row_count,
        "hits and misses are lookups": stats["host_hits"] + stats["host_misses"]
        <= stats["looked_up_keys"],
        "rows moved in all tiers": all(
            stats[name] > 0
            for name in (
                "device_hits",
                "device_misses",
                "prefetched_rows",
                "remote_hits",
                "ssd_hits",
                "remote_spilled_rows",
            )
        ),
        "rows came and went": memory.stats()["evicted_by_age"] > 0 and stats["rejected"] > 0,
    }
    tiered.flush()
    stats = tiered.stats()
    below = stats["remote_rows"] + stats["ssd_rows"]
    invariants["after flush all rows are below"] = below == tiered.row_count
    invariants["after flush nothing is queued"] = stats["queued_rows"] == 0
    return invariants


def soak(seconds: float, url: str, path: Path, seed: int) -> dict[str, Any]:
    """Train for `seconds`, continue until rows are old enough to evict, and return the results."""
    ms.set_context(mode=ms.GRAPH_MODE)
    cache = mr.CacheConfig(
        device_rows=DEVICE_ROWS,
        host_rows=HOST_ROWS,
        remote=url,
        remote_rows=REMOTE_ROWS,
        ssd=mr.SsdConfig(path, max_bytes=2 << 30),
        prefetch=2,
    )
    models = {"tiers": make_model("soak.tiers", cache), "memory": make_model("soak.memory", None)}
    tables = {name: table for name, (_, table) in models.items()}
    source = Keys(seed)
    spent = dict.fromkeys(models, 0.0)
    losses: dict[str, list[float]] = {name: [] for name in models}
    memory: list[float] = []
    sizes: list[int] = []
    batches = source.block()
    began = time.monotonic()
    with tqdm(total=int(seconds), desc="soak", unit="s", leave=False, disable=None) as bar:
        # After `seconds`, the loop continues until unused rows are old enough to be evicted.
        while (now := time.monotonic() - began) < seconds or len(memory) * BLOCK < 2 * IDLE:
            bar.update(int(now) - bar.n)
            batches = source.block()
            for name, (model, _) in models.items():
                start = time.monotonic()
                losses[name].append(model.train(1, batches, progress=False).loss)
                spent[name] += time.monotonic() - start
            memory.append(resident_mib())
            sizes.append(tables["tiers"].row_count)
    seen = np.unique(np.concatenate([ids.ravel() for ids, _ in batches]))
    checks = check(tables["tiers"], tables["memory"], seen)
    checks["losses are those of memory"] = losses["tiers"] == losses["memory"]
    predictions = [model.predict(batches[-1][0]).asnumpy() for model, _ in models.values()]
    checks["predictions are those of memory"] = bool(np.array_equal(*predictions))
    steps = len(memory) * BLOCK
    figures = {
        "seconds": time.monotonic() - began,
        "steps": steps,
        "samples_per_second": {name: steps * BATCH / spent[name] for name in models},
        "rows": sizes[-1],
        "resident_mib": memory,
        "growth_of_second_half_mib": growth_mib(memory),
        "checks": checks,
        "stats": tables["tiers"].stats(),
    }
    for _, table in models.values():
        table.close()
    return figures


def main() -> None:
    """Train, print the results, and fail if a check fails."""
    parser = bench_common.parser(__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=180.0, help="of training")
    parser.add_argument("--ssd-path", type=Path, help="directory for the SSD tier; default: a new")
    parser.add_argument(
        "--most-growth-mib",
        type=float,
        default=32.0,
        help="by which resident memory may grow from the third to the last quarter of the run",
    )
    args: argparse.Namespace = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="soak-", dir=args.ssd_path))
    try:
        with running_redis(directory / "redis") as url:
            figures = soak(args.seconds, url, directory / "rows", args.seed)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    bench_common.save(args.json, figures)
    for name, rate in figures["samples_per_second"].items():
        print(f"{name}: {rate:,.0f} samples/s")
    growth = figures["growth_of_second_half_mib"]
    print(f"{figures['steps']} steps, {figures['rows']} rows, memory grew by {growth:.1f} MiB")
    failed = [name for name, fine in figures["checks"].items() if not fine]
    if growth > args.most_growth_mib:
        failed.append(f"memory grew by {growth:.1f} MiB, at most {args.most_growth_mib} are fine")
    for name in failed:
        print(f"FAILED: {name}")
    if failed:
        raise SystemExit(1)
    print(f"{len(figures['checks'])} checks passed")


if __name__ == "__main__":
    main()
