# SPDX-License-Identifier: Apache-2.0
"""A producer, a trainer and a predictor of one run, whom a seed schedules, kills and gives errors.

The trainer is `RecModel.online_train` on a `StreamingDataset` with a `RecCheckpoint`, the predictor
a `Predictor` with its thread; what is theirs alone is replaced:

* the train step, and the network of an answer, are functions without a graph (`model.py`);
* intervals between looks at a topic, and after a failed delta, are shorter;
* `threading`, `time` and the pool of `train/checkpoint/worker.py` are from `threads.py`, where the
  seed chooses who runs; `os`, `open` and Arrow's files those of `disk.py`, where it chooses what
  fails; the native lock of a directory is one of these files;
* the topic is in memory, and outlives everybody (`topic.py`).

Things happen to the topic, too: in some schedules it gets partitions, or is deleted and made anew;
then the run must refuse to go on, and another one begins. A trainer ends after a number of steps,
or goes on until it is asked to end; then nothing comes for a while, in which batches that were read
ahead must be trained, and each save whose time has come must be made. Lives may have batches of
their own, and erase a row before they train, or without a step. `record.py` says what all this must
lead to.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from mindspore.train import Callback

from mindspore_rec import RecCheckpoint
from mindspore_rec.checkpoint import CheckpointError, Publication
from mindspore_rec.common.run.chain import entries, parse_entry_name
from mindspore_rec.common.run.command import _verify as verify_command
from mindspore_rec.common.stream import read_watch
from mindspore_rec.serve.following.predictor import Predictor
from mindspore_rec.stream import (
    ArrowFormat,
    Journal,
    StopWhen,
    StreamingDataset,
    StreamLimits,
    StreamSource,
)
from tests.simulation.contents import batches_of, parsed
from tests.simulation.disk import Disk, FileLock, make_directories
from tests.simulation.model import (
    MARK,
    SCHEMA,
    Event,
    Opener,
    ReadAhead,
    Tier,
    answered,
    trained,
)
from tests.simulation.record import FindingError, Record
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
from tests.simulation.settings import Settings
from tests.simulation.threads import Asked, Local, Pool, Threading
from tests.simulation.topic import Producer, Topic

__all__ = ["ROOT", "Outcome", "installed", "simulate"]

logger = logging.getLogger("mindspore_rec")

_OF_THE_TIER = "the tier cannot be read"
_IDLE = 5000 * TICK  # seconds after which a stream ends
_LOOK = 300 * TICK  # between two looks for new partitions
_RETRY = 5000 * TICK  # after a failed delta, while the stream is quiet
_PATIENCE = 1.5  # seconds in which whatever is due has come, while nothing fails
ROOT = Path("/simulation")  # of the disk, which the system does not see


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
        self.settings = Settings(seed)
        for name, value in (fixed or {}).items():
            assert hasattr(self.settings, name)
            setattr(self.settings, name, value)
        self.model = trained(self.settings.tiered)
        self.scheduler = Scheduler(seed, most_yields=100_000, keep_trace=keep_trace)
        self.scheduler.on_step = self._maybe_kill
        self.disk = Disk(ROOT, self.scheduler)
        self.disk.fails = self._fails
        self.disk.forgets_order = self.settings.forgets_order
        self.run = ROOT / "run"
        self.finding: str | None = None
        self.counts = dict.fromkeys(
            ("yields", "switches", "operations", "errors", "kills", "power", "lives", "steps",
             "answers", "restores", "grown", "anew", "quiet", "erased", "asked"), 0,
        )  # fmt: skip
        self._quiet = False
        self._may_kill = self.settings.death > 0
        self._deaths = self._errors = 0
        self._full_until = 0  # operations
        self._power = False
        self._own = Process("world")
        self._trainer: Process | None = None
        self._follower: Process | None = None
        self._record = Record(self.settings, self.scheduler.note)
        self._topic: Topic
        self._producer: Producer
        self._quiet_from = 0  # steps trained when faults ended
        self._quiet_since = 0.0  # when they did
        self.target = 0  # training steps after which the trainer ends
        self.answered = -1  # newest step of the follower's answers, in this life of it
        self._began = 0.0  # of the trainer's life
        self._changed = 0.0  # when something last happened to the trainer or the topic
        self._erases = self.settings.erases
        self._next: Record | None = None  # of the run that begins with the topic made anew
        self._made_anew = -1.0  # when the topic was
        self._runs = 1
        self._read_until = 0.0  # when the trainer stopped reading

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

    # ---- the trainer

    def _train(self, erases: bool) -> None:
        """Live a trainer's life.

        Args:
            erases: whether it erases a row, and does nothing more.
        """
        settings, model = self.settings, self.model
        self.counts["lives"] += 1
        chance = random.Random(f"life {self.seed} {self.counts['lives']}")
        Tier.on_read = staticmethod(self._on_tier)
        model.renew(settings.limits)
        model.on_step = self._stepped
        batch = chance.randint(1, 4) if settings.own_batches else settings.batch
        client = self._topic.client(3)
        source = StreamSource(client, ArrowFormat(SCHEMA), batch, **self._options(erases))
        stream = StreamingDataset(source)
        checkpoint = self._checkpoint()
        found = checkpoint.restore(model, stream)
        self._restored(found, stream)
        left = None
        if not (settings.by_time or settings.endless or erases):
            left = self.target - self._record.trained_steps
            if left <= 0:
                return
        if erases or (settings.erases and chance.random() < 0.3):
            self._erase(chance)
        ends = _Ends(self._ends)
        model.prefetch_ids = ReadAhead.ids if settings.read_ahead else None
        model.online_train(stream, [ends, checkpoint], progress=False, max_steps=left)
        source.close()
        if source.stop_reason.startswith("idle") and self._next is None:
            waiting = self._record.waiting(self._read_until - _IDLE)
            if waiting:
                raise FindingError(f"a stream ended as idle, and the topic has events {waiting}")

    def _options(self, erases: bool) -> dict[str, Any]:
        """Return the stream's options."""
        settings = self.settings
        options: dict[str, Any] = {"event_time": "time"}
        if settings.by_time:
            options["limits"] = StreamLimits(
                skip_idle_seconds=200 * TICK, max_wait_seconds=500 * TICK
            )
            if settings.journal:
                options["journal"] = Journal(self.run.parent / f"journal of {self.run.name}")
            if not settings.endless:
                options["stop"] = StopWhen(idle_seconds=_IDLE)
        if erases:
            options["stop"] = StopWhen(seconds=500 * TICK)
        return options

    def _checkpoint(self) -> RecCheckpoint:
        settings = self.settings
        full: dict[str, Any] = (
            {"every_seconds": 1000 * TICK} if settings.by_clock else {"every_steps": settings.every}
        )
        delta: dict[str, Any] = (
            {"delta_every_seconds": 300 * TICK}
            if settings.delta_by_clock
            else {"delta_every_steps": settings.delta_every}
        )
        return RecCheckpoint(
            self.run,
            **full,
            **delta,
            keep=settings.keep,
            publication=Publication(announce=self._saved),
        )

    def _restored(self, found: int | None, stream: StreamingDataset) -> None:
        self._changed = self.scheduler.now
        self.counts["restores"] += found is not None
        if self._next is not None and self._reads_anew(stream):
            if found is not None:
                raise FindingError("a topic made anew is read from the place in the one before")
            self._record, self._next = self._next, None
        model, offsets = self.model, stream.source.position
        self._record.restored(found, model.state(), model.steps, offsets)

    def _reads_anew(self, stream: StreamingDataset) -> bool:
        """Return whether a life found the topic that was made anew."""
        known = stream.source.state_dict().get("topic_id")
        if known is None:
            return self._began > self._made_anew
        return known == self._topic.topic_id

    def _erase(self, chance: random.Random) -> None:
        rows = sorted(each for each in self.model.state() if each != MARK)
        if rows:
            self.counts["erased"] += 1
            key = chance.choice(rows)
            self.model.table.erase_rows(np.array([key]))
            self._record.erased(key)

    def _stepped(self, events: list[Event]) -> None:
        self.counts["steps"] += 1
        self._changed = self.scheduler.now
        record, model = self._record, self.model
        record.stepped(events)
        record.check("trained", record.step, model.state(), model.steps)
        if self._next is not None and self.scheduler.now > self._made_anew + _PATIENCE:
            late = [number for number, *_ in events if number >= self._next.first]
            if late:
                raise FindingError(f"events {late} of the topic made anew were trained")

    def _ends(self) -> None:
        self._read_until = self.scheduler.now
        self._record.ends()

    def _saved(self, message: dict[str, Any]) -> None:
        self._record.saved(message["step"], message["kind"])

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
            self._record.check("answered", version, state, steps)
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

    _ended = _erasing = False

    def _live(self) -> None:
        settings, scheduler = self.settings, self.scheduler
        self._topic = Topic(settings.partitions)
        self._producer = Producer(self._topic, settings, self.seed, scheduler)
        self._send(settings.steps)
        self._until_trained()
        scheduler.note("QUIET from here on")
        self._quiet, self._may_kill = True, False
        self._quiet_since = scheduler.now
        self._wait_in_silence()
        self._quiet_from = self._record.step
        self._send(settings.quiet_steps)
        self._until_trained()
        self._wait_in_silence()
        self._end_trainer()
        patience = scheduler.now + 10.0
        while self.answered != self._record.step:
            self._watch(with_trainer=False)
            if scheduler.now > patience:
                raise FindingError(
                    f"the predictor is at step {self.answered}, the run at {self._record.step}"
                )
            scheduler.block("wait for the predictor", 0.01)
        self._ended = True
        while self._follower is not None and self._follower.tasks:
            scheduler.block("wait for the predictor's end", 0.01)
        self._raise_failure(self._follower)
        self._judge_end()

    def _send(self, steps: int) -> None:
        """Have the producer send the events of so many further steps."""
        self.target += steps
        self._begin_producer(self._record, steps)

    def _begin_producer(self, record: Record, steps: int) -> None:
        self._changed = self.scheduler.now
        work = lambda: self._producer.produce(record, steps, self._note_change)  # noqa: E731
        self.scheduler.start(self._own, "producer", work)

    def _note_change(self) -> None:
        self._changed = self.scheduler.now

    def _everything_trained(self) -> bool:
        record, total = self._record, self.target * self.settings.batch
        return self._next is None and len(record.sent) == len(record.trained) == total

    def _until_trained(self) -> None:
        """Wait until all events are trained; the trainer ends then, unless it is endless."""
        while not self._everything_trained() or self._is_to_end():
            self._watch(with_trainer=not self._everything_trained())
            self._maybe_make_anew()
            if self._erases and self._everything_trained():
                self._begin_erasing()
            if self._is_silent() and self.scheduler.now > self._changed + _PATIENCE:
                waiting = self._record.waiting(self._changed)
                raise FindingError(f"nothing else comes, and events {waiting} are not trained")
            self._judge_refusal()
            self.scheduler.block("watch", 50 * TICK)

    def _begin_erasing(self) -> None:
        """Have a trainer erase a row and do nothing more, when the one before has ended."""
        if self._trainer is not None:
            self._trainer.asked = True
        elif not self._power:
            self._erases -= 1
            self._begin_trainer(erases=True)

    def _is_to_end(self) -> bool:
        ends = not self.settings.endless or self._erasing
        return bool(self._erases) or (self._trainer is not None and ends)

    def _is_silent(self) -> bool:
        """Return whether an endless trainer works, and only it."""
        return self.settings.endless and self._alive(self._trainer) and not self._sends()

    def _sends(self) -> bool:
        """Return whether the producer is at work."""
        return any(task.name == "world/producer" for task in self._own.tasks)

    def _wait_in_silence(self) -> None:
        """Let an endless trainer wait for long, and judge what is saved then."""
        if not self.settings.endless:
            return
        if self._trainer is None:
            self._begin_trainer()
        self.counts["quiet"] += 1
        until = self.scheduler.now + _PATIENCE
        while self.scheduler.now < until:
            self._watch(with_trainer=True)
            self.scheduler.block("wait in silence", 200 * TICK)
        self._record.judge_quiet()

    def _end_trainer(self) -> None:
        """Ask an endless trainer to end."""
        while self._trainer is not None:
            self._trainer.asked = True
            self._watch(with_trainer=False)
            self.scheduler.block("wait for the trainer", 50 * TICK)

    # ---- a topic made anew

    def _maybe_make_anew(self) -> None:
        settings = self.settings
        if not settings.made_anew or self._quiet or self.chance.random() > 0.02:
            return
        settings.made_anew = False
        self._producer.stopped = True
        while self._sends():
            self.scheduler.block("wait for the producer", TICK)
        self.scheduler.note("THE TOPIC is made anew")
        self.counts["anew"] += 1
        self._topic.make_anew()
        self._made_anew = self._changed = self.scheduler.now
        self._producer.begin_anew()
        self._next = Record(settings, self.scheduler.note, self._record.next_number)
        self._begin_producer(self._next, settings.steps)

    def _judge_refusal(self) -> None:
        """Judge whether a trainer has noticed that its topic was made anew."""
        late = self.scheduler.now > self._made_anew + _PATIENCE
        if self._next is not None and self._trainer is not None and late:
            if self._began <= self._made_anew and self._alive(self._trainer):
                raise FindingError("the topic was made anew, and its trainer goes on")

    def _begin_another_run(self) -> None:
        """Begin a run in another directory, after a trainer has refused to go on."""
        assert self._next is not None
        follower = self._follower
        if follower is not None:
            self.scheduler.kill(follower)
            while follower.tasks:
                self.scheduler.block("wait for the predictor's end", TICK)
            self._raise_failure(follower)
            self._follower = None
        self._record, self._next = self._next, None
        self._runs += 1
        self.run = ROOT / f"run {self._runs}"

    def _watch(self, with_trainer: bool) -> None:
        """Start what is not there, after a look at why it has ended."""
        if self._power and not self._alive(self._trainer) and not self._alive(self._follower):
            self._power = False
            self._deaths_of_power()
        if self._power:
            return
        trainer, follower = self._trainer, self._follower
        if trainer is not None and (not self._alive(trainer) or self._main_ended(trainer)):
            self._end_trainers_life(trainer)
        elif trainer is not None and self.chance.random() < self.settings.ask * (not self._quiet):
            self.scheduler.note("ASKED to end")
            self.counts["asked"] += 1
            trainer.asked = True
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
            self._begin_trainer()

    def _begin_trainer(self, erases: bool = False) -> None:
        self._trainer = Process("trainer")
        self._began = self._changed = self.scheduler.now
        self._erasing = erases
        self.scheduler.start(self._trainer, "main", lambda: self._train(erases))

    def _end_trainers_life(self, trainer: Process) -> None:
        killed = trainer.dying
        self._end_process(trainer)
        self._trainer = None
        self._changed = self.scheduler.now
        if trainer.failure is None and not killed:
            self._record.ended()
        if self._has_refused(trainer.failure) and self._next is not None:
            self._begin_another_run()

    def _has_refused(self, error: BaseException | None) -> bool:
        """Return whether a trainer ended as it must when its topic is made anew."""
        may = self._next is not None or self._began <= self._made_anew
        # Raised by the stream, or by `restore`, which says whose state cannot be loaded.
        kinds = (LookupError, CheckpointError)
        texts = ("was deleted and made anew", "another topic of the same name")
        return may and isinstance(error, kinds) and any(each in str(error) for each in texts)

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
        if process.name == "trainer" and self._has_refused(error):
            return
        if isinstance(error, FindingError) or not _of_a_fault(error, process):
            raise error
        raised = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
        if "finish_merge" in raised and self._record.announced == self._record.step:
            raise FindingError(f"a training whose last state is saved ended by {error}") from error

    def _judge_end(self) -> None:
        self._record.judge_events()
        names = sorted(os.listdir(self.run))
        parsed_names = {name: parse_entry_name(name) for name in names if name != ".lock"}
        left = [name for name, entry in parsed_names.items() if entry is None]
        if left and self._began > self._quiet_since:  # a life removes what those before it left
            raise FindingError(f"nobody removes {left}")
        found = sorted(entry for entry in parsed_names.values() if entry is not None)
        fulls = [each for each in found if each[1] == "full"]
        # Perhaps no full checkpoint was due since the last fault, and the fault may have left old
        # ones.
        none_due = max(fulls)[0] <= self._quiet_from and (
            self.settings.by_clock or not self._has_full_due()
        )
        kept = len(fulls) <= self.settings.keep and found[0] == fulls[0]
        if found[-1][0] != self._record.step or not (kept or none_due):
            raise FindingError(f"keep is {self.settings.keep}, and there are {names}")

    def _has_full_due(self) -> bool:
        """Return whether a step since the last fault was to be a full checkpoint."""
        later = range(self._quiet_from + 1, self._record.step + 1)
        return any(each % self.settings.every == 0 for each in later)

    def live(self) -> None:
        """Run the schedule.

        Raises:
            Exception: what was found.
        """
        with installed(self, self._replaced()):
            self.scheduler.run(self._own, self._main)
            if self._own.failure is not None:
                raise self._own.failure
            said = io.StringIO()
            with redirect_stdout(said):
                code = verify_command(entries(self.run))
        if code != 0:
            raise FindingError(f"verify finds a bad checkpoint in the end: {said.getvalue()}")

    def _replaced(self) -> list[tuple[str, str, Any]]:
        ahead = self.settings.read_ahead
        return [
            ("train.loop.rec_model", "Interruption", Asked),
            ("train.loop.prefetch", "_arrays", list),
            (
                "train.loop.prefetch",
                "prefetched_tables",
                lambda _: [ReadAhead(ahead)] if ahead else [],
            ),
            ("common.stream.topic_watch", "LOOK_SECONDS", _LOOK),
            ("train.checkpoint.rec_checkpoint", "_RETRY_SECONDS", _RETRY),
        ]

    def _main(self) -> None:
        try:
            self._live()
        finally:
            for process in (self._trainer, self._follower, self._own):
                if process is not None:
                    self.scheduler.kill(process)

    def end(self) -> None:
        """Add up what happened."""
        self.counts["grown"] = self._topic.partitions - self.settings.partitions
        self.counts["yields"] = self.scheduler.yields
        self.counts["switches"] = self.scheduler.switches
        self.counts["operations"] = self.disk.operations


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


class _Ends(Callback):
    """Callback that tells that a training ends, before `RecCheckpoint` saves what is left."""

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self._tell = tell

    def on_train_end(self, run_context: Any) -> None:
        """Tell."""
        self._tell()


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
def installed(world: Any, more: Sequence[tuple[str, str, Any]] = ()) -> Iterator[None]:
    """Put the simulated parts in the place of the real ones.

    Args:
        world: of the schedule.
        more: further values, each by the module below `mindspore_rec` and the name there.
    """
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
    directory_of_run = made["mindspore_rec.train.checkpoint.run_directory"]
    replaced += [
        (made["mindspore_rec.train.checkpoint.worker"], "ThreadPoolExecutor",
         lambda _, thread_name_prefix, **__: Pool(scheduler, thread_name_prefix)),
        # The train step is no graph, and needs no tensors.
        (made["mindspore_rec.train.loop.loop"], "as_tensors", lambda batch, copy, columns: batch),
        (made["mindspore_rec.common.run.arrow_file"], "_batches", batches_of),
        (made["mindspore_rec.common.run.manifest"], "_parsed", parsed),
        (directory_of_run, "FileLock", lambda path: FileLock(disk, path)),
        (directory_of_run, "make_directories", make_directories),
        (made["mindspore_rec.common.stream.journal"], "make_directories", make_directories),
        (made["mindspore_rec.serve.following.predictor"], "NetworkOpener", Opener),
    ]  # fmt: skip
    replaced += [(made[f"mindspore_rec.{module}"], name, value) for module, name, value in more]
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
