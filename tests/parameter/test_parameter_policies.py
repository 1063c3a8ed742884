# SPDX-License-Identifier: Apache-2.0
"""Admission and eviction of many keys: what a dict of a few cannot show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec import _native
from tests.parameter.table_model import EDGE_KEYS

DIM = 2


@pytest.fixture
def make(unique):
    """Makes tables with an optimizer, and closes them."""
    made = []

    def one(**arguments: Any) -> _native.Table:
        arguments = {"name": unique(), "dim": DIM, "init_kind": "normal", "init_b": 1.0} | arguments
        made.append(_native.Table(**arguments))
        made[-1].bind_optimizer("adam")
        return made[-1]

    yield one
    for table in made:
        table.close()


def train(table: _native.Table, keys: Any) -> np.ndarray:
    rows, ticket = table.lookup_train(np.asarray(keys, np.int64))
    table.accumulate(ticket, np.ones_like(rows))
    table.apply(0.01)
    return rows


def counts(table: _native.Table, keys: np.ndarray) -> np.ndarray:
    return np.array([table.explain(int(key))["count"] for key in keys])


# ---------------------------------------------------------------- admission


def zipf(seed: int, n: int, distinct: int = 1 << 40) -> np.ndarray:
    return np.random.default_rng(seed).zipf(1.2, n).astype(np.int64) % distinct


@pytest.mark.parametrize("kilobytes", [1, 16, 1024])
def test_a_sketch_never_counts_too_little(make, kilobytes) -> None:
    """Before any key is admitted, which takes its counts back; and exactly, where it is large."""
    keys = zipf(1, 20000)
    table = make(admission_kind="sketch", admission_threshold=65535, sketch_bytes=kilobytes << 10)
    for part in np.split(keys, 20):
        train(table, part)
    exact = Counter(keys.tolist())
    distinct = np.array(list(exact))
    over = counts(table, distinct) - np.array(list(exact.values()))
    assert (over >= 0).all()
    assert (over > 0).any() == (kilobytes < 1024)
    assert table.size() == 0 and table.stats()["candidates"] == 0


def test_a_sketch_admits_the_keys_that_exact_counters_admit(make) -> None:
    """A large one: batch by batch, also where it has forgotten those it admitted."""
    exact, sketch = (
        make(admission_kind=kind, admission_threshold=4, sketch_bytes=1 << 24)
        for kind in ("count", "sketch")
    )
    for seed in range(30):
        keys = zipf(seed, 2000)
        for table in (exact, sketch):
            train(table, keys)
        assert sorted(exact.keys()) == sorted(sketch.keys())
    assert exact.size() > 100


@pytest.mark.parametrize("bound", [16, 100, 1000])
def test_counters_are_bounded_and_never_count_too_much(make, bound) -> None:
    exact = make(admission_threshold=5)
    bounded = make(admission_threshold=5, max_candidates=bound)
    hot = np.arange(8)  # in every batch: counted fastest, so never given up for keys seen once
    for step in range(4):
        cold = np.arange(3000) + 10000 * (step + 1)
        for table in (exact, bounded):
            train(table, np.concatenate([np.repeat(hot, 1 + (step == 0)), cold]))
        assert 0 < bounded.stats()["candidates"] <= bound
        assert set(bounded.keys()) <= set(exact.keys())
        some = np.concatenate([hot, cold[:100], cold[-100:]])
        assert (counts(bounded, some) <= counts(exact, some)).all()
    if bound == 1000:
        assert sorted(bounded.keys()) == sorted(exact.keys()) == hot.tolist()


@settings(max_examples=20)
@given(probability=st.floats(0.02, 1), occurrences=st.integers(1, 3), step=st.integers(0, 1000))
def test_probability_is_that_of_an_occurrence(probability, occurrences, step) -> None:
    keys = np.arange(4000)

    def admitted(name: str = "dice", seed: int = 0, at: int = step, cuts: int = 1) -> np.ndarray:
        table = _native.Table(
            name=name, dim=1, seed=seed, admission_kind="probability", probability=probability
        )
        table.bind_optimizer("sgd")
        table.set_clock(at, 0)
        for part in np.array_split(keys, cuts):
            shuffled = np.random.default_rng(0).permutation(np.repeat(part, occurrences))
            table.lookup_train(shuffled)
        found = table.contains(keys)
        table.close()
        return found

    first = admitted()
    expected = 1 - (1 - probability) ** occurrences
    deviation = np.sqrt(expected * (1 - expected) / len(keys))
    assert abs(first.mean() - expected) <= 6 * deviation
    np.testing.assert_array_equal(first, admitted(cuts=7))  # whatever batches brought them
    for other in ({"name": "dice2"}, {"seed": 1}, {"at": step + 1}):
        same = (admitted(**other) == first).mean()
        agree = expected**2 + (1 - expected) ** 2
        assert abs(same - agree) <= 6 * np.sqrt(agree * (1 - agree) / len(keys)) + 1e-9


def test_probability_gives_a_whole_batch_one_verdict(make) -> None:
    table = make(admission_kind="probability", probability=0.3)
    keys = np.repeat(np.arange(500), 2)
    rows, _ = table.lookup_train(keys)
    np.testing.assert_array_equal(rows[::2], rows[1::2])
    assert 0 < table.size() < 500
    again, _ = table.lookup_train(keys)  # in the same step
    np.testing.assert_array_equal(again, rows)
    assert (table.export_rows()["counts"] == 4).all()


# ---------------------------------------------------------------- capacity


@pytest.mark.parametrize("order", ["lru", "lfu", "lfu_decay", "score"])
@pytest.mark.parametrize("fresh", [1, 3, 40])
def test_few_rows_go_in_exact_order(make, order, fresh) -> None:
    """Over the whole table, a few new rows a step."""
    half_life = {"half_life_steps": 5.0} if order == "lfu_decay" else {}
    table = make(max_rows=200, order=order, **half_life)
    rng = np.random.default_rng(0)
    table.collect_evicted(True)
    for step in range(60 + 800 // fresh):
        new = step * fresh + np.arange(fresh)
        old = rng.choice(np.append(table.keys(), 0), 3)
        table.lookup_train(np.concatenate([new, old, old[:1]]))
        if order == "score":
            table.set_scores(new, rng.random((fresh, 1), np.float32))
        rows = table.export_rows(with_state=True)
        last, score = rows["last_steps"], rows["states"][:, -1]
        table.apply(0.0)
        gone = np.isin(rows["keys"], table.take_evicted()["keys"])
        assert gone.sum() == max(0, len(gone) - 200) == len(gone) - table.size()
        if order == "lfu_decay":
            standing = np.log2(score, dtype=np.float64) - (step + 1.0 - last) / 5
            assert standing[gone].max(initial=-99) <= standing[~gone].min() + 1e-5
            continue
        first = {"lru": last, "lfu": rows["counts"], "score": score}[order]
        standing = list(zip(first.tolist(), last.tolist(), gone.tolist(), strict=True))
        goes = [each[:2] for each in standing if each[2]]
        assert not goes or max(goes) <= min(each[:2] for each in standing if not each[2])
    assert table.stats()["evicted_by_capacity"] > 500


def test_a_limit_below_one_row_leaves_no_row(make) -> None:
    table = make(max_bytes=1)
    train(table, range(10))
    assert table.size() == 0 and table.stats()["evicted_by_capacity"] == 10


def test_many_rows_go_about_in_order(make) -> None:
    """Those seen last are hardly ever among the third that goes, whichever shard they are in."""
    table = make(max_rows=20000)
    for step in range(30):
        train(table, np.arange(1000) + 1000 * step)
        assert table.size() == min(20000, 1000 * (step + 1))
    kept = np.sort(table.keys())
    assert (kept >= 20000).sum() == 10000
    assert (kept >= 10000).mean() > 0.75


def test_rows_in_bytes(make) -> None:
    """A row of two floats and Adam's state is 20 + 4 * (2 + 4) bytes, and 8 in the index."""
    table = make(max_bytes=52 * 100 + 51)
    train(table, np.arange(300))
    assert table.size() == 100


@pytest.mark.parametrize("trigger", [True, False])
def test_a_lowered_capacity_is_reached_in_slices(make, trigger) -> None:
    table = make(**({"max_rows": 100, "on_trigger": True} if trigger else {}))
    for step in range(4):
        train(table, np.arange(15000) + 15000 * step)
    if trigger:
        assert table.size() == 60000  # only the trigger evicts
        table.evict(at_once=False)
    else:
        table.set_eviction(max_rows=100)
    sizes = []
    for _ in range(5):
        table.apply(0.0)
        sizes.append(table.size())
    assert sizes == [60000 - 16384, 60000 - 2 * 16384, 60000 - 3 * 16384, 100, 100]
    if trigger:
        train(table, np.arange(500))
        assert table.size() >= 500  # and it has come to its end
        table.evict(at_once=True)
        assert table.size() == 100


# ---------------------------------------------------------------- both


EVERYTHING: list[dict[str, Any]] = [
    {"admission_threshold": 3, "max_candidates": 500, "max_idle_steps": 6},
    {"admission_kind": "sketch", "admission_threshold": 3, "sketch_bytes": 4096, "max_rows": 700},
    {"admission_kind": "probability", "probability": 0.4, "max_rows": 500, "order": "lfu"},
    {"order": "lfu_decay", "half_life_steps": 3.0, "max_rows": 900, "max_idle_seconds": 40},
    {"min_norm": 1.0, "max_idle_steps": 4, "max_rows": 2000, "order": "score"},
]


@pytest.mark.parametrize("rules", EVERYTHING)
def test_any_number_of_threads_makes_the_same_table(make, threads, rules) -> None:
    def run(n: int) -> list[bytes]:
        threads(n)
        table = make(name="same bits", **rules)
        table.collect_evicted(True)
        for step in range(12):
            table.set_event_time(10 * step + 1)
            train(table, zipf(step, 4000))
            if rules.get("order") == "score":
                keys = np.sort(table.keys())
                table.set_scores(keys, (keys % 97).astype(np.float32)[:, None])
        table.evict(at_once=True)
        columns = [*table.export_rows(with_state=True).values(), *table.take_evicted().values()]
        size, stats = table.size(), table.stats()
        table.close()
        assert size > 20 and stats["evicted"] > 20
        return [column.tobytes() for column in columns]

    assert run(1) == run(2) == run(3)


def idle_steps(table: _native.Table) -> None:
    table.set_eviction(max_idle_steps=1)
    table.apply(0.0)
    table.apply(0.0)


def idle_seconds(table: _native.Table) -> None:
    table.set_eviction(max_idle_seconds=10)
    table.set_event_time(100)
    table.set_event_time(110)


def capacity(table: _native.Table) -> None:
    table.set_eviction(max_rows=1)
    table.lookup(np.array([99]), insert=True)
    table.apply(0.0)


def norm(table: _native.Table) -> None:
    table.set_eviction(min_norm=100.0, on_trigger=True)
    table.evict(at_once=True)


@pytest.mark.parametrize("evict", [idle_steps, idle_seconds, capacity, norm])
@pytest.mark.parametrize("comes_by", ["training", "put", "import"])
def test_an_evicted_key_comes_back_as_new(make, evict: Callable, comes_by) -> None:
    keys = np.array(EDGE_KEYS, np.int64)
    table = make()
    first = train(table, keys)
    mark = table.mark()
    table.collect_evicted(True)
    evict(table)
    table.set_eviction()
    assert not table.contains(keys).any()
    taken = table.take_evicted()
    assert sorted(taken["keys"].tolist()) == sorted(keys.tolist())
    assert {_native.EVICTION_REASONS[reason] for reason in taken["reasons"]} == {evict.__name__}
    delta = table.export_since(mark)
    gone = set(delta["keys"][~delta["present"]].tolist())
    assert gone == set(keys.tolist())
    explained = table.explain(int(keys[0]))
    assert not explained["present"] and explained["evicted_reason"] == evict.__name__
    if comes_by == "training":
        rows, _ = table.lookup_train(keys)
        np.testing.assert_array_equal(rows, first)
    elif comes_by == "put":
        table.put(keys, first)
    else:
        table.import_rows(keys)
    rows = table.export_keys(keys, with_state=True)
    np.testing.assert_array_equal(rows["values"], first)
    assert (rows["counts"] == 1).all() and (rows["states"] == 0).all()
