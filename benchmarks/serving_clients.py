# SPDX-License-Identifier: Apache-2.0
"""Requests per second that the server answers in time, by protocol and number of candidates.

    PYTHONPATH=. python benchmarks/serving_clients.py --protocol json,grpc --candidates 1,32

For each protocol and number of candidates, the benchmark measures the latency of one client, which
waits for each answer before it sends its next request. Then, in an open loop, the benchmark
searches in `--steps` tries for the highest request rate at which 99 % of the answers are in time.
An answer is in time if it arrives at most --limit-ms after the request was due. Clients run in a
separate process. To use little CPU, HTTP clients write prepared bytes to sockets. From each answer,
the clients read only the status and the length. The gRPC client is grpcio with messages of
`tritonclient[http]`, and needs about as much CPU as the server.

With --triton-python (an interpreter that has nvidia-pytriton and onnxruntime), Triton and our
server receive the same requests in turn.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

os.environ.setdefault("GLOG_v", "3")

import bench_common
import numpy as np
from peer_triton import start_triton
from serving_load import FIELDS, NUMBERS, milliseconds, train

PROTOCOLS = ("json", "binary", "grpc")
PATH = "/v2/models/model/infer"
_WARM_SECONDS = 1.0
_LATEST = 1.0  # if a request waits longer (seconds), its rate is too high


class Caller(Protocol):
    """One connection."""

    async def ask(self, number: int) -> None:
        """Send a request, and wait for its answer."""


def tensors(options: Any, rows: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids and the numeric features of a request."""
    rng = np.random.default_rng(options.seed + number)
    law = bench_common.Zipf(options.keys, 1.05, rng)
    ids = bench_common.spread_keys(law.draw((rows, FIELDS)))
    return ids, rng.random((rows, NUMBERS), np.float32).round(4)


def http_request(protocol: str, ids: np.ndarray, numbers: np.ndarray) -> bytes:
    """Return the bytes of a request."""
    inputs: list[dict[str, Any]] = []
    parts = []
    for name, datatype, array in (("ids", "INT64", ids), ("numbers", "FP32", numbers)):
        one: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if protocol == "json":
            one["data"] = array.astype(object if datatype == "INT64" else np.float64).tolist()
        else:
            one["parameters"] = {"binary_data_size": array.nbytes}
            parts.append(array.tobytes())
        inputs.append(one)
    asked = {"inputs": inputs, "parameters": {"binary_data_output": protocol == "binary"}}
    text = json.dumps(asked).encode()
    size = f"Inference-Header-Content-Length: {len(text)}\r\n" if parts else ""
    body = b"".join((text, *parts))
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\n{size}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class HttpCaller(asyncio.Protocol):
    """One connection of HTTP."""

    def __init__(self, requests: Sequence[bytes]) -> None:
        self._requests = requests
        self._data = b""
        self._answer: asyncio.Future[None] | None = None

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Find the end of the answer."""
        self._data += data
        head, separator, body = self._data.partition(b"\r\n\r\n")
        if not separator or self._answer is None:
            return
        size = re.search(rb"content-length: (\d+)", head.lower())
        assert size is not None
        if len(body) < int(size[1]):
            return
        self._data = b""
        if head.startswith(b"HTTP/1.1 200"):
            self._answer.set_result(None)
        else:
            self._answer.set_exception(RuntimeError(f"{head[:20]!r} {body[:200]!r}"))

    async def ask(self, number: int) -> None:
        """Send a request, and wait for its answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(self._requests[number % len(self._requests)])
        await self._answer


class GrpcCaller:
    """One channel of gRPC."""

    def __init__(self, port: int, requests: Sequence[bytes]) -> None:
        import grpc

        self._requests = requests
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
        self._call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

    async def ask(self, number: int) -> None:
        """Send a request, and wait for its answer."""
        await self._call(self._requests[number % len(self._requests)])


def grpc_request(ids: np.ndarray, numbers: np.ndarray) -> bytes:
    """Return a request in protobuf's wire format."""
    from tritonclient.grpc import service_pb2

    inputs = [
        {"name": name, "datatype": datatype, "shape": list(array.shape)}
        for name, datatype, array in (("ids", "INT64", ids), ("numbers", "FP32", numbers))
    ]
    raw = [ids.tobytes(), numbers.tobytes()]
    made = service_pb2.ModelInferRequest(model_name="model", inputs=inputs, raw_input_contents=raw)
    return bytes(made.SerializeToString())


async def callers(protocol: str, ports: tuple[int, int], requests: Any, count: int) -> list[Caller]:
    """Return connections."""
    if protocol == "grpc":
        return [GrpcCaller(ports[1], requests) for _ in range(count)]
    loop = asyncio.get_running_loop()
    made: list[Caller] = []
    for _ in range(count):
        _, one = await loop.create_connection(lambda: HttpCaller(requests), "127.0.0.1", ports[0])
        made.append(one)
    return made


async def in_turn(connections: Sequence[Caller], seconds: float) -> list[float]:
    """Return the latencies of clients that send the next request as soon as they have an answer."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def one(place: int, caller: Caller) -> None:
        number = place * 7
        while (begin := time.perf_counter()) < end:
            await caller.ask(number)
            latencies.append(time.perf_counter() - begin)
            number += 1

    await asyncio.gather(*(one(i, caller) for i, caller in enumerate(connections)))
    return latencies


async def at_rate(connections: Sequence[Caller], rate: float, seconds: float) -> list[float]:
    """Return the latencies of requests that are due at a rate, from the moment they were due.

    A request that is due while no connection is free waits for a connection. If a request waits for
    more than a second, the function sends no further requests, and adds a latency of one second.
    """
    rng = np.random.default_rng(int(rate))
    count = int(rate * seconds)
    dues = np.cumsum(rng.exponential(1 / rate, count)) + time.perf_counter() + 0.01
    free = deque(connections)
    waiting: deque[tuple[int, float]] = deque()
    latencies: list[float] = []
    done = asyncio.Event()

    async def work(caller: Caller, number: int, due: float) -> None:
        while True:
            await caller.ask(number)
            latencies.append(time.perf_counter() - due)
            if len(latencies) == count:
                done.set()
            if not waiting:
                free.append(caller)
                return
            number, due = waiting.popleft()

    tasks = set()
    for number, due in enumerate(dues.tolist()):
        while (left := due - time.perf_counter()) > 0:
            await asyncio.sleep(left if left > 0.002 else 0)
        if free:
            task = asyncio.create_task(work(free.popleft(), number, due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        else:
            waiting.append((number, due))
            if time.perf_counter() - waiting[0][1] > _LATEST:
                await asyncio.sleep(0)
                waiting.clear()
                await asyncio.gather(*tasks)
                return [*latencies, _LATEST] * 2
    await done.wait()
    return latencies


async def measured(
    protocol: str, rows: int, ports: tuple[int, int], options: Any
) -> dict[str, Any]:
    """Return the figures of one protocol and number of candidates."""
    made = [tensors(options, rows, number) for number in range(30)]
    if protocol == "grpc":
        requests = [grpc_request(*each) for each in made]
    else:
        requests = [http_request(protocol, *each) for each in made]
    connections = await callers(protocol, ports, requests, options.connections)
    await in_turn(connections[:4], _WARM_SECONDS)
    alone = await in_turn(connections[:1], options.seconds)
    together = await in_turn(connections[:16], options.seconds)
    rate = 0.5 * len(together) / options.seconds
    best: dict[str, Any] = {}
    low, high = 0.0, float("inf")
    for _ in range(options.steps):
        latencies = await at_rate(connections, rate, options.seconds)
        figures = milliseconds(latencies)
        if figures["p99"] <= options.limit_ms:
            best = {"rate": round(rate), **figures}
            low, rate = rate, min(rate * 1.4, (rate + high) / 2)
        else:
            high, rate = rate, max(rate * 0.5, (low + rate) / 2)
        await asyncio.sleep(0.2)
    return {
        "protocol": protocol,
        "candidates": rows,
        "request_bytes": len(requests[0]),
        "one_client_ms": milliseconds(alone),
        "sixteen_clients_a_second": round(len(together) / options.seconds),
        "in_time": best,
    }


def _client(pair: tuple[str, int], ports: tuple[int, int], options: Any, queue: Any) -> None:
    import uvloop

    uvloop.install()
    try:
        queue.put(asyncio.run(measured(*pair, ports, options)))
    except BaseException as error:
        queue.put({"protocol": pair[0], "candidates": pair[1], "error": repr(error)})


def asked(protocol: str, rows: int, ports: tuple[int, int], options: Any) -> dict[str, Any]:
    """Measure one protocol with `rows` candidates in a client process; return the results."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    client = context.Process(target=_client, args=((protocol, rows), ports, options, queue))
    client.start()
    figures: dict[str, Any] = queue.get()
    client.join()
    return figures


def start(root: Path, options: Any) -> tuple[subprocess.Popen[str], tuple[int, int]]:
    """Start the server; when it is ready, return its process and its two ports.

    Without gRPC, both ports are the HTTP port.

    Raises:
        RuntimeError: the server did not start.
    """
    here = bench_common.BENCHMARKS
    sources = str(options.sources or here.parent)
    path = os.pathsep.join([sources, str(here), os.environ.get("PYTHONPATH", "")])
    with_grpc = "grpc" in options.protocol
    server = subprocess.Popen(
        [
            sys.executable, "-m", "mindspore_rec.serving", str(root), "--port", "0",
            *(["--grpc-port", "0"] if with_grpc else []), *options.server,
        ],
        env={
            **os.environ, "PYTHONPATH": path,
            "SERVING_LOAD_HIDDEN": ",".join(map(str, options.hidden)),
        },
        stdout=subprocess.PIPE, text=True, cwd=sources,
    )  # fmt: skip
    assert server.stdout is not None
    ports = []
    for line in server.stdout:
        listening = re.match(r"listening at \w+://[\d.]+:(\d+)", line)
        if listening:
            ports.append(int(listening[1]))
        if line.startswith("version"):
            print(line.strip(), file=sys.stderr)
            return server, (ports[0], ports[-1])
    raise RuntimeError("the server did not start")


def prepared(options: Any, directory: str) -> Path:
    """Return the directory of a run with one checkpoint; train the run if necessary."""
    root: Path = options.run or Path(directory) / "run"
    if not root.exists():
        trainer = multiprocessing.get_context("spawn").Process(
            target=train, args=(root, options, 1)
        )
        trainer.start()
        trainer.join()
        if trainer.exitcode:
            raise SystemExit("the training failed")
    return root


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__.split("\n")[0])
    parser.add_argument("--protocol", type=lambda text: text.split(","), default=PROTOCOLS)
    parser.add_argument(
        "--candidates", type=lambda text: list(map(int, text.split(","))), default=[1, 32, 256]
    )
    parser.add_argument("--limit-ms", type=float, default=10, help="of 99 %% of the answers")
    parser.add_argument("--seconds", type=float, default=3, help="of a rate")
    parser.add_argument("--steps", type=int, default=6, help="rates that are tried")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--keys", type=int, default=500_000, help="rows of the table")
    parser.add_argument("--batch", type=int, default=1024, help="samples of the training")
    parser.add_argument("--hidden", type=int, nargs="+", default=[1024, 512, 256])
    parser.add_argument("--run", type=Path, help="directory of the run, made where it is missing")
    parser.add_argument(
        "--triton-python", type=Path, help="interpreter with nvidia-pytriton, to measure Triton too"
    )
    parser.add_argument("--sources", type=Path, help="clone whose server is measured")
    parser.add_argument(
        "--server", type=lambda text: text.split(), default=[], help="further options of the server"
    )
    options = parser.parse_args()
    figures = []
    with tempfile.TemporaryDirectory() as directory:
        root = prepared(options, directory)
        servers: dict[str, tuple[subprocess.Popen[Any], tuple[int, int]]] = {}
        try:
            servers["mindspore_rec"] = start(root, options)
            if options.triton_python:
                servers["triton"] = start_triton(
                    options.triton_python, root, Path(directory) / "triton", FIELDS, NUMBERS
                )
            for protocol in options.protocol:
                for rows in options.candidates:
                    for name, (_, ports) in servers.items():
                        figures.append({"server": name, **asked(protocol, rows, ports, options)})
                        print(json.dumps(figures[-1]), flush=True)
        finally:
            for server, _ in servers.values():
                server.terminate()
                server.wait()
    shown = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(options).items()
    }
    bench_common.save(options.json, {**shown, "figures": figures})


if __name__ == "__main__":
    main()
