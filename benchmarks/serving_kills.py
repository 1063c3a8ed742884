# SPDX-License-Identifier: Apache-2.0
"""Requests that fail while workers, the writer and the training are killed with kill -9.

    PYTHONPATH=. python benchmarks/serving_kills.py --seconds 600 --json output/serving_kills.json

A training writes one delta per second, a server of several processes follows the training, and
clients send requests at a fixed rate. About every --every seconds, one process is killed: a worker,
the writer or the training, in turn. The script restarts the training at once, and the server
restarts its own processes.

If a kill ends a request's connection, the client repeats the request on a new connection. Other
clients and load balancers usually repeat read-only requests, too. A request that is sent again
counts as `dropped`. A request has failed if its answer is an error, if its answer does not arrive
within --limit-seconds, or if the request is dropped twice.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")

import bench_common
import numpy as np
from serving_clients import http_request, tensors
from serving_load import milliseconds, start_server, train_steps
from tqdm import tqdm

KINDS = ("worker", "writer", "training")


def train(root: Path, options: Any) -> None:
    """Train for ever and write one delta per second; begin from the newest checkpoint, if any."""
    train_steps(root, options, seconds_passed(), every_steps=30, seed=time.time_ns())


def seconds_passed() -> Iterator[None]:
    """Yield None immediately, and then once per second."""
    due = time.monotonic()
    while True:
        yield
        due = max(due + 1.0, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


class Client:
    """A client that sends requests at a fixed rate on one connection, and reconnects if needed."""

    def __init__(self, port: int, requests: list[bytes], limit: float) -> None:
        self._port, self._requests, self._limit = port, requests, limit
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.latencies: list[float] = []
        self.versions: list[int] = []
        self.dropped = 0
        self.failures: list[str] = []

    async def _once(self, request: bytes) -> int:
        """Return the version that a request was answered from."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(
            line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line
        )
        body = await reader.readexactly(int(fields[b"content-length"]))
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{head[:20]!r} {body[:200]!r}")
        return int(json.loads(body)["model_version"])

    async def ask(self, number: int) -> None:
        """Send a request, and once more if its connection is lost; store the result."""
        begun = time.perf_counter()
        request = self._requests[number % len(self._requests)]
        for last in (False, True):
            try:
                version = await asyncio.wait_for(self._once(request), self._limit)
            except (OSError, asyncio.IncompleteReadError) as error:
                self._close()
                if last:
                    self.failures.append(f"dropped twice: {error!r}")
                else:
                    self.dropped += 1
            except (RuntimeError, TimeoutError, asyncio.TimeoutError) as error:
                self._close()
                self.failures.append(repr(error))
                return
            else:
                self.latencies.append(time.perf_counter() - begun)
                self.versions.append(version)
                return

    def _close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


async def ask_for(clients: list[Client], rate: float, seconds: float) -> None:
    """Send requests for some seconds; `rate` is the rate of all clients together."""
    period, begun = len(clients) / rate, time.perf_counter()

    async def one(place: int, client: Client) -> None:
        due, number = begun + period * place / len(clients), place * 7
        while due < begun + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await client.ask(number)
            due, number = due + period, number + 1

    await asyncio.gather(*(one(place, client) for place, client in enumerate(clients)))


def children(pid: int) -> dict[str, int]:
    """Return the ids of a process's children; the keys are the children's names."""
    pids = {}
    for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            pids[Path(f"/proc/{number}/comm").read_text().strip()] = int(number)
        except OSError:
            continue  # the process has just ended
    return pids


class Killer(threading.Thread):
    """A thread that kills a process about every --every seconds, and restarts the training."""

    def __init__(self, server: int, root: Path, options: Any) -> None:
        super().__init__()
        self._server, self._root, self._options = server, root, options
        self._context = multiprocessing.get_context("spawn")
        self._rng = np.random.default_rng(options.seed)
        self._ended = threading.Event()
        self.kills = dict.fromkeys(KINDS, 0)
        self.failure = ""
        self.trainer = self._start()

    def _start(self) -> Any:
        trainer = self._context.Process(target=train, args=(self._root, self._options))
        trainer.start()
        return trainer

    def run(self) -> None:
        """Kill processes until `end` is called, or until the training ends by itself."""
        turn = 0
        every = self._options.every
        while not self._ended.wait(every + self._rng.uniform(-0.1, 0.1) * every):
            kind = KINDS[turn % len(KINDS)]
            turn += 1
            if kind == "training":
                if self.trainer.exitcode is not None:
                    self.failure = f"the training ended by itself: {self.trainer.exitcode}"
                    return
                self.trainer.kill()
                self.trainer.join()
                self.trainer = self._start()
            else:
                pids = children(self._server)
                names = sorted(name for name in pids if f"rec {kind}" in name)
                if not names:
                    continue
                os.kill(pids[str(self._rng.choice(names))], signal.SIGKILL)
            self.kills[kind] += 1

    def end(self) -> None:
        """Stop killing, and end the training.

        Raises:
            SystemExit: the training ended by itself.
        """
        self._ended.set()
        self.join()
        self.trainer.kill()
        self.trainer.join()
        if self.failure:
            raise SystemExit(self.failure)


def wait_for_full(root: Path, trainer: Any) -> None:
    """Wait until the training has written its first full checkpoint."""
    while not any(root.glob("*.full")):
        if trainer.exitcode is not None:
            raise SystemExit("the training failed")
        time.sleep(0.1)


def measure(root: Path, options: Any) -> dict[str, Any]:
    """Send requests and kill processes; return the results."""
    context = multiprocessing.get_context("spawn")
    first = context.Process(target=train, args=(root, options))
    first.start()
    wait_for_full(root, first)
    first.kill()
    first.join()
    server, port = start_server(root, "onnxruntime", options.hidden, options.workers)
    requests = [http_request("json", *tensors(options, options.rows, n)) for n in range(30)]
    clients = [
        Client(port, requests, options.limit_seconds) for _ in range(min(8, int(options.rate) or 1))
    ]
    try:
        killer = Killer(server.pid, root, options)
        killer.start()
        bar = tqdm(total=round(options.seconds), desc="asking", unit="s", disable=None)
        tick = threading.Thread(target=_tick, args=(bar,), daemon=True)
        tick.start()
        asyncio.run(ask_for(clients, options.rate, options.seconds))
        bar.close()
        killer.end()
        processes = sorted(children(server.pid))
    finally:
        server.terminate()
        code = server.wait()
    failures = [each for client in clients for each in client.failures]
    latencies = [each for client in clients for each in client.latencies]
    versions = [client.versions for client in clients]
    return {
        "kills": killer.kills,
        "requests": len(latencies) + len(failures),
        "failed_requests": len(failures),
        "failures": failures[:5],
        "dropped": sum(client.dropped for client in clients),
        "latency_ms": milliseconds(latencies),
        "went_back_to_an_older_version": sum(
            any(b < a for a, b in zip(each, each[1:], strict=False)) for each in versions
        ),
        "versions_seen": len({version for each in versions for version in each}),
        "processes_at_the_end": processes,
        "exit_code_of_the_server": code,
    }


def _tick(bar: Any) -> None:
    while bar.n < bar.total:
        time.sleep(1)
        bar.update(1)


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=600, help="of asking")
    parser.add_argument("--every", type=float, default=20, help="seconds between kills")
    parser.add_argument("--rate", type=float, default=50, help="requests a second")
    parser.add_argument("--rows", type=int, default=1, help="candidates of a request")
    parser.add_argument("--workers", type=int, default=2, help="processes that answer, at least 2")
    parser.add_argument("--limit-seconds", type=float, default=10, help="of one answer")
    parser.add_argument("--keys", type=int, default=200_000, help="rows of the table")
    parser.add_argument("--batch", type=int, default=512, help="samples of a delta")
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 128], help="of the MLP")
    options = parser.parse_args()
    if options.workers < 2:
        parser.error(f"--workers must be at least 2, got {options.workers}")
    sys.setswitchinterval(0.0005)
    with tempfile.TemporaryDirectory() as directory:
        figures = measure(Path(directory) / "run", options)
    print(json.dumps(figures, indent=2))
    bench_common.save(options.json, {**vars(options), "json": None, **figures})
    if figures["failed_requests"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
