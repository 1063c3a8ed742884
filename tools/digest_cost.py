# SPDX-License-Identifier: Apache-2.0
"""The cost of keeping a table's digest while it is trained, beside the same table without it.

    PYTHONPATH=.:benchmarks python tools/digest_cost.py --rows 1000000 --steps 100 --delta-every 50

It is no benchmark, which use public names only.

The step is that of `embedding_step.py` without the graph: look up batch x fields ids, accumulate
their gradients, one step of Adam. Two equal tables take it in turns, in an order that changes, and
both record changes and begin an epoch every so many steps, as a delta does; one of them keeps its
digest. Counted are the processor's seconds of all threads, which other programs on the machine
change less than the time that passes, and the pairs are compared one by one.
"""

from __future__ import annotations

import argparse
import time

import bench_common
import numpy as np

from mindspore_rec import _native


def new_table(name: str, args: argparse.Namespace) -> _native.Table:
    """Return a table with all rows."""
    table = _native.Table(name=name, dim=args.dim)
    table.bind_optimizer("adam")
    for start in range(0, args.rows, 500_000):
        numbers = np.arange(start, min(start + 500_000, args.rows))
        keys = bench_common.spread_keys(numbers)
        table.put(keys, np.zeros((len(keys), args.dim), np.float32))
    return table


def trimmed(spent: np.ndarray) -> float:
    """Return the mean without the tenth at either end, where other programs interfered."""
    cut = len(spent) // 10
    return float(np.sort(spent)[cut : len(spent) - cut].mean())


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__ or "")
    parser.add_argument("--batch", type=int, default=4096, help="samples in a step")
    parser.add_argument("--fields", type=int, default=39, help="ids in a sample")
    parser.add_argument("--dim", type=int, default=16, help="floats in a row")
    parser.add_argument("--rows", type=int, default=4_000_000, help="keys in each table")
    parser.add_argument("--zipf", type=float, default=1.2, help="exponent of the ids")
    parser.add_argument("--steps", type=int, default=200, help="counted steps of each table")
    parser.add_argument("--delta-every", type=int, default=100, help="steps between two deltas")
    parser.add_argument("--batches", type=int, default=64, help="different batches")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    shape = (args.batch, args.fields)
    zipf = bench_common.Zipf(args.rows, args.zipf, rng)
    offsets = (np.arange(args.fields) * (args.rows // args.fields)).astype(np.int64)
    batches = [
        bench_common.spread_keys((zipf.draw(shape) + offsets) % args.rows)
        for _ in range(args.batches)
    ]
    grad = rng.standard_normal((*shape, args.dim)).astype(np.float32)
    tables = {name: new_table(f"digest_cost.{name}", args) for name in ("plain", "digest")}
    for table in tables.values():
        table.mark()
    begin = time.process_time()
    assert tables["digest"].keep_digest()
    first = time.process_time() - begin

    def step(table: _native.Table, i: int) -> float:
        begin = time.process_time()
        _, ticket = table.lookup_train(batches[i % len(batches)])
        table.accumulate(ticket, grad)
        table.apply(1e-3)
        if (i + 1) % args.delta_every == 0:
            table.release_before(table.mark())
            table.kept_digest()
        return time.process_time() - begin

    spent: dict[str, list[float]] = {name: [] for name in tables}
    for i in range(args.steps + args.delta_every):
        for name in sorted(tables, reverse=bool(rng.integers(2))):
            seconds = step(tables[name], i)
            if i >= args.delta_every:
                spent[name].append(seconds)
    plain, digest = (np.array(spent[name]) for name in ("plain", "digest"))
    whole = int(tables["digest"].digest()[1][0])
    assert tables["digest"].kept_digest() == whole == int(tables["plain"].digest()[1][0])
    more = digest - plain
    at_delta = (np.arange(len(more)) + 1) % args.delta_every == 0
    trained, saved = trimmed(more[~at_delta]), trimmed(more[at_delta]) / args.delta_every
    figures = {
        "distinct": round(float(np.mean([len(np.unique(batch)) for batch in batches]))),
        "dim": args.dim,
        "rows": args.rows,
        "delta_every": args.delta_every,
        "step_cpu_ms": trimmed(plain) * 1e3,
        "more_in_steps_ms": trained * 1e3,
        "more_in_deltas_by_step_ms": saved * 1e3,
        "more_percent": (trained + saved) / trimmed(plain) * 100,
        "first_digest_cpu_ms": first * 1e3,
    }
    for name, value in figures.items():
        print(f"{name:24s} {f'{value:,.3f}' if isinstance(value, float) else f'{value:,}'}")
    bench_common.save(args.json, figures)
    for table in tables.values():
        table.close()


if __name__ == "__main__":
    main()
