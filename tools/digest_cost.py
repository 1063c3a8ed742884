# SPDX-License-Identifier: Apache-2.0
"""Measures how much a digest slows the training of a table.

    python tools/digest_cost.py --steps 1000 --delta-every 50

This tool is not in `benchmarks/`, because the native core's table, which it uses, is not public.

A step does the same work as a step of `embedding_step.py`, but without a graph. A step looks up
batch x fields ids, accumulates the rows' gradients, and does one step of Adam. After every
`--delta-every` steps, the tool makes a delta: it copies the rows that have changed since the
previous copy. Steps of two equal tables alternate, in a changing order; only one table keeps a
digest. The tool measures the CPU time of all threads, because other programs on the machine affect
CPU time less than elapsed time. Each figure is a median over pairs of steps or over pairs of
deltas.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import bench_common

from mindspore_rec import _native


def new_table(name: str, args: argparse.Namespace, directory: Path) -> _native.Table:
    """Return a new table that already contains all rows."""
    table = _native.Table(name=name, dim=args.dim, max_idle_steps=args.max_idle_steps)
    if args.host_rows:
        path = directory / name
        path.mkdir()
        level = {"kind": "ssd", "open": lambda size, _: _native.SsdStore(path, size)}
        table.set_cache(host_rows=args.host_rows, levels=[level])
    table.bind_optimizer("adam")
    for start in range(0, args.rows, 500_000):
        numbers = np.arange(start, min(start + 500_000, args.rows))
        keys = bench_common.spread_keys(numbers)
        table.put(keys, np.zeros((len(keys), args.dim), np.float32))
    return table


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__ or "")
    parser.add_argument("--batch", type=int, default=4096, help="samples in a step")
    parser.add_argument("--fields", type=int, default=39, help="ids in a sample")
    parser.add_argument("--dim", type=int, default=16, help="floats in a row")
    parser.add_argument("--rows", type=int, default=1_000_000, help="keys in each table")
    parser.add_argument("--zipf", type=float, default=1.2, help="exponent of the ids")
    parser.add_argument("--steps", type=int, default=1000, help="counted steps of each table")
    parser.add_argument("--delta-every", type=int, default=50, help="steps between two deltas")
    parser.add_argument("--batches", type=int, default=64, help="different batches")
    parser.add_argument(
        "--host-rows",
        type=int,
        default=0,
        help="rows of each table in host memory, others on an SSD; default: all",
    )
    parser.add_argument(
        "--max-idle-steps",
        type=int,
        default=-1,
        help="steps after which a row that no batch has is evicted; default: never",
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="digest_cost.") as directory:
        measure(args, Path(directory))


def measure(args: argparse.Namespace, directory: Path) -> None:
    """Run the measurement; print and save the figures."""
    rng = np.random.default_rng(args.seed)
    shape = (args.batch, args.fields)
    zipf = bench_common.Zipf(args.rows, args.zipf, rng)
    offsets = (np.arange(args.fields) * (args.rows // args.fields)).astype(np.int64)
    batches = [
        bench_common.spread_keys((zipf.draw(shape) + offsets) % args.rows)
        for _ in range(args.batches)
    ]
    grad = rng.standard_normal((*shape, args.dim)).astype(np.float32)
    tables = {
        name: new_table(f"digest_cost.{name}", args, directory) for name in ("plain", "digest")
    }
    marks = {name: table.mark() for name, table in tables.items()}
    begin = time.process_time()
    tables["digest"].keep_digest()
    first = time.process_time() - begin

    def step(name: str, i: int) -> float:
        table, begin = tables[name], time.process_time()
        table.set_clock(i + 1, 0)
        _, ticket = table.lookup_train(batches[i % len(batches)])
        table.accumulate(ticket, grad)
        table.apply(1e-3)
        return time.process_time() - begin

    def delta(name: str, i: int) -> float:
        table, begin = tables[name], time.process_time()
        rows = table.export_since(marks[name], True, False)
        marks[name] = table.mark()
        table.kept_digest()
        table.release_before(marks[name])
        copied.append(len(rows["keys"]))
        return time.process_time() - begin

    copied: list[int] = []
    spent: dict[Any, dict[str, list[float]]] = {
        run: {name: [] for name in tables} for run in (step, delta)
    }
    for i in range(args.steps + args.delta_every):
        for run in (step, delta) if (i + 1) % args.delta_every == 0 else (step,):
            for name in sorted(tables, reverse=bool(rng.integers(2))):
                seconds = run(name, i)
                if i >= args.delta_every:
                    spent[run][name].append(seconds)
    whole = int(tables["digest"].digest()[1][0])
    assert tables["digest"].kept_digest() == whole == int(tables["plain"].digest()[1][0])
    every = args.delta_every
    plain = {run: float(np.median(spent[run]["plain"])) for run in spent}
    more = {
        run: float(np.median(np.subtract(pairs["digest"], pairs["plain"])))
        for run, pairs in spent.items()
    }
    by_step = more[step] + more[delta] / every
    figures = {
        "distinct": round(float(np.mean([len(np.unique(batch)) for batch in batches]))),
        "dim": args.dim,
        "rows": args.rows,
        "host_rows": args.host_rows or args.rows,
        "max_idle_steps": args.max_idle_steps,
        "delta_every": args.delta_every,
        "rows_of_a_delta": copied[-1],
        "step_cpu_ms": plain[step] * 1e3,
        "delta_cpu_ms": plain[delta] * 1e3,
        "more_in_a_step_ms": more[step] * 1e3,
        "more_in_a_delta_ms": more[delta] * 1e3,
        "more_percent_of_steps": by_step * 100 / plain[step],
        "more_percent_of_steps_and_deltas": by_step * 100 / (plain[step] + plain[delta] / every),
        "first_digest_cpu_ms": first * 1e3,
    }
    for name, value in figures.items():
        print(f"{name:24s} {f'{value:,.3f}' if isinstance(value, float) else f'{value:,}'}")
    bench_common.save(args.json, figures)
    for table in tables.values():
        table.close()


if __name__ == "__main__":
    main()
