# SPDX-License-Identifier: Apache-2.0
"""Long load test of a server, over HTTP and gRPC, with ordinary and misbehaving clients.

    python tools/serving_soak.py --seconds 3600 --json output/serving_soak.json

Clients send requests at a fixed rate, over persistent and new connections, and check the answers.
Misbehaving clients (`strangers.py`) send three kinds of input: requests without a token; requests
that are slow, incomplete, compressed or too large; and bytes that are not a request. Memory,
threads, open files and CPU time of the server, and the 99th percentile of the clients' latency,
must not grow. The slope of a value is the median slope over all pairs of samples after the warm-up.
The test fails if a value grows, with 95 % confidence, by more than the value's limit.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import random
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import bench_common
import numpy as np
from serving_load import FIELDS, HIDDEN, NUMBERS, train
from strangers import STRANGERS, Place
from tqdm import tqdm

INFER = "/inference.GRPCInferenceService/ModelInfer"
KINDS = ["http kept", "http new", "grpc kept", "grpc new"]
TOLERANCE = 1e-4  # of an answer: the last bits depend on what else is computed together
ALLOWED = {
    "memory_mb": (32.0, 0.0),
    "threads": (2.0, 0.0),
    "files": (16.0, 0.05),
    "cpu": (0.02, 0.10),
    "p99_ms": (1.0, 0.25),
}  # growth that counts as flat: absolute, and of the median


class Request:
    """A request, encoded for gRPC and for HTTP."""

    def __init__(self, keys: int, seed: int) -> None:
        from mindspore_rec.serve.protocol.open_inference import message

        rng = np.random.default_rng(seed)
        ids = bench_common.spread_keys(rng.integers(0, keys, (1, FIELDS)))
        numbers = rng.random((1, NUMBERS)).astype(np.float32)
        inputs: list[dict[str, Any]] = []
        for name, kind, array in (("ids", "INT64", ids), ("numbers", "FP32", numbers)):
            inputs.append({"name": name, "datatype": kind, "shape": list(array.shape)})
        asked = message("ModelInferRequest")(model_name="model", inputs=inputs)
        asked.raw_input_contents.extend([ids.tobytes(), numbers.tobytes()])
        self.grpc: bytes = asked.SerializeToString()
        for each, array in zip(inputs, (ids, numbers), strict=True):
            each["data"] = array.ravel().tolist()
        self.http = json.dumps({"inputs": inputs}).encode()
        self.answer_of = message("ModelInferResponse").FromString


class Client(threading.Thread):
    """Thread that sends requests at a fixed rate; latencies count from the requests' due times."""

    def __init__(self, kind: str, place: Place, request: Request, period: float) -> None:
        super().__init__(daemon=True)
        self.kind, self._place, self._request, self._period = kind, place, request, period
        self.latencies: list[tuple[float, float]] = []  # when, seconds
        self.failed: list[str] = []
        self._kept: Any = None
        self._expected: float | None = None

    def run(self) -> None:
        """Send requests at the client's rate until the process ends."""
        due = time.time() + self._period * self._place.rng.random()
        while True:
            time.sleep(max(0.0, due - time.time()))
            try:
                self._check(self._http() if self.kind.startswith("http") else self._grpc())
            except Exception as error:
                self.failed.append(f"{self.kind}: {error!r}"[:300])
                self._kept = None
            now = time.time()
            self.latencies.append((now, now - due))
            due = max(due + self._period, now - 1)  # a second behind at most

    def _check(self, answer: float) -> None:
        if self._expected is None:
            self._expected = answer
        if abs(answer - self._expected) > TOLERANCE:
            raise ValueError(f"answered {answer}, before {self._expected}")

    def _http(self) -> float:
        connection = self._kept or http.client.HTTPConnection(
            "127.0.0.1", self._place.http, timeout=60
        )
        headers = dict([self._place.authorized])
        connection.request("POST", "/v2/models/model/infer", self._request.http, headers)
        response = connection.getresponse()
        text = response.read()
        if response.status != 200:
            raise RuntimeError(f"{response.status} {text[:200]!r}")
        self._done(connection)
        return float(json.loads(text)["outputs"][0]["data"][0])

    def _grpc(self) -> float:
        import grpc

        options = [("grpc.use_local_subchannel_pool", 1)]  # or channels would share a connection
        place = f"127.0.0.1:{self._place.grpc}"
        channel = self._kept or grpc.insecure_channel(place, options=options)
        asked = channel.unary_unary(INFER, response_deserializer=self._request.answer_of)
        answer = asked(self._request.grpc, metadata=[self._place.authorized], timeout=60)
        self._done(channel)
        return float(np.frombuffer(answer.raw_output_contents[0], "<f4")[0])

    def _done(self, connection: Any) -> None:
        if self.kind.endswith("kept"):
            self._kept = connection
        else:
            connection.close()


def ask(place: Place, keys: int, rate: float, seed: int, pipe: Any) -> None:
    """Run the clients; answer each message in `pipe` with the clients' latencies and failures."""
    sys.setswitchinterval(0.0005)
    clients = [
        Client(kind, place, Request(keys, seed), len(KINDS) / rate * 2) for kind in KINDS * 2
    ]
    for each in clients:
        each.start()
    while pipe.recv() is not None:
        latencies: dict[str, list[float]] = {kind: [] for kind in KINDS}
        failed: list[str] = []
        for each in clients:
            new, each.latencies = each.latencies, []
            latencies[each.kind] += [seconds for _, seconds in new]
            new_failures, each.failed = each.failed, []
            failed += new_failures
        pipe.send((latencies, failed))


def disturb(place: Place, rate: float, seed: int, pipe: Any) -> None:
    """Run misbehaving clients; answer each message in `pipe` with the counts per kind of client."""
    came: Counter[str] = Counter()

    def stranger(number: int) -> None:
        rng = random.Random(f"{seed} {number}")
        own = Place(place.http, place.grpc, place.token, place.stay, rng)
        while True:
            time.sleep(rng.expovariate(rate / threads))
            does = rng.choice(STRANGERS)
            try:
                does(own)
                came[does.__name__] += 1
            except OSError:  # the server has closed the connection
                came[f"{does.__name__}, closed"] += 1

    threads = max(4, int(2 * rate))
    for number in range(threads):
        threading.Thread(target=stranger, args=(number,), daemon=True).start()
    while pipe.recv() is not None:
        pipe.send(dict(came))


def start(root: Path, token: str, options: Any) -> tuple[subprocess.Popen[str], int, int]:
    """Start a server with tokens, HTTP, gRPC and an access log; return the process and ports."""
    tokens = root.with_name("tokens")
    tokens.write_text(token)
    tokens.chmod(0o600)
    server = subprocess.Popen(
        [sys.executable, "-m", "mindspore_rec.serving", str(root), "--port", "0",
         "--grpc-port", "0", "--token-file", str(tokens),
         "--receive-seconds", str(options.receive_seconds),
         "--access-log", str(root.with_name("access.log"))],
        env={**os.environ, "PYTHONPATH": str(bench_common.ROOT)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stdout is not None
    ports: dict[str, int] = {}
    for line in server.stdout:
        match = re.match(r"listening at (http|grpc)://[^:]+:(\d+)", line)
        if match is not None:
            ports[match[1]] = int(match[2])
        if "answers by" in line:
            return server, ports["http"], ports["grpc"]
    raise RuntimeError("the server did not start")


def looked_at(pid: int) -> dict[str, float]:
    """Return the memory, CPU seconds, number of threads and number of open files of a process."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return {
        "memory_mb": int(status["VmRSS"].split()[0]) * 1024 / 1e6,
        "threads": int(status["Threads"]),
        "files": len(os.listdir(f"/proc/{pid}/fd")),
        "cpu_seconds": ticks / os.sysconf("SC_CLK_TCK"),
    }


def thread_names(pid: int) -> dict[str, int]:
    """Return the number of threads per thread name; digits at the end of a name are removed."""
    names: Counter[str] = Counter()
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            names[task.joinpath("comm").read_text().strip().rstrip("0123456789 :-_")] += 1
        except OSError:  # it has ended
            continue
    return dict(names)


def milliseconds(latencies: list[float], percent: float, waited: float) -> float:
    """Return a percentile of the latencies, in milliseconds; if there are none, return `waited`.

    Latencies and `waited` are in seconds.
    """
    return round(float(np.percentile(latencies or [waited], percent)) * 1000, 3)


def growth(times: np.ndarray, values: np.ndarray) -> dict[str, float]:
    """Return how much a series grows from its start to its end, and the median of the series.

    The slope is the median of the slopes between all pairs of samples (Theil and Sen), so that
    spikes hardly change the slope. The result's value `surely` is the growth for the smallest slope
    in the 95 % confidence interval. The interval is computed with Kendall's variance.
    """
    first, second = np.triu_indices(len(times), 1)
    slopes = np.sort((values[second] - values[first]) / (times[second] - times[first]))
    count, span = len(times), float(times[-1] - times[0])
    wide = 1.96 * np.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    lowest = max(0, int((len(slopes) - wide) / 2))
    return {
        "growth": round(float(np.median(slopes)) * span, 4),
        "surely": round(float(slopes[lowest]) * span, 4),
        "median": round(float(np.median(values)), 4),
        "most": round(float(values.max()), 4),
    }


def soak(server: subprocess.Popen[str], place: Place, options: Any) -> dict[str, Any]:
    """Send load to the server; return the samples, each value's growth and each value's limit."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for work in (
        (ask, (place, options.keys, options.rate, options.seed)),
        (disturb, (place, options.strangers, options.seed)),
    ):
        here, there = context.Pipe()
        pipes.append(here)
        processes.append(context.Process(target=work[0], args=(*work[1], there), daemon=True))
        processes[-1].start()
    clients, strangers = pipes
    samples: list[dict[str, Any]] = []
    failed: list[str] = []
    requests = 0
    begin = time.monotonic()
    before, at = looked_at(server.pid), begin
    with tqdm(total=int(options.seconds), desc="soak", unit="s", leave=False, disable=None) as bar:
        while (now := time.monotonic() - begin) < options.seconds:
            bar.update(int(now) - bar.n)
            time.sleep(options.every)
            clients.send("tell")
            latencies, failures = clients.recv()
            usage, now_at = looked_at(server.pid), time.monotonic()
            cpu = (usage.pop("cpu_seconds") - before["cpu_seconds"]) / (now_at - at)
            before, at = looked_at(server.pid), now_at
            failed += failures
            every = [each for some in latencies.values() for each in some]
            requests += len(every)
            samples.append({
                "seconds": round(at - begin, 1), **usage, "cpu": round(cpu, 4),
                "p50_ms": milliseconds(every, 50, options.every),
                "p99_ms": milliseconds(every, 99, options.every),
                "p99_ms_of": {
                    kind: milliseconds(some, 99, options.every) for kind, some in latencies.items()
                },
                "requests": len(every), "failed": len(failures),
                "thread_names": thread_names(server.pid),
            })  # fmt: skip
    strangers.send("tell")
    came = strangers.recv()
    for each in processes:
        each.kill()
    time.sleep(2 * options.receive_seconds + 2)  # until all clients' connections have ended
    left = looked_at(server.pid)
    kept = samples[len(samples) // 5 :]
    times = np.array([each["seconds"] for each in kept])
    flat = {}
    for name, (absolute, relative) in ALLOWED.items():
        of = growth(times, np.array([each[name] for each in kept], np.float64))
        of["allowed"] = round(max(absolute, relative * of["median"]), 4)
        flat[name] = {**of, "flat": of["surely"] <= of["allowed"]}
    more = Counter(kept[-1]["thread_names"])
    more.subtract(kept[0]["thread_names"])
    return {
        "requests": requests, "failed_requests": len(failed), "failures": failed[:5],
        "strangers": dict(sorted(came.items())), "strangers_in_all": sum(came.values()),
        "flat": flat, "more_threads": {name: count for name, count in more.items() if count},
        "files_at_the_end": left["files"], "threads_at_the_end": left["threads"],
        "memory_mb_at_the_end": round(left["memory_mb"], 1), "samples": samples,
    }  # fmt: skip


def main() -> None:
    """Run the load and print the results; fail if a value has grown or too many requests failed."""
    parser = bench_common.parser(__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=180, help="of load")
    parser.add_argument("--every", type=float, default=10, help="seconds between samples")
    parser.add_argument("--rate", type=float, default=60, help="requests of clients a second")
    parser.add_argument("--strangers", type=float, default=8, help="that come in a second")
    parser.add_argument("--receive-seconds", type=float, default=5, help="of the server")
    parser.add_argument("--keys", type=int, default=20_000, help="rows of the table")
    parser.add_argument("--batch", type=int, default=64, help="samples of a step of the training")
    parser.add_argument("--hidden", type=int, nargs="+", default=HIDDEN, help="widths of the MLP")
    parser.add_argument(
        "--most-failed", type=float, default=0.001, help="share of the clients' requests"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "run"
        trainer = multiprocessing.get_context("spawn").Process(
            target=train, args=(root, options, 2)
        )
        trainer.start()
        trainer.join()
        if trainer.exitcode:
            raise SystemExit("the training failed")
        token = secrets.token_urlsafe(24)
        server, *ports = start(root, token, options)
        try:
            place = Place(*ports, token, options.receive_seconds, random.Random(options.seed))
            figures = soak(server, place, options)
        finally:
            server.terminate()
            server.wait()
    bench_common.save(options.json, {**vars(options), "json": None, **figures})
    print(
        f"{figures['requests']} requests, {figures['failed_requests']} failed; "
        f"{figures['strangers_in_all']} strangers"
    )
    wrong = []
    for name, of in figures["flat"].items():
        verdict = "flat" if of["flat"] else "NOT FLAT"
        print(
            f"{name:10} median {of['median']:9.2f}, grew by {of['growth']:+8.2f} "
            f"(surely {of['surely']:+.2f}, at most {of['allowed']:.2f}): {verdict}"
        )
        wrong += [] if of["flat"] else [name]
    print(f"more threads than after the warm-up, by name: {figures['more_threads'] or 'none'}")
    print(
        f"afterwards {figures['threads_at_the_end']:.0f} threads, "
        f"{figures['files_at_the_end']:.0f} files, {figures['memory_mb_at_the_end']:.0f} MB"
    )
    if figures["failed_requests"] > options.most_failed * figures["requests"]:
        wrong.append("failed requests")
        print("\n".join(figures["failures"]))
    if wrong:
        raise SystemExit(f"FAILED: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
