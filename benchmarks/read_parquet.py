# SPDX-License-Identifier: Apache-2.0
"""Rows per second of `mindspore_rec.data` compared with pyarrow's scan of the same Parquet file.

    python benchmarks/read_parquet.py --rows 2000000 --json OUT
    python benchmarks/read_parquet.py --bytes 10e9

Rows in Criteo's form (26 ids, 13 numbers, a label) are written to a temporary directory and read in
batches of 4096 rows. In each round, every reader reads all rows once. `--threads` sets the number
of threads in pyarrow and `Rows.batches`, and the number of processes in the DataLoader. The first
reader is pyarrow's scan of a data set, once with Arrow's memory pool and once with malloc's pool,
which `Rows` uses. The second reader is `Rows.batches`, in order and shuffled. The third reader is
PyTorch's DataLoader over pyarrow's batches, if torch is installed. The fourth reader is for the
packed format of `datasets.common`. The last reader is `Rows.batches` with the feature stage; the
script prints each array's share of the stage's time. The first round loads the files into the
system's page cache, and is not counted. The speed of a shared machine changes between rounds, so
the CPU time of a reader is reported too.

With `--bytes N`, the script also reads a large file whose values have N bytes in all. Parquet's
dictionaries and run lengths keep the file small on disk. The script compares the memory of the
process in the first and the last fifth of the pass.

The exit code is 1 if `Rows.batches` is slower than 0.9 (in order) or 0.7 (shuffled) times pyarrow's
scan.
"""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import argparse
import importlib.util
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bench_common
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from datasets.common import batches as packed_batches
from datasets.common.packed import write_packed
from mindspore_rec.data import read
from mindspore_rec.feature import CategoryColumn, LabelColumn, NumberColumn, Schema

BATCH = 4096
GROUP = 1 << 17
FIELDS, NUMBERS = 26, 13
LEAST = {"in order": 0.9, "shuffled": 0.7}  # share of pyarrow's speed
IDS = [f"c{i}" for i in range(FIELDS)]
FLOATS = [f"n{i}" for i in range(NUMBERS)]


def tables(rows: int, seed: int) -> Iterator[pa.Table]:
    """Yield random rows in Criteo's form, a row group at a time."""
    rng = np.random.default_rng(seed)
    for at in range(0, rows, GROUP):
        size = min(GROUP, rows - at)
        columns: dict[str, Any] = {name: rng.zipf(1.2, size) % 100_000 for name in IDS}
        columns |= {name: rng.random(size, np.float32) for name in FLOATS}
        columns["label"] = rng.integers(0, 2, size)
        yield pa.table(columns)


def write(path: Path, made: Iterator[pa.Table]) -> None:
    """Write tables to a Parquet file, each as a row group."""
    writer = None
    for table in made:
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=GROUP)
    if writer is not None:
        writer.close()


def blocks(rows: int, seed: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield the rows of `tables` as blocks of the packed format."""
    for table in tables(rows, seed):
        for at in range(0, table.num_rows, BATCH):
            part = table.slice(at, BATCH)
            yield {
                "ids": np.stack([part[name].to_numpy() for name in IDS], 1),
                "dense": np.stack([part[name].to_numpy() for name in FLOATS], 1),
                "label": part["label"].to_numpy()[:, None].astype(np.float32),
            }


class FeatureStage:
    """Feature stage that processes a reader's batches and sums the seconds spent on each array."""

    def __init__(self, path: Path, threads: int) -> None:
        columns = [CategoryColumn(name) for name in IDS]
        numbers = [NumberColumn(name, transform="log", buckets=0) for name in FLOATS]
        self.schema = Schema([*columns, *numbers, LabelColumn("label")])
        self._rows = read(path)
        self._threads = threads
        self.schema.fit(self._rows.head(BATCH))
        self.seconds = dict.fromkeys(self.schema.arrays, 0.0)

    def __call__(self) -> int:
        """Read all rows, and return their number."""
        count = 0
        for batch in self._rows.batches(BATCH, threads=self._threads):
            rows = pa.RecordBatch.from_pydict(batch)
            for name in self.schema.arrays:
                begin = time.perf_counter()
                self.schema.pipeline.apply(rows, [name])
                self.seconds[name] += time.perf_counter() - begin
            count += rows.num_rows
        return count

    def shares(self) -> dict[str, float]:
        """Return, for each array, the share of the feature stage's time that computing the array
        took."""
        total = sum(self.seconds.values())
        return {name: round(spent / total, 3) for name, spent in self.seconds.items()}


def torch_loader(path: Path, threads: int) -> Callable[[], int] | None:
    """Return a function that reads with PyTorch's DataLoader, or None if torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    class Parts(IterableDataset):  # type: ignore[misc, unused-ignore]
        def __iter__(self) -> Iterator[dict[str, Any]]:
            info = get_worker_info()
            file = pq.ParquetFile(path)
            groups = range(file.num_row_groups)
            mine = list(groups if info is None else groups[info.id :: info.num_workers])
            for rows in file.iter_batches(BATCH, row_groups=mine, use_threads=False):
                yield {n: torch.from_numpy(rows[n].to_numpy().copy()) for n in rows.schema.names}

    def run() -> int:
        loader = DataLoader(Parts(), batch_size=None, num_workers=threads)
        return sum(len(batch["label"]) for batch in loader)

    return run


def readers(path: Path, packed: Path, threads: int) -> dict[str, Callable[[], int]]:
    """Return the readers, each as a function that returns the number of rows that it has read."""
    rows = read(path)

    def ours(shuffle: bool) -> int:
        made = rows.batches(BATCH, shuffle=shuffle, threads=threads)
        return sum(len(batch.columns[-1]) for batch in made.read())

    def scan() -> int:
        return sum(each.num_rows for each in ds.dataset(path).to_batches(batch_size=BATCH))

    def from_packed(shuffle: bool) -> int:
        return sum(len(each["label"]) for each in packed_batches(packed, BATCH, shuffle=shuffle))

    def scan_malloc() -> int:
        made = ds.dataset(path).to_batches(batch_size=BATCH, memory_pool=pa.system_memory_pool())
        return sum(each.num_rows for each in made)

    made: dict[str, Callable[[], int]] = {
        "pyarrow's scan": scan,
        "pyarrow's scan, memory of malloc": scan_malloc,
        "in order": lambda: ours(False),
        "shuffled": lambda: ours(True),
        "packed, in order": lambda: from_packed(False),
        "packed, shuffled": lambda: from_packed(True),
        "with features": FeatureStage(path, threads),
    }
    torch = torch_loader(path, threads)
    return {**made, "PyTorch's DataLoader": torch} if torch else made


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its ended child processes so far."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure(made: dict[str, Callable[[], int]], rows: int, rounds: int) -> dict[str, Any]:
    """Return rows/s and rows per second of CPU time of each reader, as medians over the rounds."""
    cpu: dict[str, list[float]] = {name: [] for name in made}

    def one(name: str) -> Callable[[int], float]:
        def run(number: int) -> float:
            begin, begin_cpu = time.perf_counter(), cpu_seconds()
            count = made[name]()
            cpu[name].append(cpu_seconds() - begin_cpu)
            if count != rows:
                raise RuntimeError(f"{name}: read {count} rows of {rows}")
            return time.perf_counter() - begin

        return run

    seconds = bench_common.alternate(
        {name: one(name) for name in made}, rounds, 1, "reading", mixed=True
    )
    scan = seconds["pyarrow's scan"]
    scan_cpu = cpu["pyarrow's scan"][1:]
    figures = {}
    for name, spent in seconds.items():
        used = cpu[name][1:]
        figures[name] = {
            "rows_per_second": round(rows / float(np.median(spent))),
            "of_scan": round(float(np.median(scan / spent)), 3),
            "rows_per_cpu_second": round(rows / statistics.median(used)),
            "of_scan_by_cpu": round(statistics.median(scan_cpu) / statistics.median(used), 3),
        }
    return figures


def resident() -> int:
    """Return the memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def memory(folder: Path, size: float, threads: int, shuffle: bool, seed: int) -> dict[str, Any]:
    """Return the peak memory in the first and in the last fifth of a pass over a large file."""
    rng = np.random.default_rng(seed)
    columns = 40
    runs = {f"c{n}": np.repeat(rng.integers(0, 1000, GROUP // 64), 64) for n in range(columns)}
    table = pa.table(runs)
    groups = max(int(size / table.nbytes), 1)
    path = folder / "large.parquet"
    if not path.exists():
        write(path, (table for _ in range(groups)))
    before = resident()
    seen: list[int] = []
    for batch in read(path).batches(BATCH, shuffle=shuffle, threads=threads).read():
        if batch.number is not None and batch.number % 16 == 0:
            seen.append(resident())
    fifth = max(len(seen) // 5, 1)
    return {
        "gigabytes_read": round(groups * table.nbytes / 1e9, 2),
        "gigabytes_on_disk": round(path.stat().st_size / 1e9, 3),
        "before_mib": before,
        "first_fifth_mib": max(seen[:fifth], default=before),
        "last_fifth_mib": max(seen[-fifth:], default=before),
    }


def main() -> int:
    """Run the command; return the exit code: 1 if `Rows.batches` is slower than `LEAST`."""
    parser = bench_common.parser(__doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rows", type=int, default=2_000_000, help="of the data (2000000)")
    parser.add_argument("--rounds", type=int, default=7, help="readings of each, after one (7)")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--threads", type=int, default=cores, help=f"of all readers ({cores})")
    parser.add_argument("--bytes", type=float, default=0, help="of values, to see memory (0: none)")
    options = parser.parse_args()
    if options.rows < 1 or options.rounds < 1 or options.threads < 1:
        parser.error("--rows, --rounds and --threads must be at least 1")
    pa.set_cpu_count(options.threads)
    print(bench_common.machine(), flush=True)
    figures: dict[str, Any] = {"rows": options.rows, "batch": BATCH, "threads": options.threads}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path = folder / "rows.parquet"
        write(path, tables(options.rows, options.seed))
        write_packed(blocks(options.rows, options.seed), folder / "packed", "parquet", BATCH)
        figures["megabytes"] = round(path.stat().st_size / 1e6, 1)
        made = readers(path, folder / "packed", options.threads)
        figures["readers"] = measure(made, options.rows, options.rounds)
        for name, each in figures["readers"].items():
            print(
                f"{name}: {each['rows_per_second']:,} rows/s, {each['of_scan']} of pyarrow's scan; "
                f"{each['rows_per_cpu_second']:,} rows per CPU second, {each['of_scan_by_cpu']}"
            )
        stage = made["with features"]
        assert isinstance(stage, FeatureStage)
        figures["feature_stage"] = stage.shares()
        print(f"share of each array in the time of the feature stage: {figures['feature_stage']}")
        if options.bytes:
            figures["memory"] = {}
            for way, shuffle in (("in order", False), ("shuffled", True)):
                seen = memory(folder, options.bytes, options.threads, shuffle, options.seed)
                figures["memory"][way] = seen
                print(f"memory, {way}: {seen}", flush=True)
    bench_common.save(options.json, figures)
    slow = [n for n, least in LEAST.items() if figures["readers"][n]["of_scan"] < least]
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
