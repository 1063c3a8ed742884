# SPDX-License-Identifier: Apache-2.0
"""Kill, stop and fill up the parts of a run, by a seed."""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from examples.online_learning.kafka.broker import Broker
from tests.history.clock import Clock
from tests.history.events import Producer, events_of
from tests.history.feature_workers import FeatureWorkers
from tests.history.predictor import Part
from tests.history.raw_topic import RawTopic
from tests.history.record import History
from tests.support.disks import fill_up
from tests.support.lives import Lives
from tests.support.redis_server import RedisServer

__all__ = ["Faults"]

_PATIENCE = 300.0  # seconds until what was sent is in the topic
GRACE = 15.0  # seconds that a process takes to notice, and to end


class Faults:
    """Kills, stops and fills, each written to the history.

    Args:
        seed: decides on everything.
        history: gets a record of each.
        broker: of Kafka.
        redis: has rows of the trainer's.
        worker: the feature workers, one of which is to work.
        trainer: the trainer's lives, and a function that begins the next one.
        predictors: the predictors.
        topic: of the raw events, and who sends them.
        quiet: function that waits until predictors have answered by what was sent, while no event
            comes, and writes it to the history; returns whether they have.
        disk: file system that may be filled; None: none.
        clocks: wall clocks of processes, by their names.
        only: names of what may be done. Default: all.

    Raises:
        ValueError: there is no such name.
    """

    def __init__(
        self,
        seed: int,
        history: History,
        broker: Broker,
        redis: RedisServer,
        worker: FeatureWorkers,
        trainer: tuple[Lives, Callable[[], None]],
        predictors: list[Part],
        topic: tuple[RawTopic, Producer],
        quiet: Callable[[], bool],
        disk: Path | None,
        clocks: Mapping[str, Clock],
        only: Sequence[str] = (),
    ) -> None:
        self._random = random.Random(seed)
        self._history = history
        self._broker, self._redis = broker, redis
        self._worker = worker
        self._trainer, self._start_trainer = trainer
        self._predictors = predictors
        self._topic, self._producer = topic
        self._wait_while_quiet = quiet
        self._clocks = clocks
        self._disk = disk
        self._kinds: dict[str, tuple[int, Callable[[], None]]] = {
            "kill trainer": (4, self._kill_trainer),
            "stop trainer": (2, self._stop_trainer),
            "kill predictor": (3, self._kill_predictor),
            "kill worker": (3, self._kill_worker),
            "stop predictor": (3, self._stop_predictor),
            "kill broker": (1, self._kill_broker),
            "stop broker": (2, self._stop_broker),
            "kill feature worker": (3, self._kill_worker_of_features),
            "stop feature worker": (2, self._stop_worker_of_features),
            "end feature worker": (1, self._end_worker_of_features),
            "lose journal": (1, self._lose_journal),
            "stop Redis": (2, self._stop_redis),
            "add partition": (2, self._add_partition),
            "remake topic": (1, self._remake_topic),
            "pause events": (1, self._pause_events),
        }
        if clocks:
            self._kinds["move clock"] = (3, self._move_clock)
        if disk is not None:
            self._kinds["fill disk"] = (3, self._fill_disk)
        self._disk_is_free = -math.inf  # since when
        unknown = {*only} - {*self._kinds}
        if unknown:
            raise ValueError(f"faults must be of {list(self._kinds)}, got {sorted(unknown)}")
        if only:
            self._kinds = {name: self._kinds[name] for name in only}
        self.numbers = 0  # of events in topics that were deleted
        self.done: dict[str, int] = dict.fromkeys(self._kinds, 0)

    def one(self) -> None:
        """Do one thing, and mend what it needs to go on."""
        names = list(self._kinds)
        name = self._random.choices(names, [self._kinds[n][0] for n in names])[0]
        self._kinds[name][1]()
        self.done[name] += 1

    def pause(self) -> float:
        """Return seconds until the next."""
        return self._random.uniform(0.2, 2.0)

    def disk_was_full(self) -> bool:
        """Return whether the disk has been full until a moment ago, so that a save may fail."""
        return time.monotonic() < self._disk_is_free + GRACE

    def _say(self, name: str, **fields: object) -> None:
        self._history.add("fault", name=name, **fields)

    def _kill_trainer(self) -> None:
        if not self._trainer.over:
            self._say("kill trainer", step=self._trainer.step)
            self._trainer.kill()
            if self._trainer.code == -signal.SIGKILL:  # else it had come to its end
                self._start_trainer()

    def _stop_trainer(self) -> None:
        seconds = self._random.uniform(0.2, 3.0)
        self._say("stop trainer", seconds=seconds)
        self._trainer.signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._trainer.signal(signal.SIGCONT)

    def _kill_predictor(self) -> None:
        part = self._random.choice(self._predictors)
        self._say("kill predictor", who=part.name)
        part.kill()
        part.start()

    def _kill_worker(self) -> None:
        found = [item for part in self._predictors for item in part.pids().items()]
        workers = [(name, pid) for name, pid in found if ": " in name]
        if workers:
            name, pid = self._random.choice(workers)
            self._say("kill worker", who=name)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _stop_predictor(self) -> None:
        found = [item for part in self._predictors for item in part.pids().items()]
        name, pid = self._random.choice(found)
        seconds = self._random.uniform(0.2, 3.0)
        self._say("stop predictor", who=name, seconds=seconds)
        self._stop(pid, seconds)

    def _kill_broker(self) -> None:
        self._say("kill broker")
        self._broker.kill()
        self._broker.start(timeout=300.0)

    def _stop_broker(self) -> None:
        seconds = self._random.uniform(0.2, 4.0)
        self._say("stop broker", seconds=seconds)
        assert self._broker.pid is not None
        self._stop(self._broker.pid, seconds)

    def _kill_worker_of_features(self) -> None:
        self._worker.kill()
        self._say("kill feature worker", next=self._worker.start())

    def _end_worker_of_features(self) -> None:
        self._worker.end()
        self._say("end feature worker", next=self._worker.start())

    def _stop_worker_of_features(self) -> None:
        """Stop it, have another one take over, and let the first come back."""
        with self._worker.stopped():
            self._say("stop feature worker", next=self._worker.start())
            time.sleep(self._random.choice((0.0, 0.0, self._random.uniform(0.0, 4.0))))

    def _lose_journal(self) -> None:
        self._worker.kill()
        self._say("lose journal", goes_on=self._worker.start_without_journal())

    def _add_partition(self) -> None:
        if self._topic.may_grow:
            self._say("add partition", partitions=self._topic.partitions + 1)
            self._topic.add_partition()

    def _pause_events(self) -> None:
        """Send nothing until all that was sent is saved."""
        self._say("pause events")
        self._worker.send_soon()
        self._producer.pause(_PATIENCE)
        self._wait_while_quiet()
        self._producer.resume()

    def _remake_topic(self) -> None:
        """Make the topic anew when all its events are trained, with a worker or without."""
        self._say("remake topic")
        self._worker.send_soon()
        self._producer.pause(_PATIENCE)
        if self._wait_while_quiet():
            works = self._random.random() < 0.5
            if not works:
                self._worker.kill()
            self._keep_events()
            self._topic.remake()
            self._history.add("remade")
            self._producer.resume()
            time.sleep(self._random.uniform(0.0, 8.0))
            if not works:
                self._worker.start()
        self._producer.resume()

    def _keep_events(self) -> None:
        keys, numbers = events_of(self._topic.brokers, self._topic.name)
        self._history.add("events", keys=keys)
        self.numbers += numbers

    def _stop_redis(self) -> None:
        seconds = self._random.uniform(0.2, 4.0)
        self._say("stop Redis", seconds=seconds)
        assert self._redis.process is not None
        self._stop(self._redis.process.pid, seconds)

    def _move_clock(self) -> None:
        name = self._random.choice(sorted(self._clocks))
        most = self._random.choice((0, 2, 300, 86_400))  # 0: back to the machine's
        seconds = self._random.randint(-most, most)
        self._say("move clock", who=name, seconds=seconds)
        self._clocks[name].move(seconds)

    def _fill_disk(self) -> None:
        assert self._disk is not None
        left = self._random.choice((0, 2_000, 10_000, 30_000))
        seconds = self._random.uniform(0.5, 3.0)
        filler = self._disk / "filler"
        self._say("fill disk", left=left, seconds=seconds)
        self._disk_is_free = math.inf
        fill_up(filler, left)
        time.sleep(seconds)
        if self._random.random() < 0.3:
            self._kill_trainer()
        filler.unlink()
        self._disk_is_free = time.monotonic()

    @staticmethod
    def _stop(pid: int, seconds: float) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(seconds)
            finally:
                os.kill(pid, signal.SIGCONT)
