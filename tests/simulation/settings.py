# SPDX-License-Identifier: Apache-2.0
"""Settings of a schedule of trainer and predictor, drawn by its seed before anything runs."""

from __future__ import annotations

import random

from tests.simulation.scheduler import TICK

__all__ = ["Settings"]


class Settings:
    """Settings of a schedule.

    Args:
        seed: of the schedule.
    """

    def __init__(self, seed: int) -> None:
        chance = random.Random(f"settings {seed}")
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
        self._draw_lives(random.Random(f"lives {seed}"))

    def _draw_lives(self, chance: random.Random) -> None:
        self.grows = chance.choice((0, 0, 1, 2))  # partitions that the topic gets, if by_time
        self.journal = chance.random() < 0.8  # whether decisions are kept for a restart
        self.resizes = chance.random() < 0.3  # whether lives have batches of their own, if by_time
        self.made_anew = chance.random() < 0.08  # the topic is deleted and made again
        self.endless = chance.random() < 0.25  # the trainer ends when it is asked to
        self.delta_by_clock = chance.random() < 0.2
        self.read_ahead = chance.choice((0, 0, 1, 2))  # batches
        self.erases = chance.choice((0, 0, 0, 1, 2))  # lives that erase a row, and do nothing more
        self.ask = chance.choice((0.0, 0.0, 0.002))  # that a look at the trainer asks it to end

    @property
    def limits(self) -> tuple[int, int]:
        """Both limits of ages."""
        return self.idle_steps, self.idle_seconds

    @property
    def new_partitions(self) -> int:
        """Number of partitions that the topic gets; the others do not wait for them."""
        return self.grows if self.by_time else 0

    @property
    def own_batches(self) -> bool:
        """Whether each life has batches of a size of its own."""
        return self.by_time and self.resizes

    @property
    def repeats(self) -> bool:
        """Whether a restart must make the batches of before."""
        return not self.by_time or (self.journal and not self.own_batches)

    @property
    def saves_by_clock(self) -> bool:
        """Whether a quiet stream saves its last step."""
        return self.by_clock or self.delta_by_clock

    def is_due(self, step: int) -> bool:
        """Return whether an interval in steps has a step saved."""
        return (not self.by_clock and step % self.every == 0) or (
            not self.delta_by_clock and step % self.delta_every == 0
        )
