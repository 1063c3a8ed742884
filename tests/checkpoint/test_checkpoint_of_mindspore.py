# SPDX-License-Identifier: Apache-2.0
"""MindSpore's own ways to save and load, which see a table's anchor and no rows."""

from __future__ import annotations

import warnings

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from mindspore.train import CheckpointConfig, ModelCheckpoint

import mindspore_rec
from mindspore_rec import (
    EmbeddingBag,
    EmbeddingLookup,
    GroupedEmbedding,
    HashEmbeddingLookup,
    LazyAdam,
    MapParameter,
    RecModel,
    TableConfig,
)
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.train.parameter import anchor
from tests.support.networks import LogitOf
from tests.support.processes import run_program

IDS = np.arange(12).reshape(4, 3)
BATCH = (IDS, np.array([[0], [1], [0], [1]], np.float32))
REFUSED = r"^table '.*mindspore_rec.save_checkpoint.*load_checkpoint.*keep_rows"


def net_of(name):
    return LogitOf(HashEmbeddingLookup(4, ms.int64, name=name), 12)


def make(name):
    net = net_of(name)
    optimizer = LazyAdam(net.trainable_params(), 0.05)
    return net, RecModel(net, nn.BCEWithLogitsLoss(), optimizer)


def trained(name, steps=3):
    net, model = make(name)
    model.train(1, [BATCH] * steps, progress=False)
    return net, model


def another(net, model):
    """The same program in another process: the first network's name is free again."""
    name = net.embedding.embedding_table.name
    net.embedding.embedding_table.close()
    return make(name)


def load_by_file(net, other, path):
    ms.save_checkpoint(net, str(path / "net.ckpt"))
    return lambda: ms.load_param_into_net(other(), ms.load_checkpoint(str(path / "net.ckpt")))


def load_by_list(net, other, path):
    ms.save_checkpoint(net.trainable_params(), str(path / "net.ckpt"))
    return lambda: ms.load_checkpoint(str(path / "net.ckpt"), other())


def load_by_safetensors(net, other, path):
    ms.save_checkpoint(net, str(path / "net"), format="safetensors")
    return lambda: ms.load_param_into_net(
        other(), ms.load_checkpoint(str(path / "net.safetensors"), format="safetensors")
    )


def load_by_state_dict(net, other, path):
    state = {key: Tensor(value.asnumpy()) for key, value in net.state_dict().items()}
    return lambda: other().load_state_dict(state)


@pytest.mark.parametrize(
    "way", [load_by_file, load_by_list, load_by_safetensors, load_by_state_dict]
)
def test_weights_without_their_rows_are_an_error_at_the_first_lookup(mode, unique, tmp_path, way):
    net, model = trained(unique())
    made = []

    def other():
        made.extend(another(net, model))
        return made[0]

    way(net, other, tmp_path)()
    fresh, fresh_model = made
    for call in (
        lambda: fresh_model.predict(IDS),
        lambda: fresh_model.train(1, [BATCH], progress=False),
        lambda: fresh(Tensor(IDS)).asnumpy(),
    ):
        with pytest.raises(RuntimeError, match=REFUSED):
            call()
    table = fresh.embedding.embedding_table
    assert table.stats()["rows"] == 0
    table.keep_rows()
    assert fresh_model.predict(IDS).shape == (4, 1)
    assert fresh_model.train(1, [BATCH], progress=False).steps == 1


def test_what_model_checkpoint_wrote_is_refused_too(graph_mode, unique, tmp_path):
    net, model = make(unique())
    config = CheckpointConfig(save_checkpoint_steps=2, keep_checkpoint_max=5)
    callback = ModelCheckpoint("net", str(tmp_path), config)
    model.online_train([BATCH] * 4, callback, progress=False)
    fresh, fresh_model = another(net, model)
    ms.load_checkpoint(callback.latest_ckpt_file_name, fresh)
    with pytest.raises(RuntimeError, match=REFUSED):
        fresh_model.predict(IDS)


def test_saving_without_the_rows_is_said_once(graph_mode, unique, tmp_path, monkeypatch):
    monkeypatch.setattr(anchor, "_warned", [])
    net, model = trained(unique())
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        mindspore_rec.save_checkpoint(model, tmp_path / "ours")
        model.predict(IDS)
        assert not found
        ms.save_checkpoint(net, str(tmp_path / "net.ckpt"))
        ms.save_checkpoint(net, str(tmp_path / "net.ckpt"))
    (warning,) = found
    assert "without its rows" in str(warning.message)
    assert warning.filename == __file__  # the caller of save_checkpoint
    assert net.embedding.embedding_table.name in str(warning.message)


def test_loading_back_into_the_same_network_goes_on(mode, unique, tmp_path):
    net, model = trained(unique())
    before = model.predict(IDS).asnumpy()
    ms.save_checkpoint(net, str(tmp_path / "net.ckpt"))
    ms.load_checkpoint(str(tmp_path / "net.ckpt"), net)
    np.testing.assert_array_equal(model.predict(IDS).asnumpy(), before)
    assert model.train(1, [BATCH], progress=False).steps == 1


def test_our_checkpoint_brings_the_rows_before_or_after(graph_mode, unique, tmp_path):
    net, model = trained(unique())
    expected = model.predict(IDS).asnumpy()
    ms.save_checkpoint(net, str(tmp_path / "net.ckpt"))
    mindspore_rec.save_checkpoint(model, tmp_path / "ours")
    fresh, fresh_model = another(net, model)
    ms.load_checkpoint(str(tmp_path / "net.ckpt"), fresh)
    mindspore_rec.load_checkpoint(fresh_model, tmp_path / "ours")
    np.testing.assert_array_equal(fresh_model.predict(IDS).asnumpy(), expected)


@pytest.mark.parametrize("rows_first", [False, True])
def test_rows_kept_by_hand(graph_mode, unique, tmp_path, rows_first):
    net, model = trained(unique())
    expected = model.predict(IDS).asnumpy()
    ms.save_checkpoint(net, str(tmp_path / "net.ckpt"))
    rows = net.embedding.embedding_table.export_data()
    fresh, fresh_model = another(net, model)
    table = fresh.embedding.embedding_table
    if rows_first:
        table.import_data(rows)
    ms.load_checkpoint(str(tmp_path / "net.ckpt"), fresh)
    if not rows_first:
        with pytest.raises(RuntimeError, match=REFUSED):
            fresh_model.predict(IDS)
        table.import_data(rows)
    np.testing.assert_array_equal(fresh_model.predict(IDS).asnumpy(), expected)


def test_rows_imported_into_the_native_table_are_the_rows(graph_mode, unique):
    net, model = trained(unique())
    table = net.embedding.embedding_table
    rows = table.export_rows(with_state=True)
    expected = model.predict(IDS).asnumpy()
    elsewhere = ms.Parameter(Tensor(np.zeros(1, np.float32)), name=table.anchor.name)
    ms.load_param_into_net(net, {table.anchor.name: elsewhere})
    with pytest.raises(RuntimeError, match=REFUSED):
        model.predict(IDS)
    table.import_rows(rows["keys"], rows["values"], rows["states"])
    np.testing.assert_array_equal(model.predict(IDS).asnumpy(), expected)


def refused_cells(name):
    table = MapParameter(f"{name}.map", value_shape=2, key_dtype=ms.int64)
    values = Tensor(np.ones((20, 2), np.float32))
    return {
        "hash": (HashEmbeddingLookup(2, ms.int64, name=f"{name}.hash"), IDS),
        "static": (EmbeddingLookup(20, 2, values, name=f"{name}.static"), IDS),
        "bag": (EmbeddingBag(TableConfig(2, name=f"{name}.bag")), IDS),
        "grouped": (GroupedEmbedding([table] * 3), IDS),
        "map": (table, IDS),
        "device": (
            HashEmbeddingLookup(
                2, ms.int64, name=f"{name}.device", cache=CacheConfig(device_rows=64)
            ),
            IDS,
        ),
    }


@pytest.mark.parametrize("kind", ["hash", "static", "bag", "grouped", "map", "device"])
def test_every_kind_of_lookup_refuses(pynative, unique, kind):
    cell, ids = refused_cells(unique())[kind]
    LazyAdam(cell.trainable_params())
    elsewhere = {
        each.name: ms.Parameter(Tensor(np.zeros(1, np.float32)), name=each.name)
        for each in cell.get_parameters()
    }
    assert ms.load_param_into_net(cell, elsewhere) == ([], [])
    for train in (True, False):
        with pytest.raises(RuntimeError, match=REFUSED):
            cell.set_train(train)(Tensor(ids))
    if kind == "map":
        with pytest.raises(RuntimeError, match=REFUSED):
            cell.get(Tensor(ids), False)
        with pytest.raises(RuntimeError, match="keep_rows"):
            cell.lookup_with_handles(ids)


def test_a_sum_of_squares_does_not_see_the_anchors(graph_mode, unique):
    net = net_of(unique())
    total = sum(float((p * p).sum().asnumpy()) for p in net.embedding.trainable_params())
    assert total == 0.0


RESTART = """
import logging, sys
import numpy as np, mindspore as ms
from mindspore import nn
from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecCheckpoint, RecModel
ms.set_context(mode=ms.GRAPH_MODE)
net = nn.SequentialCell(
    HashEmbeddingLookup(4, ms.int64, name="restart"), nn.Flatten(), nn.Dense(12, 1)
)
model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params()))
checkpoint = RecCheckpoint(sys.argv[1], every_steps=1)
print("restored", checkpoint.restore(model))
batch = np.arange(12).reshape(4, 3), np.ones((4, 1), np.float32)
model.online_train([batch] * 2, checkpoint, progress=False)
if sys.argv[2] == "true":
    ms.load_param_into_net(net, {"other": ms.Parameter(ms.Tensor([1.0]), name="other")})
"""


def test_a_restart_says_nothing_of_parameters_that_are_not_loaded(tmp_path):
    def run(alarm):
        command = ["-c", RESTART, str(tmp_path / "run"), alarm]
        done = run_program(*command, variables={"GLOG_v": "2"})
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    assert "restored None" in run("none")
    said = run("none")
    assert "restored 2" in said and "not loaded" not in said
    assert "not loaded" in run("true")  # a true one is still said
