# SPDX-License-Identifier: Apache-2.0
"""Topics of events for trainers over workers, and jobs of them that can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa

from mindspore_rec.common.stream.kafka_client import KafkaWriter
from mindspore_rec.stream import pack
from tests.support.processes import start_python
from tests.support.workers import PATIENCE, need_mpi

__all__ = ["BATCH", "PARTITIONS", "SCHEMA", "Job", "Run", "fill", "messages"]

SCRIPT = Path(__file__).with_name("workers_trainer.py")
BATCH = 48
PARTITIONS = 6
SCHEMA = pa.schema(
    {
        "user": pa.int64(),
        "item": pa.int64(),
        "shop": pa.int64(),
        "event": pa.int64(),
        "x": pa.float32(),
        "y": pa.float32(),
        "t": pa.float64(),
        "click": pa.int8(),
    }
)
_BEGIN = 1.7e9  # of events
_EVEN = BATCH // PARTITIONS


def messages(steps: int, *, even: bool, seed: int = 5) -> list[bytes]:
    """Return messages with the events of so many batches, and with some more.

    Users, items and shops come and go.

    Args:
        steps: number of batches.
        even: whether all messages have as many rows, so that a batch of any number of workers is
            one message of each partition. Else they have 1 to 16, and bad messages are between
            them.
        seed: of the random numbers.
    """
    rng = np.random.default_rng(seed)
    rows = steps * BATCH * (1 if even else 2)
    born = np.arange(rows) // 60  # ids drift: some are never seen again
    user = born + rng.zipf(1.5, rows).clip(0, 60)
    columns = {
        "user": user,
        "item": born // 2 + rng.zipf(1.3, rows).clip(0, 200),
        "shop": born // 4 + rng.integers(0, 9, rows),
        "event": rng.permutation(rows),
        "x": rng.normal(size=rows),
        "y": rng.normal(size=rows),
        "t": _BEGIN + np.arange(rows),
        "click": (rng.random(rows) < (user % 7 + 1) / 9).astype(np.int8),
    }
    table = pa.table(columns).cast(SCHEMA)
    made: list[bytes] = []
    begin = 0
    while begin < rows:
        size = _EVEN if even else int(rng.integers(1, 17))
        made.append(pack(table.slice(begin, size)))
        begin += size
        if not even and rng.random() < 0.05:
            made.append(b"poison")
    return made


def fill(brokers: str, topic: str, values: list[bytes]) -> None:
    """Send messages to the partitions in turn."""
    writer = KafkaWriter(brokers)
    for number, value in enumerate(values):
        writer.send(topic, number % PARTITIONS, value)
    writer.close()


@dataclass(frozen=True)
class Run:
    """One training, of however many jobs.

    Args:
        brokers, topic: where its events are.
        directory: for everything that it writes.
        name: of the training.
        steps: number of training steps.
        every_steps, delta_every_steps: steps between two checkpoints of each kind.
        dropout: rate of the dropout, whose masks are each worker's own.
        on_ssd: whether most rows of a table are on SSD, and read ahead.
        divided: what the workers divide: "partitions"; "rows", for features learn of the stream;
            or "given", partitions that the program gives to each.
    """

    brokers: str
    topic: str
    directory: Path
    name: str
    steps: int
    every_steps: int = 12
    delta_every_steps: int = 3
    dropout: float = 0.25
    on_ssd: bool = False
    divided: str = "partitions"

    @property
    def root(self) -> Path:
        """Directory of its checkpoints."""
        return self.directory / self.name

    @property
    def out(self) -> Path:
        """Directory of what the workers had at the end."""
        return self.directory / f"{self.name}.out"

    @property
    def dead(self) -> str:
        """Its own topic of dead letters."""
        return f"{self.topic}.{self.name}"

    def options(self, steps: int | None = None) -> str:
        """Return the trainer's argument, to train so many steps in all. Default: all."""
        return json.dumps(
            {
                "brokers": self.brokers,
                "topic": self.topic,
                "root": str(self.root),
                "out": str(self.out),
                "dead": self.dead,
                "batch": BATCH,
                "steps": self.steps if steps is None else steps,
                "every_steps": self.every_steps,
                "delta_every_steps": self.delta_every_steps,
                "dropout": self.dropout,
                "on_ssd": self.on_ssd,
                "divided": self.divided,
            }
        )

    def saving(self, kind: str) -> bool:
        """Return whether a checkpoint of a kind is being written, or was when its writer died."""
        return any(self.root.glob(f".tmp-*.{kind}.*"))

    def finish(self, workers: int, steps: int | None = None) -> Job:
        """Train to a step, in one job that nothing happens to; return the job."""
        with Job(self, workers, steps=steps) as job:
            assert job.end() == 0, job.printed()
        return job


class Job:
    """One call of the launcher; ended with the context.

    Args:
        run: what is trained.
        workers: number of workers.
        restarts: how often the launcher starts all of them again.
        steps: step to train to. Default: the last.

    Attributes:
        code: exit code of the launcher; None before its end.
        lives: how often the workers were started.
        pids: processes of the workers by rank, those that are known of this life.
        step: last step that was trained.
        restored: steps at which the lives began.
    """

    def __init__(
        self, run: Run, workers: int, *, restarts: int = 0, steps: int | None = None
    ) -> None:
        need_mpi()
        self.workers = workers
        self.code: int | None = None
        self.lives = 1
        self.pids: dict[int, int] = {}
        self.step = 0
        self.restored: list[int] = []
        self._heard: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        command = ["-m", "mindspore_rec.launch", "-n", str(workers)]
        command += ["--restarts", str(restarts), "--no-bind", "--threads-per-worker", "1"]
        self._process = start_python(*command, SCRIPT, run.options(steps), stderr=subprocess.STDOUT)
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()  # its workers end with it
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def printed(self) -> str:
        """Return what the job has printed."""
        return "".join(self._heard)

    def hear(self, seconds: float = PATIENCE) -> None:
        """Wait for a line of the job, or its end.

        Raises:
            TimeoutError: nothing came.
        """
        try:
            line = self._lines.get(timeout=max(seconds, 0.001))
        except queue.Empty:
            raise TimeoutError(f"nothing heard after step {self.step}: {self.printed()}") from None
        if line is None:
            self.code = self._process.wait()
            return
        self._heard.append(line)
        if re.match(r"mindspore_rec.launch: .*; restart \d+ of \d+$", line):
            self.lives += 1
            self.pids, self.step = {}, 0
        said = re.match(r"\[(\d+)\] (pid|step|restored) (\d+)$", line)
        if said is None:
            return
        rank, word, number = int(said[1]), said[2], int(said[3])
        if word == "pid":
            self.pids[rank] = number
        elif word == "step":
            self.step = number
        else:
            self.restored.append(number)

    def hear_all(self) -> None:
        """Take the lines that are there."""
        while self.code is None and not self._lines.empty():
            self.hear()

    def reach(self, step: int) -> bool:
        """Wait until all workers are there and have trained to a step; False if the job ended."""
        while self.code is None and (len(self.pids) < self.workers or self.step < step):
            self.hear()
        return self.code is None

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Send a worker a signal, if it is still there."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pids[rank], number)

    def kill_launcher(self) -> None:
        """Kill the launcher, with which mpirun and the workers end."""
        self._process.kill()

    def next_life(self) -> bool:
        """Wait until the workers that were killed are started again; False if the job ended."""
        before = self.lives
        while self.code is None and self.lives == before:
            self.hear()
        return self.code is None

    def end(self) -> int:
        """Wait for the end; return the exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.code is None:
            self.hear(deadline - time.monotonic())
        return self.code
