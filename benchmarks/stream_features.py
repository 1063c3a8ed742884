# SPDX-License-Identifier: Apache-2.0
"""Measure how many lines in Criteo's format become arrays per second, with and without a stream.

    PYTHONPATH=. python benchmarks/stream_features.py --json output/stream_features.json

Each synthetic line in the format of Criteo's files becomes 26 keys, 13 scaled counts and a label.
`direct` calls the parser and then the pipeline for each piece of lines. `stream` sends messages of
1000 lines through a topic in memory to a StreamSource. The thread of the StreamSource parses while
the main thread makes the features. CPU time is the time of the whole process. If other programs
keep the machine busy, CPU time is more reliable than wall time.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable

os.environ.setdefault("GLOG_v", "3")

import bench_common
import pyarrow as pa

from datasets.criteo.schema import CATEGORY_FIELDS, COUNT_FIELDS, LABEL
from datasets.synthetic.config import criteo_like
from datasets.synthetic.planted import PlantedModel
from datasets.synthetic.tsv import write_tsv
from mindspore_rec.stream import (
    Category,
    FeaturePipeline,
    LogScale,
    MemoryTopic,
    Number,
    StopWhen,
    StreamingDataset,
    StreamSource,
    TsvFormat,
)

TEXT = pa.dictionary(pa.int32(), pa.string())  # each value is hashed once a piece
SCHEMA = pa.schema(
    [(LABEL, pa.float32())]
    + [(name, pa.float32()) for name in COUNT_FIELDS]
    + [(name, TEXT) for name in CATEGORY_FIELDS]
)
MESSAGE_LINES = 1000


def pipeline(threads: int) -> FeaturePipeline:
    """Return a pipeline that computes the same features as Criteo's reader."""
    return FeaturePipeline(
        {
            "ids": [Category(name) for name in CATEGORY_FIELDS],
            "dense": [LogScale(name, running=True) for name in COUNT_FIELDS],
            "label": Number(LABEL),
        },
        threads=threads,
    )


def lines_of(rows: int, seed: int) -> list[bytes]:
    """Return lines in Criteo's format."""
    model, text = PlantedModel(criteo_like(), seed), io.BytesIO()
    for first in range(0, rows, 16384):
        write_tsv(text, model, model.rows(first, min(first + 16384, rows)))
    return text.getvalue().splitlines(keepends=True)


def direct(pieces: list[bytes], threads: int) -> int:
    """Run the parser and then the pipeline on each piece; return the number of rows."""
    made, lines = pipeline(threads), TsvFormat(SCHEMA)
    return sum(len(made(lines.decode([piece]).rows)["label"]) for piece in pieces)


def stream(messages: list[bytes], batch: int, threads: int) -> int:
    """Read a topic through a StreamSource and return the number of rows."""
    topic = MemoryTopic()
    for message in messages:
        topic.append(message)
    rows = len(messages) * MESSAGE_LINES
    source = StreamSource(
        topic.client(most=max(1, batch // MESSAGE_LINES)),
        TsvFormat(SCHEMA),
        batch,
        stop=StopWhen(batches=rows // batch),
    )
    with StreamingDataset(source, pipeline(threads)) as batches:
        return sum(len(columns[-1]) for columns in batches)


def joined(lines: list[bytes], size: int) -> list[bytes]:
    """Return pieces of `size` lines each."""
    return [b"".join(lines[i : i + size]) for i in range(0, len(lines) - size + 1, size)]


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=400_000, help="rows of a run")
    parser.add_argument("--batch", type=int, default=32_000, help="rows of a piece, and of a batch")
    parser.add_argument("--threads", type=int, default=2, help="of the pipeline")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    lines = lines_of(options.rows, options.seed)
    pieces, messages = joined(lines, options.batch), joined(lines, MESSAGE_LINES)
    runs: dict[str, Callable[[], int]] = {
        "direct": lambda: direct(pieces, options.threads),
        "stream": lambda: stream(messages, options.batch, options.threads),
    }
    results: dict[str, dict[str, float]] = {}
    for name, run in runs.items():
        run()
        best_wall = best_cpu = float("inf")
        for _ in range(options.rounds):
            wall, cpu = time.perf_counter(), time.process_time()
            rows = run()
            best_wall = min(best_wall, (time.perf_counter() - wall) / rows)
            best_cpu = min(best_cpu, (time.process_time() - cpu) / rows)
        results[name] = {
            "rows_per_second": round(1 / best_wall),
            "cpu_us_per_row": round(1e6 * best_cpu, 2),
            "rows_per_second_if_2_cpus_were_free": round(2 / best_cpu),
        }
        print(name, results[name], flush=True)
    bench_common.save(
        options.json,
        {"rows": options.rows, "batch": options.batch, "threads": options.threads, **results},
    )


if __name__ == "__main__":
    main()
