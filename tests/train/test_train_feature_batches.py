# SPDX-License-Identifier: Apache-2.0
"""FeatureBatches: batches for RecModel, and the time of their events for tables."""

from __future__ import annotations

import itertools
from typing import Any, cast

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import nn
from mindspore.common.initializer import Normal

from mindspore_rec import (
    AUC,
    FeatureBatches,
    FeatureSpec,
    LazyAdam,
    RecModel,
    SparseLookup,
    StaticParameter,
    create_table,
    get_dense_and_sparse_variable,
)

ROWS = 64


def raw_batches(steps, rows=ROWS):
    """The label says whether user and item begin with the same letter."""
    for step in range(steps):
        rng = np.random.default_rng(step)
        user = rng.choice(["ann", "bob", "cleo"], rows)
        item = rng.choice(["apple", "banana", "cherry"], rows)
        yield {
            "user": user,
            "when": np.full(rows, 1000.0 + step),
            "item": item,
            "label": np.array(
                [[u[0] == i[0]] for u, i in zip(user, item, strict=True)], np.float32
            ),
        }


class SameLetter(nn.Cell):
    def __init__(self, users: Any, items: Any, specs: Any) -> None:
        super().__init__()
        self.user = SparseLookup(users, specs[0])
        self.item = SparseLookup(items, specs[1])

    def construct(self, user, item):
        return (self.user(user) * self.item(item)).sum(-1, keepdims=True)


def network(unique, **policies):
    users, items = unique(), unique()
    specs = [
        FeatureSpec("user", table_name=users, **policies),
        FeatureSpec("item", table_name=items, **policies),
    ]
    if policies.get("eviction_threshold") is not None:
        specs.append(FeatureSpec("time", is_timestamp=True, index_key="when"))
    tables = [create_table(ms.int64, 8, name, Normal(0.3), specs=specs) for name in (users, items)]
    return SameLetter(tables[0], tables[1], specs), specs, tables


def as_dataset(batches):
    batches = list(batches)
    columns = list(batches[0])
    return ds.GeneratorDataset(lambda: (tuple(b.values()) for b in batches), columns, shuffle=False)


@pytest.mark.parametrize("kind", ["dataset", "dicts"])
def test_training_and_evaluation(unique, graph_mode, kind):
    net, specs, tables = network(unique)
    source = [{k: v for k, v in b.items() if k != "when"} for b in raw_batches(60)]
    data, held = source[:50], source[50:]
    if kind == "dataset":
        data, held = as_dataset(data), as_dataset(held)
    dense, sparse = get_dense_and_sparse_variable(net)
    assert dense == []
    optimizer = LazyAdam(sparse, learning_rate=0.05)
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer, {"auc": AUC(from_logits=True)})
    model.train(3, FeatureBatches(data, specs), progress=False)
    figures = model.eval(FeatureBatches(held, specs, is_train=False), progress=False)
    assert figures["auc"] == 1.0
    assert [table.stats()["rows"] for table in tables] == [3, 3]


def test_an_endless_source(unique, graph_mode):
    net, specs, tables = network(unique)
    endless = itertools.cycle([{k: v for k, v in b.items() if k != "when"} for b in raw_batches(2)])
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params()))
    batches = FeatureBatches(endless, specs)
    assert model.online_train(batches, max_steps=5, progress=False).steps == 5


def test_length():
    spec = FeatureSpec("user")
    assert len(FeatureBatches(list(raw_batches(4)), spec)) == 4
    with pytest.raises(TypeError, match="the number of batches of this source is not known"):
        len(FeatureBatches(raw_batches(4), spec))


def test_each_pass_starts_anew():
    batches = FeatureBatches(as_dataset(raw_batches(3)), FeatureSpec("user"))
    first, second = list(batches), list(batches)
    assert len(first) == len(second) == 3
    for one, two in zip(first, second, strict=True):
        assert list(one) == list(two) == ["user", "when", "item", "label"]
        assert np.array_equal(one["user"], two["user"])


@pytest.mark.parametrize("kind", ["dataset", "dicts"])
def test_evaluation_leaves_the_time_out(unique, kind):
    specs = [
        FeatureSpec("user", eviction_threshold=9),
        FeatureSpec("time", is_timestamp=True, index_key="when"),
    ]
    source = list(raw_batches(1))
    without = [{k: v for k, v in b.items() if k != "when"} for b in source]
    for data in (source, without):
        data = as_dataset(data) if kind == "dataset" else data
        (batch,) = FeatureBatches(data, specs, is_train=False)
        assert list(batch) == ["user", "item", "label"]


def test_arguments(unique):
    table = create_table(ms.int64, 1, unique(), "ones")
    user = FeatureSpec("user", table_name=table.name)
    aged = FeatureSpec("user", table_name=table.name, eviction_threshold=9)
    other = FeatureSpec("item", eviction_threshold=9)
    time = FeatureSpec("time", is_timestamp=True)
    source = list(raw_batches(1))
    for arguments, error, message in [
        ((7, user), TypeError, "source must be a mindspore.dataset.Dataset or an iterable of bat"),
        ((source, []), ValueError, "specs must have at least one feature"),
        ((source, aged), ValueError, "feature 'user' evicts by age .* and there is no time"),
        ((source, user, [table]), ValueError, "time set by a timestamp feature, and there is"),
        ((source, [user, time], 7), TypeError, "tables must be a network or its tables, got int"),
        ((source, [user, time], [7]), TypeError, "tables must be tables, got int"),
        (
            (source, [user, time], []),
            ValueError,
            f"at least one of {[table.name]}, got none".replace("[", r"\["),
        ),
        (
            (source, [user, time], [StaticParameter(2, 2, name=unique())]),
            ValueError,
            "tables must have at least one of",
        ),
        (
            (source, [user, other, time], [table]),
            ValueError,
            r"tables must have 'item', which evicts by age \(feature 'item'\), got \['test",
        ),
    ]:
        with pytest.raises(error, match=message):
            FeatureBatches(*arguments)
    for specs in ([user, time], [aged, time]):  # RecModel gives the tables, and nobody else
        with pytest.raises(
            ValueError, match="tables must be given: feature 'time' sets their event time"
        ):
            iter(FeatureBatches(source, specs))
    with pytest.raises(TypeError, match="is_train must be a bool, got 1"):
        FeatureBatches(source, user, is_train=cast(Any, 1))
    with pytest.raises(ValueError, match="time set in training only: leave tables out"):
        FeatureBatches(source, [user, time], [table], is_train=False)


# ---- with policies


def test_thresholds_reach_the_table(unique):
    _, _, (users, _) = network(unique, access_threshold=3, eviction_threshold=60)
    assert users.admission.threshold == 3
    assert users.eviction.max_idle_seconds == 60
    assert users.eviction.trigger == "step"


@pytest.mark.parametrize("kind", ["dataset", "dicts", "tuples"])
def test_the_time_is_told_at_the_step(unique, kind):
    net, specs, tables = network(unique, eviction_threshold=60)
    source = list(raw_batches(20))
    if kind == "tuples":
        source = [tuple(batch.values()) for batch in source]
        places = {"user": 0, "time": 1, "item": 2}
        specs = [
            FeatureSpec(
                s.name, s.table_name, places[s.name], None, s.eviction_threshold, s.is_timestamp
            )
            for s in specs
        ]
    if kind == "dataset":
        source = as_dataset(source)
    for step, batch in enumerate(FeatureBatches(source, specs, net)):
        assert [table.event_time for table in tables] == [1000 + step] * 2
        if kind == "tuples":
            assert [column.shape for column in batch] == [(ROWS,), (ROWS,), (ROWS, 1)]
        else:
            assert list(batch) == ["user", "item", "label"]


def test_evaluation_does_not_tell_the_time(unique):
    _, specs, (users, _) = network(unique, eviction_threshold=60)
    list(FeatureBatches(list(raw_batches(3)), specs, is_train=False))
    assert users.event_time is None


def test_training_admits_and_evicts_by_the_specs(unique, graph_mode):
    net, specs, (users, _) = network(unique, access_threshold=2, eviction_threshold=10)
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params()))

    def batch(names, time):
        return {
            "user": np.array(names),
            "when": np.full(len(names), time),
            "item": np.array(["apple"] * len(names)),
            "label": np.zeros((len(names), 1), np.float32),
        }

    def rows_after(*batches):
        model.train(1, FeatureBatches(list(batches), specs, net), progress=False)
        return len(users.export_data()[0])

    assert rows_after(batch(["ann", "bob", "bob"], 100)) == 1  # ann came once
    assert rows_after(batch(["ann", "cleo", "cleo"], 105)) == 3
    assert rows_after(batch(["cleo", "cleo", "cleo"], 110)) == 2  # bob's last was 10 s ago
    assert rows_after(batch(["cleo", "cleo", "cleo"], 114)) == 2
    assert rows_after(batch(["bob", "bob", "cleo"], 115)) == 2  # ann is gone, bob is back


@pytest.mark.parametrize("coefficient", [1, 4])
def test_a_coefficient_multiplies_occurrences(unique, graph_mode, coefficient):
    name = unique()
    spec = FeatureSpec("user", table_name=name, access_threshold=4, faae_coefficient=coefficient)
    table = create_table(ms.int64, 1, name, "ones", specs=spec)
    net = nn.SequentialCell(SparseLookup(table, spec))
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params()))
    batch = {"user": np.array(["ann"]), "label": np.zeros((1, 1), np.float32)}
    model.train(1, FeatureBatches([batch] * 3, spec), progress=False)
    assert table.stats()["rows"] == (coefficient == 4)
