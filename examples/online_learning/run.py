# SPDX-License-Identifier: Apache-2.0
"""Online learning on this machine: Kafka, producer, feature worker, trainer and predictor.

    python examples/online_learning/run.py
    python examples/online_learning/run.py --data DIR --speed 2e6
    python examples/online_learning/run.py --kill-every 20
    python examples/online_learning/run.py --workers 2

The runner prints one line per second. Ctrl-C ends all parts cleanly. If a run is started again with
the same directory, it resumes. A part that ends is restarted. The runner needs Java 17 and Maven
for Kafka.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # `examples` is not in the wheel

from examples.online_learning.kafka.broker import Broker
from examples.online_learning.parts import (
    CHANNEL,
    Status,
    parser,
    stopped_in_order,
    worker_count,
)
from examples.online_learning.process import Part
from examples.online_learning.producer import add_pace, check_pace
from mindspore_rec.stream import ensure_topic


class Line:
    """Line of metrics that is printed each second.

    Args:
        directory: directory of the run.
    """

    def __init__(self, directory: Path) -> None:
        self._producer, self._trainer, self._serve = (
            Status(directory, part) for part in ("producer", "trainer", "serve")
        )
        self._began = time.time()
        self._last: tuple[float, int] | None = None
        self._rate = 0.0
        self.figures: dict[str, Any] = {}
        self.history: list[dict[str, Any]] = []

    def text(self, trainer_starts: int) -> str:
        """Return the line."""
        now = time.time()
        sent = self._producer.read().get("sent", 0)
        trained = self._trainer.read()
        serving = self._serve.read()
        self._measure(trained)
        figures: dict[str, Any] = {
            "seconds": round(now - self._began),
            "events_per_second": round(self._rate),
            "trained": trained.get("trained", 0),
            "lag": max(0, sent - trained.get("trained", 0)),
            "auc": trained.get("auc"),
            "version": serving.get("version"),
            "freshness": None,
            "trainer_restarts": trainer_starts - 1,
        }
        if serving.get("watermark") and serving["at"] > self._began:
            figures["freshness"] = round(serving["at"] - serving["watermark"], 1)
        self.figures = figures
        self.history.append(figures)
        auc, version, fresh = figures["auc"], figures["version"], figures["freshness"]
        parts = [
            f"{figures['seconds']:5d} s",
            f"{figures['events_per_second']:7,d} events/s",
            f"lag {figures['lag']:7,d}",
            "online AUC " + ("     -" if auc is None else f"{auc:.4f}"),
            "predictor at step " + ("-" if version is None else f"{version:,d}"),
            "freshness " + ("-" if fresh is None else f"{fresh:.1f} s"),
        ]
        if fresh is not None and figures["lag"] == 0 and not self._rate and not serving["lag"]:
            parts[-1] = "all is learned"
        if trainer_starts > 1:
            parts.append(f"trainer restarted {trainer_starts - 1} x")
        if serving.get("error"):
            parts.append(f"predictor: {serving['error']}")
        return " | ".join(parts)

    def _measure(self, trained: dict[str, Any]) -> None:
        if not trained:
            return
        at, rows = trained["at"], trained["trained"]
        if self._last is None or rows < self._last[1]:
            self._last = (at, rows)
        elif at >= self._last[0] + 1.0:
            self._rate = (rows - self._last[1]) / (at - self._last[0])
            self._last = (at, rows)
        elif time.time() > at + 3.0:
            self._rate = 0.0


def _enough(options: Any, seconds: float, figures: dict[str, Any], settled: bool) -> bool:
    """Return True if the run reached its time limit or, if `settled`, its limit of events."""
    if options.events is not None and settled and figures.get("freshness") is not None:
        if figures["trained"] >= options.events:
            return True
    return options.seconds is not None and seconds >= options.seconds


def run(options: Any, parts: dict[str, Part], line: Line) -> None:
    """Print lines until the run reaches a limit or the user presses Ctrl-C."""
    began = time.monotonic()
    training_since: float | None = None
    kills = float("inf") if options.kills is None else options.kills
    settled = False
    while not _enough(options, time.monotonic() - began, line.figures, settled):
        for name, part in parts.items():
            finished = name == "producer" and Status(options.directory, name).read().get("all_sent")
            if not (finished and part.starts):
                part.keep_up()
        now = time.monotonic()
        if not parts["trainer"].has_spoken(options.directory):
            training_since = None
        elif training_since is None:
            training_since = now
        elif options.kill_every is not None and kills > 0:
            if now >= training_since + options.kill_every:
                parts["trainer"].kill()
                kills -= 1
        spoken = parts["trainer"].has_spoken(options.directory)
        settled = spoken and (options.kills is None or kills == 0)
        text = line.text(parts["trainer"].starts)
        end = "\r" if sys.stdout.isatty() else "\n"
        print(text + ("\x1b[K" if end == "\r" else ""), end=end, flush=True)
        time.sleep(1.0)


def check_channel(brokers: str, workers: int) -> None:
    """Create the channel to the trainer, with one partition per worker.

    Raises:
        RuntimeError: the channel belongs to a run with a different number of workers. A run cannot
            continue with another number of workers, because positions in the stream are valid only
            for the same number of partitions, and because the run's batches cannot be made again.
    """
    there = ensure_topic(brokers, CHANNEL, workers)
    if there != workers:
        raise RuntimeError(
            f"--workers must be {there}, as this run was begun, got {workers}: give another "
            "--directory (or --brokers without a topic "
            f"{CHANNEL!r}) to begin one with {workers}"
        )


def main() -> None:
    """Run all parts."""
    made = parser(__doc__.split("\n")[0])
    made.set_defaults(brokers=None)
    add_pace(made)
    made.add_argument(
        "--workers",
        type=worker_count,
        default=1,
        help="processes that train together; the same for all runs in a directory",
    )
    made.add_argument("--seconds", type=float, help="end after so long; without, at Ctrl-C")
    made.add_argument(
        "--events",
        type=int,
        help="end when so many are trained, over all runs, after all --kills, and are served",
    )
    made.add_argument("--json", type=Path, help="write the figures of all lines to this file")
    made.add_argument(
        "--kill-every",
        type=float,
        help="kill -9 a trainer that has trained so many seconds; of several workers each in turn",
    )
    made.add_argument("--kills", type=int, help="with --kill-every: so often at most")
    options = made.parse_args()
    check_pace(made, options)
    if options.kills is not None and options.kill_every is None:
        made.error("--kills is for --kill-every")
    options.directory = options.directory.absolute()
    common = ["--directory", str(options.directory)]
    if options.data is not None:
        common += ["--data", str(options.data.absolute())]
    pace = []
    for name in ("rate", "speed"):
        if getattr(options, name) is not None:
            pace += [f"--{name}", str(getattr(options, name))]
    broker = Broker(options.directory / "kafka") if options.brokers is None else None
    with stopped_in_order():
        if broker is not None:
            print("starting Kafka; Maven fetches it the first time", flush=True)
            broker.start()
        brokers = options.brokers or (broker.address if broker else "")
        common += ["--brokers", brokers]
        shards = ["--shards", str(options.workers)]
        arguments = {"producer": pace, "worker": shards, "trainer": [], "serve": []}
        workers = {"trainer": options.workers}
        parts = {
            name: Part(name, options.directory, common + own, workers.get(name, 1))
            for name, own in arguments.items()
        }
        for name in parts:
            Status(options.directory, name).clear()  # of an earlier run
        line = Line(options.directory)
        try:
            check_channel(brokers, options.workers)
            run(options, parts, line)
        finally:
            if any(part.starts for part in parts.values()):
                print("\nstopping; the trainer saves", flush=True)
            for part in parts.values():  # the source first, so that all can finish
                part.stop()
            if broker is not None:
                broker.stop()
            if options.json is not None:
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps(line.history, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        raise SystemExit(f"error: {error}") from error
