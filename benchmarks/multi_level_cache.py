# SPDX-License-Identifier: Apache-2.0
"""Training a table with tiers (device, SSD, Redis), compared with a table in host memory.

The network is Wide & Deep over one table of dim 16, and the optimizer is LazyAdam. The table in
memory and a table with tiers train in alternating blocks of steps, so that drift of the machine's
speed affects both tables equally. The table with tiers trains once with and once without prefetch.
All tables start with the same rows. As after a long run, the tiers are full, and the highest tier
has the most frequent keys.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import shutil
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("GLOG_v", "3")

import bench_common
import mindspore as ms
import numpy as np
import ssd_tier  # type: ignore[import-not-found]
from cache_redis import running_redis  # type: ignore[import-not-found]
from mindspore import Tensor, nn, ops
from mindspore.train import Callback, RunContext
from tqdm import tqdm

import mindspore_rec as mr
from mindspore_rec.nn import MLP

DIM = 16
DENSE = 13
HIDDEN = [1024, 512, 256]
CHUNK = 500_000  # rows filled at a time
CLOCK = 1000  # the filled rows' last steps are spread over this number of steps
# Number of uncounted steps at the start of a block. In the uncounted steps, the key columns are not
# known yet, so there is no prefetch.
SKIPPED = 3
MODES = ("prefetch", "no_prefetch")
# Suffixes of the names of counters in stats(); each name begins with a tier.
COUNTED = (
    "_hits", "_misses", "_written_rows", "_down_rows", "_spilled_rows", "_swapped_rows",
    "_read_bytes", "_written_bytes", "_wait_seconds", "_op_seconds",
)  # fmt: skip


class Setup(NamedTuple):
    """Tiers to measure.

    Attributes:
        text: description for people.
        zipf: exponent of the ids' Zipf distribution.
        device, host: capacities of these two tiers, as shares of the rows. If `device` is 0, there
            is no device tier.
        lower: 'ssd' or 'redis'.
        target: minimum samples/s, as a fraction of the speed of the table in memory; for the setup
            'disk', as a fraction of the disk's limit.
    """

    text: str
    zipf: float
    device: float
    host: float
    lower: str
    target: float


SETUPS = {
    "ssd": Setup("host 10 % + SSD", 1.2, 0.0, 0.1, "ssd", 0.8),
    "redis": Setup("host 10 % + Redis", 1.2, 0.0, 0.1, "redis", 0.7),
    "device": Setup("device 5 % + host 20 % + SSD", 1.2, 0.05, 0.2, "ssd", 0.6),
    "disk": Setup("host 10 % + SSD, the disk is the limit", 1.05, 0.0, 0.1, "ssd", 0.8),
}


class WideDeep(nn.Cell):
    """An MLP over rows and dense columns, plus a linear function of the dense columns."""

    def __init__(self, embedding: nn.Cell, fields: int) -> None:
        super().__init__()
        self.embedding = embedding
        self.deep = MLP(fields * DIM + DENSE, HIDDEN, out_features=1)
        self.wide = nn.Dense(DENSE, 1)
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, ids: Tensor, dense: Tensor, label: Tensor) -> Tensor:
        """ids [B, F], dense [B, N], label [B, 1] -> loss."""
        rows = self.embedding(ids).reshape((ids.shape[0], -1))
        return self.loss(self.deep(ops.concat((rows, dense), 1)) + self.wide(dense), label)


class StepEnds(Callback):
    """Callback that records the end time of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Record the time."""
        self.times.append(time.perf_counter())


class Subject:
    """A table filled with rows, and a model that trains the table.

    Args:
        name: name of the table.
        options: parsed options of the command line.
        exponent: exponent of the ids' Zipf distribution.
        cache: configuration of the table's tiers, or None for a table in memory alone.
        dtype: type of values and of Adam's moments. Default: 'float32'.
    """

    def __init__(
        self,
        name: str,
        options: argparse.Namespace,
        exponent: float,
        cache: mr.CacheConfig | None = None,
        dtype: str = "float32",
    ) -> None:
        kept = getattr(ms, dtype)
        config = mr.TableConfig(DIM, name=name, cache=cache, value_dtype=kept, state_dtype=kept)
        self.lookup = mr.HashEmbeddingLookup(config=config)
        self.table = self.lookup.embedding_table
        net = WideDeep(self.lookup, options.fields)
        optimizer = mr.LazyAdam(net.trainable_params(), learning_rate=1e-3)
        self.model = mr.RecModel(net, None, optimizer)
        self.batch = options.batch
        self._fill(options.rows, name, exponent)

    def _fill(self, rows: int, name: str, exponent: float) -> None:
        """Fill the table with rows of the ranks 0 .. rows - 1, as if some steps had trained them.

        The more frequent a key is, the later is the last step of its row. A key's count is the
        number of times that the key is expected to occur in these steps.
        """
        rng = np.random.default_rng(7)
        seen = CLOCK * 100_000 / np.sum(np.arange(1, rows + 1, dtype=np.float64) ** -exponent)
        values = rng.normal(0, 0.01, (min(CHUNK, rows), DIM)).astype(np.float32)
        starts = range(0, rows, CHUNK)
        for start in tqdm(starts[::-1], desc=f"fill {name}", leave=False, disable=None):
            ranks = np.arange(start, min(start + CHUNK, rows))
            steps = (CLOCK * (rows - 1 - ranks) // rows).astype(np.uint32)
            keys = bench_common.spread_keys(ranks)
            counts = np.clip(seen * (ranks + 1.0) ** -exponent, 1, 1 << 29).astype(np.uint32)
            self.table.import_rows(keys, values[: len(keys)], counts=counts, last_steps=steps)
        self.table.set_clock(CLOCK, 0)

    def run(self, batches: list[Any]) -> float:
        """Return the samples per second, without the first and the last steps.

        The first steps fill the pipeline. In the last steps, all rows have already been prefetched.
        """
        ends = StepEnds()
        self.model.train(1, batches, ends, progress=False)
        times = ends.times[SKIPPED : len(ends.times) - 2]
        return self.batch * (len(times) - 1) / (times[-1] - times[0])

    def close(self) -> None:
        """Close the table."""
        self.table.close()

    def counters(self) -> dict[str, Any]:
        """Return stats() and the seconds spent in the table's operators."""
        times = self.table.op_times().items()
        return {
            **self.table.stats(),
            **{f"{name}_op_seconds": spent / 1e9 for name, (_, spent) in times},
        }


class Batches:
    """Batches of newly drawn ids. All batches are drawn before the measurement begins."""

    def __init__(self, options: argparse.Namespace, exponent: float) -> None:
        self._rng = np.random.default_rng(options.seed)
        self._zipf = bench_common.Zipf(options.rows, exponent, self._rng)
        self._shape = (options.batch, options.fields)
        self._dense = self._rng.random((options.batch, DENSE)).astype(np.float32)
        self._label = (self._rng.random((options.batch, 1)) < 0.3).astype(np.float32)

    def take(self, count: int) -> list[Any]:
        """Return the next `count` batches."""
        return [
            (bench_common.spread_keys(self._zipf.draw(self._shape)), self._dense, self._label)
            for _ in range(count)
        ]

    def blocks(self, count: int, steps: int) -> list[list[Any]]:
        """Return `count` blocks of `steps` batches each."""
        shown = tqdm(range(count), desc="draw", leave=False, disable=None)
        return [self.take(steps) for _ in shown]

    def distinct(self) -> int:
        """Return the number of distinct keys in one new batch."""
        return len(np.unique(self._zipf.draw(self._shape)))


def difference(before: dict[str, Any], after: dict[str, Any], steps: int) -> dict[str, float]:
    """Return the tiers' mean work per step, from the results of stats() before and after the
    steps."""
    return {
        key: (after[key] - before.get(key, 0)) / steps
        for key in after
        if key.endswith(COUNTED) or key in ("looked_up_keys", "prefetched_rows")
    }


def measure(
    subjects: dict[str, Subject], batches: Batches, options: argparse.Namespace, progress: str
) -> dict[str, Any]:
    """Measure blocks of steps in turn: memory alone, tiers with prefetch, tiers without prefetch.

    No table trains on a batch twice, because a repeated batch's rows would already be in host
    memory.
    """
    tiers = subjects["tiers"]
    figures: dict[str, Any] = {mode: {"steps": []} for mode in MODES}
    speed: dict[str, list[float]] = {kind: [] for kind in ("memory", *MODES)}
    cache = tiers.table.cache
    assert cache is not None
    blocks = iter(batches.blocks(2 * (1 + options.rounds), options.steps))
    print(f"{progress}: measuring", flush=True)
    for i in tqdm(range(1 + options.rounds), desc=progress, leave=False, disable=None):
        drawn = {mode: next(blocks) for mode in MODES}
        memory_before = subjects["memory"].counters()
        taken = {"memory": subjects["memory"].run(drawn["prefetch"])}
        memory_done = difference(memory_before, subjects["memory"].counters(), options.steps)
        for mode in MODES:
            # Only RecModel reads `cache.prefetch`, and only at the start of a training.
            prefetch = cache.prefetch if mode == "prefetch" else 0
            tiers.table.cache = dataclasses.replace(cache, prefetch=prefetch)
            before = tiers.counters()
            taken[mode] = tiers.run(drawn[mode])
            if i > 0:
                done = difference(before, tiers.counters(), options.steps)
                figures[mode]["steps"].append(done)
        if i > 0:  # the first round compiles
            for kind, value in taken.items():
                speed[kind].append(value)
    tiers.table.cache = cache
    figures["memory_samples_per_s"] = float(np.median(speed["memory"]))
    figures["memory_a_step"] = memory_done
    figures["rounds"] = speed
    for mode in MODES:
        ratios = np.array(speed[mode]) / np.array(speed["memory"])
        each = figures[mode].pop("steps")
        figures[mode]["samples_per_s"] = float(np.median(speed[mode]))
        figures[mode]["of_memory"] = float(np.median(ratios))
        figures[mode]["a_step"] = {
            key: float(np.mean([step[key] for step in each])) for key in each[0]
        }
    figures["stats"] = {
        key: value for key, value in tiers.table.stats().items() if isinstance(value, (int, float))
    }
    return figures


def disk_limit(
    figures: dict[str, Any], options: argparse.Namespace, fio: list[ssd_tier.Disk]
) -> None:
    """Compute the highest speed that the disk allows for the read rows, and add it to `figures`.

    A step takes at least as long as its reads from the disk. A step that keeps all CPUs busy also
    takes at least the time of a step in memory, plus the kernel's CPU time for the reads.
    """
    if not fio:
        return
    disk = max(fio)
    figures["fio_reads_per_second"], figures["fio_cpu_us"] = disk
    in_memory = options.batch / figures["memory_samples_per_s"]
    for mode in MODES:
        rows = figures[mode]["a_step"]["ssd_hits"]
        reading = rows / disk.reads_per_second
        computing = in_memory + rows * disk.cpu_us / 1e6 / max(1, len(os.sched_getaffinity(0)))
        for what, seconds in (("disk", max(reading, in_memory)), ("cpu", computing)):
            figures[mode][f"{what}_allows_samples_per_s"] = options.batch / seconds
        speed = figures[mode]["samples_per_s"]
        figures[mode]["of_disk"] = speed * max(reading, in_memory) / options.batch
        figures[mode]["of_disk_and_cpu"] = speed * max(reading, computing) / options.batch


@contextlib.contextmanager
def lower_tier(setup: Setup, directory: Path) -> Iterator[dict[str, Any]]:
    """Yield CacheConfig's arguments for a lower tier, which exists until the `with` block ends."""
    if setup.lower == "redis":
        with running_redis(directory / "redis") as url:
            yield {"remote": url}
    else:
        yield {"ssd": mr.SsdConfig(directory / "ssd"), "leftover": "discard"}
        shutil.rmtree(directory / "ssd", ignore_errors=True)


def row_bytes(dtype: str) -> int:
    """Return the bytes of a row: metadata, value and two moments."""
    return 20 + 3 * DIM * (4 if dtype == "float32" else 2)


def run_setup(
    name: str,
    setup: Setup,
    memory: Subject,
    options: argparse.Namespace,
    directory: Path,
    dtype: str,
) -> dict[str, Any]:
    """Measure one set of tiers with one type of rows, and return the results.

    The host tier has the same size in bytes for every type of row. In float32, the host tier holds
    the setup's share of the rows.
    """
    share = setup.host * row_bytes("float32") / row_bytes(dtype)
    fio: list[ssd_tier.Disk] = []

    def ask_disk() -> None:
        if setup.lower == "ssd" and options.fio_seconds:
            size = max(64 << 20, options.rows * 228 // 4096 * 4096)
            disk = ssd_tier.ask_fio(directory, options.fio_seconds, size)
            fio.extend([] if disk is None else [disk])

    exponent = setup.zipf if options.zipf is None else options.zipf
    batches = Batches(options, exponent)
    # A small table's tiers must not hold fewer rows than the prefetched batches contain.
    least = 2 * batches.distinct() * (1 + options.prefetch)
    with lower_tier(setup, directory) as below:
        cache = mr.CacheConfig(
            device_rows=max(int(setup.device * options.rows), least) if setup.device else None,
            host_rows=max(int(share * options.rows), least),
            policy=options.policy,
            prefetch=options.prefetch,
            **below,
        )
        start = time.perf_counter()
        tiers = Subject(f"cache.{name}.{dtype}", options, exponent, cache, dtype)
        filled = time.perf_counter() - start
        try:
            ask_disk()
            figures = measure({"memory": memory, "tiers": tiers}, batches, options, name)
            ask_disk()  # again, because a shared disk's speed changes
        finally:
            tiers.close()
    disk_limit(figures, options, fio)
    limits = {"device_rows": cache.device_rows, "host_rows": cache.host_rows}
    return {**setup._asdict(), "zipf": exponent, **limits, "fill_seconds": filled, **figures}


def show(name: str, figures: dict[str, Any]) -> None:
    """Print the results of one set of tiers, in lines of at most 80 characters."""
    say(
        f"{figures['text']} (--only {name}), Zipf {figures['zipf']}: "
        f"in memory {figures['memory_samples_per_s']:,.0f} samples/s",
        after_empty_line=True,
    )
    if "fio_reads_per_second" in figures:
        say(
            f"the disk: {figures['fio_reads_per_second']:,.0f} reads/s, "
            f"{figures['fio_cpu_us']:.1f} us of a CPU each (fio, 4 KiB, QD64)",
            indent=2,
        )
    for mode in MODES:
        each, step = figures[mode], figures[mode]["a_step"]
        text = f"{mode.replace('_', ' '):<12}{each['samples_per_s']:>10,.0f} samples/s"
        text += f"  {each['of_memory']:.2f} of memory"
        if "of_disk" in each:
            text += f"  {each['of_disk']:.2f} of what the disk allows, "
            text += f"{each['of_disk_and_cpu']:.2f} with the CPU time of its reads"
        of_disk = name == "disk"
        if mode == "prefetch":
            text += f"  (target {figures['target']} of {'the disk' if of_disk else 'memory'})"
        say(text, indent=2)
        shown = [
            f"{key.replace('_', ' ')} {value:,.0f}"
            for key, value in step.items()
            if not key.endswith(("_seconds", "_bytes"))
        ]
        say(f"a step: {', '.join(shown)}", indent=4)
        waits = _milliseconds(step, "_wait_seconds")
        say(f"waited {', '.join(waits)}; {', '.join(_traffic(step))}", indent=4)
        inside = _milliseconds(step, "_op_seconds")
        memory = _milliseconds(figures["memory_a_step"], "_op_seconds")
        say(f"inside the table {', '.join(inside)} (in memory {', '.join(memory)})", indent=4)


def say(text: str, indent: int = 0, after_empty_line: bool = False) -> None:
    """Print a paragraph. All lines after the first line are indented by four more spaces."""
    if after_empty_line:
        print()
    print(
        textwrap.fill(text, 80, initial_indent=" " * indent, subsequent_indent=" " * (indent + 4))
    )


def _milliseconds(step: dict[str, float], end: str) -> list[str]:
    return [
        f"{1e3 * value:.1f} ms in {key.removesuffix(end)}"
        for key, value in step.items()
        if key.endswith(end)
    ]


def _traffic(step: dict[str, float]) -> list[str]:
    return [
        f"{key.removesuffix('_bytes').replace('_', ' ')} {value / 2**20:.2f} MiB"
        for key, value in step.items()
        if key.endswith("_bytes")
    ]


def main() -> None:
    """Run the command."""
    parser = bench_common.parser((__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000, help="of the table")
    parser.add_argument("--batch", type=int, default=4096, help="samples in a step")
    parser.add_argument("--fields", type=int, default=26, help="ids in a sample")
    parser.add_argument("--zipf", type=float, help="exponent of the ids, instead of each setup's")
    parser.add_argument("--steps", type=int, default=40, help="of a block, at least 8")
    parser.add_argument("--rounds", type=int, default=5, help="blocks of each kind that count")
    parser.add_argument("--prefetch", type=int, default=2, help="batches read ahead")
    parser.add_argument("--policy", choices=("lru", "lfu"), default="lru", help="of host memory")
    parser.add_argument("--ssd-path", type=Path, help="a directory on the disk to measure")
    parser.add_argument("--fio-seconds", type=int, default=5, help="0: no fio")
    parser.add_argument("--only", action="append", choices=SETUPS, help="these tiers; repeat it")
    parser.add_argument(
        "--value-dtype",
        nargs="+",
        choices=("float32", "bfloat16"),
        default=["float32"],
        help="of rows and moments below memory: each setup once with each, in the same host bytes",
    )
    options = parser.parse_args()
    if options.steps < SKIPPED + 5:
        parser.error(f"--steps must be at least {SKIPPED + 5}, got {options.steps}")
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    where = options.ssd_path or Path(".")
    where.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="multi_level_cache.", dir=where))
    results = {}
    try:
        memory = Subject("cache.memory", options, 1.2)
        for name in options.only or SETUPS:
            for dtype in options.value_dtype:
                title = name if dtype == "float32" else f"{name} {dtype}"
                results[title] = run_setup(name, SETUPS[name], memory, options, directory, dtype)
                print(f"\nrows of {dtype}:")
                show(name, results[title])
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    bench_common.save(
        options.json,
        {
            "rows": options.rows,
            "batch": options.batch,
            "dim": DIM,
            "policy": options.policy,
            "setups": results,
        },
    )


if __name__ == "__main__":
    main()
