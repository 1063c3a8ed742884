# SPDX-License-Identifier: Apache-2.0
"""Lookup latency and memory use of processes with shared rows, while deltas are published.

    PYTHONPATH=. python benchmarks/shared_rows.py --gigabytes 2 --json output/shared_rows.json

Each reader is a process that only looks up rows, 26 per lookup; it runs no network and no server.
In every second phase, the writer publishes one delta per second. A reader's longest lookup is
measured in phases with deltas and in phases without deltas. The difference between the phases is
the wait that deltas cause.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import time
from pathlib import Path
from typing import Any

import bench_common
import numpy as np

from mindspore_rec.serving import SharedRows

FIELDS = 26
IDLE, END = 3, 4  # other phases: 1 is quiet, 2 has deltas
BITS = {"float32": 32, "int8": 8, "int4": 4}


def main() -> None:
    """Measure, and print."""
    parser = bench_common.parser(__doc__)
    parser.add_argument("--gigabytes", type=float, default=2, help="of rows with their index")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--numbers", choices=BITS, default="float32", help="of rows")
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--delta-rows", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=5, help="of a phase")
    parser.add_argument("--rounds", type=int, default=2, help="of a quiet phase and one of deltas")
    options = parser.parse_args()
    figures = measure(options)
    print(json.dumps(figures, indent=2))
    bench_common.save(options.json, {**vars(options), "json": None, **figures})


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures."""
    fd = os.memfd_create("shared_rows")
    bits = BITS[options.numbers]
    stride = 8 + (4 * options.dim if bits == 32 else 4 + options.dim * bits // 8)
    shared = SharedRows(fd, options.dim, options.numbers, range(500, 501))
    rows = int(options.gigabytes * 1e9 / (stride + 64 / 12 / 0.8))
    phase = mmap.mmap(-1, 4096)
    pipes = [os.pipe() for _ in range(options.readers)]
    pids = []
    for number, (_, write) in enumerate(pipes):
        pids.append(os.fork())
        if not pids[-1]:
            os.write(write, json.dumps(read(fd, number, rows, options, phase)).encode())
            os._exit(0)
    begun = time.perf_counter()
    load(shared, rows, options)
    loaded = time.perf_counter() - begun
    writes: list[tuple[float, float]] = []
    for number in range(2 * options.rounds):
        phase[0] = 1 + number % 2
        end = time.perf_counter() + options.seconds
        while (left := end - time.perf_counter()) > 0:
            if number % 2:
                writes.append(change(shared, rows, options, len(writes)))
            time.sleep(max(0.0, min(1.0, left)))
    phase[0] = IDLE  # readers touch no pages while memory is measured
    time.sleep(0.1)
    kilobytes = share("self") + sum(share(pid) for pid in pids)
    phase[0] = END
    reports = [json.loads(os.read(read, 1 << 16)) for read, _ in pipes]
    for pid in pids:
        os.waitpid(pid, 0)
    kinds = {
        kind: {name: max(each[kind][name] for each in reports) for name in reports[0][kind]}
        for kind in ("quiet", "deltas")
    }
    published, settled = (np.median(times) * 1000 for times in zip(*writes, strict=True))
    return {
        "rows": rows,
        "rows_with_index_mb": round(shared.bytes_held() / 1e6, 1),
        "memory_of_all_processes_mb": round(kilobytes / 1000, 1),
        "rows_loaded_a_second": round(rows / loaded),
        "lookup_us_of_the_slowest_reader": kinds,
        "lookups_a_second": round(sum(each["lookups"] for each in reports)),
        "deltas": len(writes),
        "ms_to_publish_a_delta": round(float(published), 1),
        "ms_to_settle_it": round(float(settled), 1),
        "wrong_rows": sum(each["wrong"] for each in reports),
    }


def load(shared: SharedRows, rows: int, options: argparse.Namespace) -> None:
    """Publish all rows; the numbers within a row are equal."""
    shared.clear(rows)
    for first in range(0, rows, 1 << 18):
        numbers = np.arange(first, min(first + (1 << 18), rows))
        values = np.ones((len(numbers), options.dim), np.float32)
        shared.upsert(bench_common.spread_keys(numbers), values)
    shared.publish(b"0")
    shared.settle()
    ctypes.CDLL(None).malloc_trim(0)


def change(
    shared: SharedRows, rows: int, options: argparse.Namespace, number: int
) -> tuple[float, float]:
    """Publish a delta for the next range of keys; return the seconds for publishing and merging."""
    version = number + 1
    first = number * options.delta_rows % max(rows - options.delta_rows, 1)
    keys = bench_common.spread_keys(np.arange(first, min(first + options.delta_rows, rows)))
    values = np.full((len(keys), options.dim), 1 + version % 100, np.float32)
    begun = time.perf_counter()
    shared.upsert(keys, values)
    shared.publish(str(version).encode())
    published = time.perf_counter()
    shared.settle()
    return published - begun, time.perf_counter() - published


def read(
    fd: int, number: int, rows: int, options: argparse.Namespace, phase: mmap.mmap
) -> dict[str, Any]:
    """Look up rows until the last phase ends; return the latencies, by kind of phase."""
    shared = SharedRows(fd, options.dim, options.numbers, range(4 * number, 4 * number + 4))
    while not shared.ready():
        time.sleep(0.05)
    rng = np.random.default_rng(options.seed + number)
    asked = bench_common.spread_keys(rng.integers(0, rows, (4096, FIELDS)))
    latencies: dict[int, list[float]] = {1: [], 2: []}
    longest = {1: 0.0, 2: 0.0}  # without time in which other processes had the processor
    wrong = count = 0
    begun = time.perf_counter()
    while (kind := phase[0]) < END:
        if kind == IDLE:
            time.sleep(0.01)
            continue
        ids = asked[count % len(asked)]
        used, start = time.thread_time(), time.perf_counter()
        got, _ = shared.lookup(ids)
        took = time.perf_counter() - start
        if kind in latencies:
            latencies[kind].append(took)
            longest[kind] = max(longest[kind], time.thread_time() - used)
        wrong += int((got != got[:, :1]).any() or (got == 0).any())  # half a row, or none
        count += 1
    result: dict[str, Any] = {"wrong": wrong, "lookups": count / (time.perf_counter() - begun)}
    for kind, name in ((1, "quiet"), (2, "deltas")):
        values = np.array(latencies[kind]) * 1e6
        result[name] = {
            f"p{p:g}": round(float(np.percentile(values, p)), 1) for p in (50, 99, 99.9)
        }
        result[name]["max"] = round(float(values.max()), 1)
        result[name]["max_of_processor_time"] = round(longest[kind] * 1e6, 1)
        result[name]["over_2_ms_a_million"] = round(float((values > 2000).mean()) * 1e6, 1)
    return result


def share(pid: int | str) -> float:
    """Return the memory of a process in kB: the process's proportional share (PSS)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1.024
    return 0.0


if __name__ == "__main__":
    main()
