# SPDX-License-Identifier: Apache-2.0
"""Latency of the HTTP server while deltas arrive, compared with the same server without deltas.

    PYTHONPATH=. python benchmarks/serving_load.py --json output/serving_load.json

Before the measurement, a real training writes a full checkpoint and deltas. During the measurement,
the server answers requests that arrive at a fixed rate. In every second phase, the server's
directory receives one delta per second. Latency is measured from a request's due time, so that it
includes the wait for earlier requests.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")

import bench_common
import numpy as np
from tqdm import tqdm

FIELDS, NUMBERS, DIM = 26, 13, 16
INPUTS = [f"ids:INT64:-1,{FIELDS}", f"numbers:FP32:-1,{NUMBERS}"]
FULL, DELTAS = "000000000000.full", "*.delta"
HIDDEN = (256, 128)
RUNTIMES = ("onnxruntime", "mindspore")


def network(hidden: Sequence[int] = HIDDEN) -> Any:
    """Return an MLP over the 26 rows (16 floats each) and 13 numbers of a sample."""
    import mindspore as ms
    from mindspore import Tensor, nn, ops

    import mindspore_rec as mr

    class Network(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = mr.HashEmbeddingLookup(DIM, ms.int64, name="bench.serving")
            self.mlp = mr.nn.MLP(FIELDS * DIM + NUMBERS, hidden, out_features=1)

        def construct(self, ids: Tensor, numbers: Tensor) -> Tensor:
            rows = self.embedding(ids).reshape((-1, FIELDS * DIM))
            return self.mlp(ops.concat((rows, numbers), 1))

    return Network()


def train(root: Path, options: Any, deltas: int) -> None:
    """Write a full checkpoint with all keys, and deltas of one step each."""
    steps = tqdm(range(deltas), desc="training", leave=False, disable=None)
    train_steps(root, options, steps, every_steps=1 << 40, seed=options.seed)


def train_steps(
    root: Path, options: Any, steps: Iterable[object], every_steps: int, seed: int
) -> None:
    """Continue from the newest checkpoint: for each item of `steps`, train once and save a delta.

    Args:
        root: directory of the run; a new run begins with a full checkpoint of all keys.
        options: object with the attributes `keys`, `batch` and `hidden`.
        steps: an iterable; each item starts one step, and the value of the item is not used.
        every_steps: number of steps between full checkpoints.
        seed: seed of rows and batches.
    """
    import mindspore as ms
    from mindspore import nn

    import mindspore_rec as mr

    ms.set_context(mode=ms.GRAPH_MODE)
    rng = np.random.default_rng(seed)
    law = bench_common.Zipf(options.keys, 1.05, rng)
    net = network(options.hidden)
    table = net.embedding.embedding_table
    for first in () if any(root.glob("*.full")) else range(0, options.keys, 100_000):
        numbers = np.arange(first, min(first + 100_000, options.keys))
        rows = rng.normal(0, 0.01, (len(numbers), DIM)).astype(np.float32)
        table.write_rows(bench_common.spread_keys(numbers), rows)
    model = mr.RecModel(net, nn.BCEWithLogitsLoss(), mr.LazyAdam(net.trainable_params()))

    def batches() -> Any:
        for _ in steps:
            yield (
                bench_common.spread_keys(law.draw((options.batch, FIELDS))),
                rng.random((options.batch, NUMBERS), np.float32),
                (rng.random((options.batch, 1)) < 0.3).astype(np.float32),
            )

    checkpoint = mr.RecCheckpoint(
        root, every_steps=every_steps, delta_every_steps=1, data_starts_over=True,
        publication=mr.checkpoint.Publication(
            builder="serving_load:network",
            builder_arguments={"hidden": list(options.hidden)},
            builder_inputs=INPUTS,
        ),
    )  # fmt: skip
    checkpoint.restore(model)
    model.online_train(batches(), checkpoint, progress=False)


class Load:
    """Threads that send requests at a fixed rate, each on its own connection."""

    def __init__(self, port: int, options: Any) -> None:
        self._port, self._options = port, options
        self._phase = "warmup"
        self._stop = threading.Event()
        self.latencies: dict[str, list[float]] = {}
        self.versions: list[tuple[float, int]] = []  # (time, version): first answers
        self.failed: list[str] = []
        self._newest = -1
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._ask, args=(number,)) for number in range(options.clients)
        ]

    def _bodies(self, number: int) -> list[bytes]:
        rng = np.random.default_rng(self._options.seed + 1 + number)
        law = bench_common.Zipf(self._options.keys, 1.05, rng)
        made = []
        for _ in range(50):
            rows = self._options.rows
            ids = bench_common.spread_keys(law.draw((rows, FIELDS)))
            numbers = rng.random((rows, NUMBERS)).round(4)
            inputs = [
                {"name": "ids", "shape": ids.shape, "datatype": "INT64", "data": ids.tolist()},
                {"name": "numbers", "shape": numbers.shape, "datatype": "FP32",
                 "data": numbers.tolist()},
            ]  # fmt: skip
            made.append(json.dumps({"inputs": inputs}).encode())
        return made

    def _ask(self, number: int) -> None:
        bodies = self._bodies(number)
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        period = self._options.clients / self._options.rate
        due = time.perf_counter() + period * number / self._options.clients
        count = 0
        while not self._stop.is_set():
            time.sleep(max(0.0, due - time.perf_counter()))
            phase = self._phase
            try:
                connection.request("POST", "/v2/models/model/infer", bodies[count % len(bodies)])
                response = connection.getresponse()
                text = response.read()
                now = time.perf_counter()
                if response.status != 200:
                    raise RuntimeError(f"{response.status} {text[:200]!r}")
                version = int(json.loads(text)["model_version"])
            except Exception as error:
                self.failed.append(repr(error))
                connection.close()
            else:
                self.latencies.setdefault(phase, []).append(now - due)
                with self._lock:
                    if version > self._newest:
                        self._newest = version
                        self.versions.append((now, version))
            count += 1
            due += period

    def phase(self, name: str, seconds: float, each_second: Callable[[], None]) -> None:
        """Run a phase for some seconds, and count its requests under the phase's name."""
        self._phase = name
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            each_second()
            time.sleep(min(1.0, left))

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def milliseconds(latencies: list[float]) -> dict[str, float]:
    """Convert times in seconds to milliseconds, and return their percentiles."""
    values = np.array(latencies) * 1000
    percentiles = {f"p{p}": round(float(np.percentile(values, p)), 2) for p in (50, 90, 99)}
    return {**percentiles, "max": round(float(values.max()), 2), "requests": len(values)}


def network_of_environment() -> Any:
    """Return the network; an environment variable of the server sets the widths of the layers."""
    return network([int(width) for width in os.environ["SERVING_LOAD_HIDDEN"].split(",")])


def start_server(
    root: Path, runtime: str, hidden: Sequence[int], workers: int = 1
) -> tuple[subprocess.Popen[str], int]:
    """Start the server; when all its workers are ready, return its process and port."""
    options = [
        "--network",
        "serving_load:network_of_environment",
        *(f"--input={spec}" for spec in INPUTS),
    ]
    here = bench_common.BENCHMARKS
    path = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
    server = subprocess.Popen(
        [
            sys.executable, "-m", "mindspore_rec.serving", str(root), "--port", "0",
            *(options if runtime == "mindspore" else []),
            *(["--workers", str(workers)] if workers > 1 else []),
        ],
        env={
            **os.environ,
            "PYTHONPATH": path,
            "SERVING_LOAD_HIDDEN": ",".join(map(str, hidden)),
        },
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert server.stdout is not None
    lines = [server.stdout.readline() for _ in range(1 + workers)]
    if not all(f"answers by {runtime}" in line for line in lines[1:]):
        server.kill()
        raise RuntimeError(f"the server did not start with {runtime}: {lines}")
    return server, int(lines[0].split(":")[2].split("/")[0])


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__.split("\n")[0])
    parser.add_argument("--keys", type=int, default=500_000, help="rows of the table")
    parser.add_argument("--batch", type=int, default=1024, help="samples of a delta")
    parser.add_argument("--rate", type=float, default=200, help="requests a second")
    parser.add_argument("--rows", type=int, default=1, help="of a request")
    parser.add_argument("--clients", type=int, default=8, help="connections")
    parser.add_argument("--seconds", type=float, default=15, help="of a phase")
    parser.add_argument("--rounds", type=int, default=4, help="of a quiet phase and one of deltas")
    parser.add_argument("--hidden", type=int, nargs="+", default=HIDDEN, help="widths of the MLP")
    parser.add_argument("--workers", type=int, default=1, help="processes that answer")
    parser.add_argument("--runtime", choices=RUNTIMES, default=RUNTIMES[0], help="of answers")
    options = parser.parse_args()
    deltas = int(options.rounds * (options.seconds + 1)) + 1
    with tempfile.TemporaryDirectory() as directory:
        staged, root = Path(directory) / "staged", Path(directory) / "run"
        context = multiprocessing.get_context("spawn")
        trainer = context.Process(target=train, args=(staged, options, deltas))
        trainer.start()
        trainer.join()
        if trainer.exitcode:
            raise SystemExit("the training failed")
        root.mkdir()
        for name in (FULL, "network"):
            (staged / name).rename(root / name)
        figures = measure(staged, root, options)
    print(json.dumps(figures, indent=2))
    bench_common.save(options.json, {**vars(options), "json": None, **figures})


def processes_of(server: subprocess.Popen[str]) -> list[str]:
    """Return the process ids of a server."""
    started = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return [str(server.pid), *started]


def cpu_seconds(server: subprocess.Popen[str]) -> float:
    """Return the CPU seconds of a server's processes so far."""
    ticks = 0
    for pid in processes_of(server):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # ticks in user mode and in the kernel
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_of(server: subprocess.Popen[str]) -> dict[str, float]:
    """Return the memory of a server's processes in MB: the sum of proportional shares (PSS)."""
    processes = processes_of(server)
    megabytes: dict[str, float] = {}
    for pid in processes:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("Pss", "Pss_Shmem"):
                megabytes[name] = megabytes.get(name, 0) + int(value.split()[0]) * 1.024 / 1000
    return {
        "processes": len(processes),
        "memory_mb": round(megabytes["Pss"], 1),
        "of_it_shared_rows_mb": round(megabytes["Pss_Shmem"], 1),
    }


def measure(staged: Path, root: Path, options: Any) -> dict[str, Any]:
    """Measure phases with and without deltas, and return the results."""
    waiting = sorted(staged.glob(DELTAS))
    rows = [
        json.loads((path / "manifest.json").read_text())["tables"]["bench.serving"]["rows"]
        for path in waiting
    ]
    released: dict[int, float] = {}

    def release() -> None:
        path = waiting.pop(0)
        released[int(path.name.partition(".")[0])] = time.perf_counter()
        path.rename(root / path.name)

    sys.setswitchinterval(0.0005)
    begun = time.perf_counter()
    server, port = start_server(root, options.runtime, options.hidden, options.workers)
    ready = time.perf_counter() - begun
    try:
        with Load(port, options) as load:
            load.phase("warmup", 3, lambda: None)
            load.phase("warmup", 2, release)
            computed = cpu_seconds(server)
            for number in tqdm(range(options.rounds), desc="rounds", leave=False, disable=None):
                load.phase(f"quiet {number}", options.seconds, lambda: None)
                load.phase(f"deltas {number}", options.seconds, release)
            computed = cpu_seconds(server) - computed
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/status")
        status = json.loads(connection.getresponse().read())
        memory = memory_of(server)
    finally:
        server.terminate()
        server.wait()
    kinds = {
        kind: [
            each for name, some in load.latencies.items() if name.startswith(kind) for each in some
        ]
        for kind in ("quiet", "deltas")
    }
    quiet, busy = (milliseconds(kinds[kind]) for kind in ("quiet", "deltas"))
    seen = [at - released[version] for at, version in load.versions if version in released]
    return {
        "quiet_ms": quiet,
        "deltas_ms": busy,
        "p50_ratio": round(busy["p50"] / quiet["p50"], 3),
        "p99_ratio": round(busy["p99"] / quiet["p99"], 3),
        "p99_ratio_by_round": [
            round(
                milliseconds(load.latencies[f"deltas {i}"])["p99"]
                / milliseconds(load.latencies[f"quiet {i}"])["p99"],
                3,
            )
            for i in range(options.rounds)
        ],
        "requests_a_second": round(
            sum(len(each) for each in kinds.values()) / (2 * options.rounds * options.seconds), 1
        ),
        "cpu_ms_a_request": round(1000 * computed / sum(len(each) for each in kinds.values()), 3),
        "seconds_to_start": round(ready, 2),
        **memory,
        "failed_requests": len(load.failed),
        "failures": load.failed[:3],
        "rows_of_a_delta": int(np.median(rows)),
        "deltas_released": len(released),
        "deltas_applied": status["deltas_applied"],
        "seconds_from_directory_to_answer": round(float(np.median(seen)), 3),
        "error": status["error"],
    }


if __name__ == "__main__":
    main()
