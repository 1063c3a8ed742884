# SPDX-License-Identifier: Apache-2.0
"""Measure the SSD tier alone: fill, reads, scans, overwrites with garbage collection, recovery.

For comparison, the benchmark measures the disk's limit (fio, 4 KiB random reads at queue depth 64,
O_DIRECT), and RocksDB (rocksdict, direct reads, 64 MiB of block cache) with the same rows, keys and
batches.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import bench_common
import numpy as np
from tqdm import tqdm

from mindspore_rec.ssd import SsdStore

FILL = 100_000  # rows at a time
WINDOW = 5  # parts of the overwriting, each of which has its own rate


class Measured(NamedTuple):
    """Rows per second, and microseconds of CPU (all threads, including the kernel) per row."""

    rows_per_second: float
    cpu_us_per_row: float


def cpu_seconds() -> float:
    """Return user and system time of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(batches: Iterator[np.ndarray], run: Callable[[np.ndarray], None]) -> Measured:
    """Run a function over all batches of keys; return rows per second and CPU time per row."""
    rows, wall, cpu = 0, 0.0, 0.0
    for keys in batches:
        start, start_cpu = time.perf_counter(), cpu_seconds()
        run(keys)
        wall += time.perf_counter() - start
        cpu += cpu_seconds() - start_cpu
        rows += len(keys)
    return Measured(rows / wall, cpu / rows * 1e6)


def draws(total: int, batch: int, count: int, seed: int, progress: str) -> Iterator[np.ndarray]:
    """Yield batches of up to `batch` distinct keys, drawn uniformly from the rows' keys."""
    rng = np.random.default_rng(seed)
    for _ in tqdm(range(count), desc=progress, leave=False, disable=None):
        numbers = np.unique(rng.integers(0, total, batch))
        rng.shuffle(numbers)
        yield bench_common.spread_keys(numbers)


def fills(total: int, progress: str) -> Iterator[np.ndarray]:
    """Yield batches of all keys, each key once."""
    for start in tqdm(range(0, total, FILL), desc=progress, leave=False, disable=None):
        yield bench_common.spread_keys(np.arange(start, min(start + FILL, total)))


def content(row_bytes: int, n: int, seed: int) -> np.ndarray:
    """Return rows that do not compress."""
    return np.random.default_rng(seed).integers(0, 256, (n, row_bytes), np.uint8)


class Disk(NamedTuple):
    """Result of fio with direct random reads of 4 KiB at queue depth 64.

    Attributes:
        reads_per_second: random reads per second of one process.
        cpu_us: microseconds of CPU time per read, spent by fio and the kernel together.
    """

    reads_per_second: float
    cpu_us: float


def ask_fio(directory: Path, seconds: int, size: int) -> Disk | None:
    """Measure a disk, or return None if fio is missing.

    Args:
        directory: directory on the disk to measure.
        seconds: duration.
        size: size in bytes of the file that fio reads.
    """
    if shutil.which("fio") is None:
        return None
    file = directory / "fio"
    command = [
        "fio", "--name=t", f"--filename={file}", f"--size={size}", "--direct=1",
        "--ioengine=io_uring", "--rw=randread", "--bs=4k", "--iodepth=64", "--time_based",
        f"--runtime={seconds}", "--output-format=json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    file.unlink(missing_ok=True)
    job = json.loads(done.stdout)["jobs"][0]
    reads = float(job["read"]["iops"])
    return Disk(reads, (job["usr_cpu"] + job["sys_cpu"]) * 1e4 / reads)


def scan(store: SsdStore, total: int) -> Measured:
    """Scan all rows once."""
    start, start_cpu = time.perf_counter(), cpu_seconds()
    rows = sum(len(keys) for keys, _ in store.scan(exact=True))
    wall, cpu = time.perf_counter() - start, cpu_seconds() - start_cpu
    if rows != total:
        raise RuntimeError(f"the scan gave {rows} rows of {total}")
    return Measured(rows / wall, cpu / rows * 1e6)


def ours(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Measure this library's SSD tier and return the results."""
    path = directory / "tier"
    rows = content(options.row_bytes, FILL, options.seed)
    direct = not options.buffered
    figures: dict[str, Any] = {}
    with SsdStore(path, options.row_bytes, direct=direct) as store:
        done = measure(
            fills(options.rows, "fill"), lambda keys: store.write(keys, rows[: len(keys)])
        )
        figures["fill_rows_per_second"] = done.rows_per_second
    start = time.perf_counter()
    store = SsdStore(path, direct=direct)
    figures["recovery_seconds"] = time.perf_counter() - start
    stats = store.stats()
    figures["index_bytes_per_row"] = stats["index_bytes"] / options.rows
    figures["io"] = stats["io"]

    def read(keys: np.ndarray) -> None:
        _, found = store.read(keys)
        if not found.all():
            raise RuntimeError("rows are missing")

    for _ in range(2):  # the first reads allocate the pages of the buffers
        read(bench_common.spread_keys(np.arange(options.batch) % options.rows))
    before = store.stats()["read_bytes"]
    done = measure(
        draws(options.rows, options.batch, options.reads, options.seed + 1, "read"), read
    )
    figures["read_rows_per_second"] = done.rows_per_second
    figures["read_cpu_us_per_row"] = done.cpu_us_per_row
    figures["read_bytes_per_row"] = (store.stats()["read_bytes"] - before) / (
        options.reads * options.batch
    )
    done = scan(store, options.rows)
    figures["scan_rows_per_second"] = done.rows_per_second
    figures["scan_cpu_us_per_row"] = done.cpu_us_per_row

    # Garbage collection begins only after the log has been overwritten once.
    turns = options.overwrites * options.rows // options.batch
    windows: list[Measured] = []
    amplification: list[float] = []
    collected = 0
    for i in range(WINDOW):
        if i == WINDOW - 1:
            collected = store.stats()["gc_bytes"]
        windows.append(
            measure(
                draws(
                    options.rows, options.batch, max(1, turns // WINDOW), options.seed + 2 + i,
                    f"overwrite {i + 1}/{WINDOW}",
                ),
                lambda keys: store.write(keys, rows[: len(keys)]),
            )
        )  # fmt: skip
        amplification.append(store.stats()["space_amplification"])
    stats = store.stats()
    figures["overwrite_rows_per_second"] = windows[-1].rows_per_second
    figures["overwrite_cpu_us_per_row"] = windows[-1].cpu_us_per_row
    figures["overwrite_windows"] = [w.rows_per_second for w in windows]
    figures["space_amplification"] = max(amplification)
    figures["gc_running"] = stats["gc_bytes"] > collected
    figures["scan_after_overwrites_rows_per_second"] = scan(store, options.rows).rows_per_second
    figures["write_amplification"] = 1 + stats["gc_bytes"] / max(1, stats["written_bytes"])
    start = time.perf_counter()
    store.close()
    figures["close_seconds"] = time.perf_counter() - start
    start = time.perf_counter()
    with SsdStore(path, direct=direct) as store:
        figures["recovery_after_overwrites_seconds"] = time.perf_counter() - start
        if len(store) != options.rows:
            raise RuntimeError("rows are missing after recovery")
    shutil.rmtree(path)
    return figures


def rocksdb(options: argparse.Namespace, directory: Path) -> dict[str, Any] | None:
    """Return RocksDB's results for the same rows, or None if rocksdict is missing."""
    try:
        import rocksdict
    except ImportError:
        return None
    path = str(directory / "rocksdb")
    settings = rocksdict.Options(raw_mode=True)
    settings.set_use_direct_reads(True)
    settings.set_use_direct_io_for_flush_and_compaction(True)
    settings.set_compression_type(rocksdict.DBCompressionType.none())
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(rocksdict.Cache(64 << 20))
    table.set_bloom_filter(10, False)
    settings.set_block_based_table_factory(table)
    settings.increase_parallelism(2)
    unlogged: Any = rocksdict.WriteOptions()
    unlogged.disable_wal = True  # ours has no log besides the data either
    rows = [row.tobytes() for row in content(options.row_bytes, FILL, options.seed)]
    store = rocksdict.Rdict(path, settings)

    def write(keys: np.ndarray) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        text = keys.astype(">i8").tobytes()
        for i in range(len(keys)):
            batch.put(text[8 * i : 8 * i + 8], rows[i])
        store.write(batch, unlogged)

    def read(keys: np.ndarray) -> None:
        text = keys.astype(">i8").tobytes()
        values: Any = store.get([text[8 * i : 8 * i + 8] for i in range(len(keys))])
        if any(row is None for row in values):
            raise RuntimeError("rows are missing")

    figures: dict[str, Any] = {}
    figures["fill_rows_per_second"] = measure(
        fills(options.rows, "RocksDB: fill"), write
    ).rows_per_second
    store.flush()
    done = measure(
        draws(
            options.rows, options.batch, max(1, options.reads // 4), options.seed + 1,
            "RocksDB: read",
        ),
        read,
    )  # fmt: skip
    figures["read_rows_per_second"] = done.rows_per_second
    figures["read_cpu_us_per_row"] = done.cpu_us_per_row
    count = max(1, options.overwrites * options.rows // options.batch // WINDOW)
    done = measure(
        draws(options.rows, options.batch, count, options.seed + 2, "RocksDB: overwrite"), write
    )
    figures["overwrite_rows_per_second"] = done.rows_per_second
    figures["overwrite_cpu_us_per_row"] = done.cpu_us_per_row
    store.close()
    disk = sum(each.stat().st_size for each in Path(path).rglob("*") if each.is_file())
    figures["space_amplification"] = disk / (options.rows * options.row_bytes)
    shutil.rmtree(path)
    return figures


def show(figures: dict[str, Any]) -> None:
    """Print each result beside its target."""
    mine, rocks, fio = figures["ssd"], figures["rocksdb"], figures["fio_reads_per_second"]
    lines = [
        ("fill, rows/s", "fill_rows_per_second", ",.0f", ""),
        ("cold reads, rows/s", "read_rows_per_second", ",.0f", ""),
        ("  CPU a row, us", "read_cpu_us_per_row", ".2f", "<= 6"),
        ("scan of all, rows/s", "scan_rows_per_second", ",.0f", ""),
        ("  CPU a row, us", "scan_cpu_us_per_row", ".2f", ""),
        ("  after the overwrites", "scan_after_overwrites_rows_per_second", ",.0f", ""),
        ("overwrites with GC, rows/s", "overwrite_rows_per_second", ",.0f", ">= 300,000"),
        ("  CPU a row, us", "overwrite_cpu_us_per_row", ".2f", ""),
        ("  space amplification", "space_amplification", ".2f", "<= 1.8"),
        ("recovery, s", "recovery_seconds", ".2f", "<= 3"),
        ("  after the overwrites, s", "recovery_after_overwrites_seconds", ".2f", "<= 3"),
        ("index, bytes a row", "index_bytes_per_row", ".1f", "<= 16"),
    ]
    print(f"{'':<28}{'SSD tier':>12}{'target':>12}{'RocksDB':>12}")
    for text, name, form, target in lines:
        theirs = format(rocks[name], form) if rocks is not None and name in rocks else "-"
        print(f"{text:<28}{format(mine[name], form):>12}{target:>12}{theirs:>12}")
    if fio is None:
        print(
            "fio is missing (apt-get install fio) or left out (--fio-seconds 0): the disk's own "
            "rate is not known."
        )
    else:
        share = mine["read_rows_per_second"] / fio
        print(f"fio, 4 KiB reads/s, QD64: {fio:,.0f}; cold reads are {share:.2f} of it (>= 0.85)")
    if rocks is None:
        print("RocksDB was left out: --skip-rocksdb, or rocksdict is missing (pip install it).")


def main() -> None:
    """Run the command."""
    parser = bench_common.parser(__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--row-bytes", type=int, default=192)
    parser.add_argument("--batch", type=int, default=20_000, help="keys a read or write")
    parser.add_argument("--reads", type=int, default=40, help="batches")
    parser.add_argument("--overwrites", type=int, default=3, help="times the number of rows")
    parser.add_argument("--fio-seconds", type=int, default=5, help="0: no fio")
    parser.add_argument("--skip-rocksdb", action="store_true")
    parser.add_argument("--buffered", action="store_true", help="through the page cache")
    parser.add_argument("--dir", type=Path, default=Path("."), help="on the disk to measure")
    options = parser.parse_args()
    directory = options.dir / "ssd_tier_benchmark"
    directory.mkdir(parents=True)
    try:
        size = max(64 << 20, options.rows * options.row_bytes * 5 // 4 // 4096 * 4096)
        # Measure the disk before and after the benchmark, because the speed of shared disks
        # changes.
        ask = options.fio_seconds > 0
        fio = [ask_fio(directory, options.fio_seconds, size) if ask else None]
        figures: dict[str, Any] = {"ssd": ours(options, directory)}
        if fio[0] is not None:
            fio.append(ask_fio(directory, options.fio_seconds, size))
        reads = [each.reads_per_second for each in fio if each is not None]
        figures["fio_runs"] = reads
        figures["fio_reads_per_second"] = max(reads, default=None)
        figures["rocksdb"] = None if options.skip_rocksdb else rocksdb(options, directory)
    finally:
        shutil.rmtree(directory)
    show(figures)
    bench_common.save(options.json, figures)


if __name__ == "__main__":
    main()
