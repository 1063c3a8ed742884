# SPDX-License-Identifier: Apache-2.0
"""What a table should do, said with a dict: the model that property tests compare tables with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
EDGE_KEYS = [-1, -2, 0, 1, INT64_MIN, INT64_MAX, INT64_MIN + 1, 1 << 32, -(1 << 32), 1 << 62]

FirstValue = Callable[[int], np.ndarray]


@dataclass
class Row:
    """One row: float32 value, optimizer state (two arrays for Adam), metadata."""

    value: np.ndarray
    state: np.ndarray
    count: int
    last_step: int
    last_time: int


@dataclass
class Pending:
    """A training lookup: its keys, those that had a row, and its gradient once it is known."""

    keys: list[int]
    admitted: set[int]
    grad: np.ndarray | None = None


@dataclass
class TableModel:
    """A table of float32 rows with admission by count and eviction by idle steps.

    Rows that are due for eviction stay in `rows` but are never seen: nothing may tell whether they
    were swept.
    """

    dim: int
    first: FirstValue
    unknown: float = 0.0
    admission: int = -1
    max_idle: int = -1
    rule: str | None = None
    step: int = 0
    time: int = 0
    rows: dict[int, Row] = field(default_factory=dict)
    counted: dict[int, tuple[int, int]] = field(default_factory=dict)
    pending: dict[int, Pending] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)

    def due(self, last_step: int) -> bool:
        return self.max_idle >= 0 and self.step - last_step >= self.max_idle

    def sweep(self) -> None:
        """Drops what is due. Done where the threshold or clock moves: due must not become undue."""
        gone = {key for key, row in self.rows.items() if self.due(row.last_step)}
        self.touched |= gone
        for key in gone:
            del self.rows[key]
        self.counted = {k: v for k, v in self.counted.items() if not self.due(v[1])}

    def row(self, key: int) -> Row | None:
        found = self.rows.get(key)
        return None if found is None or self.due(found.last_step) else found

    def visible(self) -> dict[int, Row]:
        return {key: row for key, row in self.rows.items() if not self.due(row.last_step)}

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

    def touch(self, key: int, occurrences: int) -> None:
        row = self.rows[key]
        row.count += occurrences if self.admission != 0 else 0
        row.last_step, row.last_time = self.step, self.time
        self.touched.add(key)

    def train(self, keys: Sequence[int]) -> np.ndarray:
        """A training lookup: counts the whole batch, then decides, then reads."""
        for key in dict.fromkeys(keys):
            occurrences = list(keys).count(key)
            if self.row(key) is None:
                if self.rows.pop(key, None) is not None:
                    self.touched.add(key)
                before, seen = self.counted.get(key, (0, self.step))
                if self.due(seen):
                    before = 0
                    self.counted.pop(key, None)
                if self.admission == 0:
                    continue
                if self.admission > 0 and before + occurrences < self.admission:
                    self.counted[key] = (before + occurrences, self.step)
                    continue
                self.counted.pop(key, None)
                self.rows[key] = self.fresh(key)
                self.rows[key].count = before
            self.touch(key, occurrences)
        return self.read(keys)

    def lookup_train(self, keys: Sequence[int], ticket: int) -> np.ndarray:
        out = self.train(keys)
        self.pending[ticket] = Pending(list(keys), {k for k in keys if self.row(k) is not None})
        return out

    def put(self, keys: Sequence[int], values: np.ndarray) -> None:
        for key in dict.fromkeys(keys):
            if self.row(key) is None:
                self.rows[key] = self.fresh(key)
            self.counted.pop(key, None)
            self.touch(key, 1)
        for key, value in zip(keys, values, strict=True):
            self.rows[key].value = value.copy()

    def erase(self, keys: Sequence[int]) -> None:
        for key in keys:
            self.rows.pop(key, None)
            self.counted.pop(key, None)
            self.touched.add(key)

    def clear(self) -> None:
        self.touched |= set(self.rows)
        self.rows.clear()
        self.counted.clear()
        self.pending.clear()

    def bind(self, rule: str) -> None:
        if rule != self.rule:
            self.pending.clear()
            self.rule = rule
            self.touched |= set(self.rows)
            for row in self.rows.values():
                row.state = np.zeros((2 if rule == "adam" else 0, self.dim), np.float32)

    def gradient_sums(self) -> dict[int, np.ndarray]:
        """Each key's gradient, added up in the order of lookups and positions."""
        sums: dict[int, np.ndarray] = {}
        admitted: set[int] = set()
        for _, lookup in sorted(self.pending.items()):
            if lookup.grad is None:
                continue
            admitted |= lookup.admitted
            for key, grad in zip(lookup.keys, lookup.grad, strict=True):
                sums[key] = sums.get(key, np.zeros(self.dim, np.float32)) + grad
        return {key: total for key, total in sums.items() if key in admitted}

    def apply(self, lr: float, weight_decay: float, scale: float, step: int) -> None:
        for key, total in self.gradient_sums().items():
            row = self.row(key)
            if row is not None:
                self.update(row, total, lr, weight_decay, scale, step)
                self.touched.add(key)
        self.pending.clear()
        self.step += 1

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
