# SPDX-License-Identifier: Apache-2.0
"""What a table should do, said with a dict: the model that property tests compare tables with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
EDGE_KEYS = [-1, -2, 0, 1, INT64_MIN, INT64_MAX, INT64_MIN + 1, 1 << 32, -(1 << 32), 1 << 62]

FirstValue = Callable[[int], np.ndarray]


@dataclass
class Row:
    """One row: float32 value, optimizer state (two arrays for Adam), metadata, score."""

    value: np.ndarray
    state: np.ndarray
    count: int
    last_step: int
    last_time: int
    score: np.float32 = field(default_factory=lambda: np.float32(0))

    @property
    def squares(self) -> float:
        """Of its value, as the table adds them up: in double, one by one."""
        total = 0.0
        for x in self.value.tolist():
            total += x * x
        return total


@dataclass
class Counted:
    """A key that waits for admission."""

    count: int
    last_step: int
    last_time: int


class Left(NamedTuple):
    """An eviction: of which key, why and when."""

    key: int
    reason: str
    step: int
    time: int


@dataclass
class Pending:
    """A training lookup: its keys, those that had a row, and its gradient once it is known."""

    keys: list[int]
    admitted: set[int]
    grad: np.ndarray | None = None


@dataclass
class TableModel:
    """A table of float32 rows with admission by count and any of the rules of eviction.

    Rows that are due for eviction by age stay in `rows` but are never seen: nothing but the
    collection of evicted keys may tell whether they were swept. `left` holds evictions that the
    table must have reported, `removed` counts rows that left memory.
    """

    dim: int
    first: FirstValue
    unknown: float = 0.0
    admission: int = -1
    max_idle: int = -1
    rule: str | None = None
    sketch: bool = False
    max_seconds: int = -1
    min_norm: float = -1.0
    max_rows: int = -1
    order: str = "lru"
    half_life: float = 0.0
    on_trigger: bool = False
    step: int = 0
    time: int = 0
    horizon: tuple[int, int] = (0, 0)
    clock_before: tuple[int, int] = (0, 0)
    sweeping: bool = False
    removed: int = 0
    rows: dict[int, Row] = field(default_factory=dict)
    counted: dict[int, Counted] = field(default_factory=dict)
    pending: dict[int, Pending] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    left: list[Left] = field(default_factory=list)

    # ---- the clock

    def moved(self) -> None:
        """The clock has moved."""
        if not self.on_trigger:
            self.horizon = (self.step, self.time)
        self.halve()

    def halve(self) -> None:
        """A sketch halves its counts when the clock passes a multiple of the idle limit."""
        limit = self.max_idle if self.max_idle > 0 else self.max_seconds
        by = 0 if self.max_idle > 0 else 1
        now, before = (self.step, self.time), self.clock_before
        halvings = now[by] // limit - before[by] // limit if limit > 0 else 0
        self.clock_before = now
        if self.sketch and halvings > 0:
            for seen in self.counted.values():
                seen.count >>= halvings

    def set_clock(self, step: int, time: int) -> None:
        if step < self.step or time < self.time:
            self.sweep()  # what is due now does not come back
        self.step, self.time = step, time
        self.horizon = (min(self.horizon[0], step), min(self.horizon[1], time))
        self.moved()

    def set_event_time(self, time: int) -> None:
        if time <= self.time:
            return
        if self.time == 0:
            self.clock_before = (self.clock_before[0], time)
            known: list[Row | Counted] = [*self.rows.values(), *self.counted.values()]
            for each in known:
                each.last_time = each.last_time or time
        self.time = time
        self.moved()

    def set_eviction(self, **rules: object) -> None:
        """First, rows due for eviction leave; with a trigger, no row is due before the trigger."""
        self.sweep()
        for name, value in rules.items():
            setattr(self, name, value)
        self.horizon = (0, 0)
        self.sweeping = False
        self.clock_before = (self.step, self.time)
        self.moved()

    @property
    def lacks_time(self) -> bool:
        return self.max_seconds >= 0 and self.time == 0

    # ---- eviction

    def age(self, seen: Row | Counted) -> str:
        """Why the row is due for eviction, or ''."""
        # The last step that is done is the one before the clock's.
        if self.max_idle >= 0 and self.horizon[0] - 1 - seen.last_step >= self.max_idle:
            return "idle_steps"
        if self.max_seconds >= 0 and self.horizon[1] - seen.last_time >= self.max_seconds:
            return "idle_seconds"
        return ""

    def drop(self, key: int, reason: str) -> None:
        del self.rows[key]
        self.left.append(Left(key, reason, self.step, self.time))
        self.touched.add(key)
        self.removed += 1

    def sweep(self, norms: bool = False) -> None:
        """Drops rows due for eviction; needed when rules or clock change, so that none escapes."""
        for key, row in list(self.rows.items()):
            if reason := self.age(row):
                self.drop(key, reason)
            elif (
                norms and self.min_norm > 0 and row.squares < float(np.float32(self.min_norm)) ** 2
            ):
                self.drop(key, "norm")
        self.counted = {k: c for k, c in self.counted.items() if self.sketch or not self.age(c)}

    def standing(self, row: Row) -> tuple[float, int]:
        """The lower, the earlier it goes."""
        first: float
        if self.order == "lru":
            first = row.last_step
        elif self.order == "lfu":
            first = row.count
        elif self.order == "score":
            first = float(row.score)
        else:
            frequency = math.log2(row.score) if row.score > 0 else -math.inf
            first = frequency - (self.step - row.last_step) / self.half_life
        return first, row.last_step

    def evict(self, at_once: bool) -> None:
        """Moves the horizon to now; rows over the capacity are left to `crowd_out`."""
        self.horizon = (self.step, self.time)
        self.sweeping = not at_once
        if at_once:
            self.sweep(norms=True)

    def crowd_out(self, keys: Iterable[int]) -> None:
        """Drops these keys for capacity, if they may be the ones: as many as there are too many,
        and none that stands higher than a row that stays."""
        gone = set(keys)
        over = max(0, len(self.rows) - self.max_rows) if self.max_rows >= 0 else 0
        assert len(gone) == over and gone <= set(self.rows)
        if not gone:
            return
        kept = [self.standing(row) for key, row in self.rows.items() if key not in gone]
        assert not kept or max(self.standing(self.rows[key]) for key in gone) <= min(kept)
        for key in gone:
            self.drop(key, "capacity")

    # ---- lookups

    def row(self, key: int) -> Row | None:
        found = self.rows.get(key)
        return None if found is None or self.age(found) else found

    def visible(self) -> dict[int, Row]:
        return {key: row for key, row in self.rows.items() if not self.age(row)}

    def read(self, keys: Sequence[int]) -> np.ndarray:
        out = np.full((len(keys), self.dim), self.unknown, np.float32)
        for i, key in enumerate(keys):
            found = self.row(key)
            if found is not None:
                out[i] = found.value
        return out

    def fresh(self, key: int) -> Row:
        state = np.zeros((2 if self.rule == "adam" else 0, self.dim), np.float32)
        return Row(self.first(key).copy(), state, 0, self.step, self.time)

    def make_way(self, key: int) -> bool:
        """True if the key has no row; a row that is due for eviction is dropped first."""
        if key in self.rows and (reason := self.age(self.rows[key])):
            self.drop(key, reason)
        return key not in self.rows

    def touch(self, key: int, occurrences: int) -> None:
        row = self.rows[key]
        if self.order == "lfu_decay":
            idle = self.step - row.last_step
            if idle > 0:
                power = float(np.float32(-idle / self.half_life))
                row.score = row.score * np.float32(2.0**power)
            row.score = row.score + np.float32(occurrences)
        row.count += occurrences if self.admission != 0 else 0
        row.last_step, row.last_time = self.step, self.time
        self.touched.add(key)

    def counted_before(self, key: int) -> int:
        seen = self.counted.get(key)
        if seen is None:
            return 0
        if self.sketch:
            return seen.count
        if self.age(seen):
            del self.counted[key]
            return 0
        return seen.count

    def train(self, keys: Sequence[int], coefficient: int = 1) -> np.ndarray:
        """A training lookup: counts the whole batch, then decides, then reads."""
        for key in dict.fromkeys(keys):
            occurrences = list(keys).count(key) * coefficient
            if self.make_way(key):
                if self.admission == 0:
                    continue
                before = self.counted_before(key)
                if self.admission > 0 and before + occurrences < self.admission:
                    self.counted[key] = Counted(before + occurrences, self.step, self.time)
                    continue
                self.counted.pop(key, None)
                self.rows[key] = self.fresh(key)
                self.rows[key].count = before
            self.touch(key, occurrences)
        return self.read(keys)

    def lookup_train(self, keys: Sequence[int], ticket: int, coefficient: int = 1) -> np.ndarray:
        out = self.train(keys, coefficient)
        self.pending[ticket] = Pending(list(keys), {k for k in keys if self.row(k) is not None})
        return out

    # ---- rows by key

    def put(self, keys: Sequence[int], values: np.ndarray) -> None:
        for key in dict.fromkeys(keys):
            if self.make_way(key):
                self.rows[key] = self.fresh(key)
                self.counted.pop(key, None)
            self.touch(key, 1)
        for key, value in zip(keys, values, strict=True):
            self.rows[key].value = value.copy()

    def bring_in(self, key: int, row: Row) -> None:
        """Imports one row."""
        if self.make_way(key):
            self.counted.pop(key, None)
        self.rows[key] = row
        self.touched.add(key)

    def erase(self, keys: Sequence[int]) -> None:
        for key in keys:
            if self.make_way(key):
                self.counted.pop(key, None)
            else:
                del self.rows[key]
                self.removed += 1
            self.touched.add(key)

    def clear(self) -> None:
        self.touched |= set(self.rows)
        self.removed += 1
        self.rows.clear()
        self.counted.clear()
        self.pending.clear()

    # ---- training

    def bind(self, rule: str) -> None:
        if rule != self.rule:
            self.pending.clear()
            self.removed += 1
            self.rule = rule
            self.touched |= set(self.rows)
            for row in self.rows.values():
                row.state = np.zeros((2 if rule == "adam" else 0, self.dim), np.float32)

    def gradient_sums(self) -> dict[int, np.ndarray]:
        """Each key's gradient, added up in the order of lookups and positions.

        Of those lookups in which it had a row: the others have read the unknown value.
        """
        sums: dict[int, np.ndarray] = {}
        for _, lookup in sorted(self.pending.items()):
            if lookup.grad is None:
                continue
            for key, grad in zip(lookup.keys, lookup.grad, strict=True):
                if key not in lookup.admitted:
                    continue
                sums[key] = sums.get(key, np.zeros(self.dim, np.float32)) + grad
        return sums

    def apply(self, lr: float, weight_decay: float, scale: float, step: int) -> None:
        for key, total in self.gradient_sums().items():
            row = self.row(key)
            if row is not None:
                self.update(row, total, lr, weight_decay, scale, step)
                self.touched.add(key)
        self.pending.clear()
        self.step += 1
        self.moved()

    def sweep_after_step(self) -> bool:
        """True if the end of a step evicts; the rows due for eviction are then dropped."""
        evicts = self.sweeping or not self.on_trigger
        self.sweeping = False
        if evicts:
            self.sweep(norms=True)
        return evicts

    def update(
        self, row: Row, total: np.ndarray, lr: float, weight_decay: float, scale: float, step: int
    ) -> None:
        f = np.float32
        grad = f(scale) * total + f(weight_decay) * row.value
        if self.rule == "sgd":
            row.value = row.value - f(lr) * grad
            return
        b1, b2, epsilon = f(0.9), f(0.999), f(1e-8)
        m = b1 * row.state[0] + (f(1) - b1) * grad
        v = b2 * row.state[1] + (f(1) - b2) * grad * grad
        row.state = np.stack([m, v])
        corrected = float(f(lr)) * np.sqrt(1 - float(b2) ** step) / (1 - float(b1) ** step)
        row.value = row.value - f(corrected) * m / (np.sqrt(v) + epsilon)
