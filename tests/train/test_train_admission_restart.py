# SPDX-License-Identifier: Apache-2.0
"""Counting that has ended stays ended in a training that goes on after a restart."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pyarrow as pa
import pytest
from mindspore import nn

from mindspore_rec import CountAdmission, HashEmbeddingLookup, LazyAdam, RecCheckpoint, RecModel
from mindspore_rec.stream import (
    ArrowFormat,
    FeaturePipeline,
    Key,
    MemoryTopic,
    Number,
    StopWhen,
    StreamingDataset,
    StreamSource,
    pack,
)
from mindspore_rec.train import CountFirstEpoch

SCHEMA = pa.schema({"user": pa.int64(), "click": pa.int8()})


@pytest.fixture
def topic():
    made, rng = MemoryTopic(), np.random.default_rng(0)
    for _ in range(8):
        user = rng.integers(0, 200, 32)
        made.append(pack(pa.table([user, (user % 2).astype(np.int8)], schema=SCHEMA)))
    return made


def start(topic, name):
    source = StreamSource(topic.client(), ArrowFormat(SCHEMA), 32, stop=StopWhen(idle_seconds=0.1))
    stream = StreamingDataset(source, FeaturePipeline({"k": Key("user"), "y": Number("click")}))
    lookup = HashEmbeddingLookup(2, ms.int64, name=name, admission=CountAdmission(2))
    net = nn.SequentialCell(lookup, nn.Flatten(), nn.Dense(2, 1))
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params()))
    return stream, model, lookup.embedding_table


def keys(table):
    return sorted(table.export_data()[0].tolist())


@pytest.mark.parametrize("order", [1, -1])
def test_steps_go_on_after_a_restart(graph_mode, unique, tmp_path, topic, order):
    stream, model, table = start(topic, unique())
    assert model.online_train(stream, CountFirstEpoch(3), progress=False).steps == 8
    whole = keys(table)

    name = unique()
    for done in (None, 2, 4, 6):
        stream, model, table = start(topic, name)
        first = CountFirstEpoch(3)
        checkpoint = RecCheckpoint(tmp_path, every_steps=1, states={"first": first})
        assert checkpoint.restore(model, stream) == done
        callbacks = [checkpoint, first][::order]
        assert model.online_train(stream, callbacks, progress=False, max_steps=2).steps == 2
    assert keys(table) == whole


def test_epochs_that_are_over_stay_over(graph_mode, unique):
    batch = np.array([[1], [1], [2]]), np.ones((3, 1), np.float32)

    def train(state, **more):
        lookup = HashEmbeddingLookup(2, ms.int64, name=name, admission=CountAdmission(2))
        net = nn.SequentialCell(lookup, nn.Flatten(), nn.Dense(2, 1))
        model = RecModel(net, nn.MSELoss(), LazyAdam(net.trainable_params()))
        first = CountFirstEpoch()
        if state is not None:
            first.load_state_dict(state)
        model.train(2, [batch, batch], first, progress=False, **more)
        assert lookup.embedding_table.explain(2).threshold == 2  # put back
        return first.state_dict(), keys(lookup.embedding_table)

    name = unique()
    part, _ = train(None, max_steps=1)
    assert not part["over"]
    whole, rows = train(part)
    assert (whole["over"], rows) == (True, [1, 2])
    assert train(whole)[1] == []  # nothing is counted any more


@pytest.mark.parametrize("state", [None, {}, {"steps": -1, "over": False}, {"steps": 1, "over": 2}])
def test_states_of_something_else_are_refused(state):
    with pytest.raises((TypeError, ValueError, LookupError)):
        CountFirstEpoch().load_state_dict(state)
