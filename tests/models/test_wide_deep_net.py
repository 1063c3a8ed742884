# SPDX-License-Identifier: Apache-2.0
"""The network is the formula, in each way its tables can be placed; configurations are strict."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec import RecModel, tables_of
from mindspore_rec.models import WideDeep
from models.common.config import from_mapping
from models.common.data import Criteo
from models.common.embedding import EmbeddingConfig
from models.common.features import PackedFeatures
from models.wide_deep.config import Config, FtrlConfig, WideDeepOptimizer, make_optimizer
from tests.support.clicks import clicks

PLACES: dict[str, dict[str, Any]] = {
    "hash": {"kind": "hash"},
    "static": {"kind": "static", "buckets": 50},
    "device": {"kind": "static", "buckets": 50, "host_device_mix": False},
}
FEATURES = PackedFeatures(3, 2, EmbeddingConfig(embedding_dim=4))


def optimizer_of(net: WideDeep, wide: FtrlConfig | None, rate: float = 1e-3) -> nn.Optimizer:
    return make_optimizer(net, WideDeepOptimizer(learning_rate=rate, wide=wide))


def make_batch(rows=12, fields=3, numbers=2):
    return clicks(rows, 0, fields, numbers, keys=1 << 63)


def weights(table, ids):
    """The rows of ids in one of the network's tables: float32 [*ids.shape, dim]."""
    owner = table.embedding_table
    if isinstance(owner, ms.Parameter):
        return owner.asnumpy()[ids]
    return owner.read_rows(ids.reshape(-1)).reshape(*ids.shape, -1)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("numbers", [0, 2])
def test_logits_are_the_formula_after_training(mode, unique, place, numbers):
    ids, dense, label = make_batch(numbers=numbers)
    columns = (ids, dense) if numbers else (ids,)
    held = EmbeddingConfig(embedding_dim=4, **PLACES[place])
    net = WideDeep(PackedFeatures(3, numbers, held), hidden=(8,), name=unique())
    optimizer = optimizer_of(net, FtrlConfig(0.5), 0.05)
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer)
    before = model.train(1, [(*columns, label)], progress=False).loss
    assert model.train(30, [(*columns, label)], progress=False).loss < 0.5 * before
    assert len(tables_of(net)) == (0 if place == "device" else 2)

    ids = ids if place == "hash" else (ids & 0x7FFFFFFF) % 50
    wide = weights(net.wide.ids.table, ids).sum(1)
    deep = weights(net.inputs.embedding.table, ids).reshape(len(ids), -1)
    assert np.abs(wide).max() > 0.1
    if numbers:
        linear = net.wide.numbers
        wide = wide + dense @ linear.weight.asnumpy().T + linear.bias.asnumpy()
    parts = (deep, dense) if numbers else (deep,)
    expected = wide + net.deep.set_train(False)(*map(Tensor, parts)).asnumpy()
    got = model.predict(*columns).asnumpy()
    np.testing.assert_allclose(got, expected, rtol=2e-3, atol=1e-3)


def test_wide_learns_by_ftrl_and_deep_by_lazy_adam(graph_mode, unique):
    net = WideDeep(FEATURES, hidden=(8,), name=unique())
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer_of(net, FtrlConfig(l1=1e6)))
    deep = net.inputs.embedding.table.embedding_table
    ids, dense, label = make_batch()
    first = deep.insert_rows(ids.reshape(-1))
    model.train(1, [(ids, dense, label)] * 3, progress=False)
    # so strong an L1 holds every weight of FTRL at 0, and does not reach the embeddings
    assert not weights(net.wide.ids.table, ids).any()
    assert not net.wide.numbers.weight.asnumpy().any()
    assert (deep.read_rows(ids.reshape(-1)) != first).all()


def test_without_ftrl_lazy_adam_learns_everything(graph_mode, unique):
    net = WideDeep(FEATURES, hidden=(8,), name=unique())
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer_of(net, None, rate=0.01))
    ids, dense, label = make_batch()
    model.train(1, [(ids, dense, label)], progress=False)
    # Adam's first step is as long as its rate, whatever the gradient
    np.testing.assert_allclose(np.abs(weights(net.wide.ids.table, ids)), 0.01, rtol=1e-3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "'data' is missing"),
        ({"data": {"kind": "criteo"}, "modell": {}}, "'modell' is not known"),
        ({"data": {"kind": "criteo"}, "embedding": {"dimm": 3}}, "'embedding.dimm' is not known"),
        (
            {"data": {"kind": "criteo"}, "embedding": {"embedding_dim": "3"}},
            "'embedding.embedding_dim' must be of",
        ),
        (
            {"data": {"kind": "criteo"}, "embedding": {"embedding_dim": True}},
            "'embedding.embedding_dim' must be of",
        ),
        ({"data": {"kind": "criteo"}, "model": {"hidden": 3}}, "'model.hidden' must be a list"),
        ({"data": {"kind": "criteo"}, "model": {"hidden": [1, "a"]}}, r"'model.hidden\[1\]'"),
        ({"data": {"kind": "criteo", "rows": 5}}, "'data.rows' is not known"),
        ({"data": {"kind": "avazu"}}, "'data.kind' must be one of"),
        ({"data": {"rows": 5}}, "'data.kind' is missing"),
        ({"data": {"kind": "synthetic"}}, "'data.rows' is missing"),
        ({"data": 5}, "'data.kind' is missing"),
        ({"data": {"kind": "criteo"}, "train": {"epochs": 0}}, "'train.epochs'"),
        (
            {"data": {"kind": "census_income", "tasks": ["income", "never_married"]}},
            "'data.tasks' must be one task",
        ),
    ],
)
def test_configurations_are_strict(values, message):
    with pytest.raises(ValueError, match=message):
        from_mapping(Config, values)


def test_configuration_values_arrive():
    values = {
        "data": {"kind": "criteo"},
        "model": {"hidden": [3, 4]},
        "optimizer": {"wide": {"l1": 1}},
    }
    config = from_mapping(Config, values)
    assert config.optimizer.wide is not None
    assert (config.model.hidden, config.optimizer.wide.l1) == ((3, 4), 1.0)
    assert isinstance(config.data, Criteo)
    assert config.embedding.buckets is None and config.data.train == "train"
