# SPDX-License-Identifier: Apache-2.0
"""Speed of the remote tier alone, and CPU time per row of the client and the server.

For comparison, redis-py's own commands read and write the same rows in four ways: as hashes with
hiredis, as hashes without hiredis, as one string per row by MGET and MSET, and as one string per
row by pipelined GET and SET.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import bench_common
import numpy as np
import redis
from redis._parsers import _RESP2Parser
from tqdm import tqdm

from mindspore_rec.cache import RedisTier

BUCKETS = 64  # number of a table's hashes on Redis
SPREAD = np.uint64(0x9E3779B97F4A7C15)


class Measured(NamedTuple):
    """Rows per second, and microseconds of CPU (including the kernel) per row."""

    rows_per_second: float
    client_us_per_row: float
    server_us_per_row: float


Work = Callable[[np.ndarray, np.ndarray], None]


@contextmanager
def server(url: str | None) -> Iterator[str]:
    """Yield `url`, or the URL of a new server without persistence on a free port."""
    if url is not None:
        yield url
        return
    if shutil.which("redis-server") is None:
        raise SystemExit("redis-server is not installed; name one that runs: --url redis://...")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as directory:
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", directory]
        command += ["--save", "", "--appendonly", "no"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                client = redis.Redis(port=port)
                for _ in range(100):
                    try:
                        client.ping()
                        break
                    except redis.ConnectionError:
                        time.sleep(0.05)
                yield f"redis://127.0.0.1:{port}"
            finally:
                process.terminate()


def client_cpu() -> float:
    """Return user and system time of this process so far."""
    times = os.times()
    return times.user + times.system


def server_cpu(client: redis.Redis) -> float:
    """Return user and system time of the server so far."""
    info: dict[str, Any] = client.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


class Data(NamedTuple):
    """Incompressible rows, the rows' keys, and batches of distinct row indices."""

    keys: np.ndarray
    rows: np.ndarray
    batches: list[np.ndarray]

    @classmethod
    def make(cls, options: argparse.Namespace) -> Data:
        """Return rows, and batches of rows drawn uniformly."""
        rng = np.random.default_rng(options.seed)
        rows = rng.integers(0, 256, (options.rows, options.row_bytes), np.uint8)
        batches = [
            rng.choice(options.rows, options.batch, replace=False) for _ in range(options.batches)
        ]
        return cls(bench_common.spread_keys(np.arange(options.rows)), rows, batches)


def measure(
    data: Data, client: redis.Redis, work: Work, label: str, threads: int = 1, part: int = 1
) -> Measured:
    """Process every `part`-th batch and return the speed."""
    batches = data.batches[::part]
    inputs = [(data.keys[batch], data.rows[batch]) for batch in batches]
    work(*inputs[0])
    progress = tqdm(total=len(batches), desc=label, leave=False, disable=None)

    def run(number: int) -> None:
        for keys, rows in inputs[number::threads]:
            work(keys, rows)
            progress.update()

    workers = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    start, here, there = time.perf_counter(), client_cpu(), server_cpu(client)
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    there, here = server_cpu(client) - there, client_cpu() - here
    seconds = time.perf_counter() - start
    progress.close()
    count = sum(len(batch) for batch in batches)
    return Measured(count / seconds, here / count * 1e6, there / count * 1e6)


def equal(got: list[Any], rows: np.ndarray) -> None:
    """Raise RuntimeError if the first row in `got` differs from the first row in `rows`."""
    array = np.frombuffer(b"".join(got), np.uint8).reshape(rows.shape)
    if not np.array_equal(array[0], rows[0]):
        raise RuntimeError("wrong rows")


def tier_figures(data: Data, client: redis.Redis, url: str) -> dict[str, Measured]:
    """Measure RedisTier with calls from one, two and four threads at once."""
    tier = RedisTier(url, "benchmark", data.rows.shape[1])

    def read(keys: np.ndarray, rows: np.ndarray) -> None:
        got, found = np.empty_like(rows), np.empty(len(keys), bool)
        tier.read(keys, got, found)
        if not (found.all() and np.array_equal(got[0], rows[0])):
            raise RuntimeError("wrong rows")

    for start in tqdm(range(0, len(data.keys), 5000), desc="fill", leave=False, disable=None):
        tier.write(data.keys[start : start + 5000], data.rows[start : start + 5000])
    figures = {}
    for threads in (1, 2, 4):
        figures[f"tier read, {threads} threads"] = measure(data, client, read, "read", threads)
    for threads in (1, 2, 4):
        figures[f"tier write, {threads} threads"] = measure(
            data, client, tier.write, "write", threads
        )
    tier.clear()
    tier.close()
    return figures


def hash_figures(
    data: Data, client: redis.Redis, user: redis.Redis, what: str
) -> dict[str, Measured]:
    """Measure redis-py's HMGET and HSET in a pipeline, with the same buckets as the tier."""

    def grouped(keys: np.ndarray) -> tuple[np.ndarray, list[tuple[str, int, int]]]:
        buckets = (keys.view(np.uint64) * SPREAD >> np.uint64(58)).astype(np.uint8)
        order = np.argsort(buckets, kind="stable")
        ends = np.cumsum(np.bincount(buckets, minlength=BUCKETS)).tolist()
        pieces = zip(range(BUCKETS), [0, *ends], ends, strict=False)
        return order, [(f"plain{b}", start, end) for b, start, end in pieces if end > start]

    def read(keys: np.ndarray, rows: np.ndarray) -> None:
        order, pieces = grouped(keys)
        fields = [key.tobytes() for key in keys[order]]
        pipeline = user.pipeline(transaction=False)
        for name, start, end in pieces:
            pipeline.hmget(name, fields[start:end])
        equal([value for reply in pipeline.execute() for value in reply], rows[order])

    def write(keys: np.ndarray, rows: np.ndarray) -> None:
        order, pieces = grouped(keys)
        fields = [key.tobytes() for key in keys[order]]
        values = [row.tobytes() for row in rows[order]]
        pipeline = user.pipeline(transaction=False)
        for name, start, end in pieces:
            mapping = dict(zip(fields[start:end], values[start:end], strict=True))
            pipeline.hset(name, mapping=mapping)
        pipeline.execute()

    for start in range(0, len(data.keys), 5000):
        write(data.keys[start : start + 5000], data.rows[start : start + 5000])
    figures = {
        f"HMGET, {what}": measure(data, client, read, f"HMGET, {what}", part=3),
        f"HSET, {what}": measure(data, client, write, f"HSET, {what}", part=3),
    }
    client.delete(*[f"plain{bucket}" for bucket in range(BUCKETS)])
    return figures


def string_figures(data: Data, client: redis.Redis) -> dict[str, Measured]:
    """Measure redis-py with one string per row: MGET and MSET, and pipelined GET and SET."""

    def names(keys: np.ndarray) -> list[bytes]:
        return [b"emb{benchmark}" + key.tobytes() for key in keys]

    def mget(keys: np.ndarray, rows: np.ndarray) -> None:
        equal(client.mget(names(keys)), rows)

    def mset(keys: np.ndarray, rows: np.ndarray) -> None:
        client.mset(dict(zip(names(keys), [row.tobytes() for row in rows], strict=True)))

    def get(keys: np.ndarray, rows: np.ndarray) -> None:
        pipeline = client.pipeline(transaction=False)
        for name in names(keys):
            pipeline.get(name)
        equal(pipeline.execute(), rows)

    def put(keys: np.ndarray, rows: np.ndarray) -> None:
        pipeline = client.pipeline(transaction=False)
        for name, row in zip(names(keys), rows, strict=True):
            pipeline.set(name, row.tobytes())
        pipeline.execute()

    for start in range(0, len(data.keys), 5000):
        mset(data.keys[start : start + 5000], data.rows[start : start + 5000])
    figures = {
        "MGET": measure(data, client, mget, "MGET", part=3),
        "MSET": measure(data, client, mset, "MSET", part=3),
        "pipelined GET": measure(data, client, get, "GET", part=10),
        "pipelined SET": measure(data, client, put, "SET", part=10),
    }
    for start in range(0, len(data.keys), 5000):
        client.unlink(*names(data.keys[start : start + 5000]))
    return figures


def main() -> None:
    """Run the command."""
    parser = bench_common.parser(__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--row-bytes", type=int, default=212, help="dim 16 with LazyAdam has 212")
    parser.add_argument("--batch", type=int, default=5000, help="keys a read or write")
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--url", help="a server that runs; default: one of its own")
    options = parser.parse_args()
    if not 0 < options.batch <= options.rows:
        parser.error(f"--batch must be in [1, {options.rows}], the number of rows")
    data = Data.make(options)
    with server(options.url) as url:
        client = redis.Redis.from_url(url, protocol=2)
        slow = redis.Redis(
            connection_pool=redis.ConnectionPool.from_url(
                url, protocol=2, parser_class=_RESP2Parser
            )
        )
        figures = tier_figures(data, client, url)
        figures |= hash_figures(data, client, client, "redis-py with hiredis")
        figures |= hash_figures(data, client, slow, "redis-py without hiredis")
        figures |= string_figures(data, client)
    print(f"{'':32} {'rows/s':>10} {'client us/row':>14} {'server us/row':>14}")
    for name, done in figures.items():
        print(
            f"{name:32} {done.rows_per_second:10,.0f} {done.client_us_per_row:14.2f} "
            f"{done.server_us_per_row:14.2f}"
        )
    bench_common.save(options.json, {name: done._asdict() for name, done in figures.items()})


if __name__ == "__main__":
    main()
