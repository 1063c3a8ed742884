# SPDX-License-Identifier: Apache-2.0
"""Random lives of a table with tiers beside the same table in memory: all bits are the same.

Everything that is drawn follows from the seed, which is the test's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec import _native
from tests.cache.table_twins import DIM, Arrays, Stores, Twins, sorted_rows

OPTIMIZERS = ("adam", "adagrad", "ftrl", "sgd")
VOCABULARY = 600
KEYS = 3000  # distinct ones, about; the host tier has 1 %, 10 % or all of them
RULES: list[dict[str, Any]] = [
    {},
    {},
    {"max_idle_steps": 5},
    {"max_idle_steps": 12},
    {"max_idle_seconds": 20},
    {"max_idle_steps": 8, "on_trigger": True},
    {"min_norm": 0.15, "on_trigger": True},
]
ADMISSIONS: list[dict[str, Any]] = [
    {},
    {},
    {"admission_threshold": 2},
    {"admission_threshold": 3},
    {"admission_kind": "sketch", "admission_threshold": 2, "sketch_bytes": 1 << 14},
    {"admission_kind": "probability", "probability": 0.5},
]


def explained(table: Any, key: int) -> Arrays:
    """Return what a table knows of a key, but for the tier."""
    known = table.explain(key)
    assert (known.pop("tier") in ("host", "remote", "ssd")) == known["present"]
    return known


class Life:
    """One table with tiers, its twin, and what happens to them."""

    def __init__(self, seed: int, stores: Stores, threads: Callable[[int], None]) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.static = bool(rng.random() < 0.2)
        self.rule = {} if self.static else RULES[rng.integers(len(RULES))]
        admission = {} if self.static else ADMISSIONS[rng.integers(len(ADMISSIONS))]
        self.host = int(rng.choice([KEYS // 100, KEYS // 10, KEYS * 2]))
        # The keys of a step, and of what is prefetched beside it, must have room.
        self.most = min(60, self.host // 2)
        self.optimizer = str(rng.choice(OPTIMIZERS))
        threads(int(rng.integers(1, 3)))
        self.twins = Twins(
            stores,
            self.host,
            policy=str(rng.choice(["lru", "lfu"])),
            remote_rows=int(rng.choice([0, 50, 1000])),
            seed=seed,
            **({"vocabulary": VOCABULARY} if self.static else {**self.rule, **admission}),
        )
        self.can_reopen = admission.get("admission_kind", "count") == "count"
        self.replica: Any = None
        self.mark = 0
        self.step = 0
        self.time = 1
        self.pending: list[int] = []  # prefetched batches

    def ids(self, most: int) -> np.ndarray:
        """Skewed, with new ones."""
        n = int(self.rng.integers(1, most + 1))
        if self.static:
            return self.rng.integers(0, VOCABULARY, n)
        return self.rng.zipf(1.2, n).astype(np.int64) % KEYS * 0x9E3779B97F4A7C1 - 3

    def values(self, n: int) -> np.ndarray:
        return self.rng.normal(size=(n, DIM)).astype(np.float32)

    # ---- a step

    def train(self) -> None:
        rng, twins = self.rng, self.twins
        self.step += 1
        if "max_idle_seconds" in self.rule:
            self.time += int(rng.integers(0, 5))
            twins.both(lambda table: table.set_event_time(self.time))
        looks = int(rng.integers(1, 3))
        batches = [self.ids(self.most // looks) for _ in range(looks)]
        if rng.random() < 0.6:
            self.prefetch(np.concatenate(batches))
        # A row that leaves the table makes handles stale; at a lookup, a row due for eviction may
        # leave.
        handled = looks == 1 and rng.random() < 0.4
        tickets = []
        for ids in batches:
            lookup = methodcaller("lookup_with_handles" if handled else "lookup_train", ids)
            expected, found = lookup(twins.memory), lookup(twins.tiered)
            twins.same(found[0], expected[0])
            tickets.append((expected[1], found[1], self.values(len(ids))))
            twins.both(methodcaller("lookup", self.ids(40)))
        for i in rng.permutation(len(tickets)).tolist():
            ours, theirs, gradient = tickets[i]
            accumulate = "accumulate_by_handle" if handled else "accumulate"
            getattr(twins.memory, accumulate)(ours, gradient)
            getattr(twins.tiered, accumulate)(theirs, gradient)
        twins.both(lambda table: table.apply(0.1, step=self.step))
        if self.pending and rng.random() < 0.5:
            # Those before it are released too; one that is already is no error.
            number = self.pending[int(rng.integers(len(self.pending)))]
            twins.tiered.prefetch_done(number)
            self.pending = [each for each in self.pending if each > number]

    def prefetch(self, ids: np.ndarray) -> None:
        """With and without waiting, for this step and for others."""
        tiered = self.twins.tiered
        for batch in (ids, self.ids(self.most))[: int(self.rng.integers(1, 3))]:
            self.pending.append(tiered.prefetch(batch))
        if self.rng.random() < 0.5:
            tiered.prefetch_wait(self.pending[int(self.rng.integers(len(self.pending)))])
        if len(self.pending) > 5:
            tiered.prefetch_done(self.pending.pop())
            self.pending.clear()

    # ---- what may happen between steps

    def put(self) -> None:
        ids = self.ids(2 * self.host if self.host < 100 else 100)
        values = self.values(len(ids))
        self.twins.both(lambda table: table.put(ids, values))

    def erase(self) -> None:
        if not self.static:
            ids = self.ids(40)
            self.twins.both(lambda table: table.erase(ids))

    def insert(self) -> None:
        ids = self.ids(self.most)
        self.twins.both(lambda table: table.lookup(ids, insert=True))

    def import_rows(self) -> None:
        keys = np.unique(self.ids(80))
        values, counts = self.values(len(keys)), self.rng.integers(1, 9, len(keys), np.uint32)
        self.twins.both(lambda table: table.import_rows(keys, values, counts=counts))

    def ask(self) -> None:
        ids = self.ids(40)
        self.twins.both(lambda table: table.size())
        self.twins.both(lambda table: table.contains(ids))
        self.twins.both(lambda table: table.export_keys(ids, with_state=True))
        self.twins.both(lambda table: explained(table, int(ids[0])))

    def export(self) -> None:
        self.twins.same_rows()

    def export_since(self) -> None:
        """What changed, applied to a copy, makes it the table."""
        tiered = self.twins.tiered
        if self.replica is None:
            self.replica = self.twins.replica()
            self.replica.bind_optimizer(self.optimizer)
            self.mark = tiered.mark()
            self.apply_to_replica(tiered.export_rows(with_state=True))
            return
        changes = tiered.export_since(self.mark, with_state=True)
        self.mark = tiered.mark()
        tiered.release_before(self.mark)
        present = changes.pop("present")
        if not self.static:
            self.replica.erase(changes["keys"][~present])
        self.apply_to_replica({name: array[present] for name, array in changes.items()})
        expected = sorted_rows(tiered.export_rows(with_state=True))
        self.twins.same(sorted_rows(self.replica.export_rows(with_state=True)), expected)

    def apply_to_replica(self, rows: Arrays) -> None:
        names = ("keys", "values", "states", "counts", "last_steps", "last_times")
        self.replica.import_rows(*(rows[name] for name in names))
        self.replica.set_clock(self.step, self.time if "max_idle_seconds" in self.rule else 0)

    def evict(self) -> None:
        at_once = bool(self.rng.random() < 0.5)
        if self.rule.get("on_trigger"):
            self.twins.both(lambda table: table.evict(at_once=True))
        elif at_once:
            self.twins.both(lambda table: table.evict_due())

    def flush(self) -> None:
        self.twins.tiered.flush()

    def scrub(self) -> None:
        self.twins.tiered.scrub_tiers(int(self.rng.integers(1, 2000)))

    def freeze(self) -> None:
        self.twins.both(lambda table: table.set_trainable(False))
        self.train()
        self.twins.both(lambda table: table.set_trainable(True))

    def clear(self) -> None:
        if self.rng.random() < 0.2:
            self.twins.both(lambda table: table.clear())

    def bind(self) -> None:
        if self.rng.random() < 0.5:
            self.optimizer = str(self.rng.choice(OPTIMIZERS))
            self.twins.both(lambda table: table.bind_optimizer(self.optimizer) and None)
            self.end_replica()

    def reopen(self) -> None:
        if self.can_reopen and self.rng.random() < 0.5:
            self.twins.reopen(self.optimizer)
            self.pending.clear()
            self.end_replica()

    def end_replica(self) -> None:
        if self.replica is not None:
            self.replica.close()
            self.replica = None

    def run(self, steps: int) -> None:
        if self.rng.random() < 0.3:
            self.put()
        self.twins.both(lambda table: table.bind_optimizer(self.optimizer) and None)
        events = [
            self.put, self.erase, self.insert, self.import_rows, self.ask, self.ask, self.export,
            self.export_since, self.export_since, self.evict, self.flush, self.freeze, self.clear,
            self.bind, self.reopen, self.scrub,
        ]  # fmt: skip
        for _ in range(steps):
            self.train()
            events[int(self.rng.integers(len(events)))]()
            self.twins.check_stats()
        self.twins.same_rows()

    def close(self) -> None:
        self.end_replica()
        self.twins.close()


@pytest.fixture
def live(
    tmp_path: Path, threads: Callable[[int], None]
) -> Iterator[Callable[[int, Stores, int], None]]:
    lives: list[Life] = []

    def run(seed: int, stores: Stores, steps: int) -> None:
        lives.append(Life(seed, stores, threads))
        lives[-1].run(steps)

    yield run
    for each in lives:
        each.close()


@pytest.mark.parametrize("seed", range(40))
def test_lives_over_a_dict(live, tmp_path, seed):
    live(seed, Stores(("dict", "dict+dict")[seed % 2], tmp_path), 50)


@pytest.mark.parametrize("seed", range(100, 124))
def test_lives_over_an_ssd(live, tmp_path, seed):
    live(seed, Stores(("ssd", "dict+ssd")[seed % 2], tmp_path), 50)


@pytest.mark.parametrize("seed", range(200, 206))
def test_lives_over_an_ssd_past_the_page_cache(live, tmp_path, seed):
    live(seed, Stores("direct", tmp_path), 30)


@pytest.mark.redis
@pytest.mark.parametrize("seed", range(300, 308))
def test_lives_over_redis(live, tmp_path, redis_url, seed):
    live(seed, Stores(("redis", "redis+ssd")[seed % 2], tmp_path, redis_url), 30)


ORDERS: list[dict[str, Any]] = [
    {},
    {"order": "lfu"},
    {"order": "lfu_decay", "half_life_steps": 10.0},
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.get("order", "lru"))
@pytest.mark.parametrize("kind", ["dict", "ssd", "dict+ssd"])
@pytest.mark.parametrize("most", [250, 800])
def test_most_rows(tmp_path, kind, order, most):
    """Which rows go is a matter of samples; those that never went have the bits of memory."""
    rng = np.random.default_rng(most)
    twins = Twins(Stores(kind, tmp_path), host_rows=200, remote_rows=100, **order)
    tiered, gone = twins.tiered, set()
    try:
        twins.both(lambda table: table.bind_optimizer("adam") and None)
        tiered.set_eviction(max_rows=most, **order)
        tiered.collect_evicted(True)
        for step in range(1, 80):
            ids = rng.zipf(1.1, 100).astype(np.int64) % KEYS
            if step % 2:
                tiered.prefetch_wait(tiered.prefetch(ids))
            gradient = rng.normal(size=(len(ids), DIM)).astype(np.float32)
            for table in (twins.memory, tiered):
                _, ticket = table.lookup_train(ids)
                table.accumulate(ticket, gradient)
                table.apply(0.1, step=step)
            tiered.prefetch_done(tiered.prefetch(ids[:9]))
            evicted = tiered.take_evicted()
            reasons = {_native.EVICTION_REASONS[each] for each in evicted["reasons"].tolist()}
            assert reasons <= {"capacity"}
            gone.update(evicted["keys"].tolist())
            if step % 10 == 0:
                tiered.evict_due()
                gone.update(tiered.take_evicted()["keys"].tolist())
                assert tiered.size() <= most
            twins.check_stats()
        keys, everything = set(tiered.keys().tolist()), set(twins.memory.keys().tolist())
        assert everything - keys <= gone
        assert keys <= everything
        assert len(keys) == tiered.size() <= most < len(everything)
        stayed = np.array(sorted(keys - gone), np.int64)
        assert len(stayed) > 20
        twins.both(lambda table: table.export_keys(stayed, with_state=True))
        assert tiered.stats()["evicted_by_capacity"] >= len(gone)
    finally:
        twins.close()
