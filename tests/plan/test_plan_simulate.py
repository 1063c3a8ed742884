# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec import _native
from mindspore_rec.plan import Choices, KeyLog, simulate
from mindspore_rec.plan.age import AgeSweep
from mindspore_rec.plan.capacity import CapacityRun
from mindspore_rec.plan.index import KeyIndex
from mindspore_rec.plan.sizes import COUNTER_BYTES
from mindspore_rec.plan.stack import StackDistances

ROW = 92


class Model:
    """A table as a dict: what the simulations must equal, one lookup at a time."""

    def __init__(self, threshold, max_idle=None, capacity=None, order="", row=ROW):
        self.threshold, self.max_idle = threshold, max_idle
        self.capacity, self.order, self.row = capacity, order, row
        self.held = {}  # key -> [count, clock of the last occurrence, its position]
        self.position = self.hits = self.admitted = self.evictions = 0
        self.peaks = [0, 0, 0]

    def rows(self):
        return [key for key, held in self.held.items() if held[0] >= self.threshold]

    def sizes(self):
        rows = len(self.rows())
        counters = len(self.held) - rows
        return [rows, counters, rows * self.row + counters * COUNTER_BYTES]

    def evict(self, keys, with_rows):
        self.evictions += len([key for key in keys if key in with_rows])
        for key in keys:
            del self.held[key]

    def step(self, keys, clock):
        if self.max_idle is not None:
            due = [key for key, held in self.held.items() if clock - held[1] >= self.max_idle]
            self.evict(due, set(self.rows()))
        trained = set(self.rows())
        for key in keys:
            self.hits += key in trained
            held = self.held.setdefault(key, [0, 0, 0])
            self.held[key] = [held[0] + 1, clock, self.position]
            self.position += 1
        rows = self.rows()
        self.admitted += len([key for key in keys if key in set(rows)])
        if self.capacity is not None and len(rows) > self.capacity:

            def rank(key):
                count, _, position = self.held[key]
                return (count if self.order == "lfu" else 0, position)

            victims = sorted(rows, key=rank)[: len(rows) - self.capacity]
            self.evict(victims, set(rows))
        self.peaks = [max(pair) for pair in zip(self.peaks, self.sizes(), strict=True)]

    def figures(self):
        rows, counters, size = self.sizes()
        return {
            "hits": self.hits,
            "admitted": self.admitted,
            "final_rows": rows,
            "final_counters": counters,
            "final_bytes": size,
            "peak_rows": self.peaks[0],
            "peak_counters": self.peaks[1],
            "peak_bytes": self.peaks[2],
            "evictions": self.evictions,
        }


def figures(outcome, lookups):
    named = dataclasses.asdict(outcome)
    named["hits"] = round(outcome.hit_rate * lookups)
    named["admitted"] = round(outcome.admitted_rate * lookups)
    return named


def check(outcome, model, lookups):
    expected = model.figures()
    shown = figures(outcome, lookups)
    assert {name: shown[name] for name in expected} == expected


def run(batches, simulations, models, clocks):
    index = KeyIndex()
    for keys, clock in zip(batches, clocks, strict=True):
        distinct = index.distinct(np.array(keys, np.int64))
        for simulation in simulations:
            if isinstance(simulation, AgeSweep):
                simulation.add(distinct, clock)
            else:
                simulation.add(distinct)
        for model in models:
            model.step(keys, clock)
    index.close()
    return sum(map(len, batches))


keys = st.one_of(st.integers(0, 6), st.sampled_from([-1, -(2**63), 2**63 - 1, 40]))
logs = st.lists(st.lists(keys, max_size=12), min_size=1, max_size=20)


@given(logs, st.data())
@settings(max_examples=150)
def test_admission_and_age_equal_a_dict(batches, data):
    thresholds = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True))
    max_idle = data.draw(st.none() | st.integers(1, 8))
    steps = data.draw(st.lists(st.integers(0, 4), min_size=len(batches), max_size=len(batches)))
    clocks = np.cumsum(steps).tolist()
    sweep = AgeSweep(thresholds, ROW, max_idle, "seconds")
    models = [Model(threshold, max_idle) for threshold in thresholds]
    lookups = run(batches, [sweep], models, clocks)
    for outcome, model in zip(sweep.outcomes(), models, strict=True):
        assert outcome.admission == model.threshold
        check(outcome, model, lookups)


@given(logs, st.integers(1, 9), st.sampled_from(["lru", "lfu"]), st.integers(1, 4))
@settings(max_examples=150)
def test_capacity_equals_a_dict(batches, capacity, order, threshold):
    simulation = CapacityRun(capacity, order, threshold, ROW)
    model = Model(threshold, capacity=capacity, order=order)
    lookups = run(batches, [simulation], [model], range(len(batches)))
    check(simulation.outcome(), model, lookups)


@given(logs)
@settings(max_examples=150)
def test_stack_distances_equal_a_dict_at_every_capacity(batches):
    stack = StackDistances(ROW)
    models = [Model(1, capacity=capacity, order="lru") for capacity in range(1, 12)]
    lookups = run(batches, [stack], models, range(len(batches)))
    for model in models:
        check(stack.outcome(model.capacity), model, lookups)


@pytest.mark.parametrize("order", ["lru", "lfu"])
@pytest.mark.parametrize("batch", [7, 300])
def test_many_evictions_equal_a_dict(order, batch):
    """Long enough for pools of victims to be left and made anew, and for slots to be compacted."""
    log = np.random.default_rng(3).zipf(1.3, 6000) % 900
    batches = [log[i : i + batch].tolist() for i in range(0, len(log), batch)]
    simulation, stack = CapacityRun(150, order, 1, ROW), StackDistances(ROW)
    model = Model(1, capacity=150, order=order)
    lookups = run(batches, [simulation, stack], [model], range(len(batches)))
    check(simulation.outcome(), model, lookups)
    assert model.evictions > 500
    if order == "lru":
        check(stack.outcome(150), model, lookups)


def native_run(batches, clocks=None, **policies):
    """The real table, trained: unknown reads 0, a row 1 and its trained occurrences."""
    table = _native.Table(dim=1, init_a=1.0, **policies)
    table.bind_optimizer("sgd")
    hits = admitted = 0
    for number, batch in enumerate(batches):
        if clocks is not None:
            table.set_event_time(clocks[number])
        rows, ticket = table.lookup_train(np.array(batch, np.int64))
        hits += int((rows > 1).sum())
        admitted += int((rows > 0).sum())
        table.evict_due()
        stats = table.stats()  # before the step, which turns the clock to the next batch
        table.accumulate(ticket, -np.ones_like(rows))
        table.apply(1.0)
    table.close()
    return {
        "hits": hits,
        "admitted": admitted,
        "final_rows": stats["rows"],
        "final_counters": stats["candidates"],
        "evictions": stats["evicted"],
    }


@pytest.mark.parametrize("threshold", [1, 2, 5])
@pytest.mark.parametrize("unit", ["steps", "seconds"])
@pytest.mark.parametrize("max_idle", [None, 1, 3, 10])
def test_the_real_table_gives_the_same_figures(threshold, unit, max_idle, unique):
    rng = np.random.default_rng(7)
    log = rng.zipf(1.2, 4000) % 700
    batches = [log[i : i + 50].tolist() for i in range(0, len(log), 50)]
    clocks = list(range(len(batches)))
    policies = {"name": unique(), "admission_threshold": threshold}
    if max_idle is not None:
        policies[f"max_idle_{unit}"] = max_idle
    if unit == "seconds":
        clocks = (10**9 + np.cumsum(rng.integers(0, 3, len(batches)))).tolist()
    sweep = AgeSweep([threshold], ROW, max_idle, unit)
    lookups = run(batches, [sweep], [], clocks)
    expected = native_run(batches, clocks if unit == "seconds" else None, **policies)
    shown = figures(sweep.outcomes()[0], lookups)
    assert {name: shown[name] for name in expected} == expected
    assert 0 < expected["hits"] or max_idle == 1
    assert (expected["evictions"] > 0) == (max_idle is not None)


@pytest.mark.parametrize("threshold", [1, 3])
@pytest.mark.parametrize("order", ["lru", "lfu"])
def test_the_real_table_comes_near_the_exact_order(order, threshold, unique):
    """A table evicts the first rows of a sample, the simulation those of all."""
    log = np.random.default_rng(1).zipf(1.2, 200_000) % 20_000
    batches = np.split(log, 200)
    capacity = 2000
    simulation = CapacityRun(capacity, order, threshold, ROW)
    lookups = run([batch.tolist() for batch in batches], [simulation], [], range(200))
    policies = {"admission_threshold": threshold, "max_rows": capacity, "order": order}
    real = native_run(batches, name=unique(), **policies)
    assert simulation.outcome().evictions > 5000
    assert simulation.outcome().hit_rate == pytest.approx(real["hits"] / lookups, abs=0.002)


def write(path, columns):
    pq.write_table(pa.table(columns), path)
    return path


def test_a_plan_has_every_choice_in_order(tmp_path):
    rng = np.random.default_rng(1)
    path = write(tmp_path / "log.parquet", {"id": rng.integers(0, 50, 400), "t": np.arange(400)})
    choices = Choices(
        admission=[1, 3],
        idle_steps=[2],
        idle_seconds=[30],
        capacity=[0.5, 10],
        order=["lru", "lfu"],
        capacity_admission=[1, 2],
    )
    plan = simulate(KeyLog([path], ["id"], "t"), choices, ROW, batch_size=20)
    assert (plan.samples, plan.steps, plan.lookups, plan.keys) == (400, 20, 400, 50)
    ages = [(None, ""), (2, "steps"), (30, "seconds")]
    expected: list[tuple] = [(n, *age, None, "") for age in ages for n in (1, 3)]
    for order in ("lru", "lfu"):
        expected += [(n, None, "", c, order) for n in (1, 2) for c in (10, 25)]
    assert [
        (o.admission, o.idle, o.idle_unit, o.capacity, o.order) for o in plan.outcomes
    ] == expected
    # each is what its own simulation gives
    ids = pq.read_table(path)["id"].to_numpy()
    models = [
        # With a limit of 2 steps a key of step 0 goes in step 3.
        Model(
            o.admission,
            o.idle and o.idle + (o.idle_unit == "steps"),
            o.capacity,
            o.order,
            ROW + (16 if o.idle else 8),
        )
        for o in plan.outcomes
    ]
    for outcome, model in zip(plan.outcomes, models, strict=True):
        for step in range(20):
            last_second = 20 * step + 19
            clock = last_second if outcome.idle_unit == "seconds" else step
            model.step(ids[20 * step : 20 * step + 20].tolist(), clock)
        check(outcome, model, 400)
    lru = plan.curves[-1]
    assert lru.rows[-1] == 50 and lru.hit_rate[-1] == plan.outcomes[0].hit_rate
    assert lru.hit_rate == sorted(lru.hit_rate)


def test_late_events_do_not_turn_the_clock_back(tmp_path):
    path = write(tmp_path / "log.parquet", {"id": [1, 2, 3, 1], "t": [100, 200, 50, 199]})
    choices = Choices(admission=[1], idle_seconds=[100, 101])
    plan = simulate(KeyLog([path], ["id"], "t"), choices, ROW, batch_size=1)
    assert [o.hit_rate for o in plan.outcomes] == [0.25, 0, 0.25]
    assert [o.final_rows for o in plan.outcomes] == [3, 3, 3]
    assert [o.evictions for o in plan.outcomes] == [0, 1, 0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"admission": [0]}, ValueError, r"admission must be in \[1, 1073741823\], got 0"),
        ({"admission": []}, ValueError, "admission must have at least one"),
        ({"admission": [1.5]}, TypeError, "admission must be an int, got 1.5"),
        ({"idle_steps": [0]}, ValueError, "idle_steps must be in"),
        ({"idle_seconds": [1 << 32]}, ValueError, "idle_seconds must be in"),
        ({"capacity": [0]}, ValueError, r"capacity must be in \[1, "),
        ({"capacity": [1.01]}, ValueError, r"rows or a share in \(0, 1\], got 1.01"),
        ({"capacity": ["9"]}, TypeError, "capacity must be an int, got '9'"),
        ({"order": ["fifo"]}, ValueError, "order must be one of 'lru', 'lfu', got 'fifo'"),
        ({"capacity_admission": [0]}, ValueError, "capacity_admission must be in"),
    ],
)
def test_bad_choices_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        Choices(**arguments)


def test_seconds_need_times_and_a_log_needs_keys(tmp_path):
    log = KeyLog([write(tmp_path / "log.parquet", {"id": [1]})], ["id"])
    with pytest.raises(ValueError, match="idle_seconds needs the log's time column"):
        simulate(log, Choices(idle_seconds=[5]), ROW, batch_size=1)
    with pytest.raises(ValueError, match=r"batch_size must be in \[1, 2147483647\], got 0"):
        simulate(log, Choices(), ROW, batch_size=0)
    empty = write(tmp_path / "empty.parquet", {"id": pa.array([], pa.int64())})
    with pytest.raises(ValueError, match=r"the log has no keys: .*empty\.parquet"):
        simulate(KeyLog([empty], ["id"]), Choices(), ROW, batch_size=1)
