# SPDX-License-Identifier: Apache-2.0
"""A producer, a trainer and a predictor of one run, whom a seed schedules, kills and gives errors.

The trainer is `RecModel.online_train` on a `StreamingDataset` with a `RecCheckpoint`, the predictor
a `Predictor` with its thread; what is theirs alone is replaced:

* the train step, and the network of an answer, are functions without a graph (`model.py`);
* `threading`, `time` and the pool of `checkpoint/worker.py` are those of `threads.py`, where the
  seed chooses who runs; `os`, `open` and Arrow's files those of `disk.py`, where it chooses what
  fails; the native lock of a directory is one of these files;
* the topic is a `MemoryTopic` that outlives everybody.

The table has a tier below host memory in some schedules, whose reads may fail; rows are evicted by
age in steps, in event time or both, or not.

Not covered: MindSpore's graphs and operators, the SSD tier's files, several workers (MPI, processes
that share rows), Kafka's client, the process that writes the network as ONNX, and threads of the
native core, each call of which is one step here. A trainer is killed by itself, a predictor too;
a power loss takes both and what the disk had not synced.
"""

from __future__ import annotations

import errno
import io
import itertools
import logging
import os
import random
import sys
import tempfile
import threading
import time
import traceback
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec import RecCheckpoint
from mindspore_rec.checkpoint.__main__ import _verify as verify_command
from mindspore_rec.checkpoint.chain import entries, parse_entry_name
from mindspore_rec.serving.following.predictor import Predictor
from mindspore_rec.stream import (
    ArrowFormat,
    Journal,
    MemoryTopic,
    StopWhen,
    StreamingDataset,
    StreamSource,
    pack,
    read_watch,
)
from tests.simulation.contents import batches_of, parsed
from tests.simulation.disk import Disk, FileLock, make_directories
from tests.simulation.model import (
    KEYS,
    MARK,
    SCHEMA,
    Event,
    Opener,
    Rows,
    State,
    Tier,
    answered,
    trained,
)
from tests.simulation.scheduler import (
    TICK,
    Clock,
    Died,
    HangError,
    Process,
    Scheduler,
    current_task,
    explained,
)
from tests.simulation.threads import Local, Pool, Threading

__all__ = ["ROOT", "FindingError", "Outcome", "installed", "simulate"]

logger = logging.getLogger("mindspore_rec")

_OF_THE_TIER = "the tier cannot be read"
ROOT = Path("/simulation")  # of the disk, which the system does not see


class FindingError(AssertionError):
    """A promise that was not kept."""


@dataclass
class Outcome:
    """Seed, counts and finding of a schedule that has run.

    Attributes:
        seed: its seed.
        finding: what was wrong, or None.
        trace: its trace, if it was kept.
        counts: numbers of yield points, switches, operations on files, errors, kills, power losses,
            lives of the trainer, steps, answers.
    """

    seed: int
    finding: str | None = None
    trace: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


class _Settings:
    """Settings of a schedule, drawn by its seed before anything runs."""

    def __init__(self, chance: random.Random) -> None:
        self.batch = chance.randint(2, 4)
        self.partitions = chance.randint(1, 2)
        self.by_time = chance.random() < 0.3  # batches depend on when messages come
        self.steps = chance.randint(2, 7)
        self.every = chance.randint(2, 3)
        self.delta_every = chance.choice((1, 1, 2, 3))
        self.by_clock = chance.random() < 0.2
        self.keep = chance.randint(1, 2)
        self.quiet_steps = self.every + chance.randint(0, 1)
        self.death = chance.choice((0.0, 0.0005, 0.002, 0.01))
        self.power = chance.choice((0.2, 0.5, 0.8))  # of the deaths, those of everybody
        self.error = chance.choice((0.0, 0.002, 0.01, 0.02))
        self.full_disk = chance.random() < 0.15
        self.forgets_order = chance.random() < 0.3
        self.most_deaths = chance.randint(1, 5)
        self.most_errors = chance.randint(1, 8)
        # Answers after which the predictor is closed and another one starts.
        self.answers = chance.choice((3, 10, 1000, 1000))
        self.poll_seconds = TICK * chance.choice((50, 200, 1000))
        self.tiered = chance.random() < 0.4  # rows below host memory
        self.idle_steps = chance.choice((-1, -1, 2, 3))  # after which a row is evicted
        self.idle_seconds = chance.choice((-1, -1, 3, 10))

    @property
    def limits(self) -> tuple[int, int]:
        """Both limits of ages."""
        return self.idle_steps, self.idle_seconds


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
        self.model = trained(self.settings.tiered)
        self.scheduler = Scheduler(seed, keep_trace=keep_trace)
        self.scheduler.on_step = self._maybe_kill
        self.disk = Disk(ROOT, self.scheduler)
        self.disk.fails = self._fails
        self.disk.forgets_order = self.settings.forgets_order
        self.run = ROOT / "run"
        self.finding: str | None = None
        self.counts = dict.fromkeys(
            ("yields", "switches", "operations", "errors", "kills", "power", "lives", "steps",
             "answers", "restores"), 0,
        )  # fmt: skip
        self._quiet = False
        self._may_kill = self.settings.death > 0
        self._deaths = self._errors = 0
        self._full_until = 0  # operations
        self._power = False
        self._own = Process("world")
        self._trainer: Process | None = None
        self._follower: Process | None = None
        # What was sent, trained and saved.
        self.sent: list[Event] = []
        self.states: dict[int, Rows] = {0: Rows()}
        self.events: dict[int, list[Event]] = {}
        self.step = 0
        self.announced = -1
        self._quiet_from = 0  # steps trained when faults ended
        self.target = 0  # steps after which the trainer ends
        self.answered = -1  # newest step of the follower's answers, in this life of it

    # ---- faults

    def _maybe_kill(self) -> None:
        if not self._may_kill or self.chance.random() >= self.settings.death:
            return
        settings = self.settings
        task = current_task()
        assert task is not None
        if task.process is self._own:
            return
        self._deaths += 1
        self._may_kill = self._deaths < settings.most_deaths
        if self.chance.random() < settings.power:
            self.scheduler.note("POWER LOSS")
            self._power = True
            for process in (self._trainer, self._follower):
                if process is not None:
                    self.scheduler.kill(process)
        else:
            self.scheduler.note(f"KILL {task.process.name}")
            self.counts["kills"] += 1
            self.scheduler.kill(task.process)

    def _fails(self, operation: str, path: str) -> int:
        settings = self.settings
        if self._quiet:
            return 0
        if self.disk.operations < self._full_until:
            needs = operation in ("open to write", "write", "mkdir")
            self.counts["errors"] += needs
            return errno.ENOSPC if needs else 0
        if self._errors >= settings.most_errors or not settings.error:
            return 0
        if self.chance.random() >= settings.error:
            return 0
        self._errors += 1
        self.counts["errors"] += 1
        if settings.full_disk:
            self._full_until = self.disk.operations + self.chance.randint(1, 200)
            return self._fails(operation, path)
        if operation in ("open to write", "write", "mkdir", "link", "fsync"):
            return self.chance.choice((errno.ENOSPC, errno.EIO))
        return errno.EIO

    def _on_tier(self) -> None:
        """Fail a read of the tier, ten times as often as an operation on files: there are few."""
        settings, task = self.settings, current_task()
        if task is None or task.process is not self._trainer:  # a thread of the table's own
            return
        if self._quiet or self._errors >= settings.most_errors:
            return
        if self.chance.random() < 10 * settings.error:
            self._errors += 1
            self.counts["errors"] += 1
            error = OSError(errno.EIO, _OF_THE_TIER)
            task.process.faults.append(error)
            self.scheduler.note("FAILS: read of a tier")
            raise error

    # ---- the producer

    def _produce(self, topic: MemoryTopic, steps: int, first_partition: int) -> None:
        chance = random.Random(f"events {self.seed} {len(self.sent)}")
        left = steps * self.settings.batch
        partition = first_partition
        # One event a message: then whole rounds of partitions are whole batches.
        while left:
            number, gone = len(self.sent) + 1, int(chance.random() < 0.15)
            # Some events come late; now and then nothing happens for long.
            late, pause = chance.randrange(8), 20 * int(chance.random() < 0.03)
            seconds = 1000 + number + pause - late * int(chance.random() < 0.2)
            event = (number, chance.randrange(KEYS), gone, seconds)
            self.sent.append(event)
            rows = pa.record_batch([pa.array([each]) for each in _columns(event)], schema=SCHEMA)
            topic.append(pack(rows), partition)
            partition = (partition + 1) % self.settings.partitions
            left -= 1
            if chance.random() < 0.2:
                self.scheduler.block("produce nothing", chance.random() * 500 * TICK)

    # ---- the trainer

    def _train(self, topic: MemoryTopic) -> None:
        settings = self.settings
        self.counts["lives"] += 1
        model = self.model
        Tier.on_read = staticmethod(self._on_tier)
        model.renew(settings.limits)
        model.on_step = self._stepped
        options: dict[str, Any] = {}
        if settings.by_time:
            options = {
                "skip_idle_seconds": 200 * TICK,
                "max_wait_seconds": 500 * TICK,
                "journal": Journal(self.run.parent / "journal"),
                "stop": StopWhen(idle_seconds=5000 * TICK),
            }
        options["event_time"] = "time"
        source = StreamSource(topic.client(3), ArrowFormat(SCHEMA), settings.batch, **options)
        stream = StreamingDataset(source)
        full: dict[str, Any] = (
            {"every_seconds": 1000 * TICK} if settings.by_clock else {"every_steps": settings.every}
        )
        checkpoint = RecCheckpoint(
            self.run,
            **full,
            keep=settings.keep,
            delta_every_steps=settings.delta_every,
            keep_digests=True,
            announce=self._saved,
        )
        found = checkpoint.restore(model, stream)
        self._restored(found, stream)
        left = self.target - self.step
        if left <= 0 and not settings.by_time:
            return
        model.online_train(
            stream,
            checkpoint,
            progress=False,
            max_steps=None if settings.by_time else left,
        )
        source.close()

    def _restored(self, found: int | None, stream: StreamingDataset) -> None:
        step = found or 0
        self.scheduler.note(f"RESTORED step {found}")
        self.counts["restores"] += found is not None
        model = self.model
        if step < self.announced:
            raise FindingError(f"step {self.announced} was saved, and step {step} was restored")
        if step > self.step:
            raise FindingError(f"step {step} was restored, and step {self.step} was trained last")
        self._check("restored", step, model.state(), model.steps)
        position = stream.source.state_dict()["order"]["offsets"]
        trained_rows = sum(len(self.events[each]) for each in range(1, step + 1))
        if sum(position.values()) != trained_rows:
            raise FindingError(
                f"after step {step} {trained_rows} events were trained, the place is {position}"
            )
        self.step = step

    def _stepped(self, events: list[Event]) -> None:
        self.step += 1
        self.counts["steps"] += 1
        step = self.step
        self.scheduler.note(f"STEP {step}: events {[number for number, *_ in events]}")
        if self.events.get(step, events) != events:
            raise FindingError(
                f"step {step} had the events {self.events[step]} before a restart, and now {events}"
            )
        self.events[step] = events
        self.states[step] = self.states[step - 1].after(events, step, self.settings.limits)
        model = self.model
        self._check("trained", step, model.state(), model.steps)

    def _saved(self, message: dict[str, Any]) -> None:
        self.scheduler.note(f"SAVED step {message['step']}, {message['kind']}")
        self.announced = max(self.announced, message["step"])

    def _check(self, what: str, step: int, state: State, steps: int) -> None:
        if step not in self.states:
            raise FindingError(f"{what} is a state of step {step}, which nobody trained")
        want = self.states[step].rows
        if state != want or steps != step:
            marks = state.get(MARK, (0.0,))[0]
            raise FindingError(
                f"{what} as of step {step}: rows of {marks:g} steps, dense parameters of {steps} "
                f"steps; {state}, and the events lead to {want}"
            )

    # ---- the predictor

    def _follow(self) -> None:
        Opener.limits = self.settings.limits
        Opener.pause = staticmethod(lambda: self.scheduler.step("between two reads"))
        predictor = Predictor(self.run, poll_seconds=self.settings.poll_seconds, wait_seconds=1e6)
        newest = -1
        answers = 0
        while True:
            outputs, version = predictor.predict_versioned(np.zeros(1, np.int64))
            state, steps = answered(outputs)
            self.counts["answers"] += 1
            self._check("answered", version, state, steps)
            if version < newest:
                raise FindingError(f"answered by step {version} after step {newest}")
            if version > newest:
                self.scheduler.note(f"ANSWER by step {version}")
            newest = self.answered = version
            answers += 1
            if self._ended:
                break
            if answers >= self.settings.answers and not self._quiet:
                predictor.close()
                return
            self.scheduler.block("ask again later", self.settings.poll_seconds)
        if (error := predictor.status().error) is not None:
            raise FindingError(f"the predictor is at the last state, and says {error}")
        mine, served = self.model.table.digest(), predictor.digests(1)
        if [each.digest for each in served.tables.values()] != [mine.digest]:
            raise FindingError(f"digests are {served} in the predictor and {mine} in the trainer")
        predictor.close()

    # ---- the whole

    _ended = False

    def _live(self) -> None:
        settings = self.settings
        topic = MemoryTopic(settings.partitions)
        self.target = settings.steps
        self.scheduler.start(self._own, "producer", lambda: self._produce(topic, settings.steps, 0))
        self._until_trained(topic)
        self.scheduler.note("QUIET from here on")
        self._quiet, self._may_kill = True, False
        first = len(self.sent) % settings.partitions
        self._quiet_from = self.step
        self.target += settings.quiet_steps
        self.scheduler.start(
            self._own, "producer", lambda: self._produce(topic, settings.quiet_steps, first)
        )
        self._until_trained(topic)
        patience = self.scheduler.now + 10.0
        while self.answered != self.step:
            self._watch(topic, with_trainer=False)
            if self.scheduler.now > patience:
                raise FindingError(
                    f"the predictor is at step {self.answered}, the run at {self.step}"
                )
            self.scheduler.block("wait for the predictor", 0.01)
        self._ended = True
        while self._follower is not None and self._follower.tasks:
            self.scheduler.block("wait for the predictor's end", 0.01)
        self._raise_failure(self._follower)
        self._judge_end()

    def _everything_trained(self) -> bool:
        total = self.target * self.settings.batch
        done = sum(len(self.events[each]) for each in range(1, self.step + 1))
        return len(self.sent) == total and done == total

    def _until_trained(self, topic: MemoryTopic) -> None:
        while self._trainer is not None or not self._everything_trained():
            self._watch(topic, with_trainer=not self._everything_trained())
            self.scheduler.block("watch", 50 * TICK)

    def _watch(self, topic: MemoryTopic, with_trainer: bool) -> None:
        """Start what is not there, after a look at why it has ended."""
        if self._power and not self._alive(self._trainer) and not self._alive(self._follower):
            self._power = False
            self._deaths_of_power()
        if self._power:
            return
        trainer, follower = self._trainer, self._follower
        if trainer is not None and (not self._alive(trainer) or self._main_ended(trainer)):
            self._end_process(trainer)
            self._trainer = None
        if (
            follower is not None
            and not self._ended
            and (not self._alive(follower) or self._main_ended(follower))
        ):
            self._end_process(follower)
            self._follower = None
        if self._follower is None:
            self.answered = -1
            self._follower = Process("predictor")
            self.scheduler.start(self._follower, "main", self._follow)
        if with_trainer and self._trainer is None and not self._power:
            self._trainer = Process("trainer")
            process = self._trainer
            self.scheduler.start(process, "main", lambda: self._train(topic))

    def _deaths_of_power(self) -> None:
        self.counts["power"] += 1
        self.disk.process_died()
        self.disk.lose_power(self.chance)

    @staticmethod
    def _alive(process: Process | None) -> bool:
        return process is not None and bool(process.tasks)

    @staticmethod
    def _main_ended(process: Process) -> bool:
        return not any(task.name.endswith("/main") for task in process.tasks)

    def _end_process(self, process: Process) -> None:
        """End what is left of a process whose main thread has ended; judge why it has."""
        if process.tasks:
            self.scheduler.kill(process)
            while process.tasks:
                self.scheduler.block("wait for the end of a process", 0.0001)
        process.dying = True
        self.disk.process_died()
        if process.name == "trainer":
            read_watch._watches.clear()
        self._raise_failure(process)

    def _raise_failure(self, process: Process | None) -> None:
        if process is None or process.failure is None:
            return
        error = process.failure
        if isinstance(error, FindingError) or not _of_a_fault(error, process):
            raise error
        raised = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
        if "finish_merge" in raised and self.announced == self.step:
            raise FindingError(f"a training whose last state is saved ended by {error}") from error

    def _judge_end(self) -> None:
        numbers = [n for step in range(1, self.step + 1) for n, *_ in self.events[step]]
        if sorted(numbers) != list(range(1, len(self.sent) + 1)):
            raise FindingError(f"events were trained {sorted(numbers)}, of 1 to {len(self.sent)}")
        names = sorted(os.listdir(self.run))
        left = [name for name in names if parse_entry_name(name) is None and name != ".lock"]
        if left:
            raise FindingError(f"nobody removes {left}")
        found = sorted(parse_entry_name(name) or (0, "") for name in names if name != ".lock")
        fulls = [each for each in found if each[1] == "full"]
        # By the clock, none may have been due since the last fault, which may have kept old ones.
        none_due = self.settings.by_clock and max(fulls)[0] <= self._quiet_from
        kept = len(fulls) <= self.settings.keep and found[0] == fulls[0]
        if found[-1][0] != self.step or not (kept or none_due):
            raise FindingError(f"keep is {self.settings.keep}, and there are {names}")

    def live(self) -> None:
        """Run the schedule.

        Raises:
            Exception: what was found.
        """
        with installed(self):
            self.scheduler.run(self._own, self._main)
            if self._own.failure is not None:
                raise self._own.failure
            said = io.StringIO()
            with redirect_stdout(said):
                code = verify_command(entries(self.run))
        if code != 0:
            raise FindingError(f"verify finds a bad checkpoint in the end: {said.getvalue()}")

    def _main(self) -> None:
        try:
            self._live()
        finally:
            for process in (self._trainer, self._follower, self._own):
                if process is not None:
                    self.scheduler.kill(process)

    def end(self) -> None:
        """Add up what happened."""
        self.counts["yields"] = self.scheduler.yields
        self.counts["switches"] = self.scheduler.switches
        self.counts["operations"] = self.disk.operations


def _columns(event: Event) -> tuple[int, ...]:
    number, key, gone, seconds = event
    return key, number, gone, seconds, 0


def _of_a_fault(error: BaseException, process: Process) -> bool:
    """Return whether an exception comes from an error that a file gave to the process."""
    seen: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in seen:
        seen.append(each)
        if each in process.faults:
            return True
        each = each.__cause__ or each.__context__
    if not process.faults:
        return False
    # The native table raises an error of its own with the tier's text.
    return isinstance(error, OSError) or any(_OF_THE_TIER in str(each) for each in seen)


class _Lines(logging.Handler):
    """Handler that puts what the library logs into the trace."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f" ({type(record.exc_info[1]).__name__}: {record.exc_info[1]})"
        self._scheduler.note(f"LOG {text}")


def _put(values: list[tuple[Any, str, Any]]) -> None:
    for owner, name, value in values:
        setattr(owner, name, value)


@lru_cache(1)
def _users(modules: int) -> list[Any]:
    """Return the library's modules that use `threading` or `time`, of so many that there are."""
    return [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("mindspore_rec.")
        and (
            getattr(module, "threading", None) is threading or getattr(module, "time", None) is time
        )
    ]


@contextmanager
def installed(world: Any) -> Iterator[None]:
    """Put the simulated parts in the place of the real ones."""
    scheduler, disk = world.scheduler, world.disk
    fake_threading, fake_time = Threading(scheduler), Clock(scheduler)
    numbers = random.Random(f"ids {world.seed}")
    names = (f"{number:08d}" for number in itertools.count())
    handler = _Lines(scheduler)
    replaced: list[tuple[Any, str, Any]] = [
        (tempfile, "_name_sequence", names),
        (uuid, "uuid4", lambda: uuid.UUID(int=numbers.getrandbits(128))),
        (logger, "propagate", False),
        (read_watch, "_local", Local()),
    ]
    for module in _users(len(sys.modules)):
        if getattr(module, "threading", None) is threading:
            replaced.append((module, "threading", fake_threading))
        if getattr(module, "time", None) is time:
            replaced.append((module, "time", fake_time))
    made = sys.modules
    replaced += [
        (made["mindspore_rec.checkpoint.worker"], "ThreadPoolExecutor",
         lambda _, thread_name_prefix, **__: Pool(scheduler, thread_name_prefix)),
        # The train step is no graph, and needs no tensors.
        (made["mindspore_rec.train.loop"], "as_tensors", lambda columns, copy: columns),
        (made["mindspore_rec.checkpoint.array_file"], "safe_open", disk.safe_open),
        (made["mindspore_rec.checkpoint.arrow_file"], "_batches", batches_of),
        (made["mindspore_rec.checkpoint.manifest"], "_parsed", parsed),
        (made["mindspore_rec.checkpoint.run_directory"], "FileLock", lambda p: FileLock(disk, p)),
        (made["mindspore_rec.checkpoint.run_directory"], "make_directories", make_directories),
        (made["mindspore_rec.stream.journal"], "make_directories", make_directories),
        (made["mindspore_rec.serving.following.predictor"], "NetworkOpener", Opener),
    ]  # fmt: skip
    with ExitStack() as stack:
        stack.callback(_put, [(owner, name, getattr(owner, name)) for owner, name, _ in replaced])
        _put(replaced)
        logger.addHandler(handler)
        stack.callback(logger.removeHandler, handler)
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "training in PyNative mode", RuntimeWarning)
        stack.enter_context(disk.installed())
        yield


def simulate(
    seed: int, keep_trace: bool = False, fixed: Mapping[str, Any] | None = None
) -> Outcome:
    """Return what came of a schedule.

    Args:
        seed: of the schedule; it decides everything.
        keep_trace: whether to keep the trace. Default: False.
        fixed: settings of `_Settings`, by name, that the seed does not decide. Default: none.
    """
    outcome = Outcome(seed)
    state = random.getstate(), np.random.get_state()  # noqa: NPY002
    world = World(seed, keep_trace, fixed)
    try:
        world.live()
    except (Exception, Died) as error:
        kind = type(error).__name__
        outcome.finding = f"{kind}: {error}"
        if not isinstance(error, (FindingError, HangError)):
            outcome.finding += "\n" + explained(error)
    finally:
        random.setstate(state[0])
        np.random.set_state(state[1])  # noqa: NPY002
    world.end()
    outcome.counts = world.counts
    outcome.trace = list(world.scheduler.trace)
    return outcome
