# SPDX-License-Identifier: Apache-2.0
"""Rows per second at which whole batches are read from Parquet and MindRecord files.

    python benchmarks/data_pipeline.py --rows 2000000 --json OUT

Rows in Criteo's form (26 ids, 13 numbers, a label) are written to a temporary directory and read in
batches of 4096. There are two readers. `datasets.common.batches` returns NumPy arrays, once in
order and once shuffled. `as_dataset` returns a `mindspore.dataset` for `RecModel`. The first pass
only loads the files into the system's page cache, and is not counted.
"""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import bench_common
import numpy as np

from datasets.common import Batch, as_dataset, batches
from datasets.common.packed import FORMATS, write_packed

BATCH = 4096
FIELDS, NUMBERS = 26, 13
FEWEST = 500_000  # promised rows per second


def rows_in_memory(rows: int, seed: int) -> Iterator[Batch]:
    """Yield random rows in Criteo's form, in blocks."""
    rng = np.random.default_rng(seed)
    for at in range(0, rows, BATCH):
        size = min(BATCH, rows - at)
        yield {
            "ids": rng.integers(-(1 << 62), 1 << 62, (size, FIELDS)),
            "dense": rng.random((size, NUMBERS), np.float32),
            "label": rng.integers(0, 2, (size, 1)).astype(np.float32),
        }


def readers(directory: Path) -> dict[str, Callable[[], Iterable[Any]]]:
    """Return the ways to read a packed data set, each as a function that returns the batches."""
    return {
        "in order": lambda: batches(directory, BATCH),
        "shuffled": lambda: batches(directory, BATCH, shuffle=True),
        "shuffled, as mindspore.dataset": lambda: as_dataset(
            directory, BATCH, shuffle=True
        ).create_tuple_iterator(num_epochs=1, do_copy=False),
    }


def rows_a_second(make: Callable[[], Iterable[Any]], rows: int, rounds: int) -> list[float]:
    """Read all rows once uncounted and then `rounds` times; return the rows/s of each round."""
    speeds = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        count = 0
        for batch in make():
            count += len(batch["ids"] if isinstance(batch, dict) else batch[0])
        if count != rows:
            raise RuntimeError(f"read {count} rows of {rows}")
        speeds.append(rows / (time.perf_counter() - begin))
    return speeds[1:]


def main() -> int:
    """Run the command and return the exit code: 1 if a reader is slower than `FEWEST` rows/s."""
    parser = bench_common.parser(__doc__ or "")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the data")
    parser.add_argument("--rounds", type=int, default=5, help="readings of each, after one")
    options = parser.parse_args()
    if options.rows < 1 or options.rounds < 1:
        parser.error("--rows and --rounds must be at least 1")
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as place:
        for format in FORMATS:
            directory = Path(place) / format
            write_packed(rows_in_memory(options.rows, options.seed), directory, format, BATCH)
            for way, make in readers(directory).items():
                speeds = rows_a_second(make, options.rows, options.rounds)
                middle = statistics.median(speeds)
                results[f"{format}, {way}"] = {
                    "rows_per_second": round(middle),
                    "least": round(min(speeds)),
                    "most": round(max(speeds)),
                }
                print(f"{format}, {way}: {middle:,.0f} rows/s", flush=True)
    figures = {"rows": options.rows, "batch": BATCH, "fewest": FEWEST, "readers": results}
    bench_common.save(options.json, figures)
    return 0 if all(each["rows_per_second"] >= FEWEST for each in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
