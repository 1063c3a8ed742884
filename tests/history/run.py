# SPDX-License-Identifier: Apache-2.0
"""Kill, stop and fill a run for a time, and judge what was answered:

    python -m tests.history.run --seconds 3600 --seed 7
    python -m tests.history.run --seconds 20 --seed 7 --defect topic_id_not_kept

A Kafka broker, a producer, a feature worker, a trainer with full checkpoints and deltas and a part
of its rows in Redis, two predictors that follow it, one of them with two workers, and clients that
ask both all the time. By the seed feature worker, trainer, predictors, their workers and broker are
killed and stopped, a stopped feature worker comes back when another one has taken over, each has
settings of its own, their journal is lost, the topic gets partitions, is deleted and made anew, and
has no events for a while, Redis is stopped, wall clocks are moved by up to a day, and the disk with
the run fills up (as root). All of it is written to `history.jsonl`, and judged from that alone
(`judge.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from examples.online_learning.kafka.broker import Broker
from tests.history.clock import Clock, compiled
from tests.history.defects import DEFECTS, VARIABLE
from tests.history.events import Producer, events_of
from tests.history.faults import Faults
from tests.history.feature_workers import FeatureWorkers
from tests.history.judge import Finding, judge
from tests.history.network import BATCH, KEYS
from tests.history.predictor import Asker, Part
from tests.history.raw_topic import RawTopic
from tests.history.record import History
from tests.support.disks import mount, unmount
from tests.support.lives import Lives
from tests.support.redis_server import RedisServer

__all__ = ["run"]

TRAINER = Path(__file__).with_name("trainer.py")
STEPS_A_SECOND = 4.0
FIRST_STEPS = 10  # after which the others wait until both predictors answer
MEBIBYTES = 16  # of the disk that fills up
PATIENCE = 300.0  # seconds without any progress; others may use the machine
PAUSE = 0.1  # seconds between two requests of a client


class Run:
    """The parts of a run, in a directory.

    Args:
        directory: of logs, topics and the history.
        seconds: how long things are done to the parts.
        seed: of what is done, and of the events.
        faults: names of what may be done. Default: all.
        defect: name of a defect of `defects.py` that feature worker and trainer have. Default:
            none.
        patience: seconds without progress after which the run ends, or goes on after a pause.
    """

    def __init__(
        self,
        directory: Path,
        seconds: float,
        seed: int,
        faults: Sequence[str] = (),
        defect: str | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.directory, self.seconds, self.seed = directory, seconds, seed
        self.only, self.defect, self.patience = faults, defect, patience
        self.steps = max(20, int(seconds * STEPS_A_SECOND))
        by_clock = random.Random(f"deltas {seed}").random() < 0.5
        self.delta_steps = None if by_clock else 2
        self.disk = directory / "disk"
        self.small = os.geteuid() == 0 and not mount(self.disk, MEBIBYTES)
        self.disk.mkdir(exist_ok=True)
        self.root = self.disk / "run"
        self.root.mkdir()
        self.library = compiled(directory)
        self.clocks: dict[str, Clock] = {}  # of processes, by name
        self.path = directory / "history.jsonl"
        self.history = History(self.path, self.root)
        self.out = directory / "trained.json"

    def close(self) -> None:
        """Take the small disk away."""
        self.history.close()
        if self.small:
            unmount(self.disk)

    def live(self) -> None:
        """Do it all."""
        broker = Broker(self.directory / "kafka")
        broker.start(PATIENCE)
        redis = RedisServer(self.directory / "redis")
        with (
            redis,
            broker,
            Lives(TRAINER, self._environment("trainer")) as trainer,
            contextlib.ExitStack() as stack,
        ):
            topic = RawTopic(broker.address)
            options: dict[str, Any] = {
                "brokers": broker.address, "topic": topic.name, "channel": f"features-{topic.name}",
                "state": str(self.directory / "worker.json"), "root": str(self.root),
                "redis": redis.url, "out": str(self.out), "batches": self.steps,
                "every_steps": 20, "delta_every_steps": self.delta_steps, "loses_locks": True,
            }  # fmt: skip
            environment = self._environment("worker")
            worker = stack.enter_context(
                FeatureWorkers(
                    TRAINER, environment, options, self.seed, self.history, self.patience
                )
            )

            def start_trainer() -> None:
                trainer.begin({"role": "train", **options})

            rate = STEPS_A_SECOND * BATCH
            producer = Producer(topic, self.steps * BATCH, rate, self.seed, FIRST_STEPS * BATCH)
            producer.start()
            worker.start()
            start_trainer()
            parts = [self._part("one"), self._part("two", "--workers", "2")]
            askers = [Asker(part, self.history, PAUSE) for part in parts]
            try:
                for part in parts:
                    part.start()
                for asker in askers:
                    asker.start()
                self._wait(lambda: all(asker.newest > 0 for asker in askers), trainer, parts)
                producer.go_on.set()

                def mend(soon: bool = False) -> None:
                    self._mend(trainer, parts, start_trainer, faults)
                    worker.mend(soon)

                def quiet() -> bool:
                    step = self._to_be_saved(producer.sent // BATCH)
                    self.history.add("quiet", step=step)
                    self._until_answered(step, askers, trainer, mend)
                    self.history.add("resumed")
                    return all(asker.newest == step for asker in askers)

                faults = Faults(
                    self.seed, self.history, broker, redis, worker, (trainer, start_trainer), parts,
                    (topic, producer), quiet, self.disk if self.small else None, self.clocks,
                    self.only,
                )  # fmt: skip
                deadline = time.monotonic() + self.seconds
                while time.monotonic() < deadline:
                    faults.one()
                    mend()
                    time.sleep(faults.pause())
                done = ", ".join(f"{name} {count}" for name, count in faults.done.items())
                print(f"{done}; step {trainer.step} of {self.steps}", flush=True)
                worker.end()
                worker.start(soon=True)
                self.history.add("redis", keys=int(redis.cli("dbsize")))
                self._end(trainer, askers, mend)
                producer.join(1.0)
                keys, numbers = events_of(broker.address, topic.name)
                self.history.add("events", keys=keys)
                self.history.add("sent", count=producer.sent, found=numbers + faults.numbers)
            finally:
                for asker in askers:
                    asker.stop.set()
                for part in parts:
                    part.kill()
            for failure in (producer.failure, *(asker.failure for asker in askers)):
                if failure is not None:
                    raise failure

    def _environment(self, name: str) -> dict[str, str]:
        clock = self._clock(name)
        found = {} if clock is None else clock.environment
        return found if self.defect is None else {**found, VARIABLE: self.defect}

    def _clock(self, name: str) -> Clock | None:
        if self.library is None:
            return None
        self.clocks[name] = Clock(self.directory / f"{name}.clock", self.library)
        return self.clocks[name]

    def _part(self, name: str, *options: str) -> Part:
        log = self.directory / f"{name}.log"
        return Part(name, self.root, log, self.history, self._clock(name), *options)

    def _mend(self, trainer: Lives, parts: list[Part], start_trainer: Any, faults: Faults) -> None:
        """Start what has ended by itself, and note it."""
        if trainer.over and trainer.code != 0:
            full = faults.disk_was_full()
            self.history.add("ended", who="trainer", code=trainer.code, disk_full=full)
            start_trainer()
        for part in parts:
            if part.code is not None:
                self.history.add("ended", who=part.name, code=part.code)
                part.kill()
                part.start()

    def _wait(self, until: Any, trainer: Lives, parts: list[Part]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not until() and time.monotonic() < deadline:
            for part in parts:
                assert part.code is None, f"{part.name} ended with code {part.code}"
            assert not trainer.over, "the trainer ended"
            time.sleep(0.05)
        assert until(), f"the predictors did not answer in {PATIENCE:g} seconds"

    def _to_be_saved(self, step: int) -> int:
        """Return the newest step that is saved while no event comes after a step."""
        return step - step % (self.delta_steps or 1)

    def _until_answered(
        self, step: int, askers: list[Asker], trainer: Lives, mend: Callable[[bool], None]
    ) -> None:
        """Wait until both predictors answer by a step, or nothing has moved for long."""
        seen, deadline = None, 0.0
        while any(asker.newest != step for asker in askers):
            now = [trainer.step, *(asker.newest for asker in askers)]
            if now != seen:
                seen, deadline = now, time.monotonic() + self.patience
            if time.monotonic() > deadline:
                return
            mend(True)
            time.sleep(0.1)

    def _end(self, trainer: Lives, askers: list[Asker], mend: Callable[[bool], None]) -> None:
        """Wait until all events are trained, and both predictors have answered so."""
        seen, deadline = None, 0.0
        while not (trainer.over and trainer.code == 0) and (
            trainer.step != seen or time.monotonic() < deadline
        ):
            if trainer.step != seen:
                seen, deadline = trainer.step, time.monotonic() + self.patience
            mend(True)
            time.sleep(0.1)
        if self.out.exists():
            counts = json.loads(self.out.read_text(encoding="utf-8"))
            self.history.add("trained", counts=counts)
        self.history.add("last", steps=self.steps)
        if self.out.exists():
            self._until_answered(self.steps, askers, trainer, mend)


def run(
    directory: Path,
    seconds: float,
    seed: int,
    faults: Sequence[str] = (),
    defect: str | None = None,
    patience: float = PATIENCE,
) -> tuple[list[Finding], dict[str, int]]:
    """Return what the judge found, how many records of each kind there were, and how many versions
    were answered by, of all predictors together. Arguments are as of `Run`."""
    lived = Run(directory, seconds, seed, faults, defect, patience)
    with contextlib.closing(lived):
        lived.live()
    with open(lived.path, encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    counts: dict[str, int] = {}
    for record in records:
        counts[record["what"]] = counts.get(record["what"], 0) + 1
    answers = {(r["who"], r["version"]) for r in records if r["what"] == "answer"}
    return judge(records, KEYS, BATCH), {**counts, "version": len(answers)}


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="of kills and stops")
    parser.add_argument("--seed", type=int, default=time.time_ns() % (1 << 31))
    parser.add_argument("--directory", type=Path, help="new; default: a temporary one, kept")
    parser.add_argument("--faults", default="", help="what is done, with commas; default: all")
    parser.add_argument("--defect", choices=[*DEFECTS], help="put back; what is done is its own")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds of no progress")
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="history-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}, {options.seconds:g} s, in {directory}", flush=True)
    faults = [name.strip() for name in options.faults.split(",") if name.strip()]
    if options.defect and not faults:
        faults = [*DEFECTS[options.defect].faults]
    found, counts = run(
        directory, options.seconds, options.seed, faults, options.defect, options.patience
    )
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    for finding in found[:20]:
        print(f"{finding.kind}: {finding.text}")
    print(f"seed {options.seed}: {len(found) or 'no'} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
