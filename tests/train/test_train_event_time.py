# SPDX-License-Identifier: Apache-2.0
"""EventTime: the time of a batch reaches tables before its step, however far it was read ahead."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback

from mindspore_rec import (
    EventTime,
    FeatureSpec,
    LazyAdam,
    RecModel,
    SparseLookup,
    create_table,
    get_insert_func,
)


class AmongOthers(nn.Cell):
    """Looks up one of its inputs and does not use the others, of which one is the time."""

    def __init__(self, table, place):
        super().__init__()
        self.lookup = SparseLookup(table)
        self.place = place

    def construct(self, *inputs):
        return self.lookup(inputs[self.place])


class SeenTimes(Callback):
    def __init__(self, table):
        super().__init__()
        self.table = table
        self.times = []

    def on_train_step_begin(self, run_context):
        self.times.append(self.table.event_time)


@pytest.fixture
def aged(unique):
    name = unique()
    specs = [
        FeatureSpec("user", table_name=name, eviction_threshold=10),
        FeatureSpec("time", is_timestamp=True),
    ]
    return specs, create_table(ms.int64, 1, name, "ones", specs=specs)


def batches(times, first="user"):
    for time in times:
        yield {
            first: np.array([time]),
            "time": np.array([time, time - 5]),
            "label": np.zeros((1, 1), np.float32),
        }


@pytest.mark.parametrize("kind", ["raw", "inserted", "dataset"])
def test_the_time_is_that_of_the_step(aged, graph_mode, kind):
    specs, table = aged
    net = AmongOthers(table, 0)
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params()))
    ahead: Any = list(batches([100, 104, 103, 110]))  # all read before the first step
    if kind == "inserted":
        ahead = [get_insert_func(specs)(batch) for batch in ahead]
    elif kind == "dataset":
        rows, names = [tuple(batch.values()) for batch in ahead], list(ahead[0])
        ahead = ds.GeneratorDataset(lambda: iter(rows), names, shuffle=False)
        ahead = ahead.apply(get_insert_func(specs))
    seen = SeenTimes(table)
    model.train(1, ahead, callbacks=[EventTime(specs, net), seen], progress=False)
    assert seen.times == [100, 104, 104, 110]  # a late batch does not turn it back
    assert sorted(table.export_data()[0].tolist()) == [103, 104, 110]  # 100 is 10 s old


def test_another_place(aged, graph_mode):
    specs, table = aged

    net = AmongOthers(table, 1)
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params()))
    data = [(b["time"], b["user"], b["label"]) for b in batches([100])]
    model.train(1, data, callbacks=EventTime(specs, [table], place=0), progress=False)
    assert table.event_time == 100


def test_batches_without_a_time(aged, graph_mode):
    specs, table = aged
    net = nn.SequentialCell(SparseLookup(table))
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params()))
    data = [(np.array([1]), np.zeros((1, 1), np.float32))]
    with pytest.raises(ValueError, match="feature 'time' is in column 7, and the batch has only 2"):
        model.train(1, data, callbacks=EventTime(specs, net, place=7), progress=False)
    with pytest.raises(ValueError, match=r"'time': column 'time' must be in \[1, 4294967295\] sec"):
        model.train(1, data, callbacks=EventTime(specs, net), progress=False)
    assert table.stats()["rows"] == 0


def test_arguments(aged):
    specs, table = aged
    cases: list[Any] = [
        ((specs[0], [table]), ValueError, "feature 'user' evicts by age .* and there is no time"),
        ((FeatureSpec("a"), [table]), ValueError, "have their time set by a timestamp featur"),
        ((specs, []), ValueError, f"tables must have '{table.name}', which evicts by age"),
        ((specs, 7), TypeError, "tables must be a network or its tables, got int"),
        ((7, [table]), TypeError, "specs must be FeatureSpec objects, got 7"),
        ((specs, [table], -1), ValueError, r"place must be in \[0, 255\], got -1"),
    ]
    for arguments, error, message in cases:
        with pytest.raises(error, match=message):
            EventTime(*arguments)
