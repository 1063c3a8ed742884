# SPDX-License-Identifier: Apache-2.0
"""Feature workers of one name and one state, whom a seed schedules, stops, kills and starts again.

The workers are `FeatureWorker` over a `StreamSource`, the trainer's side a `DataReceiver` that is
closed now and then and goes on from its state. The raw topic may get partitions. Each life of a
worker has settings of its own: `batch_size`, `turn_messages`, `message_rows`, `max_wait_seconds`,
`skip_idle_seconds`, a journal of its own or none. In some schedules the file system loses locks:
then a worker that was stopped comes back beside the one that was started in its place. Messages
reach the channel late, also those of a worker that is dead by then.

Files and threads are replaced as in `world.py`; topics are in memory. Not covered: Kafka's client.
"""

from __future__ import annotations

import errno
import random
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from mindspore_rec.common.stream import worker
from mindspore_rec.common.stream.claims import ReplacedError
from mindspore_rec.common.stream.client import Headers
from mindspore_rec.stream import (
    ArrowFormat,
    DataReceiver,
    DataSender,
    FeatureWorker,
    Journal,
    MemoryTopic,
    StopWhen,
    StreamingDataset,
    StreamLimits,
    StreamSource,
    pack,
)
from tests.simulation.disk import Disk, FileLock
from tests.simulation.record import FindingError
from tests.simulation.scheduler import (
    TICK,
    Died,
    HangError,
    Process,
    Scheduler,
    current_task,
    explained,
)
from tests.simulation.threads import Asked
from tests.simulation.world import ROOT, Outcome, installed

__all__ = ["simulate_workers"]

_TROUBLE = 10.0  # simulated seconds in which things are done to the workers
_PATIENCE = 60.0  # simulated seconds in which the last worker sends what is left
_EXPECTED = (
    "another feature worker works with",  # the lock
    "another process has taken it over",  # the journal
)


class _Settings:
    """Settings of a schedule, drawn by its seed before anything runs."""

    def __init__(self, chance: random.Random) -> None:
        self.messages = chance.randint(8, 30)
        self.partitions = chance.randint(1, 2)
        self.shards = chance.randint(1, 2)
        self.lives = chance.randint(1, 6)
        self.loses_locks = chance.random() < 0.5
        self.by_time = chance.random() < 0.5  # whether batches depend on when messages come
        self.changes = chance.random() < 0.7  # whether lives have settings of their own
        self.stop = chance.choice((0.0, 0.3, 0.6))  # that a look at the workers stops one
        self.kill = chance.choice((0.0, 0.1, 0.3))
        self.power = chance.choice((0.0, 0.0, 0.1))
        self.end = chance.choice((0.0, 0.1))  # in order, as by SIGTERM
        self.hang = chance.choice((0.0, 0.0, 0.1))  # that a file's new name is long in coming
        self.error = chance.choice((0.0, 0.0, 0.01))  # of an operation on a file
        self.late = chance.choice((0.0, 0.2, 0.6))  # that a message waits on its way
        self.save_seconds = TICK * chance.choice((0, 100, 1000, 100_000))
        self.grows = chance.choice((0, 0, 1, 2))  # partitions that the raw topic gets


class _Wire(MemoryTopic):
    """Topic whose messages are on their way for a while."""

    def __init__(self, world: World, partitions: int = 1, topic: str = "memory") -> None:
        super().__init__(partitions, topic)
        self._world = world

    def beside(self, topic: str) -> MemoryTopic:
        """Return the topic of this name, which belongs to this one."""
        return self._beside.setdefault(topic, _Wire(self._world, topic=topic))

    def producer(self) -> Any:
        """Return a writer."""
        return _LateProducer(self, self._world)


class _LateProducer:
    """Writer whose messages arrive in order, some time after they were sent."""

    def __init__(self, topic: _Wire, world: World) -> None:
        self._topic, self._world = topic, world
        self._on_the_way: deque[tuple[Any, ...]] = deque()
        world.producers.append(self)

    def send(
        self,
        topic: str,
        partition: int | None,
        value: bytes,
        headers: Headers = (),
        key: bytes | None = None,
    ) -> None:
        """Send a message on its way."""
        self._world.scheduler.step("send")
        self._on_the_way.append((value, partition or 0, headers, key))

    def deliver(self, all_of_it: bool = False) -> None:
        """Let messages arrive, the first ones first."""
        while self._on_the_way:
            if not all_of_it and self._world.chance.random() < self._world.settings.late:
                return
            self._topic.append(*self._on_the_way[0])
            self._on_the_way.popleft()

    def flush(self) -> None:
        """Wait until all have arrived."""
        self._world.scheduler.step("flush")
        while self._on_the_way:
            self._world.scheduler.block("wait for the log", 10 * TICK)

    def close(self) -> None:
        """Flush."""
        self.flush()


class _Places:
    """Transform that learns: beside the number of a row, how many rows came before."""

    column_names = ("number", "place")

    def __init__(self) -> None:
        self._rows = 0

    def __call__(self, rows: pa.RecordBatch) -> dict[str, np.ndarray]:
        numbers = rows["number"].to_numpy()
        places = np.arange(self._rows, self._rows + len(numbers))
        self._rows += len(numbers)
        return {"number": numbers, "place": places}

    def state_dict(self) -> dict[str, int]:
        return {"rows": self._rows}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self._rows = state["rows"]


class World:
    """One schedule.

    Args:
        seed: of everything.
        keep_trace: whether to keep the trace.
        fixed: settings that the seed does not decide. Default: none.
    """

    def __init__(self, seed: int, keep_trace: bool, fixed: Mapping[str, Any] | None = None) -> None:
        self.seed = seed
        self.chance = random.Random(f"faults {seed}")
        self.settings = _Settings(random.Random(f"settings {seed}"))
        for name, value in (fixed or {}).items():
            assert hasattr(self.settings, name)
            setattr(self.settings, name, value)
        self.scheduler = Scheduler(seed, most_yields=200_000, keep_trace=keep_trace)
        self.scheduler.on_step = self._stand_still
        self.disk = Disk(ROOT, self.scheduler)
        self.disk.fails = self._fails
        self.counts = dict.fromkeys(
            ("lives", "kills", "power", "stops", "ends", "errors", "replaced", "refused",
             "received", "grown", "yields"), 0,
        )  # fmt: skip
        self.producers: list[_LateProducer] = []
        self._own = Process("world")
        self._workers: list[Process] = []
        self._stopped: dict[Process, float] = {}  # until when a process stands still
        self._quiet = False
        self._ended = False
        self.sent = 0  # rows of the raw topic
        self.received: dict[int, int] = {}  # places of rows by their numbers
        self.finding: FindingError | None = None

    # ---- faults

    def _stand_still(self) -> None:
        task = current_task()
        assert task is not None
        until = self._stopped.get(task.process)
        if until is not None and until > self.scheduler.now:
            self.scheduler.block("STANDS STILL", until - self.scheduler.now)

    def _fails(self, operation: str, path: str) -> int:
        task = current_task()
        if self._quiet or task is None or task.process is self._own:
            return 0
        if operation == "rename" and self.chance.random() < self.settings.hang:
            self._stop(task.process)
            self._stand_still()
        if self.chance.random() >= self.settings.error:
            return 0
        self.counts["errors"] += 1
        return errno.EIO

    def _trouble(self) -> None:
        """Do something to a worker, by chance."""
        alive = [process for process in self._workers if process.tasks]
        if not alive:
            return
        process = self.chance.choice(alive)
        chance, settings = self.chance.random(), self.settings
        if chance < settings.kill:
            self._kill(process)
        elif chance < settings.kill + settings.power:
            self.scheduler.note("POWER LOSS")
            self.counts["power"] += 1
            for each in alive:
                self.scheduler.kill(each)
            self._settle()
            self.disk.process_died()
            self.disk.lose_power(self.chance)
        elif chance < settings.kill + settings.power + settings.end:
            self.scheduler.note(f"SIGTERM {process.name}")
            self.counts["ends"] += 1
            process.asked = True
        elif self.chance.random() < settings.stop:
            self._stop(process)

    def _stop(self, process: Process) -> None:
        self.scheduler.note(f"STOP {process.name}")
        self.counts["stops"] += 1
        seconds = TICK * self.chance.choice((100, 3000, 30_000))
        self._stopped[process] = self.scheduler.now + seconds

    def _kill(self, process: Process) -> None:
        self.scheduler.note(f"KILL {process.name}")
        self.counts["kills"] += 1
        self.scheduler.kill(process)
        self._settle()
        self.disk.process_died()

    def _settle(self) -> None:
        while any(process.dying and process.tasks for process in self._workers):
            self.scheduler.block("wait for an end", TICK)

    # ---- the parts

    def _produce(self, raw: MemoryTopic) -> None:
        chance = random.Random(f"events {self.seed}")
        partitions, grows = self.settings.partitions, self.settings.grows
        for message in range(self.settings.messages):
            if grows and chance.random() < 0.1:
                raw.add_partitions()
                self.counts["grown"] += 1
                partitions, grows = partitions + 1, grows - 1
            rows = chance.randint(1, 3)
            numbers = range(self.sent, self.sent + rows)
            self.sent += rows
            raw.append(pack(pa.table({"number": list(numbers)})), message % partitions)
            if chance.random() < 0.3:
                self.scheduler.block("produce nothing", chance.random() * 1000 * TICK)

    def _deliver(self) -> None:
        while not self._ended:
            for producer in self.producers:
                producer.deliver(self._quiet)
            self.scheduler.block("deliver", 20 * TICK)

    def _work(self, raw: MemoryTopic, channel: MemoryTopic, options: Mapping[str, Any]) -> None:
        source_options = dict(options["source"])
        if options["journal"]:
            source_options["journal"] = Journal(ROOT / "own" / "journal")
        source = StreamSource(raw.client(3), ArrowFormat(), **source_options)
        sender = DataSender(
            channel,
            num_shards=self.settings.shards,
            sender_name="w",
            message_rows=options["message_rows"],
        )
        dataset = StreamingDataset(source, _Places())
        made = FeatureWorker(dataset, sender, ROOT / "state", self.settings.save_seconds)
        self.scheduler.note(f"WORKS from message {sender.next} on")
        made.run()
        source.close()
        sender.close()

    def _receive(self, channel: MemoryTopic) -> None:
        state = None
        chance = random.Random(f"receiver {self.seed}")
        while not self._ended:
            receiver = DataReceiver(
                channel, shard_id=None, batch_size=1, stop=StopWhen(seconds=chance.random())
            )
            if state is not None:
                receiver.load_state_dict(state)
            for batch in receiver:
                number, place = (column[0].as_py() for column in batch.columns)
                state = receiver.state_dict()
                self.scheduler.note(f"RECEIVED {number}, at {place}")
                if number in self.received:
                    self.finding = FindingError(f"row {number} was received twice")
                self.received[number] = place
            receiver.close()

    def _options(self, life: int, last: bool) -> dict[str, Any]:
        """Return the settings of a life."""
        chance = random.Random(f"life {self.seed} {life if self.settings.changes else 0}")
        batch = 1 if last else chance.randint(1, 6)
        limits: dict[str, Any] = {"turn_messages": chance.randint(1, 2)}
        if self.settings.by_time or last:
            limits["max_wait_seconds"] = TICK * chance.choice((50, 500))
            if self.settings.partitions + self.settings.grows > 1:
                limits["skip_idle_seconds"] = TICK * chance.choice((100, 1000))
        source = {"batch_size": batch, "limits": StreamLimits(**limits)}
        # All lives have one journal: decisions in several would be of several streams.
        journal = random.Random(f"journal {self.seed}").random() < 0.5
        return {"source": source, "message_rows": chance.randint(1, 4), "journal": journal}

    # ---- the whole

    def _begin_life(self, raw: MemoryTopic, channel: MemoryTopic, last: bool = False) -> Process:
        life = self.counts["lives"]
        self.counts["lives"] += 1
        options = self._options(life, last)
        process = Process(f"worker{life}")
        self._workers.append(process)
        self.scheduler.note(f"BEGIN {process.name}: {options}")
        self.scheduler.start(process, "main", lambda: self._work(raw, channel, options))
        return process

    def _live(self) -> None:
        settings, scheduler = self.settings, self.scheduler
        (ROOT / "own").mkdir()
        raw = MemoryTopic(settings.partitions, "raw")
        channel = _Wire(self, settings.shards)
        for name, work in (
            ("producer", lambda: self._produce(raw)),
            ("network", self._deliver),
            ("receiver", lambda: self._receive(channel)),
        ):
            scheduler.start(self._own, name, work)
        until = scheduler.now + _TROUBLE
        while self.counts["lives"] < settings.lives and scheduler.now < until:
            working = [each for each in self._workers if self._works(each)]
            stopped = [each for each in working if self._stopped.get(each, 0.0) > scheduler.now]
            if len(working) == len(stopped) < 3:
                self._begin_life(raw, channel)
            scheduler.block("watch", self.chance.random() * 2000 * TICK)
            self._trouble()
            self._look()
        scheduler.note("QUIET from here on")
        self._quiet = True
        until = scheduler.now + _PATIENCE
        last: Process | None = None
        producing = True
        while len(self.received) < self.sent or producing:
            producing = any(each.name == "world/producer" for each in self._own.tasks)
            self._look()
            if last is None or not self._works(last):
                # Who has the lock, and stands still, is ended; without locks it stays, and comes
                # back.
                for each in self._workers:
                    if self._works(each) and not settings.loses_locks:
                        self._kill(each)
                last = self._begin_life(raw, channel, last=True)
            if scheduler.now > until:
                missing = sorted(set(range(self.sent)) - set(self.received))
                raise FindingError(f"rows {missing} were never received")
            scheduler.block("wait for the rows", 200 * TICK)
        scheduler.block("wait for what may come twice", 40_000 * TICK)
        self._look()
        assert last is not None
        last.asked = True
        self._ended = True
        while self._works(last):
            scheduler.block("wait for the last worker", 100 * TICK)
        self._look()
        if sorted(self.received.values()) != list(range(self.sent)):
            raise FindingError(f"rows came at {self.received}: the transform's state went back")

    @staticmethod
    def _works(process: Process) -> bool:
        return any(task.name.endswith("/main") for task in process.tasks)

    def _look(self) -> None:
        """See who has ended, and why."""
        if self.finding is not None:
            raise self.finding
        for process in list(self._workers):
            if self._works(process):
                continue
            if process.tasks:  # threads of it are left
                self.scheduler.kill(process)
                self._settle()
            process.dying = True
            self.disk.process_died()
            self._workers.remove(process)
            self._judge(process)

    def _judge(self, process: Process) -> None:
        error = process.failure
        if error is None:
            return
        if isinstance(error, ReplacedError):
            self.counts["replaced"] += 1
        elif any(text in str(error) for text in _EXPECTED):
            self.counts["refused"] += 1
        elif not (isinstance(error, OSError) and error in process.faults):
            raise error

    def live(self) -> None:
        """Run the schedule.

        Raises:
            Exception: what was found.
        """
        with installed(self), _replaced(self):
            self.scheduler.run(self._own, self._main)
        if self._own.failure is not None:
            raise self._own.failure

    def _main(self) -> None:
        try:
            self._live()
        finally:
            self._ended = True
            for process in (*self._workers, self._own):
                self.scheduler.kill(process)

    def end(self) -> None:
        """Add up what happened."""
        self.counts["yields"] = self.scheduler.yields
        self.counts["received"] = len(self.received)


class _NoLock(FileLock):
    """Lock of a file system that loses it."""

    def __init__(self, disk: Disk, path: Any) -> None:
        disk.step("lock", str(path))

    def close(self) -> None:
        """Do nothing."""


@contextmanager
def _replaced(world: World) -> Any:
    kind = _NoLock if world.settings.loses_locks else FileLock
    with ExitStack() as stack:
        lock: Callable[[Any], FileLock] = lambda path: kind(world.disk, path)  # noqa: E731
        stack.enter_context(mock.patch.object(worker, "FileLock", lock))
        stack.enter_context(mock.patch.object(worker, "Interruption", Asked))
        yield


def simulate_workers(
    seed: int, keep_trace: bool = False, fixed: Mapping[str, Any] | None = None
) -> Outcome:
    """Return what came of a schedule of feature workers.

    Args:
        seed: of the schedule; it decides everything.
        keep_trace: whether to keep the trace. Default: False.
        fixed: settings of `_Settings`, by name, that the seed does not decide. Default: none.
    """
    outcome = Outcome(seed)
    world = World(seed, keep_trace, fixed)
    try:
        world.live()
    except (Exception, Died) as error:
        outcome.finding = f"{type(error).__name__}: {error}"
        if not isinstance(error, (FindingError, HangError)):
            outcome.finding += "\n" + explained(error)
    world.end()
    outcome.counts = world.counts
    outcome.trace = list(world.scheduler.trace)
    return outcome
