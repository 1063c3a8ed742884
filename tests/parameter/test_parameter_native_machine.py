# SPDX-License-Identifier: Apache-2.0
"""The native table against a dict, through any sequence of its operations."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mindspore_rec import _native
from tests.parameter.table_model import EDGE_KEYS, INT64_MAX, INT64_MIN, Left, TableModel

_numbers = itertools.count()

# Drawn numbers are small multiples, so that a failing example is readable.
NUMBERS = st.integers(-8, 8).map(lambda n: n / 4)
INDICES = st.lists(st.integers(0, 1 << 16), min_size=0, max_size=10)
CONSTANT = {"init_kind": "constant", "init_a": 0.25}
INITIALIZERS: list[dict[str, Any]] = [
    CONSTANT,
    {"init_kind": "normal", "init_b": 0.01},
    {"init_kind": "uniform", "init_a": -0.5, "init_b": 0.5},
    {"init_kind": "truncated_normal", "init_b": 1.0},
]


def first_values(keys: np.ndarray, **arguments: Any) -> dict[int, np.ndarray]:
    """What a table of that seed and name gives each key, asked one by one in another order."""
    table = _native.Table(**arguments)
    found = {int(key): table.lookup(keys[i : i + 1], insert=True)[0] for i, key in enumerate(keys)}
    table.close()
    return found


def in_model(rules: dict[str, Any]) -> dict[str, Any]:
    """The model's names of the rules of eviction."""
    names = {
        "max_idle_steps": "max_idle",
        "max_idle_seconds": "max_seconds",
        "half_life_steps": "half_life",
    }
    return {names.get(name, name): value for name, value in rules.items()}


class NativeTableMachine(RuleBasedStateMachine):
    @initialize(
        dim=st.sampled_from([1, 2, 3, 4, 8, 16, 17]),
        keys=st.lists(st.integers(INT64_MIN, INT64_MAX), max_size=8),
        init=st.sampled_from(INITIALIZERS),
        seed=st.integers(0, (1 << 64) - 1),
        unknown=st.sampled_from([0.0, 0.25]),
        admission=st.sampled_from([-1, 0, 1, 2, 3]),
        max_idle=st.sampled_from([-1, 1, 2, 4]),
    )
    def open(self, dim, keys, init, seed, unknown, admission, max_idle) -> None:
        self.make(dim, keys, init, seed, unknown, admission, {"max_idle_steps": max_idle})

    def make(self, dim, keys, init, seed, unknown, admission, rules, **more) -> None:
        self.keys = np.unique(np.array(EDGE_KEYS + keys, np.int64))
        name = f"machine.{next(_numbers)}"
        self.same = {"dim": dim, "seed": seed, **init}
        first = first_values(self.keys[::-1].copy(), name=name, **self.same)
        self.same |= {name: rules[name] for name in ("order", "half_life_steps") if name in rules}
        self.table = _native.Table(
            name=name,
            unknown_value=[unknown],
            admission_threshold=admission,
            **{**self.same, **rules, **more},
        )
        self.table.collect_evicted(True)
        self.model = TableModel(dim, first.__getitem__, unknown, admission)
        self.model.sketch = more.get("admission_kind") == "sketch"
        self.model.set_eviction(**in_model(rules))
        self.replica: dict[int, np.ndarray] | None = None
        self.evicted: dict[int, Left] = {}
        self.mark = 0

    def teardown(self) -> None:
        if hasattr(self, "table"):
            self.table.close()
        _native.set_num_threads(2)

    def pick(self, indices: list[int]) -> np.ndarray:
        return self.keys[np.array(indices, np.int64) % len(self.keys)]

    def numbers(self, n: int, number: float) -> np.ndarray:
        size = n * self.model.dim
        return (np.arange(size, dtype=np.float32) * 0.125 + number).reshape(n, self.model.dim)

    def settle(self, crowding: bool = False) -> None:
        """What the table reports as evicted is what had to go, and all of it."""
        taken = self.table.take_evicted()
        crowded = []
        columns = (taken[name].tolist() for name in ("keys", "reasons", "steps", "times"))
        for key, reason, *when in zip(*columns, strict=True):
            left = Left(key, _native.EVICTION_REASONS[reason], *when)
            self.evicted[key] = left
            if left.reason == "capacity":
                assert left[2:] == (self.model.step, self.model.time)
                crowded.append(key)
                continue
            if left not in self.model.left:  # swept since it is due: nobody else can tell
                assert self.model.age(self.model.rows[key]) == left.reason
                self.model.drop(key, left.reason)
            self.model.left.remove(left)
        assert self.model.left == []
        assert crowding or not crowded
        if crowding:
            self.model.crowd_out(crowded)
            self.model.left.clear()

    # ---- training ----

    @precondition(lambda self: self.model.rule is not None and not self.model.lacks_time)
    @rule(indices=INDICES, many=st.booleans(), coefficient=st.sampled_from([1, 1, 2, 7]))
    def lookup_train(self, indices, many, coefficient) -> None:
        if many:  # enough for the threaded path
            indices = np.resize(np.array([*indices, 1, 2, 3]), 1300).tolist()
        keys = self.pick(indices)
        rows, ticket = self.table.lookup_train(keys, coefficient)
        expected = self.model.lookup_train(keys.tolist(), ticket, coefficient)
        np.testing.assert_array_equal(rows, expected)

    @precondition(lambda self: any(p.grad is None for p in self.model.pending.values()))
    @rule(data=st.data(), number=NUMBERS)
    def accumulate(self, data, number) -> None:
        waiting = [t for t, p in self.model.pending.items() if p.grad is None]
        ticket = data.draw(st.sampled_from(waiting))
        lookup = self.model.pending[ticket]
        lookup.grad = self.numbers(len(lookup.keys), number)
        self.table.accumulate(ticket, lookup.grad)

    @precondition(lambda self: self.model.rule is not None)
    @rule(
        lr=st.sampled_from([0.0, 0.1, 1.0]),
        decay=st.sampled_from([0.0, 0.01]),
        scale=st.sampled_from([1.0, 0.5]),
        step=st.integers(1, 1000),
    )
    def apply(self, lr, decay, scale, step) -> None:
        self.settle()
        self.table.apply(lr, decay, scale, step)
        self.model.apply(lr, decay, scale, step)
        self.settle(crowding=self.model.sweep_after_step())

    @rule()
    def discard(self) -> None:
        self.table.discard_gradients()
        self.model.pending.clear()

    @rule(kind=st.sampled_from(["sgd", "adam"]))
    def bind_optimizer(self, kind) -> None:
        self.table.bind_optimizer(kind)
        self.model.bind(kind)

    # ---- rows by key ----

    @rule(indices=INDICES, padding=st.booleans())
    def lookup(self, indices, padding) -> None:
        keys = self.pick(indices)
        expected = self.model.read(keys.tolist())
        if padding:
            expected[keys == -1] = 0
        rows = self.table.lookup(keys, padding_key=-1 if padding else None)
        np.testing.assert_array_equal(rows, expected)

    @rule(indices=INDICES, padding=st.booleans())
    def lookup_and_insert(self, indices, padding) -> None:
        keys = self.pick(indices)
        expected = np.zeros((len(keys), self.model.dim), np.float32)
        kept = (keys != -1) | (not padding)
        expected[kept] = self.model.train(keys[kept].tolist())
        rows = self.table.lookup(keys, insert=True, padding_key=-1 if padding else None)
        np.testing.assert_array_equal(rows, expected)

    @rule(indices=INDICES, number=NUMBERS)
    def put(self, indices, number) -> None:
        keys = self.pick(indices)
        values = self.numbers(len(keys), number)
        self.table.put(keys, values)
        self.model.put(keys.tolist(), values)

    @rule(indices=INDICES)
    def erase(self, indices) -> None:
        keys = self.pick(indices)
        assert self.table.erase(keys) == len(set(keys.tolist()) & set(self.model.visible()))
        self.model.erase(keys.tolist())

    @rule()
    def clear(self) -> None:
        self.table.clear()
        self.model.clear()

    # ---- policies and clock ----

    @rule(threshold=st.sampled_from([-1, 0, 1, 2, 3]))
    def set_admission_threshold(self, threshold) -> None:
        self.table.set_admission_threshold(threshold)
        self.model.admission = threshold

    @rule(steps=st.sampled_from([-1, 1, 2, 4]))
    def set_max_idle_steps(self, steps) -> None:
        self.table.set_eviction(max_idle_steps=steps)
        self.model.set_eviction(max_idle=steps)

    @rule(steps=st.integers(0, 3), time=st.integers(0, (1 << 32) - 1))
    def set_clock(self, steps, time) -> None:
        step = self.model.step + steps
        self.table.set_clock(step, time)
        self.model.set_clock(step, time)

    @rule()
    def evict_due(self) -> None:
        self.table.evict_due()
        self.model.sweep()
        if not self.model.sketch:
            assert self.table.stats()["candidates"] == len(self.model.counted)

    @rule(threads=st.integers(1, 3))
    def set_threads(self, threads) -> None:
        _native.set_num_threads(threads)

    # ---- in and out ----

    @rule()
    def export_and_import(self) -> None:
        """What leaves one table makes another one the same, optimizer state included."""
        rows = self.table.export_rows(with_state=True)
        self.check_rows(rows)
        other = _native.Table(name=f"{self.table.name}.import", **self.same)
        try:
            if self.model.rule is not None:
                other.bind_optimizer(self.model.rule)
            fields = ("keys", "values", "states", "counts", "last_steps", "last_times")
            other.import_rows(*(rows[field] for field in fields))
            self.check_rows(other.export_rows(with_state=True))
        finally:
            other.close()

    def check_rows(self, rows: dict[str, np.ndarray]) -> None:
        expected = self.model.visible()
        assert rows["present"].all()
        assert sorted(rows["keys"].tolist()) == sorted(expected)
        for i, key in enumerate(rows["keys"].tolist()):
            row = expected[key]
            np.testing.assert_array_equal(rows["values"][i], row.value)
            state = rows["states"][i]
            if self.model.order in ("lfu_decay", "score"):
                assert state[-1] == row.score
                state = state[:-1]
            np.testing.assert_array_equal(state, row.state.ravel())
            meta = (row.count, row.last_step, row.last_time)
            assert (rows["counts"][i], rows["last_steps"][i], rows["last_times"][i]) == meta

    @rule(indices=INDICES)
    def export_keys(self, indices) -> None:
        keys = self.pick(indices)
        rows = self.table.export_keys(keys)
        np.testing.assert_array_equal(rows["keys"], keys)
        present = [self.model.row(key) is not None for key in keys.tolist()]
        assert rows["present"].tolist() == present
        expected = self.model.read(keys.tolist())
        expected[~np.array(present, bool)] = 0
        np.testing.assert_array_equal(rows["values"], expected)

    @rule()
    def export_delta(self) -> None:
        """A replica that is given only what changed stays equal to the table."""
        if self.replica is None:
            rows = self.table.export_rows()
            self.replica = dict(zip(rows["keys"].tolist(), rows["values"], strict=True))
        else:
            self.model.sweep()
            rows = self.table.export_since(self.mark)
            self.settle()
            assert len(set(rows["keys"].tolist())) == len(rows["keys"])
            assert set(rows["keys"].tolist()) <= self.model.touched
            for key, value, present in zip(
                rows["keys"].tolist(), rows["values"], rows["present"], strict=True
            ):
                if present:
                    self.replica[key] = value
                else:
                    self.replica.pop(key, None)
        self.mark = self.table.mark()
        self.table.release_before(self.mark)
        self.model.touched = set()
        expected = self.model.visible()
        assert sorted(self.replica) == sorted(expected)
        for key, row in expected.items():
            np.testing.assert_array_equal(self.replica[key], row.value)

    @invariant()
    def holds_the_same_rows(self) -> None:
        if not hasattr(self, "table"):
            return
        self.settle()
        expected = self.model.visible()
        contained = self.table.contains(self.keys)
        assert contained.tolist() == [key in expected for key in self.keys.tolist()]
        assert self.table.step == self.model.step

    @rule()
    def size_and_keys(self) -> None:
        assert self.table.size() == len(self.model.visible())
        assert sorted(self.table.keys().tolist()) == sorted(self.model.visible())


TestNativeTable = NativeTableMachine.TestCase
TestNativeTable.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestNativeTable = pytest.mark.filterwarnings("error")(TestNativeTable)
