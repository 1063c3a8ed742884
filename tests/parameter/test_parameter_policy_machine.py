# SPDX-License-Identifier: Apache-2.0
"""Every rule of admission and eviction, with handles and explanations, against a dict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import initialize, precondition, rule

from mindspore_rec import StaleHandleError
from tests.parameter.table_model import Pending, Row
from tests.parameter.test_parameter_native_machine import (
    INDICES,
    INITIALIZERS,
    NUMBERS,
    NativeTableMachine,
    in_model,
)

# All keys fit into one slice of the sweep and one sample for the capacity: each step looks at all
# rows, and the order is exact.
RULES = st.fixed_dictionaries(
    {
        "max_idle_steps": st.sampled_from([-1, -1, 1, 2, 4]),
        "max_idle_seconds": st.sampled_from([-1, -1, 5, 50]),
        "max_rows": st.sampled_from([-1, -1, 1, 3, 8]),
        "min_norm": st.sampled_from([-1.0, -1.0, 0.0, 0.3, 2.0]),
        "on_trigger": st.booleans(),
    }
)
KEPT = ("lfu_decay", "score")  # orders that need room in a row
HANDLED = 1 << 62  # tickets of the model from here on are of handles


class PolicyMachine(NativeTableMachine):
    @initialize(
        dim=st.sampled_from([1, 3, 16]),
        init=st.sampled_from(INITIALIZERS),
        seed=st.integers(0, 99),
        admission=st.sampled_from([-1, 0, 1, 2, 20]),
        sketch=st.booleans(),
        optimizer=st.sampled_from(["sgd", "adam"]),
        order=st.sampled_from(["lru", "lfu", *KEPT]),
        rules=RULES,
    )
    def open(self, dim, init, seed, admission, sketch, optimizer, order, rules) -> None:
        rules["order"] = order
        rules["half_life_steps"] = 2.0 if order == "lfu_decay" else 0.0
        more = {"admission_kind": "sketch", "sketch_bytes": 1 << 20} if sketch else {}
        self.make(dim, [], init, seed, 0.25, admission, rules, **more)
        self.handles: list[tuple[np.ndarray, list[int], int]] = []
        self.numbered = HANDLED
        self.bind_optimizer(optimizer)

    # ---- rules and clock ----

    @rule(rules=RULES, order=st.sampled_from(["lru", "lfu"]))
    def set_max_idle_steps(self, rules, order) -> None:
        rules["order"] = self.model.order if self.model.order in KEPT else order
        rules["half_life_steps"] = self.model.half_life
        self.table.set_eviction(**rules)
        self.model.set_eviction(**in_model(rules))

    @rule(time=st.integers(1, 200))
    def set_event_time(self, time) -> None:
        self.table.set_event_time(time)
        self.model.set_event_time(time)
        assert self.table.event_time == self.model.time

    @rule(steps=st.integers(-2, 3), time=st.integers(0, 200))
    def set_clock(self, steps, time) -> None:
        step = max(0, self.model.step + steps)
        self.table.set_clock(step, time)
        self.model.set_clock(step, time)

    @precondition(lambda self: self.model.lacks_time)
    @rule(indices=INDICES)
    def train_without_time(self, indices) -> None:
        self.table.bind_optimizer(self.model.rule or "sgd")
        self.model.bind(self.model.rule or "sgd")
        for call in (self.table.lookup_train, self.table.lookup_with_handles):
            with pytest.raises(ValueError, match="no event time; name the timestamp column"):
                call(self.pick(indices))

    @rule(at_once=st.booleans())
    def evict(self, at_once) -> None:
        if self.model.lacks_time:
            with pytest.raises(ValueError, match="no event time; name the timestamp column"):
                self.table.evict(at_once)
            return
        self.settle()
        self.table.evict(at_once)
        self.model.evict(at_once)
        self.settle(crowding=at_once)

    @rule(indices=INDICES, number=NUMBERS)
    def set_scores(self, indices, number) -> None:
        keys = self.pick(indices)
        scores = np.arange(len(keys), dtype=np.float32)[:, None] + np.float32(number)
        if self.model.order != "score":
            with pytest.raises(ValueError, match="keeps no scores; make it with order='score'"):
                self.table.set_scores(keys, scores)
            return
        rows = [self.model.row(key) for key in keys.tolist()]
        assert self.table.set_scores(keys, scores) == len([row for row in rows if row is not None])
        for key, row, score in zip(keys.tolist(), rows, scores[:, 0], strict=True):
            if row is not None:
                row.score = score
                self.model.touched.add(key)

    # ---- handles ----

    @precondition(lambda self: self.model.rule is not None and not self.model.lacks_time)
    @rule(indices=INDICES, padding=st.booleans())
    def lookup_with_handles(self, indices, padding) -> None:
        keys = self.pick(indices)
        kept = (keys != -1) | (not padding)
        expected = np.zeros((len(keys), self.model.dim), np.float32)
        expected[kept] = self.model.train(keys[kept].tolist())
        rows, handles = self.table.lookup_with_handles(keys, -1 if padding else None)
        np.testing.assert_array_equal(rows, expected)
        known = kept & np.array([self.model.row(key) is not None for key in keys.tolist()], bool)
        assert ((handles[:, 0] != -1) == known).all()
        self.settle()
        self.handles.append((handles, keys.tolist(), self.model.removed))

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), number=NUMBERS)
    def accumulate_by_handle(self, data, number) -> None:
        """Handles are valid until a row leaves the table, or one of their rows may be evicted."""
        self.settle()
        handles, keys, removed = data.draw(st.sampled_from(self.handles))
        grad = self.numbers(len(keys), number)
        named = handles[:, 0] != -1
        trained = [key for key, has_row in zip(keys, named, strict=True) if has_row]
        good = removed == self.model.removed and all(map(self.model.row, trained))
        if not good and len(keys):
            with pytest.raises(StaleHandleError, match=r"handles\[\d+\] (is stale|names no row)"):
                self.table.accumulate_by_handle(handles, grad)
            return
        self.table.accumulate_by_handle(handles, grad)
        self.model.pending[self.numbered] = Pending(trained, set(trained), grad[named])
        self.numbered += 1

    @precondition(lambda self: self.model.rule is not None and not self.model.lacks_time)
    @rule(
        place=st.none() | st.sampled_from([-(1 << 63), -2, 1 << 31, 16 << 32, (1 << 63) - 1]),
        version=st.sampled_from([-1, 1, 1 << 40, -(1 << 40)]),
    )
    def accumulate_by_made_up_handle(self, place, version) -> None:
        keys = self.pick([0, 1])
        self.model.train(keys.tolist())
        _, handles = self.table.lookup_with_handles(keys)
        if place is None:
            handles[1, 1] += version
        else:
            handles[1, 0] = place
        with pytest.raises(StaleHandleError, match=r"handles\[1\] "):
            self.table.accumulate_by_handle(handles, self.numbers(2, 1.0))

    # ---- in and out ----

    @rule(
        indices=INDICES,
        number=NUMBERS,
        ago=st.integers(-1, 5),
        time=st.integers(0, 200),
        whole=st.booleans(),
    )
    def import_rows(self, indices, number, ago, time, whole) -> None:
        """With state, score, count and times, or with values only."""
        model = self.model
        keys = self.pick(indices)
        n = len(keys)
        values = self.numbers(n, number)
        parts = 2 if model.rule == "adam" else 0
        states = np.repeat(np.abs(values), parts, 0).reshape(n, parts * model.dim)
        scores = np.arange(n, dtype=np.float32)
        columns: dict[str, Any] = {}
        if whole:
            scored = [scores[:, None]] if model.order in KEPT else []
            columns = {
                "states": np.concatenate([states, *scored], 1),
                "counts": np.arange(n, dtype=np.uint32) * 9,
                "last_steps": np.full(n, max(0, model.step - ago), np.uint32),
                "last_times": np.full(n, time, np.uint32),
            }
        self.table.import_rows(keys, values, **columns)
        for i, key in enumerate(keys.tolist()):
            state = np.zeros((parts, model.dim), np.float32)
            row = Row(values[i], state, 1, model.step, model.time)
            if whole:
                state = columns["states"][i, : parts * model.dim].reshape(parts, model.dim)
                seen = int(columns["last_steps"][i])
                score = scores[i] if model.order in KEPT else np.float32(0)
                row = Row(values[i], state, 9 * i, seen, time or model.time, score)
            model.bring_in(key, row)

    @rule(index=st.integers(0, 20))
    def explain(self, index) -> None:
        key = int(self.pick([index])[0])
        known = self.table.explain(key)
        self.settle()
        row = self.model.row(key)
        assert known["present"] == (row is not None)
        assert (known["step"], known["event_time"]) == (self.model.step, self.model.time)
        assert known["threshold"] == self.model.admission
        left = self.evicted.get(key)
        assert known["evicted_reason"] == (left.reason if left else "")
        if left is not None:
            assert (known["evicted_step"], known["evicted_time"]) == (left.step, left.time)
        if row is None:
            assert known["count"] == self.model.counted_before(key)
            return
        assert (known["count"], known["last_step"]) == (row.count, row.last_step)
        assert known["last_time"] == row.last_time
        assert known["norm"] == np.sqrt(row.squares)
        assert known["score"] == (row.score if self.model.order in KEPT else 0)


TestPolicies = PolicyMachine.TestCase
TestPolicies.settings = settings(
    max_examples=200,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestPolicies = pytest.mark.filterwarnings("error")(TestPolicies)
