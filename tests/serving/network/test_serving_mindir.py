# SPDX-License-Identifier: Apache-2.0
"""A network as MindIR answers as the network does, in a program without this package."""

from __future__ import annotations

import sys

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from mindspore_rec import (
    EmbeddingLookup,
    HashEmbeddingLookup,
    MapParameter,
    TableConfig,
    save_checkpoint,
)
from mindspore_rec.nn import MLP, EmbeddingBag, GroupedEmbedding, tables_of
from mindspore_rec.serving import mindir
from mindspore_rec.train.graph.syntax_level import syntax_level_kept
from tests.support.processes import run_python

READER = """
import sys
import mindspore as ms
import numpy as np

assert not any(name.startswith("mindspore_rec") for name in sys.modules)
ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
net = ms.nn.GraphCell(ms.load("model.mindir"))
inputs = [ms.Tensor(np.load(f"{i}.npy")) for i in range(2)]
np.save("answers.npy", net(*inputs).asnumpy())
"""


class Net(nn.Cell):
    """Every kind of lookup, and a perceptron."""

    def __init__(self, name: str = "mindir") -> None:
        super().__init__()
        self.hashed = HashEmbeddingLookup(
            config=TableConfig(4, name=f"{name}.hashed", serving_unknown_value=0.25),
            padding_key=-7,
            max_norm=1.0,
        )
        self.static = EmbeddingLookup(50, 4, name=f"{name}.static")
        self.bags = nn.CellList(
            [
                EmbeddingBag(TableConfig(4, name=f"{name}.{mode}"), mode, padding_key=-7)
                for mode in ("sum", "mean", "sqrtn")
            ]
        )
        configs = [TableConfig(4, name=f"{name}.group{i}") for i in range(3)]
        self.group = GroupedEmbedding(config=configs)
        mixed = [TableConfig(2 + i % 2, name=f"{name}.mixed{i}") for i in range(3)]
        self.mixed = GroupedEmbedding(config=mixed)
        self.mlp = MLP(2 * 12 + 3 * 4 + 12 + 7, (8,), out_features=2)

    def construct(self, ids: Tensor, slots: Tensor) -> Tensor:
        parts: tuple[Tensor, ...] = (
            self.hashed(ids).reshape((-1, 12)),
            self.static(slots).reshape((-1, 12)),
            self.group(ids).reshape((-1, 12)),
            self.mixed(ids),
        )
        for bag in self.bags:
            parts += (bag(ids),)
        return self.mlp(ops.concat(parts, 1))


KEYS = np.array([-(1 << 63), -7, -1, 0, 3, 12345678901, (1 << 63) - 1])


def filled(net: Net) -> Net:
    rng = np.random.default_rng(0)
    for table in tables_of(net):
        keys = np.arange(50) if table.vocabulary else KEYS
        table.write_rows(keys, rng.normal(0, 1, (len(keys), table.dim)).astype(np.float32))
    return net


def build() -> nn.Cell:
    return Net("mindir.saved")


def test_answers_without_this_package(graph_mode, unique, tmp_path):
    net = filled(Net(unique()))
    path = mindir.export_mindir(net, tmp_path / "model", ["ids:INT64:-1,3", "slots:INT32:-1,3"])
    assert path == tmp_path / "model.mindir"
    rng = np.random.default_rng(1)
    ids = rng.choice([*KEYS, 99, -98], (40, 3))
    slots = rng.integers(0, 50, (40, 3)).astype(np.int32)
    np.save(tmp_path / "0.npy", ids)
    np.save(tmp_path / "1.npy", slots)
    (tmp_path / "reader.py").write_text(READER)
    run_python("reader.py", cwd=tmp_path)
    expected = net(Tensor(ids), Tensor(slots)).asnumpy()
    np.testing.assert_allclose(np.load(tmp_path / "answers.npy"), expected, 1e-5, 1e-6)
    # The network is as it was: its lookups read its tables.
    tables_of(net)[0].write_rows(KEYS, np.ones((len(KEYS), 4), np.float32))
    assert not np.allclose(net(Tensor(ids), Tensor(slots)).asnumpy(), expected)


def test_the_command(graph_mode, tmp_path, monkeypatch, capsys):
    save_checkpoint(filled(build()), tmp_path / "saved")
    monkeypatch.setitem(sys.modules, "mindir_networks", sys.modules[__name__])
    given = ["--network", "mindir_networks:build", "--input", "ids:INT64:-1,3"]
    command = [str(tmp_path / "saved"), str(tmp_path / "out.mindir"), *given]
    assert mindir.main([*command, "--input", "slots:INT32:-1,3"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out.mindir'}\n"
    assert (tmp_path / "out.mindir").stat().st_size > 1000
    assert mindir.main(command) == 1  # an input is missing
    assert mindir.main([str(tmp_path / "none"), "out.mindir", *given]) == 1
    assert "none" in capsys.readouterr().err


class Weighted(nn.Cell):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.bag = EmbeddingBag(TableConfig(4, name=name))

    def construct(self, ids: Tensor, weights: Tensor) -> Tensor:
        return self.bag(ids, None, weights)


def test_what_has_no_form_is_refused(graph_mode, unique, tmp_path):
    net = Weighted(unique())
    with pytest.raises(ValueError, match="weights have no form as MindIR"):
        mindir.export_mindir(net, tmp_path / "model", ["ids:INT64:-1,3", "weights:FP32:-1,3"])
    assert ms.get_context("jit_syntax_level") == ms.LAX  # which a failed `ms.export` leaves STRICT
    with pytest.raises(ValueError, match="inputs must be given"):
        mindir.export_mindir(net, tmp_path / "model")
    ids = Tensor(np.array([[1, 2, 3]]), ms.int64)
    assert net(ids, Tensor(np.ones((1, 3), np.float32))).shape == (1, 4)


class Read(nn.Cell):
    """A read of a table without a lookup cell."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.table = MapParameter(name, value_shape=2)

    def construct(self, ids: Tensor) -> Tensor:
        return self.table.get(ids, False)


@pytest.mark.parametrize(
    "make",
    [
        lambda name: HashEmbeddingLookup(2, name=name),
        lambda name: EmbeddingLookup(9, 2, name=name),
        lambda name: EmbeddingBag(TableConfig(2, name=name)),
        lambda name: GroupedEmbedding(
            config=[TableConfig(2, name=name), TableConfig(2, name=name + "b")]
        ),
        Read,
    ],
)
def test_mindspore_itself_exports_no_network_with_tables(graph_mode, unique, tmp_path, make):
    name = unique()
    net = make(name).set_train(False)
    ids = Tensor(np.array([[1, 2]], np.int32))
    net(ids)
    with syntax_level_kept(), pytest.raises(RuntimeError, match=f"'{name}': mindspore.export"):
        ms.export(net, ids, file_name=str(tmp_path / "net"), file_format="MINDIR")
    assert not list(tmp_path.iterdir())


GRAPH_OF_ANOTHER = """
import mindspore as ms
import numpy as np
from mindspore_rec import MapParameter

ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
others = [MapParameter(f"other{i}", value_shape=2, default_value=7.0) for i in range(100)]
net = ms.nn.GraphCell(ms.load("net.mindir"))
try:
    print(net(ms.Tensor(np.array([[1, 2]], np.int32))))
except RuntimeError as error:
    print(error)
"""


def test_a_graph_of_another_process_finds_no_table(graph_mode, tmp_path, monkeypatch):
    """A file that was written all the same, as MindSpore's compile cache is."""
    net = Read("mindir.foreign")
    monkeypatch.setattr(net.table._find, "table", None)
    ids = Tensor(np.array([[1, 2]], np.int32))
    with syntax_level_kept():
        ms.export(net, ids, file_name=str(tmp_path / "net"), file_format="MINDIR")
    (tmp_path / "other.py").write_text(GRAPH_OF_ANOTHER)
    assert "there is no table with id" in run_python("other.py", cwd=tmp_path)
