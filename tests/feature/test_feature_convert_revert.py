# SPDX-License-Identifier: Apache-2.0
"""The way back from tables: the same objects, with what was learned."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec import (
    NoOptimizerError,
    convert,
    load_checkpoint,
    optim,
    revert,
    save_checkpoint,
    tables_of,
)

pytestmark = pytest.mark.usefixtures("graph_mode")

IDS = Tensor([[0, 3], [2, 3]], ms.int32)
LABEL = Tensor([[1.0], [0.0]])


def network():
    return nn.SequentialCell(nn.Embedding(4, 2), nn.Flatten(), nn.Dense(4, 1))


def train(net, optimizer, steps=3, ids=IDS):
    cell = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
    cell.set_train()
    for _ in range(steps):
        cell(ids, LABEL)
    net.set_train(False)


@pytest.mark.filterwarnings("ignore:SGD.*outside the network")  # that is what is shown
@pytest.mark.parametrize("kind", ["hash", "static"])
def test_the_objects_of_before_are_back(kind, unique, tmp_path):
    net = network()
    cell, weight = net[0], net[0].embedding_table
    names = [p.name for p in net.get_parameters()]
    before_optimizer = nn.SGD(net.trainable_params(), 0.1)
    ms.save_checkpoint(net, str(tmp_path / "before.ckpt"))
    first = net(IDS).asnumpy()
    prefix = unique()
    convert(net, kind=kind, prefix=prefix)
    train(net, optim.SGD(net.trainable_params(), 0.1))
    trained = net(IDS).asnumpy()
    rows = tables_of(net)[0].read_rows(np.arange(4))
    revert(net)
    assert net[0] is cell and net[0].embedding_table is weight
    assert [p.name for p in net.get_parameters()] == names
    np.testing.assert_array_equal(weight.asnumpy(), rows)
    np.testing.assert_allclose(net(IDS).asnumpy(), trained, rtol=0, atol=1e-6)

    train(net, before_optimizer)  # of before the conversion: it fits again
    assert np.abs(net(IDS).asnumpy() - trained).max() > 1e-4
    missing = ms.load_param_into_net(net, ms.load_checkpoint(str(tmp_path / "before.ckpt")))
    assert missing == ([], [])
    np.testing.assert_allclose(net(IDS).asnumpy(), first, rtol=0, atol=1e-6)
    revert(convert(net, kind=kind, prefix=prefix))  # the name is free again


def test_an_optimizer_of_before_the_conversion_does_not_train_the_table(unique):
    net = network()
    optimizer = optim.SGD(net.trainable_params(), 0.1)
    with pytest.warns(RuntimeWarning, match="SGD outside the network"):
        convert(net, prefix=f"{unique()}.")
    with pytest.raises(RuntimeError, match="0' would not learn"):
        optim.check_covered(net, optimizer)
    ms.set_context(mode=ms.PYNATIVE_MODE)  # an error in a graph costs MindSpore 3 seconds
    with pytest.raises((NoOptimizerError, RuntimeError), match="optimizer"):
        train(net, optimizer)


def test_rows_beyond_the_vocabulary_are_an_error_or_dropped(unique):
    net = network()
    conversion = convert(net, prefix=f"{unique()}.")
    new = net[0]
    train(net, optim.SGD(net.trainable_params(), 0.1), ids=Tensor([[0, 4], [-7, 9]], ms.int32))
    table = tables_of(net)[0]
    before = net(IDS).asnumpy()
    with pytest.raises(ValueError, match=r"3 rows outside the vocabulary 0 .. 3, such as .* -7;"):
        revert(net)
    assert net[0] is new and table.row_count == 7 and conversion.revertible
    revert(net, drop_new=True)
    np.testing.assert_allclose(net(IDS).asnumpy(), before, rtol=0, atol=1e-6)


def test_a_row_that_is_gone_becomes_what_evaluation_reads(unique):
    net = network()
    convert(net, prefix=f"{unique()}.")
    tables_of(net)[0].erase(Tensor([3], ms.int32))
    before = net(IDS).asnumpy()
    revert(net)
    assert not net[0].embedding_table.asnumpy()[3].any()
    np.testing.assert_allclose(net(IDS).asnumpy(), before, rtol=0, atol=1e-6)


def test_several_conversions_one_by_one_or_all_at_once(unique):
    inner = nn.SequentialCell(nn.Embedding(4, 2), nn.Flatten())
    outer = nn.CellList([inner, nn.Embedding(5, 2), nn.Embedding(6, 2)])
    convert(inner, prefix=f"{unique()}.")
    second = convert(outer, names="1", prefix=f"{unique()}.")
    convert(outer, names="2", prefix=f"{unique()}.")
    assert len(tables_of(outer)) == 3
    revert(second)
    assert len(tables_of(outer)) == 2 and type(outer[1]) is nn.Embedding
    revert(outer)  # what was converted as part of it, too
    assert not tables_of(outer)


def test_what_was_compiled_around_the_network_is_compiled_anew(unique):
    net = network()
    around = nn.SequentialCell(net, nn.Flatten())
    before = around(IDS).asnumpy()
    convert(net, prefix=f"{unique()}.")
    np.testing.assert_array_equal(around(IDS).asnumpy(), before)
    tables_of(net)[0].put(Tensor([0, 1, 2, 3], ms.int32), 100.0)
    assert np.abs(around(IDS).asnumpy() - before).max() > 1
    revert(net)
    assert np.abs(around(IDS).asnumpy() - before).max() > 1


def test_nothing_to_revert(unique):
    net = network()
    with pytest.raises(ValueError, match="there is nothing to revert"):
        revert(net)
    conversion = convert(net, prefix=f"{unique()}.")
    revert(conversion)
    assert not conversion.revertible
    for what in (conversion, net, convert(net, dry_run=True)):
        with pytest.raises(ValueError, match="there is nothing to revert"):
            revert(what)
    with pytest.raises(TypeError, match="net_or_conversion must be a Cell or a Conversion, got"):
        revert("net")


def test_forget_makes_a_conversion_final(unique):
    net = network()
    conversion = convert(net, prefix=f"{unique()}.")
    conversion.forget()
    with pytest.raises(ValueError, match="there is nothing to revert"):
        revert(net)
    assert len(tables_of(net)) == 1
    assert len(conversion.changes) == 1  # still a record of what was done
    conversion.forget()


def test_a_converted_cell_that_was_replaced_since(unique):
    net = nn.CellList([nn.Embedding(4, 2), nn.Embedding(5, 2)])
    convert(net, prefix=f"{unique()}.")
    kept = net[0]
    net[1] = nn.Embedding(5, 2)
    with pytest.raises(ValueError, match="the cell converted at '1' is no longer there"):
        revert(net)
    assert net[0] is kept


def test_a_checkpoint_of_a_converted_network(unique, tmp_path):
    prefix = unique()
    net = network()
    convert(net, prefix=prefix)
    train(net, optim.LazyAdam(net.trainable_params(), 0.1))
    trained = net(IDS).asnumpy()
    save_checkpoint(net, tmp_path / "converted")
    revert(net)  # frees the table's name for the next network
    other = network()
    convert(other, keep_weights=False, prefix=prefix)
    load_checkpoint(other, tmp_path / "converted")
    np.testing.assert_allclose(other(IDS).asnumpy(), trained, rtol=0, atol=1e-6)
    revert(other)
    np.testing.assert_allclose(other(IDS).asnumpy(), trained, rtol=0, atol=1e-6)
