# SPDX-License-Identifier: Apache-2.0
"""Measure how fast a Kafka broker's messages become batches of arrays, in rows/s and MB/s.

    PYTHONPATH=. python benchmarks/stream_kafka.py --json output/stream_kafka.json

Like a trainer, the benchmark reads messages of two kinds: whole batches, and lines of text. A
message with a whole batch has 1000 rows; each row has 26 int64 keys, 13 float32 numbers and a
label. A message with text has one line of 40 tab-separated texts, as in Criteo's files. The script
starts the broker of examples/online_learning/kafka, unless `--brokers` names a broker. CPU time is
the time of this process, without the broker.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("GLOG_v", "3")

import bench_common
import numpy as np
import pyarrow as pa
from tqdm import tqdm

from examples.online_learning.kafka.broker import Broker
from mindspore_rec.stream import (
    KafkaSource,
    KafkaWriter,
    StopWhen,
    StreamingDataset,
    ensure_topic,
    pack,
    to_record_batch,
)

MESSAGE_ROWS = 1000


def packed(rows: int, seed: int) -> Iterator[bytes]:
    """Yield messages with whole batches."""
    rng = np.random.default_rng(seed)
    for _ in range(rows // MESSAGE_ROWS):
        columns = {
            "ids": rng.integers(-(2**62), 2**62, (MESSAGE_ROWS, 26)),
            "dense": rng.random((MESSAGE_ROWS, 13), np.float32),
            "label": rng.integers(0, 2, (MESSAGE_ROWS, 1)).astype(np.float32),
        }
        yield pack(to_record_batch(columns))


def lines(rows: int, seed: int) -> Iterator[bytes]:
    """Yield messages; each message is one line of 40 hexadecimal numbers."""
    rng = np.random.default_rng(seed)
    for numbers in rng.integers(0, 1 << 31, (rows, 40)):
        yield b"\t".join(b"%x" % number for number in numbers)


def write(brokers: str, topic: str, messages: Iterator[bytes], count: int) -> dict[str, float]:
    """Fill a topic; return the size of its messages and the speed."""
    ensure_topic(brokers, topic, 1, {})
    writer, size = KafkaWriter(brokers), 0
    wall, cpu = time.perf_counter(), time.process_time()
    for message in tqdm(messages, desc=f"write {topic}", total=count, leave=False, disable=None):
        writer.send(topic, 0, message)
        size += len(message)
    writer.close()
    return {
        "mb": round(size / 1e6, 1),
        "write_seconds": round(time.perf_counter() - wall, 2),
        "write_cpu_seconds": round(time.process_time() - cpu, 2),
    }


def read(brokers: str, topic: str, rows: int, batch: int, **options: Any) -> dict[str, float]:
    """Read the topic once and return the speed."""
    source = KafkaSource(
        brokers, topic, batch_size=batch, stop=StopWhen(batches=rows // batch), **options
    )
    wall, cpu = time.perf_counter(), time.process_time()
    batches: Any = source if "format" in options else StreamingDataset(source)
    for _ in tqdm(batches, desc=f"read {topic}", total=rows // batch, leave=False, disable=None):
        pass
    taken = rows // batch * batch
    seconds, used = time.perf_counter() - wall, time.process_time() - cpu
    source.close()
    return {
        "rows_per_second": round(taken / seconds),
        "cpu_us_per_row": round(1e6 * used / taken, 3),
    }


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__.split("\n")[0])
    parser.add_argument("--brokers", help="host:port; default: a broker of its own")
    parser.add_argument("--rows", type=int, default=1_000_000, help="packed rows")
    parser.add_argument("--lines", type=int, default=100_000, help="lines, one a message")
    parser.add_argument("--batch", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    results: dict[str, Any] = {"rows": options.rows, "lines": options.lines}
    with contextlib.ExitStack() as stack:
        brokers = options.brokers
        if brokers is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            brokers = stack.enter_context(Broker(directory)).address
        suffix = f"{os.getpid()}"
        schema = pa.schema([(f"c{i}", pa.string()) for i in range(40)])
        for name, rows, messages, count, how in (
            (
                "packed",
                options.rows,
                packed(options.rows, options.seed),
                options.rows // MESSAGE_ROWS,
                {},
            ),
            (
                "lines",
                options.lines,
                lines(options.lines, options.seed),
                options.lines,
                {"format": "tsv", "schema": schema},
            ),
        ):
            topic = f"{name}-{suffix}"
            results[name] = write(brokers, topic, messages, count)
            runs = [read(brokers, topic, rows, options.batch, **how) for _ in range(options.rounds)]
            results[name].update(max(runs, key=lambda run: run["rows_per_second"]))
            print(name, results[name], flush=True)
    bench_common.save(options.json, results)


if __name__ == "__main__":
    main()
