# SPDX-License-Identifier: Apache-2.0
"""Seconds from an event to its effect on the predictor's answer, while 5,000 events/s arrive.

    PYTHONPATH=. python benchmarks/online_freshness.py --json output/online_freshness.json

All parts of examples/online_learning run on this machine: Kafka, a producer of the synthetic
stream, the feature worker, the trainer (one delta per second) and a `Predictor` in this process.
With `--serving-workers`, a server with this number of processes replaces the `Predictor`. Each HTTP
request uses a new connection, so that any process may answer. At random times, one event with new
keys is sent to the producer's topic. The script requests predictions for the event's keys until the
answer differs from the answer for unknown keys. The freshness is the time from just before the
event is sent until the answer differs. The freshness includes four waits: for Kafka, for full
batches in the worker and the trainer, for the next delta, and for the predictor to load the delta.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

os.environ.setdefault("GLOG_v", "3")

import bench_common
import mindspore as ms
import numpy as np
import pyarrow as pa
from tqdm import tqdm

from examples.online_learning.events import Clicks
from examples.online_learning.kafka.broker import Broker
from examples.online_learning.parts import EVENTS, Status, worker_count
from examples.online_learning.process import Part
from mindspore_rec.serving import Predictor
from mindspore_rec.stream import KafkaWriter, pack

NOBODY = -(1 << 40)  # values below NOBODY occur in no stream
MOVED = 0.1  # change of a logit; an event with eight new keys changes it by about 0.6
ASK_SECONDS = 0.02


class Answers(Protocol):
    """Interface of a source of predictions: a predictor in this process, or a server."""

    def predict(self, ids: np.ndarray) -> np.ndarray:
        """Return the logit of each row of `ids`."""
        ...

    def saved_at(self) -> float:
        """Return the time at which the newest served state was saved, in seconds since 1970."""
        ...


class InProcess:
    """Predictor in this process."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    def predict(self, ids: np.ndarray) -> np.ndarray:
        """Return the logit of each row of `ids`."""
        return self._predictor.predict(ids)

    def saved_at(self) -> float:
        """Return the time at which the trainer saved the served state, in seconds since 1970."""
        return self._predictor.status().saved_at


class Server:
    """Server with several processes, which stops when the context ends.

    Args:
        root: directory of the run.
        workers: number of serving processes.

    Raises:
        RuntimeError: the server did not start.
    """

    def __init__(self, root: Path, workers: int) -> None:
        wait = ["--wait-seconds", "120"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mindspore_rec.serving", str(root), "--port", "0", *wait,
             "--workers", str(workers)],
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        lines = [self._process.stdout.readline() for _ in range(1 + workers)]
        if not all(lines):
            self.__exit__()
            raise RuntimeError(f"the server did not start: {lines}")
        self._port = int(lines[0].split(":")[2].split("/")[0])

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait(30)

    def predict(self, ids: np.ndarray) -> np.ndarray:
        """Return the logit of each row of `ids`."""
        tensor = {"name": "ids", "shape": ids.shape, "datatype": "INT64", "data": ids.tolist()}
        answer = self._ask("POST", "/v2/models/model/infer", json.dumps({"inputs": [tensor]}))
        (output,) = answer["outputs"]
        return np.array(output["data"], np.float32).reshape(output["shape"])

    def saved_at(self) -> float:
        """Return the time at which the server's newest state was saved, in seconds since 1970."""
        return float(self._ask("GET", "/status")["saved_at"])

    def _ask(self, method: str, path: str, body: str | None = None) -> Any:
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        ) as connection:
            connection.request(method, path, body)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{path}: {answer.status} {text[:200]!r}")
            return json.loads(text)


@dataclass
class Probe:
    """An event that was sent, but has no effect yet.

    Args:
        value: number that all fields of the event contain.
        sent: time of sending, in seconds since 1970.
    """

    value: int
    sent: float


class Prober:
    """Sender of events with new keys.

    The sender waits until the predictor's answers reflect the events.

    Args:
        events: stream events to which the probes are added.
        brokers: addresses of Kafka.
        predictor: predictor or server that answers the requests.
    """

    def __init__(self, events: Clicks, brokers: str, predictor: Answers) -> None:
        self._events, self._predictor = events, predictor
        self._pipeline = events.pipeline()
        self._writer = KafkaWriter(brokers)
        self._sent = 0
        self.waiting: list[Probe] = []
        self.seen: list[dict[str, float]] = []

    def send(self) -> None:
        """Send one event: a click whose keys are all new."""
        self._sent += 1
        probe = Probe(NOBODY - self._sent, time.time())
        self._writer.send(EVENTS, 0, pack(self._event(probe.value, probe.sent)))
        self.waiting.append(probe)

    def ask(self) -> None:
        """Request predictions, to find the events that have changed the predictor's answers."""
        if not self.waiting:
            return
        rows = [self._event(NOBODY, 0.0), *(self._event(p.value, 0.0) for p in self.waiting)]
        ids = self._pipeline.apply(pa.Table.from_batches(rows).combine_chunks().to_batches()[0])
        logit = self._predictor.predict(ids["ids"])[:, 0]
        answered, saved_at = time.time(), self._predictor.saved_at()
        for probe, moved in zip(
            list(self.waiting), np.abs(logit[1:] - logit[0]) > MOVED, strict=True
        ):
            if moved:
                self.waiting.remove(probe)
                self.seen.append(
                    {
                        "seconds": answered - probe.sent,
                        "until_snapshot": saved_at - probe.sent,
                        "after_snapshot": answered - saved_at,
                    }
                )

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    def _event(self, value: int, sent: float) -> pa.RecordBatch:
        columns: dict[str, Any] = {name: [value] for name in self._events.schema.names}
        columns.update(row=[0], sent=[sent], click=[1])
        return pa.RecordBatch.from_pydict(columns, self._events.schema)


def wait_for_training(parts: list[Part], status: Status, rows: int, seconds: float) -> None:
    """Wait until the trainer has trained on `rows` events.

    Raises:
        RuntimeError: the trainer has trained on fewer than `rows` events after `seconds` seconds.
    """
    deadline = time.monotonic() + seconds
    with tqdm(total=rows, desc="warm up", leave=False, disable=None) as bar:
        while (trained := status.read().get("trained", 0)) < rows:
            bar.update(trained - bar.n)
            for part in parts:
                part.keep_up()
            if time.monotonic() > deadline:
                raise RuntimeError(f"only {trained} events were trained in {seconds} seconds")
            time.sleep(0.5)


def measure(prober: Prober, probes: int, every: float, patience: float, seed: int) -> None:
    """Send the probes at random times, and request predictions until each probe has an effect.

    Stop `patience` seconds after the last probe, even if a probe has no effect.
    """
    rng = np.random.default_rng(seed)
    due = time.monotonic()
    with tqdm(total=probes, desc="probes", leave=False, disable=None) as bar:
        left, deadline = probes, float("inf")
        while (left or prober.waiting) and time.monotonic() < deadline:
            if left and time.monotonic() >= due:
                prober.send()
                left -= 1
                due = time.monotonic() + every * rng.uniform(0.5, 1.5)
                deadline = time.monotonic() + patience
            prober.ask()
            bar.update(len(prober.seen) - bar.n)
            time.sleep(ASK_SECONDS)


def figures_of(prober: Prober) -> dict[str, Any]:
    """Return quantiles of the probes' freshness; a probe that had no effect counts as infinity."""
    values = np.array([seen["seconds"] for seen in prober.seen] + [np.inf] * len(prober.waiting))
    quantiles = {
        f"p{q}": round(float(np.quantile(values, q / 100, method="higher")), 2)
        for q in (5, 50, 90, 99)
    }
    return {
        "probes": len(values),
        "lost": len(prober.waiting),
        **quantiles,
        "mean": round(float(values.mean()), 2),
        "most": round(float(values.max()), 2),
        **{
            f"{name}_median": round(float(np.median([seen[name] for seen in prober.seen])), 2)
            for name in ("until_snapshot", "after_snapshot")
        },
        "all": [round(float(value), 3) for value in np.sort(values)],
    }


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__.split("\n")[0])
    parser.add_argument("--rate", type=float, default=5000.0, help="events a second")
    parser.add_argument(
        "--workers", type=worker_count, default=1, help="processes that train together"
    )
    parser.add_argument(
        "--serving-workers", type=int, default=0,
        help="processes of a server that answers; 0 for a predictor in this process",
    )  # fmt: skip
    parser.add_argument("--probes", type=int, default=60)
    parser.add_argument("--every", type=float, default=1.3, help="seconds between probes, mean")
    parser.add_argument("--delta-seconds", type=float, default=1.0)
    parser.add_argument("--full-seconds", type=float, default=30.0)
    parser.add_argument("--warm-up", type=int, default=100_000, help="events trained before")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds for the last probe")
    options = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    events = Clicks()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(Broker(directory / "kafka")).address
        common = ["--directory", str(directory), "--brokers", broker]
        deltas = ["--delta-seconds", str(options.delta_seconds)]
        fulls = ["--full-seconds", str(options.full_seconds)]
        parts = [
            Part("trainer", directory, [*common, *deltas, *fulls], options.workers),
            Part("worker", directory, [*common, "--shards", str(options.workers)]),
            Part("producer", directory, [*common, "--rate", str(options.rate)]),
        ]
        for part in parts:
            stack.callback(part.stop)
            part.keep_up()
        status, producer = Status(directory, "trainer"), Status(directory, "producer")
        root = directory / "checkpoints"
        predictor: Answers
        if options.serving_workers:
            while not any(root.glob("*/manifest.json")):  # needed to open the port
                for part in parts:
                    part.keep_up()
                time.sleep(0.2)
            predictor = stack.enter_context(Server(root, options.serving_workers))
        else:
            predictor = InProcess(stack.enter_context(Predictor(root, wait_seconds=120.0)))
        wait_for_training(parts, status, options.warm_up, 300.0)
        prober = Prober(events, broker, predictor)
        stack.callback(prober.close)
        before = status.read()
        begun_behind = producer.read()["sent"] - before["trained"]
        measure(prober, options.probes, options.every, options.patience, options.seed)
        after = status.read()
        figures = {
            **figures_of(prober),
            "trained_per_second": round(
                (after["trained"] - before["trained"]) / (after["at"] - before["at"])
            ),
            "behind_before": begun_behind,
            "behind_after": producer.read()["sent"] - after["trained"],
            "restarts": sum(part.starts - 1 for part in parts),
        }
    print({name: value for name, value in figures.items() if name != "all"})
    bench_common.save(options.json, {**vars(options), "json": None, **figures})


if __name__ == "__main__":
    main()
