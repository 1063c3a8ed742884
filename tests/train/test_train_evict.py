# SPDX-License-Identifier: Apache-2.0
"""EvictCallback and EvictedKeysCallback in training runs."""

from __future__ import annotations

import itertools
import time
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback

from mindspore_rec import EvictCallback, Eviction, HashEmbeddingLookup, LazyAdam, RecModel
from mindspore_rec.train import EvictedKeysCallback
from tests.support.native_table import native_of

pytestmark = pytest.mark.usefixtures("graph_mode")
DIM = 2


class Net(nn.Cell):
    def __init__(self, *embeddings: HashEmbeddingLookup) -> None:
        super().__init__()
        self.embeddings = nn.CellList(list(embeddings))

    def construct(self, ids):
        total = 0.0
        for embedding in self.embeddings:
            total = total + embedding(ids).sum(-1)
        return total


@pytest.fixture
def make(unique):
    """Makes a model with a table for each of some rules, in order; gives it and the tables."""

    def one(*rules: Eviction | None) -> tuple[RecModel, list[Any]]:
        cells = [HashEmbeddingLookup(DIM, ms.int64, name=unique(), eviction=rule) for rule in rules]
        net = Net(*cells)
        model = RecModel(net, nn.MSELoss(), LazyAdam(net.trainable_params(), 0.1))
        tables = [cell.embedding_table for cell in cells]
        made.extend(tables)
        return model, tables

    made: list[Any] = []
    yield one
    for table in made:
        table.close()


def batches(steps: int, new: int = 4, pause: float = 0.0):
    """In each step key 0 and `new` keys that never come again."""
    for step in range(steps):
        time.sleep(pause)
        ids = np.append(0, 1 + new * step + np.arange(new))
        yield ids, np.ones(len(ids), np.float32)


class Rows(Callback):
    """The rows that evaluation sees at the end of each step."""

    def __init__(self, table) -> None:
        super().__init__()
        self.table = table
        self.keys: list[list[int]] = []

    def on_train_step_end(self, run_context) -> None:
        self.keys.append(np.sort(self.table.row_keys()).tolist())


def by_callback(**rules: Any) -> Eviction:
    return Eviction(trigger="callback", **rules)


def train(model: RecModel, callbacks: list[Callback], steps: int = 10, **arguments: Any) -> None:
    model.online_train(batches(steps, **arguments), callbacks, progress=False)


def test_by_steps(make) -> None:
    """Ages are measured at the eviction; younger rows stay; other tables use their own rules."""
    rules = (by_callback(max_idle_steps=1), Eviction(max_idle_steps=1), None)
    model, tables = make(*rules)
    callback = EvictCallback(evict_time_interval=None, evict_step_interval=4)
    seen = [Rows(table) for table in tables]
    train(model, [callback, *seen])
    assert callback.evictions == [(4, "steps"), (8, "steps")]
    young = {step: [0, *range(4 * step - 3, 4 * step + 1)] for step in range(1, 11)}
    everything = [list(range(4 * step + 1)) for step in range(1, 11)]
    expected, kept = [], [0]
    for step in range(1, 11):
        kept = kept + young[step][1:]
        if step in (4, 8):
            kept = young[step]
        expected.append(kept)
    assert seen[0].keys == expected
    assert seen[1].keys == [young[step] for step in range(1, 11)]
    assert seen[2].keys == everything


class Times(Callback):
    """When steps began and ended; the training's begin is step 0."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[float] = []
        self.ended = [0.0]

    def on_train_begin(self, run_context) -> None:
        self.begun.append(time.monotonic())

    def on_train_step_begin(self, run_context) -> None:
        self.begun.append(time.monotonic())

    def on_train_step_end(self, run_context) -> None:
        self.ended.append(time.monotonic())


def test_by_time(make) -> None:
    model, (table,) = make(by_callback(max_rows=3))
    train(model, [], steps=1)  # compiles
    callback = EvictCallback(evict_time_interval=1, evict_step_interval=None)
    times = Times()
    train(model, [callback, times], steps=12, pause=0.2)
    steps = [step for step, _ in callback.evictions]
    assert {cause for _, cause in callback.evictions} == {"time"}
    # A second at least lies between the end of one eviction and the begin of the next.
    for earlier, later in itertools.pairwise([0, *steps]):
        assert times.ended[later] - times.begun[earlier] > 0.99
    assert 3 <= len(table) <= 3 + 4 * (12 - steps[-1])


@pytest.mark.parametrize(
    ("limit", "cause"),
    # A row of two floats and Adam's state is 20 + 4 * 6 bytes, and 8 in the index.
    [({"evict_rows": 20}, "rows"), ({"evict_bytes": 20 * 52}, "bytes")],
)
def test_by_size(make, limit, cause) -> None:
    model, (table, other) = make(by_callback(max_rows=6), None)
    callback = EvictCallback(evict_time_interval=None, evict_step_interval=None, **limit)
    rows = Rows(table)
    train(model, [callback, rows], steps=12)
    # 21 rows in step 5: dropped in step 6, after it brought 4; then 4 more each step.
    assert callback.evictions == [(5, cause), (10, cause)]
    assert [len(keys) for keys in rows.keys] == [5, 9, 13, 17, 21, 6, 10, 14, 18, 22, 6, 10]
    zero, old, *young = rows.keys[5]
    assert zero == 0 and old in range(17, 21) and young == [*range(21, 25)]
    assert len(other) == 49


def test_norm_at_a_trigger_only(make) -> None:
    model, (table,) = make(by_callback(min_norm=1e3))
    train(model, [EvictCallback(evict_time_interval=None, evict_step_interval=6)], steps=6)
    assert len(table) == 25  # freed with the steps to come
    train(model, [EvictCallback(evict_enable=False)], steps=1)
    assert len(table) == 0


def test_switched_off(make) -> None:
    model, (table,) = make(by_callback(max_idle_steps=1))
    callback = EvictCallback(evict_enable=False, evict_step_interval=1, evict_rows=1)
    train(model, [callback])
    assert callback.evictions == []
    assert len(table) == 41


def test_each_training_counts_from_its_start(make) -> None:
    model, (_,) = make(by_callback(max_rows=5))
    callback = EvictCallback(evict_step_interval=3)
    for _ in range(2):
        train(model, [callback], steps=5)
        assert callback.evictions == [(3, "steps")]


def test_no_table_evicts_by_callback(make) -> None:
    model, tables = make(Eviction(max_idle_steps=2), None)
    names = ", ".join(repr(table.name) for table in tables)
    message = rf"needs a table with Eviction\(..., trigger='callback'\).*\({names}\) evict at every"
    with pytest.raises(ValueError, match=message):
        train(model, [EvictCallback()])
    assert len(tables[0]) == 0


# ---------------------------------------------------------------- evicted keys


def test_evicted_keys_are_handed_on(make) -> None:
    """All that left in training and nothing else, table by table, with reason and step."""
    model, tables = make(
        Eviction(max_idle_steps=1), Eviction(max_rows=7), by_callback(max_idle_steps=2), None
    )
    got: list[tuple[str, int, str, int]] = []

    def receive(name, evicted) -> None:
        assert len(evicted) > 0 and (evicted.times == 0).all()
        got.extend(
            (name, key, reason, step)
            for key, reason, step in zip(
                evicted.keys.tolist(), evicted.reasons.tolist(), evicted.steps.tolist(), strict=True
            )
        )

    trigger = EvictCallback(evict_time_interval=None, evict_step_interval=5)
    train(model, [trigger, EvictedKeysCallback(receive)])
    idle, crowded, triggered, kept = (table.name for table in tables)
    came = {key: 1 + (key - 1) // 4 for key in range(1, 41)}
    expected = {(idle, key, "idle_steps", step + 1) for key, step in came.items() if step < 10}
    assert {each for each in got if each[0] == idle} == expected
    # At the trigger after step 5, rows of the first three steps have missed 2: freed in step 6.
    assert {each for each in got if each[0] == triggered} == {
        (triggered, key, "idle_steps", 6) for key, step in came.items() if step <= 3
    }
    assert {(key, why) for name, key, why, _ in got if name == crowded} == {
        (key, "capacity") for key in range(1, 41) if key not in tables[1].row_keys()
    }
    assert kept not in {each[0] for each in got}
    assert len(got) == len(set(got))
    native_of(tables[0]).evict()
    assert len(tables[0].take_evicted()) == 0  # the collection has ended with the training


def test_evicted_keys_in_a_file(make, tmp_path) -> None:
    """Lines are appended, by a second training too."""
    model, (table,) = make(Eviction(max_idle_seconds=20))
    path = tmp_path / "evicted.tsv"

    class Clock(Callback):
        def on_train_step_begin(self, run_context) -> None:
            table.set_event_time(1000 + 10 * (table.step + 1))

    train(model, [Clock(), EvictedKeysCallback(path)], steps=4, new=1)
    first = path.read_text().splitlines()
    assert [line.split("\t") for line in first] == [
        [table.name, "1", "idle_seconds", "3", "1030"],
        [table.name, "2", "idle_seconds", "4", "1040"],
    ]
    train(model, [Clock(), EvictedKeysCallback(str(path))], steps=4, new=1)
    assert path.read_text().splitlines()[:2] == first
    assert len(path.read_text().splitlines()) > 4


def test_a_training_that_fails_ends_the_collection(make, tmp_path) -> None:
    class Fails(Callback):
        def on_train_step_end(self, run_context) -> None:
            if run_context.original_args().cur_step_num == 5:
                raise RuntimeError("on purpose")

    model, (table,) = make(Eviction(max_idle_steps=1))
    callback = EvictedKeysCallback(tmp_path / "evicted.tsv")
    with pytest.raises(RuntimeError, match="on purpose"):
        train(model, [callback, Fails()])
    assert len((tmp_path / "evicted.tsv").read_text().splitlines()) >= 12
    table.apply_gradients(0.0)
    table.apply_gradients(0.0)
    assert len(table) == 0 and len(table.take_evicted()) == 0


def test_evicted_keys_without_a_table_that_evicts_is_an_error(make):
    model, (table,) = make(None)
    with pytest.raises(ValueError, match=f"needs a table that evicts; .*'{table.name}'.* never do"):
        train(model, [EvictedKeysCallback(print)])
