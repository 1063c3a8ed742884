# SPDX-License-Identifier: Apache-2.0
"""Online learning on this machine: Kafka, producer, feature worker, trainer and predictor.

    python examples/online_learning/run.py
    python examples/online_learning/run.py --data DIR --speed 2e6
    python examples/online_learning/run.py --kill-every 20

Shows a line a second. Ctrl-C ends everything in order; started again with the same directory, it
resumes. A part that ends is restarted. Needs Java 17 and Maven for Kafka.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # `examples` is not in the wheel

from examples.online_learning.kafka.broker import Broker
from examples.online_learning.parts import Status, parser, stopped_in_order
from examples.online_learning.producer import add_pace, check_pace

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
QUICK_ENDS = 3  # of a part in succession, after which it is given up
SOON = 20.0  # seconds


class Part:
    """Process of one part of the example, restarted when it ends.

    Args:
        name: name of the script.
        directory: directory of the run.
        arguments: arguments of the script.
    """

    def __init__(self, name: str, directory: Path, arguments: list[str]) -> None:
        self.name = name
        self.starts = 0
        self._command = [sys.executable, str(HERE / f"{name}.py"), *arguments]
        self._log = directory / "logs" / f"{name}.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._quick = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._began = self._started = 0.0

    def keep_up(self) -> None:
        """Start the process if it does not run.

        Raises:
            RuntimeError: the process ended soon after each of several starts.
        """
        if self._process is not None:
            if self._process.poll() is None:
                return
            killed = self._process.returncode == -signal.SIGKILL
            soon = time.monotonic() < self._began + SOON
            self._quick = self._quick + 1 if soon and not killed else 0
            if self._quick >= QUICK_ENDS:
                end = self._log.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise RuntimeError(f"{self.name} does not run; the end of {self._log}:\n{end}")
        self._began, self._started = time.monotonic(), time.time()
        self.starts += 1
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,  # a Ctrl-C in the terminal is for the runner to handle
                preexec_fn=_end_with_parent,
            )

    def has_spoken(self, directory: Path) -> bool:
        """Return whether the part has reported figures since its last start."""
        return bool(Status(directory, self.name).read().get("at", 0.0) > self._started)

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        if self._process is not None:
            self._process.kill()

    def stop(self, timeout: float = 60.0) -> None:
        """End the process in order, or by force after `timeout` seconds."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_with_parent() -> None:
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)


class Line:
    """Line of figures that is shown each second.

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


def _enough(options: Any, seconds: float, figures: dict[str, Any]) -> bool:
    if options.events is not None and figures.get("freshness") is not None:
        if figures["trained"] >= options.events:
            return True
    return options.seconds is not None and seconds >= options.seconds


def run(options: Any, parts: dict[str, Part], line: Line) -> None:
    """Show lines until the run ends, by its limits or by Ctrl-C."""
    began = time.monotonic()
    training_since: float | None = None
    kills = float("inf") if options.kills is None else options.kills
    while not _enough(options, time.monotonic() - began, line.figures):
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
        text = line.text(parts["trainer"].starts)
        end = "\r" if sys.stdout.isatty() else "\n"
        print(text + ("\x1b[K" if end == "\r" else ""), end=end, flush=True)
        time.sleep(1.0)


def main() -> None:
    """Run all parts."""
    made = parser(__doc__.split("\n")[0])
    made.set_defaults(brokers=None)
    add_pace(made)
    made.add_argument("--seconds", type=float, help="end after so long; without, at Ctrl-C")
    made.add_argument(
        "--events",
        type=int,
        help="end when so many are trained, over all runs, and the predictor follows",
    )
    made.add_argument("--json", type=Path, help="write the figures of all lines to this file")
    made.add_argument(
        "--kill-every", type=float, help="kill -9 a trainer that has trained so many seconds"
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
        common += ["--brokers", options.brokers or (broker.address if broker else "")]
        arguments = {"producer": pace, "worker": [], "trainer": [], "serve": []}
        parts = {
            name: Part(name, options.directory, common + own) for name, own in arguments.items()
        }
        for name in parts:
            Status(options.directory, name).clear()  # of an earlier run
        line = Line(options.directory)
        try:
            run(options, parts, line)
        finally:
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
