# SPDX-License-Identifier: Apache-2.0
"""Code that the parts of the example share: options, topic names, status files."""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = [
    "BROKERS",
    "CHANNEL",
    "DATASET",
    "EVENTS",
    "NAMESPACE",
    "PROCESSES",
    "Status",
    "parser",
    "stopped_in_order",
    "worker_count",
]

BROKERS = "127.0.0.1:9092"
EVENTS = "events"  # topic of the producer
NAMESPACE, DATASET = "online", "features"  # the channel from feature worker to trainer
CHANNEL = f"{NAMESPACE}.{DATASET}"  # its topic
PROCESSES = "trainer_processes"  # status with the ids of the trainer's workers
MOST_WORKERS = 64  # on one machine


def parser(description: str) -> argparse.ArgumentParser:
    """Return an argument parser with the options of every part."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    made.add_argument(
        "--directory", type=Path, default=Path("online_run"), help="of the run: states, checkpoints"
    )
    made.add_argument("--brokers", default=BROKERS, help="of Kafka")
    made.add_argument(
        "--data",
        type=Path,
        help="MovieLens, ratings.csv and movies.csv; without, a synthetic stream",
    )
    return made


def worker_count(text: str) -> int:
    """Return the number of workers that the command line sets.

    Raises:
        argparse.ArgumentTypeError: the text is not a whole number from 1 to 64.
    """
    if not text.isdecimal() or not 1 <= int(text) <= MOST_WORKERS:
        raise argparse.ArgumentTypeError(
            f"must be a whole number from 1 to {MOST_WORKERS}, got {text!r}"
        )
    return int(text)


class Status:
    """Newest metrics of one program of the example, in a small file that the other programs read.

    Args:
        directory: directory of the run; made if missing.
        part: name of the part of the example, such as "trainer".
    """

    def __init__(self, directory: Path, part: str) -> None:
        self._path = directory / "status" / f"{part}.json"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._part = part
        self._said = 0.0

    def say(self, **figures: Any) -> None:
        """Replace the metrics in the file, and print the metrics at most once per second."""
        now = time.time()
        beside = self._path.with_suffix(".partial")
        beside.write_text(json.dumps({**figures, "at": now}), encoding="utf-8")
        os.replace(beside, self._path)
        if now >= self._said + 1.0:
            self._said = now
            shown = ", ".join(f"{name} {_short(value)}" for name, value in figures.items())
            print(f"{self._part}: {shown}", flush=True)

    def read(self) -> dict[str, Any]:
        """Return the newest metrics; the dict is empty if no metrics were written yet."""
        try:
            figures: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return figures

    def clear(self) -> None:
        """Delete the file with the metrics."""
        self._path.unlink(missing_ok=True)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4f}" if abs(value) < 10 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


@contextmanager
def stopped_in_order() -> Iterator[None]:
    """While the context is open, Ctrl-C and SIGTERM end the program without a traceback."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for each in (signal.SIGINT, signal.SIGTERM):  # SIGINT too: it is ignored in a script's "&"
        signal.signal(each, end)
    try:
        yield
    except KeyboardInterrupt:
        print("stopped", flush=True)
