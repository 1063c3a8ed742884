# SPDX-License-Identifier: Apache-2.0
"""GroupedEmbedding: the same bits as separate lookups, for every mix of tables."""

from __future__ import annotations

import sys
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, amp, nn, ops

import mindspore_rec
from mindspore_rec import (
    CountAdmission,
    GroupedEmbedding,
    HashEmbeddingLookup,
    LazyAdam,
    MapParameter,
    StaticParameter,
    TrainStep,
)
from tests.support.networks import Weighed

DIM = 6
ONE_SIZE, MIXED = (DIM, DIM, DIM), (4, 8, 1)  # floats of a row, for the tables a, b and c


class Separate(nn.Cell):
    def __init__(self, tables, coefficients):
        super().__init__()
        self.one_size = len({table.dim for table in tables}) == 1
        self.columns = nn.CellList(
            [
                HashEmbeddingLookup(table.dim, table=table, padding_key=0, faae_coefficient=each)
                for table, each in zip(tables, coefficients, strict=True)
            ]
        )

    def construct(self, ids):
        rows: tuple[Tensor, ...] = ()
        for i in range(len(self.columns)):
            rows += (self.columns[i](ids[:, i]),)
        return ops.stack(rows, 1) if self.one_size else ops.cat(rows, -1)


def make_tables(prefix, dims=ONE_SIZE):
    kinds: list[dict[str, Any]] = [
        {},
        {"admission": CountAdmission(4)},
        {"default_value": "ones"},
    ]
    a, b, c = (
        MapParameter(f"{prefix}.{name}", value_shape=dim, key_dtype=ms.int64, **kind)
        for name, dim, kind in zip("abc", dims, kinds, strict=True)
    )
    return [a, b, a, c, a]  # three columns share a table


def train(grouped, threads, batch_sizes, dims):
    """Rows of each step's forward pass, and the tables' final contents."""
    rng = np.random.default_rng(3)
    ms.set_seed(0)
    before = mindspore_rec.get_num_threads()
    mindspore_rec.set_num_threads(threads)
    try:
        # The names decide the first values, so these are the same in each run.
        tables = make_tables("grouped.equal", dims)
        coefficients = [1, 2, 1, 1, 3]
        if grouped:
            embedding = GroupedEmbedding(tables, padding_key=0, faae_coefficient=coefficients)
        else:
            embedding = Separate(tables, coefficients)
        outs: list[np.ndarray] = []
        for n in batch_sizes:
            ids = Tensor(rng.integers(0, 40 if n < 100 else 4000, (n, 5)))
            # Of its own for each row, so that a gradient in the wrong place shows.
            floats = (5, DIM) if dims == ONE_SIZE else (sum(table.dim for table in tables),)
            weight = rng.normal(size=(n, *floats)).astype(np.float32)
            net = Weighed(embedding)
            if not outs:
                optimizer = LazyAdam(net.trainable_params(), learning_rate=0.1)
            TrainStep(net, optimizer).set_train()(ids, Tensor(weight))
            embedding.set_train(False)
            outs.append(embedding(ids).asnumpy())
        contents = [
            {int(k): v.tobytes() for k, v in zip(r["keys"], r["values"], strict=True)}
            for r in (table.export_rows() for table in tables)
        ]
        counts = [table.stats()["candidates"] for table in tables]
        for table in set(tables):
            table.close()
        return outs, contents, counts
    finally:
        mindspore_rec.set_num_threads(before)


@pytest.mark.parametrize("threads, dims", [(1, ONE_SIZE), (2, ONE_SIZE), (2, MIXED)])
def test_grouped_equals_separate_bit_for_bit(threads, dims):
    ms.set_context(mode=ms.GRAPH_MODE)
    sizes = [3, 2000, 17]
    separate = train(False, 1, sizes, dims)
    grouped = train(True, threads, sizes, dims)
    for a, b in zip(separate[0], grouped[0], strict=True):
        assert a.tobytes() == b.tobytes()
    assert separate[1] == grouped[1]
    assert separate[2] == grouped[2]
    assert separate[2][1] > 0, "the admission of one table must have had something to do"


def test_static_tables_leading_dimensions_and_padding():
    ms.set_context(mode=ms.GRAPH_MODE)
    static = StaticParameter(50, DIM, "normal", name="grouped.static")
    hashed = MapParameter("grouped.hashed", value_shape=DIM, default_value="ones")
    group = GroupedEmbedding([static, hashed], padding_key=0)
    ids = np.random.default_rng(0).integers(0, 50, (4, 3, 2)).astype(np.int32)
    rows = group(Tensor(ids)).asnumpy()
    assert rows.shape == (4, 3, 2, DIM)
    expected = static.asnumpy()[ids[..., 0]]
    expected[ids[..., 0] == 0] = 0
    np.testing.assert_array_equal(rows[..., 0, :], expected)
    np.testing.assert_array_equal(
        rows[..., 1, :], np.where(ids[..., 1:] == 0, 0.0, np.ones((4, 3, DIM), np.float32))
    )


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
@pytest.mark.parametrize("dims", [ONE_SIZE, MIXED], ids=["one_size", "mixed"])
def test_an_empty_batch_has_no_rows(mode, dims, unique):
    ms.set_context(mode=mode)
    group = GroupedEmbedding(make_tables(unique(), dims)).set_train(False)
    floats = (5, DIM) if dims == ONE_SIZE else (sum(table.dim for table in group.tables),)
    for leading in ((0,), (2, 0), (3,)):
        rows = group(Tensor(np.ones((*leading, 5), np.int64)))
        assert rows.shape == (*leading, *floats)


def test_bad_arguments_name_the_argument():
    a = MapParameter("grouped.bad.a", value_shape=DIM)
    b = MapParameter("grouped.bad.b", value_shape=DIM + 1)
    with pytest.raises(ValueError, match="tables must have at least one table"):
        GroupedEmbedding([])
    with pytest.raises(TypeError, match="tables must hold Map- or StaticParameters, got Dense"):
        GroupedEmbedding([nn.Dense(1, 1)])
    with pytest.raises(ValueError, match=r"ids must be \[..., 2\], one column a table"):
        GroupedEmbedding([a, b])(Tensor(np.zeros((4, 3), np.int32)))
    with pytest.raises(ValueError, match=r"ids must be \[..., 2\], one column a table"):
        GroupedEmbedding([a, b])(Tensor(np.int32(0)))
    with pytest.raises(ValueError, match="faae_coefficient must be one number or 1, got 2"):
        GroupedEmbedding([a], faae_coefficient=[1, 1])
    with pytest.raises(ValueError, match=r"faae_coefficient must be in \[1, 1048576\], got 0"):
        GroupedEmbedding([a], faae_coefficient=0)
    with pytest.raises(RuntimeError, match=r"ids must be \[..., 1\], one column a table"):
        GroupedEmbedding([a])(Tensor(np.zeros((4, 2), np.int32)))


def test_training_without_an_optimizer_is_an_error():
    table = MapParameter("grouped.uncovered", value_shape=DIM)
    group = GroupedEmbedding([table]).set_train()
    with pytest.raises(RuntimeError, match="no optimizer covers it"):
        group(Tensor(np.zeros((4, 1), np.int32)))


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
@pytest.mark.parametrize("dims", [ONE_SIZE, MIXED], ids=["one_size", "mixed"])
def test_mixed_precision_of_o1_rewrites_the_cell(mode, dims, unique, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MindSpore writes the source of the new cell
    monkeypatch.setattr(sys, "path", [*sys.path])
    ms.set_context(mode=mode)
    group = GroupedEmbedding(make_tables(unique(), dims)).set_train(False)
    ids = Tensor(np.arange(15).reshape(3, 5), ms.int64)
    expected = group(ids).asnumpy()
    net = amp.auto_mixed_precision(nn.SequentialCell(group, nn.ReLU()), "O1", ms.float16)
    np.testing.assert_array_equal(net(ids).asnumpy(), np.maximum(expected, 0))
