# SPDX-License-Identifier: Apache-2.0
"""States that refuse what was saved leave the network, and each other, as they were."""

from __future__ import annotations

import json

import mindspore as ms
import numpy as np
import pytest

from mindspore_rec import HashEmbeddingLookup, RecCheckpoint, load_checkpoint, save_checkpoint
from mindspore_rec.checkpoint import CheckpointError
from mindspore_rec.stream import QuantileScale
from tests.checkpoint.hostile_checkpoint import fix
from tests.checkpoint.test_checkpoint_deltas import Training


def rows(net):
    keys, values, _ = net.embedding_table.export_data()
    return {int(key): value.tolist() for key, value in zip(keys, values, strict=True)}


@pytest.fixture
def net(unique):
    made = HashEmbeddingLookup(2, ms.int64, name=unique())
    made.embedding_table.put(ms.Tensor([1, 2]), ms.Tensor(np.ones((2, 2), np.float32)))
    return made


def saved_then_changed(net, tmp_path):
    path = tmp_path / "saved"
    scale = QuantileScale("x", buckets=4).fit([1.0, 2.0])
    save_checkpoint(net, path, states={"a": scale, "b": scale})
    net.embedding_table.put(ms.Tensor([3]), ms.Tensor(np.ones((1, 2), np.float32)))
    return path


def test_a_state_of_another_kind_changes_nothing(net, tmp_path):
    path = saved_then_changed(net, tmp_path)
    before = rows(net)
    fits, other = QuantileScale("x", buckets=4), QuantileScale("x", buckets=8)
    fitted = fits.state_dict()
    with pytest.raises(ValueError, match="buckets must be 4, as in the state, got 8"):
        load_checkpoint(net, path, states={"a": fits, "b": other})
    assert rows(net) == before
    assert fits.state_dict() == fitted
    again = QuantileScale("x", buckets=4)
    load_checkpoint(net, path, states={"a": fits, "b": again})
    assert sorted(rows(net)) == [1, 2]
    assert fits.scaled([1.0]) == again.scaled([1.0]) != 0


def test_a_network_that_does_not_fit_changes_no_state(net, tmp_path, unique):
    path = saved_then_changed(net, tmp_path)
    scale = QuantileScale("x", buckets=4)
    before = scale.state_dict()
    with pytest.raises(ValueError, match="tables are"):
        load_checkpoint(HashEmbeddingLookup(2, name=unique()), path, states={"a": scale})
    assert scale.state_dict() == before


def test_a_run_that_does_not_fit_changes_no_state(net, tmp_path, unique):
    fitted = QuantileScale("x", buckets=4).fit([1.0, 2.0])
    checkpoint = RecCheckpoint(tmp_path, every_steps=1, states={"a": fitted})
    training = Training(net, checkpoint)
    training.step()
    training.end()
    scale = QuantileScale("x", buckets=4)
    before = scale.state_dict()
    restoring = RecCheckpoint(tmp_path, every_steps=1, states={"a": scale})
    with pytest.raises(ValueError, match="tables are"):
        restoring.restore(HashEmbeddingLookup(2, name=unique()))
    assert scale.state_dict() == before
    assert restoring.restore(net) == 1
    assert scale.state_dict() == fitted.state_dict() != before


@pytest.mark.parametrize("states", [[1], 5, "scale"])
def test_states_are_named(net, tmp_path, states):
    with pytest.raises(TypeError, match=r"^states must be a dict of objects by name, got "):
        save_checkpoint(net, tmp_path / "saved", states=states)
    assert not list(tmp_path.iterdir())


STATE = QuantileScale("x", buckets=4).fit([1.0, 2.0]).state_dict()


@pytest.mark.parametrize(
    "objects",
    [
        [],
        5,
        {"a": None},
        {"a": {}},
        {"a": {"buckets": 4}},
        {"a": {**STATE, "points": "x"}},
        {"a": {**STATE, "points": {"a": 1}}},
        {"a": {**STATE, "points": [[1.0], [2.0, 3.0]]}},
        {"a": {**STATE, "points": [1.0]}},
        {"a": {**STATE, "points": []}},
        {"a": {**STATE, "points": [2.0, 1.0]}},
        {"a": {**STATE, "ranks": [0.0, float("nan")]}},
        {"a": {**STATE, "ranks": [0.0, 7.0]}},
        {"a": {**STATE, "edges": [[1.0]]}},
        {"a": {**STATE, "edges": [2.0, 1.0]}},
        {"a": {**STATE, "edges": list(range(1 << 18))}},
        {"a": {**STATE, "seen": [float("inf")]}},
        {"a": {**STATE, "fixed": "yes"}},
    ],
)
def test_states_that_were_made_up_are_damage_and_change_nothing(net, tmp_path, objects):
    path = saved_then_changed(net, tmp_path)
    states = json.loads((path / "states.json").read_text())
    (path / "states.json").write_text(json.dumps({**states, "objects": objects}))
    fix(path)
    before = rows(net)
    scale = QuantileScale("x", buckets=4).fit([3.0, 4.0])
    learned = scale.state_dict()
    with pytest.raises(CheckpointError, match=r"states\.json"):
        load_checkpoint(net, path, states={"a": scale})
    assert rows(net) == before and scale.state_dict() == learned
