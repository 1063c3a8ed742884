# SPDX-License-Identifier: Apache-2.0
"""What a conversion finds, chooses and changes."""

from __future__ import annotations

import itertools

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mindspore import Tensor, mint, nn, ops

from mindspore_rec import EmbeddingLookup, HashEmbeddingLookup, convert, optim, revert, tables_of

pytestmark = pytest.mark.usefixtures("graph_mode")

_trees = itertools.count()


class SideBySide(nn.Cell):
    """One embedding of every class, all with rows of their own."""

    def __init__(self):
        super().__init__()
        self.embeddings = nn.CellList(
            [
                nn.Embedding(9, 2),
                nn.Embedding(9, 2, use_one_hot=True),
                nn.Embedding(9, 2, padding_idx=0),
                mint.nn.Embedding(9, 2),
                mint.nn.Embedding(9, 2, padding_idx=-1),
                nn.EmbeddingLookup(9, 2),
                nn.EmbeddingLookup(9, 2, target="DEVICE", sparse=False),
            ]
        )

    def construct(self, ids):
        return ops.stack([embedding(ids) for embedding in self.embeddings])


@pytest.mark.parametrize("kind", ["hash", "static"])
def test_predicts_the_same_after_conversion(kind, unique):
    net = SideBySide()
    ids = Tensor(np.arange(9).reshape(3, 3), ms.int32)
    before = net(ids).asnumpy()  # compiles: the graph must not outlive the conversion
    convert(net, kind=kind, prefix=f"{unique()}.")
    expected = {"hash": HashEmbeddingLookup, "static": EmbeddingLookup}[kind]
    assert all(isinstance(embedding, expected) for embedding in net.embeddings)
    np.testing.assert_array_equal(net(ids).asnumpy(), before)
    for table in tables_of(net):
        table.write_rows(np.arange(9), np.full((9, 2), 7, np.float32))
    after = net(ids).asnumpy()  # it is the tables that are read
    padding = np.zeros_like(after, bool)
    padding[4, 2, 2] = True
    np.testing.assert_array_equal(after, np.where(padding, 0, 7))


class Everywhere(nn.Cell):
    """Embeddings in every place that a network can hold cells."""

    def __init__(self):
        super().__init__()
        self.direct = nn.Embedding(10, 2)
        self.in_list = nn.CellList([nn.Embedding(20, 2), nn.Embedding(30, 2)])
        self.in_sequence = nn.SequentialCell(nn.Embedding(40, 2), nn.ReLU())
        self.in_dict = nn.CellDict({"a": nn.Embedding(50, 2)})
        self.again = self.direct
        self.plain_tuple = (self.direct, "x")

    def construct(self, ids):
        out = self.direct(ids) + self.in_sequence(ids) + self.again(ids)
        for embedding in self.in_list:
            out = out + embedding(ids)
        for embedding in self.in_dict.values():
            out = out + embedding(ids)
        return out


def test_finds_embeddings_wherever_cells_are_held(unique, capsys):
    net = Everywhere()
    old = net.direct
    ids = Tensor([[1, 9]], ms.int32)
    before = net(ids).asnumpy()
    conversion = convert(net, prefix=f"{unique()}.")
    paths = [change.path for change in conversion.changes]
    assert paths == ["direct", "in_list.0", "in_list.1", "in_sequence.0", "in_dict.a"]
    assert conversion.changes[0].aliases == ("again",)
    assert [change.rows for change in conversion.changes] == [10, 20, 30, 40, 50]
    assert [change.bytes for change in conversion.changes] == [80, 160, 240, 320, 400]
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].split() == (
        ["direct", "=", "again", "nn.Embedding", "HashEmbeddingLookup", "10", "2", "80"]
    )
    assert len(printed) == 6 and printed == str(conversion).splitlines()
    assert net.direct is net.again is net.plain_tuple[0] is not old
    assert net.in_sequence.cell_list[0] is net.in_sequence[0]
    assert len(tables_of(net)) == 5
    np.testing.assert_array_equal(net(ids).asnumpy(), before)
    revert(conversion)
    assert net.direct is net.again is net.plain_tuple[0] is old
    assert net.in_sequence.cell_list[0] is net.in_sequence[0]
    np.testing.assert_array_equal(net(ids).asnumpy(), before)


def test_choice_by_name_size_and_predicate(unique):
    def chosen(**criteria):
        conversion = convert(Everywhere(), dry_run=True, **criteria)
        return [change.path for change in conversion.changes]

    assert chosen(names="direct") == ["direct"]
    assert chosen(names="again") == ["direct"]  # by its other path
    assert chosen(names=["in_list.*", "in_dict.a"]) == ["in_list.0", "in_list.1", "in_dict.a"]
    assert chosen(min_size=40) == ["in_sequence.0", "in_dict.a"]
    assert chosen(names="in_*", min_size=21, predicate=lambda path, cell: "list" in path) == (
        ["in_list.1"]
    )
    assert chosen(predicate=lambda path, cell: cell.vocab_size == 30) == ["in_list.1"]
    net = Everywhere()
    assert convert(net, min_size=1000).changes == ()
    convert(net, names="in_list.1", prefix=f"{unique()}.")
    assert isinstance(net.in_list[1], HashEmbeddingLookup)
    assert type(net.in_list[0]) is nn.Embedding


def test_dry_run_changes_nothing(unique, capsys):
    net = Everywhere()
    cells = [cell for _, cell in net.cells_and_names()]
    names = [p.name for p in net.get_parameters()]
    values = [p.asnumpy().copy() for p in net.get_parameters()]
    conversion = convert(net, prefix=f"{unique()}.", dry_run=True)
    assert "in_sequence.0" in capsys.readouterr().out
    assert conversion.dry_run and not conversion.revertible
    assert [cell for _, cell in net.cells_and_names()] == cells
    assert [p.name for p in net.get_parameters()] == names
    for parameter, value in zip(net.get_parameters(), values, strict=True):
        np.testing.assert_array_equal(parameter.asnumpy(), value)
    with pytest.raises(ValueError, match="nothing to revert"):
        revert(conversion)


@pytest.mark.parametrize(
    ("embedding", "raises"),
    [
        (lambda: nn.Embedding(9, 2), True),
        (lambda: nn.Embedding(9, 2, use_one_hot=True), False),
        (lambda: nn.EmbeddingLookup(9, 2, target="DEVICE", sparse=False), True),
        (lambda: nn.EmbeddingLookup(9, 2), False),
    ],
)
def test_a_static_table_treats_ids_outside_as_the_embedding_did(embedding, raises, unique):
    ms.set_context(mode=ms.PYNATIVE_MODE)  # an error in a graph costs MindSpore 3 seconds
    net = nn.SequentialCell(embedding())
    ids = Tensor([[9]], ms.int32)
    for converted in (False, True):
        if converted:
            convert(net, kind="static", prefix=f"{unique()}.")
        if raises:
            with pytest.raises(RuntimeError, match="9"):
                net(ids).asnumpy()
        else:
            assert not net(ids).asnumpy().any()


def test_a_hash_table_takes_ids_beyond_the_vocabulary(unique):
    net = nn.SequentialCell(nn.Embedding(4, 2), nn.Flatten(), nn.Dense(2, 1, "ones", "zeros"))
    convert(net, prefix=f"{unique()}.", param_init=2.0)
    assert net(Tensor([[1 << 40]], ms.int64)).asnumpy() == pytest.approx(4)
    table = net[0].embedding_table
    assert table.row_count == 4
    cell = nn.TrainOneStepCell(
        nn.WithLossCell(net, nn.MSELoss()), optim.SGD(net.trainable_params(), 0.01)
    )
    cell.set_train()
    cell(Tensor([[1 << 40], [-1]], ms.int64), Tensor([[0.0], [0.0]]))
    assert sorted(table.row_keys()) == [-1, 0, 1, 2, 3, 1 << 40]


def test_without_the_weights_rows_start_as_the_initializer_says(unique):
    net = nn.SequentialCell(nn.Embedding(4, 2), nn.Flatten())
    conversion = convert(net, keep_weights=False, param_init="ones", prefix=f"{unique()}.")
    table = net[0].embedding_table
    assert table.row_count == 0
    ids = Tensor([[0, 3]], ms.int32)
    table.get(Tensor([3], ms.int32))
    read = net(ids).asnumpy()
    np.testing.assert_array_equal(read[0, 2:], [1, 1])
    revert(conversion)
    np.testing.assert_array_equal(net(ids).asnumpy(), read)
    convert(net, kind="static", keep_weights=False, param_init="ones", prefix=f"{unique()}.")
    np.testing.assert_array_equal(net(ids).asnumpy(), [[1, 1, 1, 1]])


def test_what_code_asks_an_embedding_for_is_still_there(unique):
    class Scaled(nn.Cell):
        def __init__(self, embedding):
            super().__init__()
            self.embedding = embedding

        def construct(self, ids):
            return self.embedding(ids) * ops.sqrt(Tensor(self.embedding.embedding_size, ms.float32))

    net = Scaled(nn.Embedding(9, 4, embedding_table="ones"))
    for table_kind in ("hash", "static"):
        convert(net, kind=table_kind, prefix=f"{unique()}.")
        assert net(Tensor([0], ms.int32)).asnumpy()[0, 0] == 2
        assert net.embedding.vocab_size == 9
        revert(net)
    other = nn.SequentialCell(mint.nn.Embedding(7, 3))
    convert(other, prefix=f"{unique()}.")
    assert (other[0].num_embeddings, other[0].embedding_dim) == (7, 3)


# A tree of cells: an int is one of four embeddings, which several places may share.
TREES = st.recursive(
    st.integers(0, 3), lambda trees: st.lists(trees, min_size=1, max_size=3), max_leaves=8
)


def built(tree, pool):
    if isinstance(tree, int):
        return pool[tree]
    cells = [built(branch, pool) for branch in tree]
    return nn.SequentialCell(*cells) if len(cells) == 2 else nn.CellList(cells)


def leaves_of(net, path=""):
    """A model of the walk, on the public surface: [path, embedding] of every place."""
    if not isinstance(net, (nn.CellList, nn.SequentialCell)):
        return [[path, net]]
    return [
        leaf
        for i in range(len(net))
        for leaf in leaves_of(net[i], f"{path}.{i}" if path else str(i))
    ]


@given(st.lists(TREES, min_size=1, max_size=3), st.data())
@settings(max_examples=10)
def test_any_network_and_any_choice_of_its_embeddings(trees, data):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    pool = [nn.Embedding(5 + i, 2, use_one_hot=i == 3) for i in range(4)]
    net = nn.CellList([built(tree, pool) for tree in trees])
    ids = Tensor([[0, 4], [3, 3]], ms.int32)
    before = leaves_of(net)
    rows = [cell(ids).asnumpy() for _, cell in before]
    chosen = data.draw(st.sets(st.sampled_from([path for path, _ in before]), min_size=1))
    cells = {id(cell) for path, cell in before if path in chosen}
    conversion = convert(net, names=sorted(chosen), prefix=f"test.tree.{next(_trees)}.")
    assert len(conversion.changes) == len(cells) == len(tables_of(net))
    after = leaves_of(net)
    for (path, old), (new_path, new), expected in zip(before, after, rows, strict=True):
        assert new_path == path
        assert isinstance(new, HashEmbeddingLookup) == (id(old) in cells)
        assert new is old or id(old) in cells
        np.testing.assert_array_equal(new(ids).asnumpy(), expected)
    revert(net)
    assert all(new is old for (_, new), (_, old) in zip(leaves_of(net), before, strict=True))
