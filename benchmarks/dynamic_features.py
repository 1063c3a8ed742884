# SPDX-License-Identifier: Apache-2.0
"""Time that admission and eviction add to a training step, and the longest pause of a sweep.

First part: a graph step (lookup, gradient, LazyAdam) runs in turn on two full tables, one with a
policy and one without. The two tables train on the same batches. Each step is measured in two ways:
the time of the whole graph step, and the time inside the table's operators. A share of the keys in
each batch is new. New keys are of the kind 'returning' or 'once' (see `dynamic_table.Stream`). With
'returning' keys, both tables insert the same number of rows even if the admission threshold is 2,
so the comparison is fair. The rows' ages and the policies' limits are chosen so that eviction by
age, norm or capacity removes about as many rows per step as are inserted.

Second part: in a table with more rows, nearly all rows become due for eviction at once. Every step
is timed until the sweep ends. The longest step is compared with the median of the steps before the
sweep.
"""

from __future__ import annotations

from typing import Any

import bench_common
import dynamic_sweep  # type: ignore[import-not-found]
import mindspore as ms
import numpy as np
from dynamic_table import (  # type: ignore[import-not-found]
    SWEEP_STEPS,
    TIME,
    Stream,
    Subject,
    choose,
)
from mindspore import Tensor
from tqdm import tqdm

from mindspore_rec import CountAdmission, Eviction, ProbabilityAdmission, SketchAdmission

WARMUP = 12


def policies(rows: int, leaving: int, min_norm: float, candidates: int) -> dict[str, Any]:
    """Return a dict of policies: name -> (admission, eviction, kind of stream).

    Args:
        rows: number of rows in the table.
        leaving: number of rows to evict per step.
        min_norm: the limit for eviction by norm.
        candidates: the maximum number of counters for the policy 'bounded_count'.
    """
    idle = rows // leaving
    by_steps = Eviction(max_idle_steps=idle)
    return {
        "none": (None, None, "returning"),
        "count": (CountAdmission(2), None, "returning"),
        "sketch": (SketchAdmission(2), None, "returning"),
        "probability": (ProbabilityAdmission(0.5), None, "returning"),
        "bounded_count": (CountAdmission(2, candidates), None, "returning"),
        "idle_steps": (None, by_steps, "returning"),
        "idle_seconds": (None, Eviction(max_idle_seconds=idle), "returning"),
        "lru": (None, Eviction(max_rows=rows), "returning"),
        "lfu": (None, Eviction(max_rows=rows, order="lfu"), "returning"),
        "lfu_decay": (
            None,
            Eviction(max_rows=rows, order="lfu_decay", half_life_steps=1000),
            "returning",
        ),
        "norm": (None, Eviction(min_norm=min_norm), "returning"),
        "count_idle_steps": (CountAdmission(2), by_steps, "returning"),
        "count_once": (CountAdmission(2), None, "once"),
        "sketch_once": (SketchAdmission(2), None, "once"),
        "bounded_count_once": (CountAdmission(2, candidates), None, "once"),
    }


def measure(name: str, chosen: Any, without: Subject, args: Any) -> dict[str, float]:
    """Measure a table with a policy and a table without a policy, in alternating steps."""
    admission, eviction, kind = chosen
    shape = (args.batch, args.fields)
    steps = WARMUP + args.rounds
    # Both tables (with and without a policy) have equally many free rows that were used before.
    first = args.rows + args.spare
    stream = Stream(shape, args.rows, args.zipf, args.new, kind, first, args.seed)
    idle = args.rows // max(stream.fresh, 1) + SWEEP_STEPS
    subject = Subject(f"dynamic_features.{name}", args.fields, args.dim, admission, eviction)
    subject.fill(args.rows, (0, idle), args.spare, args.seed)
    if name.startswith("bounded"):
        # Look up keys that no batch contains, so that all counters are in use before the first
        # step.
        bound = int(admission.max_candidates)
        subject.table.lookup_with_handles(bench_common.spread_keys(np.arange(bound) + (1 << 50)))
        subject.table.discard_gradients()
    timed = eviction is not None and eviction.max_idle_seconds > 0
    label = Tensor((np.random.default_rng(1).random(args.batch) < 0.3).astype(np.float32))
    batches = stream.tensors(steps)
    before: dict[str, float] = {}
    ours, theirs = [], []
    for i in tqdm(range(steps), desc=name, leave=False, disable=None):
        if i == WARMUP:
            before = subject.table.stats()
        for which in (0, 1) if i % 2 else (1, 0):
            if which:
                ours.append(subject.step(batches[i], label, TIME + i + 1 if timed else None))
            else:
                theirs.append(without.step(batches[i], label))
    after = subject.table.stats()
    # Erase the new rows, so that the measurement of the next policy starts with the same numbers of
    # used and free rows.
    without.table.erase_rows(bench_common.spread_keys(np.arange(first, stream.used)))
    subject.close()
    a, b = np.array(ours)[WARMUP:], np.array(theirs)[WARMUP:]
    figures = {
        "step_ms": float(np.median(a[:, 0])) * 1e3,
        "step_without_ms": float(np.median(b[:, 0])) * 1e3,
        "table_ms": float(np.median(a[:, 1])) * 1e3,
        "table_without_ms": float(np.median(b[:, 1])) * 1e3,
        "step_ratio": float(np.median(a[:, 0]) / np.median(b[:, 0])),
        "table_ratio": float(np.median(a[:, 1]) / np.median(b[:, 1])),
    }
    low, high = np.percentile(a[:, 1] / b[:, 1], [25, 75])
    figures["table_ratio_quartile_1"] = float(low)
    figures["table_ratio_quartile_3"] = float(high)
    for what in ("inserted", "rejected", "evicted"):
        figures[f"{what}_a_step"] = (after[what] - before[what]) / args.rounds
    return figures


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__ or "")
    parser.add_argument("--batch", type=int, default=4096, help="samples in a step")
    parser.add_argument("--fields", type=int, default=39, help="ids in a sample")
    parser.add_argument("--dim", type=int, default=16, help="floats in a row")
    parser.add_argument("--rows", type=int, default=4_000_000, help="keys in the table, first part")
    parser.add_argument("--zipf", type=float, default=1.2, help="exponent of the known ids")
    parser.add_argument("--new", type=float, default=0.03, help="share of new keys among the ids")
    parser.add_argument("--rounds", type=int, default=60, help="counted steps of each kind")
    parser.add_argument("--candidates", type=int, default=100_000, help="of the bounded counts")
    parser.add_argument("--policies", nargs="*", help="only these; default: all")
    parser.add_argument(
        "--sweep-rows", type=int, default=10_000_000, help="keys in the table, second part"
    )
    parser.add_argument("--sweeps", nargs="*", help="only these; default: all")
    args = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    # `spare` is the number of new keys in the steps of one policy. Each new key reuses a freed row.
    args.spare = (args.rounds + WARMUP + 1) * int(args.new * args.batch * args.fields)
    figures: dict[str, Any] = {
        name: getattr(args, name) for name in ("batch", "fields", "dim", "rows", "zipf", "new")
    }
    figures["policies"] = first_part(args)
    figures["sweep_rows"] = args.sweep_rows
    figures["sweeps"] = dynamic_sweep.run(args)
    bench_common.save(args.json, figures)


def first_part(args: Any) -> dict[str, dict[str, float]]:
    """Measure the chosen policies and print each result at once."""
    leaving = max(int(args.new * args.batch * args.fields) // 2, 1)
    names = policies(args.rows, leaving, 1.0, args.candidates)  # only the names are used
    wanted = choose(list(names), args.policies, "--policies")
    results: dict[str, dict[str, float]] = {}
    if not wanted:
        return results
    without = Subject("dynamic_features.without", args.fields, args.dim)
    without.fill(args.rows, (0, args.rows // leaving + SWEEP_STEPS), args.spare, args.seed)
    known = bench_common.spread_keys(np.arange(min(args.rows, 20_000)))
    norms = np.linalg.norm(without.table.read_rows(known), axis=1)
    # The sweep visits 1/256 of the rows per step, and evicts a fraction `share` of the visited
    # rows.
    share = min(leaving * SWEEP_STEPS / args.rows, 0.9)
    made = policies(args.rows, leaving, float(np.quantile(norms, share)), args.candidates)
    print(f"{'policy':20s} step   table ratio (ms)           inserted, rejected, evicted a step")
    for name in wanted:
        figures = results[name] = measure(name, made[name], without, args)
        print(
            f"{name:20s} {figures['step_ratio']:.3f}  {figures['table_ratio']:.3f} "
            f"({figures['table_ms']:.2f} / {figures['table_without_ms']:.2f})  "
            f"{figures['inserted_a_step']:8.0f} {figures['rejected_a_step']:8.0f} "
            f"{figures['evicted_a_step']:8.0f}",
            flush=True,
        )
    without.close()
    return results


if __name__ == "__main__":
    main()
