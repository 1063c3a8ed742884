# SPDX-License-Identifier: Apache-2.0
"""The topic of a schedule, and who writes it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa

from mindspore_rec.stream import MemoryTopic, pack
from tests.simulation.model import KEYS, SCHEMA, Event
from tests.simulation.record import Record
from tests.simulation.scheduler import TICK, Scheduler
from tests.simulation.settings import Settings

__all__ = ["Producer", "Topic"]


class Topic(MemoryTopic):
    """Topic that may be deleted and made anew, while others read it.

    Args:
        partitions: how many.
    """

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions, topic_id="topic 1")
        self.times_made = 1

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self._logs)

    def make_anew(self) -> None:
        """Delete the topic with all messages, and make one of this name."""
        with self._changed:
            self._logs = [[] for _ in self._logs]
            self.times_made += 1
            self.topic_id = f"topic {self.times_made}"


class Producer:
    """Writer of a topic's events, each a message, which also adds partitions.

    Args:
        topic: the topic.
        settings: of the schedule.
        seed: of the schedule.
        scheduler: for pauses.

    Attributes:
        stopped: whether to send nothing more.
    """

    def __init__(self, topic: Topic, settings: Settings, seed: int, scheduler: Scheduler) -> None:
        self._topic, self._settings, self._seed = topic, settings, seed
        self._scheduler = scheduler
        self._left_to_add = settings.new_partitions
        self._partition = 0
        self.stopped = False

    def produce(self, record: Record, steps: int, on_sent: Callable[[], None]) -> None:
        """Send events, unless it is stopped.

        Args:
            record: gets them.
            steps: how many whole batches of `Settings.batch`.
            on_sent: called after each.
        """
        chance = random.Random(f"events {self._seed} {record.next_number - 1}")
        # One event a message: then whole rounds of partitions are whole batches.
        for left in range(steps * self._settings.batch, 0, -1):
            if self.stopped:
                return
            if self._left_to_add and (left == 1 or chance.random() < 0.15):
                self._add_partition()
            event = _event(chance, record.next_number)
            record.sent.append(event)
            record.sent_at.append(self._scheduler.now)
            rows = pa.record_batch([pa.array([each]) for each in _columns(event)], schema=SCHEMA)
            self._topic.append(pack(rows), self._partition)
            on_sent()
            self._partition = (self._partition + 1) % self._topic.partitions
            if chance.random() < 0.2:
                self._scheduler.block("produce nothing", chance.random() * 500 * TICK)

    def _add_partition(self) -> None:
        self._left_to_add -= 1
        self._topic.add_partitions()
        self._partition = self._topic.partitions - 1
        self._scheduler.note(f"PARTITION {self._partition} is new")

    def begin_anew(self) -> None:
        """Go on with the topic that was made anew."""
        self._partition, self.stopped = 0, False


def _event(chance: random.Random, number: int) -> Event:
    gone = int(chance.random() < 0.15)
    # Some events come late; now and then nothing happens for long.
    late, pause = chance.randrange(8), 20 * int(chance.random() < 0.03)
    seconds = 1000 + number + pause - late * int(chance.random() < 0.2)
    return number, chance.randrange(KEYS), gone, seconds


def _columns(event: Event) -> tuple[int, ...]:
    number, key, gone, seconds = event
    return key, number, gone, seconds, 0
