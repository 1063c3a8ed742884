# SPDX-License-Identifier: Apache-2.0
"""The network is the formula, in each way its tables can be placed; configurations are strict."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec import RecModel, tables_of
from models.common.config import from_mapping
from models.common.data import Criteo
from models.wide_deep.config import Config
from models.wide_deep.net import WideDeep, make_optimizer

PLACES: dict[str, dict[str, Any]] = {
    "hash": {"embedding": "hash"},
    "static": {"embedding": "static", "buckets": 50},
    "device": {"embedding": "static", "buckets": 50, "host_device_mix": False},
}


def make_batch(rows=12, fields=3, numbers=2):
    rng = np.random.default_rng(0)
    ids = rng.integers(-(1 << 62), 1 << 62, (rows, fields))
    dense = rng.standard_normal((rows, numbers)).astype(np.float32)
    return ids, dense, (rng.random((rows, 1)) < 0.5).astype(np.float32)


def weights(table, ids):
    """The rows of ids in one of the network's tables: float32 [*ids.shape, dim]."""
    owner = table.embedding_table
    if isinstance(owner, ms.Parameter):
        return owner.asnumpy()[ids]
    return owner.native.lookup(ids.reshape(-1)).reshape(*ids.shape, -1)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("numbers", [0, 2])
def test_logits_are_the_formula_after_training(mode, unique, place, numbers):
    ids, dense, label = make_batch(numbers=numbers)
    columns = (ids, dense) if numbers else (ids,)
    net = WideDeep(3, numbers, 4, (8,), name=unique(), **PLACES[place])
    model = RecModel(net, nn.BCEWithLogitsLoss(), make_optimizer(net, 0.5, deep_learning_rate=0.05))
    before = model.train(1, [(*columns, label)], progress=False).loss
    assert model.train(30, [(*columns, label)], progress=False).loss < 0.5 * before
    assert len(tables_of(net)) == (0 if place == "device" else 2)

    ids = ids if place == "hash" else (ids & 0x7FFFFFFF) % 50
    wide = weights(net.wide_table, ids).sum(1)
    deep = weights(net.deep_table, ids).reshape(len(ids), -1)
    assert np.abs(wide).max() > 0.1
    if numbers:
        wide = wide + dense @ net.wide_dense.weight.asnumpy().T + net.wide_dense.bias.asnumpy()
        deep = np.concatenate([deep, dense], 1)
    expected = wide + net.deep.set_train(False)(Tensor(deep)).asnumpy()
    got = model.predict(*columns).asnumpy()
    np.testing.assert_allclose(got, expected, rtol=2e-3, atol=1e-3)


def test_wide_learns_by_ftrl_and_deep_by_lazy_adam(graph_mode, unique):
    net = WideDeep(3, 2, 4, (8,), name=unique())
    optimizer = make_optimizer(net, wide_l1=1e6)
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer)
    deep = net.deep_table.embedding_table
    ids, dense, label = make_batch()
    first = deep.native.lookup(ids.reshape(-1), insert=True)
    model.train(1, [(ids, dense, label)] * 3, progress=False)
    # so strong an L1 holds every weight of FTRL at 0, and does not reach the embeddings
    assert not weights(net.wide_table, ids).any()
    assert not net.wide_dense.weight.asnumpy().any()
    assert (deep.native.lookup(ids.reshape(-1)) != first).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fields": 0, "dense": 1}, "fields"),
        ({"fields": 1, "dense": -1}, "dense"),
        ({"fields": 1, "dense": 1, "embedding": "dynamic"}, "embedding"),
        ({"fields": 1, "dense": 1, "embedding": "static"}, "buckets"),
        ({"fields": 1, "dense": 1, "buckets": 5}, "buckets"),
        ({"fields": 1, "dense": 1, "embedding": "static", "buckets": 0}, "buckets"),
        ({"fields": 1, "dense": 1, "host_device_mix": False}, "host_device_mix"),
    ],
)
def test_arguments_that_do_not_go_together(arguments, message):
    with pytest.raises(ValueError, match=message):
        WideDeep(**arguments)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "'data' is missing"),
        ({"data": {"kind": "criteo"}, "modell": {}}, "'modell' is not known"),
        ({"data": {"kind": "criteo"}, "model": {"dimm": 3}}, "'model.dimm' is not known"),
        ({"data": {"kind": "criteo"}, "model": {"dim": "3"}}, "'model.dim' must be of type int"),
        ({"data": {"kind": "criteo"}, "model": {"dim": True}}, "'model.dim' must be of type int"),
        ({"data": {"kind": "criteo"}, "model": {"hidden": 3}}, "'model.hidden' must be a list"),
        ({"data": {"kind": "criteo"}, "model": {"hidden": [1, "a"]}}, r"'model.hidden\[1\]'"),
        ({"data": {"kind": "criteo", "rows": 5}}, "'data.rows' is not known"),
        ({"data": {"kind": "avazu"}}, "'data.kind' must be one of"),
        ({"data": {"rows": 5}}, "'data.kind' is missing"),
        ({"data": {"kind": "synthetic"}}, "'data.rows' is missing"),
        ({"data": 5}, "'data.kind' is missing"),
        ({"data": {"kind": "criteo"}, "train": {"epochs": 0}}, "'train.epochs'"),
    ],
)
def test_configurations_are_strict(values, message):
    with pytest.raises(ValueError, match=message):
        from_mapping(Config, values)


def test_configuration_values_arrive():
    values = {"data": {"kind": "criteo"}, "model": {"hidden": [3, 4]}, "optimizer": {"wide_l1": 1}}
    config = from_mapping(Config, values)
    assert (config.model.hidden, config.optimizer.wide_l1) == ((3, 4), 1.0)
    assert isinstance(config.data, Criteo)
    assert config.model.buckets is None and config.data.train == "train"
