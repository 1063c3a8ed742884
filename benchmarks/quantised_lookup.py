# SPDX-License-Identifier: Apache-2.0
"""Pooled lookups of int8 and int4 rows, compared with FBGEMM's CPU kernels.

Bags of ids are looked up in a table that is far larger than the processor's caches. Ids are static
(0 to n - 1, which are the rows' indices) or hashed (any int64). FBGEMM runs in an interpreter of
its own:

    python3.11 -m venv /tmp/fbgemm
    /tmp/fbgemm/bin/pip install torch==2.14.1 fbgemm-gpu-cpu==1.9.0
    PYTHONPATH=. python benchmarks/quantised_lookup.py --fbgemm-python /tmp/fbgemm/bin/python

If no interpreter for FBGEMM is named, FBGEMM is not measured. FBGEMM has static ids only; our
static and hashed lookups are both compared with FBGEMM's lookups. The last figures are for lookups
without pooling: the speed of lookups in shared memory (`SharedRows`), divided by the speed of
lookups in private tables.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import bench_common
import numpy as np
from peer_process import Peer, installed

import mindspore_rec as mr
from mindspore_rec.serving import QuantizedRows, SharedRows

FILL_ROWS = 1 << 16


def filled(rows: int, dim: int, bits: int, hashed: bool, rng: np.random.Generator) -> QuantizedRows:
    """Return a table filled with random rows."""
    table = QuantizedRows(dim, f"int{bits}", 0 if hashed else rows)
    values = rng.standard_normal((FILL_ROWS, dim), np.float32)
    for first in range(0, rows, FILL_ROWS):
        ids = np.arange(first, min(rows, first + FILL_ROWS))
        keys = bench_common.spread_keys(ids) if hashed else ids
        table.upsert(keys, values[: len(ids)])
    return table


def checked(table: QuantizedRows, ids: np.ndarray, offsets: np.ndarray) -> None:
    """Raise ArithmeticError if a pooled row is not the sum of the rows of single lookups."""
    rows = table.lookup(ids).astype(np.float64)
    if not np.allclose(np.add.reduceat(rows, offsets), table.pool(ids, offsets), atol=1e-3):
        raise ArithmeticError("a pooled row is not the sum of its rows")


def lookup(
    table: QuantizedRows, batches: np.ndarray, offsets: np.ndarray, threads: int
) -> Callable[[int], float]:
    """Return a function for `alternate`; each call looks up and pools one batch of ids."""

    def run(i: int) -> Any:
        return table.pool(batches[i % len(batches)], offsets)

    def seconds(i: int) -> float:
        mr.set_num_threads(threads)
        return bench_common.seconds_of(run)(i)

    return seconds


def beside_shared(
    tables: dict[bool, QuantizedRows], bits: int, batches: np.ndarray, options: argparse.Namespace
) -> dict[str, float]:
    """Return the speed of lookups in `SharedRows`, divided by the speed in private tables.

    Args:
        tables: private tables; `tables[True]` has hashed ids, and `tables[False]` has static ids.
        bits: bits per element of a row.
        batches: static ids `[number of batches, ids per batch]`.
        options: the command's options.

    Returns:
        Two ratios, for static and for hashed ids: the speed of one thread's lookups in
        `SharedRows`, divided by the speed in the private table.
    """
    mr.set_num_threads(1)
    ratios = {}
    for hashed, kind in ((False, "static"), (True, "hashed")):
        stats, first = tables[hashed].stats(), tables[hashed].lookup(np.zeros(1, np.int64))
        shared = SharedRows(os.memfd_create("rows"), first.shape[-1], f"int{bits}", range(500, 501))
        for begin in range(0, stats["rows"], FILL_ROWS):
            keys = np.arange(begin, min(stats["rows"], begin + FILL_ROWS))
            keys = bench_common.spread_keys(keys) if hashed else keys
            shared.upsert(keys, tables[hashed].lookup(keys))
        shared.publish(b"rows")
        shared.settle()
        ids = batches.astype(np.int64)
        ids = bench_common.spread_keys(ids) if hashed else ids
        runs = {
            "private": bench_common.seconds_of(partial(_look_up, tables[hashed].lookup, ids)),
            "shared": bench_common.seconds_of(partial(_look_up, shared.lookup, ids)),
        }
        times = bench_common.alternate(runs, options.rounds, 3, f"shared, {kind}")
        ratios[kind] = float(np.median(times["private"] / times["shared"]))
    return ratios


def _look_up(lookup: Callable[[np.ndarray], Any], batches: np.ndarray, i: int) -> Any:
    return lookup(batches[i % len(batches)])


def peer_lookup(peer: Peer, first: int, batches: int) -> Callable[[int], float]:
    """Return a function that runs the peer's steps `first` to `first + batches - 1` in turn."""

    def seconds(i: int) -> float:
        return peer.step(first + i % batches)

    return seconds


def measure(options: argparse.Namespace, dim: int, bits: int) -> dict[str, Any]:
    """Return the results for rows of `dim` elements of `bits` bits."""
    rng = np.random.default_rng(options.seed)
    rows = options.bytes // (4 * dim)
    batches = rng.integers(0, rows, (options.batches, options.bags * options.ids), np.int32)
    offsets = np.arange(0, batches.shape[1], options.ids, dtype=np.int32)
    tables = {hashed: filled(rows, dim, bits, hashed, rng) for hashed in (False, True)}
    keys = bench_common.spread_keys(batches.astype(np.int64))
    checked(tables[False], batches[0], offsets)
    checked(tables[True], keys[0], offsets)
    runs: dict[tuple[str, int], Callable[[int], float]] = {}
    peer = None
    if options.fbgemm_python:
        settings = {"rows": rows, "dim": dim, "bits": bits, "threads": options.threads}
        ends = np.append(offsets, batches.shape[1]).astype(np.int32)
        arrays = {"batches": batches, "offsets": ends}
        peer = Peer("fbgemm", options.fbgemm_python, settings, arrays)
    try:
        for place, threads in enumerate(options.threads):
            runs["static", threads] = lookup(tables[False], batches, offsets, threads)
            runs["hashed", threads] = lookup(tables[True], keys, offsets, threads)
            if peer is not None:
                runs["fbgemm", threads] = peer_lookup(peer, place * len(batches), len(batches))
        times = bench_common.alternate(runs, options.rounds, 3, f"dim {dim}, {bits} bits")
    finally:
        if peer is not None:
            peer.close()
    made = {"rows": rows, "dim": dim, "bits": bits, "peer": peer.about if peer else None}
    for hashed, kind in ((False, "static"), (True, "hashed")):
        stats = tables[hashed].stats()
        made[f"{kind}_bytes_a_row"] = (stats["row_bytes"] + stats["index_bytes"]) / rows
    made["lookups_a_second"] = {
        f"{kind}, {threads} threads": batches.shape[1] / float(np.median(seconds))
        for (kind, threads), seconds in times.items()
    }
    made["shared_by_private"] = beside_shared(tables, bits, batches, options)
    if peer is not None:
        # The median of the rounds' ratios does not depend on drift of the machine's speed.
        made["speed_by_fbgemm"] = {
            f"{kind}, {threads} threads": float(
                np.median(times["fbgemm", threads] / times[kind, threads])
            )
            for kind in ("static", "hashed")
            for threads in options.threads
        }
    return made


def show(figures: dict[str, Any]) -> None:
    """Print the results of one kind of row."""
    print(
        f"dim {figures['dim']}, int{figures['bits']}, {figures['rows']:,} rows: "
        f"{figures['static_bytes_a_row']:.1f} bytes a row with static ids, "
        f"{figures['hashed_bytes_a_row']:.1f} with hashed ones"
    )
    for name, speed in figures["lookups_a_second"].items():
        ratio = figures.get("speed_by_fbgemm", {}).get(name)
        print(f"  {name:20} {speed / 1e6:8.1f} million ids/s", end="")
        print("" if ratio is None else f", {ratio:.2f} of FBGEMM's speed")
    for kind, ratio in figures["shared_by_private"].items():
        print(f"  {kind}, without pooling: shared rows at {ratio:.2f} of the speed of private rows")


def main() -> None:
    """Measure, print, save."""
    parser = bench_common.parser(__doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--dims", type=int, nargs="+", default=[64, 128], help="numbers of a row")
    parser.add_argument("--bits", type=int, nargs="+", default=[8, 4], help="of a number: 8, 4")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="that compute")
    parser.add_argument("--bytes", type=int, default=4 << 30, help="of the table as float32")
    parser.add_argument("--bags", type=int, default=1024, help="of a batch")
    parser.add_argument("--ids", type=int, default=20, help="of a bag")
    parser.add_argument("--batches", type=int, default=40, help="that take turns")
    parser.add_argument("--rounds", type=int, default=80, help="that are counted")
    parser.add_argument("--fbgemm-python", help="interpreter with torch and fbgemm-gpu-cpu")
    parser.add_argument(
        "--fbgemm-huge-pages",
        action="store_true",
        help="let torch ask for huge pages, which this library's rows have in any case",
    )
    options = parser.parse_args()
    if options.fbgemm_python and (why := installed("fbgemm", options.fbgemm_python)):
        print(f"FBGEMM is left out: {why}")
        options.fbgemm_python = None
    elif not options.fbgemm_python:
        print("FBGEMM is left out: there is no --fbgemm-python")
    if options.fbgemm_huge_pages:
        os.environ["THP_MEM_ALLOC_ENABLE"] = "1"
    print(bench_common.machine()["cpu"])
    figures = []
    for dim in options.dims:
        for bits in options.bits:
            figures.append(measure(options, dim, bits))
            show(figures[-1])
    huge_pages = {"fbgemm_huge_pages": options.fbgemm_huge_pages}
    bench_common.save(options.json, {"rows": figures, **huge_pages})


if __name__ == "__main__":
    main()
