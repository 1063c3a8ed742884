# SPDX-License-Identifier: Apache-2.0
"""Time until a server with a large checkpoint answers, compared with the time to read the files.

    PYTHONPATH=. python benchmarks/serving_start.py --keys 10000000 --directory /data --json F

A training writes one full checkpoint, which includes the optimizer's states. Each round drops the
files from the page cache and reads them from one end to the other. The round drops the files from
the page cache again, and starts a server, which must read the files from the disk. The round then
starts the server a second time, while the files are still in the page cache. Finally, the round
starts a server with 1,000 rows, which shows the time for the processes alone. `by_reading` is a
quotient. The numerator of `by_reading` is the time to start from the disk, minus the time to start
the small server. The denominator of `by_reading` is the reading time. A `by_reading` of 1 means
that the start is as fast as reading the files.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")

import bench_common
import numpy as np
from serving_load import start_server, train
from tqdm import tqdm


def drop(files: list[Path]) -> None:
    """Sync files to the disk, and make the kernel drop the files from the page cache."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_all(files: list[Path]) -> float:
    """Read files, 4 MiB at a time; return the seconds."""
    buffer = memoryview(bytearray(4 << 20))
    begun = time.perf_counter()
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return time.perf_counter() - begun


def start(root: Path, options: Any) -> float:
    """Return the seconds from the server's start until all its workers are ready."""
    begun = time.perf_counter()
    server, _ = start_server(root, "onnxruntime", options.hidden, options.workers)
    seconds = time.perf_counter() - begun
    server.terminate()
    server.wait()
    return seconds


def measure(root: Path, options: Any) -> dict[str, Any]:
    """Return the medians of the rounds."""
    few = argparse.Namespace(**{**vars(options), "keys": 1000})
    small = root.with_name("small")
    for path, settings in ((root, options), (small, few)):
        made = multiprocessing.get_context("spawn").Process(target=train, args=(path, settings, 1))
        made.start()
        made.join()
        if made.exitcode != 0:
            raise SystemExit("the training failed")
    files = sorted(path for path in root.rglob("*") if path.is_file())
    times: dict[str, list[float]] = {"read": [], "from_disk": [], "from_memory": [], "few": []}
    for _ in tqdm(range(options.rounds), desc="starting", disable=None):
        drop(files)
        times["read"].append(read_all(files))
        drop(files)
        times["from_disk"].append(start(root, options))
        times["from_memory"].append(start(root, options))
        times["few"].append(start(small, options))
    size = sum(path.stat().st_size for path in files)
    seconds = {name: float(np.median(each)) for name, each in times.items()}
    return {
        "bytes": size,
        "seconds": {name: round(each, 3) for name, each in seconds.items()},
        "disk_megabytes_a_second": round(size / seconds["read"] / 1e6),
        "by_reading": round((seconds["from_disk"] - seconds["few"]) / seconds["read"], 2),
        "rows_a_second": round(options.keys / (seconds["from_disk"] - seconds["few"])),
    }


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__.split("\n")[0])
    parser.add_argument("--keys", type=int, default=5_000_000, help="rows of dim 16")
    parser.add_argument("--workers", type=int, default=2, help="processes that answer, at least 2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64, help="samples of the one delta")
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 128], help="of the MLP")
    parser.add_argument(
        "--directory", type=Path, help="on the disk to measure; default: that of temporary files"
    )
    options = parser.parse_args()
    if options.workers < 2:
        parser.error(f"--workers must be at least 2, got {options.workers}")
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        figures = measure(Path(directory) / "run", options)
    print(json.dumps(figures, indent=2))
    values = {**vars(options), "json": None, "directory": str(options.directory)}
    bench_common.save(options.json, {**values, **figures})


if __name__ == "__main__":
    main()
