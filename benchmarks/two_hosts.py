# SPDX-License-Identifier: Apache-2.0
"""Training on two hosts over a link of 10 or 1 Gbit/s, compared with two workers on one host.

    PYTHONPATH=. python benchmarks/two_hosts.py --json OUT

The hosts are network namespaces of this machine (`network_hosts.py`). The hosts have no shared
memory, and use TCP over a link whose speed `tc` limits. The runs alternate: first on one host, then
on two hosts with each speed of the link. For two hosts, the step's time minus the computing time is
compared with the least possible transfer time. The least possible transfer time is the number of
sent bytes divided by the link's data rate. The computing time is measured with both workers on one
host. The computing time is the time of a step minus the time of an exchange. In this exchange, both
workers begin at the same time, and send as many bytes as in a step. The output also tells if the
losses of all runs are equal bit for bit. The link has no added delay, since a delay would need
netem.
"""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")

import sys
from contextlib import ExitStack
from typing import Any

import bench_common
import numpy as np
from hybrid_nets import add_options
from hybrid_processes import Processes, launched
from network_hosts import WIRE_SHARE, Hosts, missing

_WARMUP = 4
ONE_HOST = "one host"


def measure(model: str, args: Any) -> dict[str, Any]:
    """Return the results of one network."""
    cores = sorted(os.sched_getaffinity(0))
    settings = (model, args.batch, args.rows, args.seed)
    with ExitStack() as stack:
        hosts = stack.enter_context(Hosts((cores[0], cores[-1])))
        hosts.set_rate(10)
        far = stack.enter_context(Processes("two hosts", hosts.launched(), settings, 2))
        near = stack.enter_context(Processes("one host", launched(2, 1), settings, 2))
        ways: dict[str, Processes] = {ONE_HOST: near}
        ways |= {f"{gbit:g} Gbit/s": far for gbit in args.gbit}
        speeds = {f"{gbit:g} Gbit/s": gbit for gbit in args.gbit}
        losses: dict[Processes, list[list[float]]] = {near: [], far: []}
        runs: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in ways}
        for round_ in range(args.rounds + 1):
            for name, processes in ways.items():
                if name in speeds:
                    hosts.set_rate(speeds[name])
                processes.tell("run", args.steps if round_ else _WARMUP)
                answers = processes.answers()
                losses[processes].append([x for each in answers for x in each["losses"]])
                if round_:
                    runs[name].append(answers)
        part = int(np.median([r["bytes"] for answers in runs[ONE_HOST] for r in answers]) / 5)
        near.tell("move", [part] * 5, 10)
        moving = float(np.median(np.max(near.answers(), axis=0)))
        steps = {name: step_seconds(each) for name, each in runs.items()}
        compute = float(np.median(steps[ONE_HOST])) - moving
        figures = {
            "samples_per_s": {
                name: round(2 * args.batch / float(np.median(each))) for name, each in steps.items()
            },
            "compute_ms": round(1e3 * compute, 2),
            "bytes_sent": 5 * part,
            "same_losses": same(losses[near], losses[far]),
            "hosts": [each["host"] for each in far.about],
        }
        for name, gbit in speeds.items():
            exchange = float(np.median(steps[name] - steps[ONE_HOST])) + moving
            predicted = 5 * part * 8 / (gbit * 1e9 * WIRE_SHARE)
            figures[name] = {
                "step_ms": round(1e3 * float(np.median(steps[name])), 2),
                "measured_ms": round(1e3 * exchange, 2),
                "predicted_ms": round(1e3 * predicted, 2),
                "measured_by_predicted": round(exchange / predicted, 3),
            }
        return figures


def step_seconds(runs: list[list[dict[str, Any]]]) -> np.ndarray:
    """Return the slower worker's median seconds per step, for each run."""
    each = [np.max([answer["seconds"] for answer in answers], axis=0) for answers in runs]
    return np.array([float(np.median(steps)) for steps in each])


def same(near: list[list[float]], far: list[list[float]]) -> bool:
    """Return True if two series of runs have bit-identical losses in their common steps.

    The list of a run contains the losses of worker 0, followed by the losses of worker 1.
    """

    def by_worker(runs: list[list[float]]) -> list[list[float]]:
        halves = [(run[: len(run) // 2], run[len(run) // 2 :]) for run in runs]
        return [[x for half in halves for x in half[w]] for w in (0, 1)]

    return all(
        a[: min(len(a), len(b))] == b[: min(len(a), len(b))]
        for a, b in zip(by_worker(near), by_worker(far), strict=True)
    )


def show(model: str, found: dict[str, Any], gbits: list[float]) -> None:
    """Print the results of one network."""
    words = "equal bits" if found["same_losses"] else "DIFFERENT bits"
    print(f"\n{model}: {found['bytes_sent']:,} bytes a step and worker, losses of {words}\n")
    print(f"one host: {found['samples_per_s'][ONE_HOST]:,} samples/s\n")
    print("| link | samples/s | step, ms | beyond computing, ms | bytes / bandwidth, ms | ratio |")
    print("|---|---|---|---|---|---|")
    for gbit in gbits:
        name = f"{gbit:g} Gbit/s"
        each = found[name]
        print(
            f"| {name} | {found['samples_per_s'][name]:,} | {each['step_ms']} | "
            f"{each['measured_ms']} | {each['predicted_ms']} | {each['measured_by_predicted']} |",
            flush=True,
        )


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__ or "")
    add_options(parser, ["wide_deep", "wide_deep_128"])
    parser.add_argument("--gbit", type=float, nargs="+", default=[10.0, 1.0], help="of the link")
    args = parser.parse_args()
    why = missing()
    if why:
        sys.exit(f"there can be no two hosts here: {why}")
    results = {}
    for model in args.models:
        results[model] = measure(model, args)
        show(model, results[model], args.gbit)
    bench_common.save(args.json, {"models": results})


if __name__ == "__main__":
    main()
