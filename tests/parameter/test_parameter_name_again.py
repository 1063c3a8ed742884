# SPDX-License-Identifier: Apache-2.0
"""A network made again, as by a notebook cell that is run twice: its tables have the same names."""

from __future__ import annotations

import re

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec import (
    CacheConfig,
    EmbeddingLookup,
    HashEmbeddingLookup,
    LazyAdam,
    MapParameter,
    RecModel,
    SsdConfig,
    _native,
    create_table,
    load_checkpoint,
    save_checkpoint,
    tables_of,
)
from tests.support.networks import LogitOf

IDS = np.array([[1, 2], [3, 4]])
BATCH = (IDS, np.array([[0], [1]], np.float32))


def net_of(name: str) -> LogitOf:
    return LogitOf(HashEmbeddingLookup(4, ms.int64, name=name), 8)


def fit(net: nn.Cell) -> RecModel:
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params(), 0.1))
    model.train(1, [BATCH], progress=False)
    return model


def test_the_cells_of_a_notebook_run_again(graph_mode, unique):
    name = unique()
    net = net_of(name)
    model = fit(net)
    first = model.predict(IDS).asnumpy()
    for _ in range(2):
        net = net_of(name)  # now `net` and `model` still hold the network before
        assert net.embedding.embedding_table.stats()["rows"] == 0
        model = fit(net)
        assert net.embedding.embedding_table.stats()["rows"] == 4
    assert first.shape == model.predict(IDS).shape
    net.embedding.embedding_table.close()


def test_the_older_of_two_networks_says_what_to_do_and_lives_on(mode, unique, tmp_path):
    name = unique()
    older = net_of(name)
    model = fit(older)
    before = model.predict(IDS).asnumpy()
    newer = net_of(name)
    text = rf"table '{name}': a newer table has this name.*tables_of\(newer_net\).*another name="
    for use in (
        lambda: model.predict(IDS),
        lambda: model.train(1, [BATCH], progress=False),
        lambda: save_checkpoint(model, tmp_path / "saved"),
        lambda: older.embedding.embedding_table.stats(),
        lambda: LazyAdam(older.trainable_params()),
    ):
        with pytest.raises(RuntimeError, match=re.compile(text, re.DOTALL)):
            use()
    if mode == "pynative":  # in a graph MindSpore runs nothing after an operator's error
        with pytest.raises(RuntimeError, match=re.compile(text, re.DOTALL)):
            older(Tensor(IDS))
    assert list(tmp_path.iterdir()) == []
    newer_model = fit(newer)
    save_checkpoint(newer_model, tmp_path / "newer")
    for table in tables_of(newer):  # as the message says
        table.close()
    assert np.array_equal(model.predict(IDS).asnumpy(), before)
    load_checkpoint(model, tmp_path / "newer")
    older.embedding.embedding_table.close()


def test_two_tables_of_a_name_in_one_network(unique):
    name = unique()
    net = nn.SequentialCell(HashEmbeddingLookup(4, name=name), HashEmbeddingLookup(4, name=name))
    with pytest.raises(RuntimeError, match=f"table '{name}': a newer table has this name"):
        LazyAdam(net.trainable_params())
    for table in tables_of(net):
        table.close()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1)])
def test_the_newest_open_one_has_the_name(unique, order):
    name = unique()
    made = [_native.Table(name=name, dim=2, replace=True) for _ in range(3)]
    left = [0, 1, 2]
    for closed in order:
        for i in left:
            if i == left[-1]:
                made[i].check_not_replaced()
            else:
                with pytest.raises(RuntimeError, match="newer table"):
                    made[i].check_not_replaced()
        made[closed].close()
        left.remove(closed)
    _native.Table(name=name, dim=2).close()


def test_a_table_that_cannot_be_made_takes_no_name_over(unique):
    table = MapParameter(unique())
    with pytest.raises(ValueError, match="dim"):
        _native.Table(name=table.name, dim=0, replace=True)
    assert table.stats()["rows"] == 0
    table.close()


def test_every_maker_of_tables(unique):
    name = unique()
    made = [
        MapParameter(name),
        EmbeddingLookup(5, 2, name=name).embedding_table,
        create_table(ms.int64, 2, name, "normal"),
        MapParameter(name),
    ]
    for older in made[:-1]:
        with pytest.raises(RuntimeError, match="newer table"):
            older.stats()
    for table in made:
        table.close()


def test_rows_below_memory_are_of_one_table(unique, tmp_path):
    name = unique()
    cache = CacheConfig(host_rows=64, ssd=SsdConfig(str(tmp_path), direct=False))
    older = MapParameter(name, key_dtype=ms.int64, cache=cache)
    older.put(Tensor([1]), Tensor(np.ones((1, 1), np.float32)))
    with pytest.raises(ValueError, match=r"already used.*tables_of\(older_net\).*close\(\)"):
        MapParameter(name, cache=cache)
    assert older.get(Tensor([1])).asnumpy().tolist() == [[1.0]]
    newer = MapParameter(name)  # in memory: nothing to fight for
    newer.close()
    older.close()
    MapParameter(
        name,
        cache=CacheConfig(
            host_rows=64, ssd=SsdConfig(str(tmp_path), direct=False), leftover="discard"
        ),
    ).close()
