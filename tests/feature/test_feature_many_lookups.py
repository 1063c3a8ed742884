# SPDX-License-Identifier: Apache-2.0
"""A table has any number of lookups, and those of networks given up leave nothing behind."""

from __future__ import annotations

import gc
import weakref

import mindspore as ms
import pytest
from mindspore import Tensor

from mindspore_rec import SGD, SparseLookup, TrainStep, create_table
from tests.support.networks import SumOfLookups
from tests.support.nightly import NIGHTLY

# MindSpore compiles a graph of 300 lookups for 18 seconds.
LOOKUPS = {"graph": 300 if NIGHTLY else 90, "pynative": 300}


def train_once(table, lookups):
    net = SumOfLookups(*(SparseLookup(table) for _ in range(lookups)))
    step = TrainStep(net, SGD(net.trainable_params(), learning_rate=1.0)).set_train()
    step(Tensor([7, 7, 8], ms.int64)).asnumpy()
    return net


def test_any_number_of_lookups_of_a_table_is_one_step(unique, mode):
    lookups = LOOKUPS[mode]
    table = create_table(ms.int64, 1, unique(), "zeros")
    train_once(table, lookups)
    keys, values, _ = table.export_data()
    found = dict(zip(keys.tolist(), values.ravel().tolist(), strict=True))
    assert found == {7: -2 * lookups, 8: -lookups}
    assert table.step == 1


def test_networks_made_again_do_not_use_lookups_up(unique, graph_mode):
    table = create_table(ms.int64, 1, unique(), "zeros")
    for _ in range(7):  # MindSpore keeps every network that was trained in graph mode
        train_once(table, 20)
    assert table.step == 7


@pytest.mark.parametrize("train", [True, False])
def test_networks_made_again_and_again_leave_nothing_behind(unique, pynative, train):
    table = create_table(ms.int64, 1, unique(), "zeros")
    networks, objects = [], [0] * 24
    for i in range(24):
        net = train_once(table, 3) if train else SumOfLookups(SparseLookup(table))
        net.set_train(False)(Tensor([7], ms.int64)).asnumpy()
        networks.append(weakref.ref(net))
        del net
        gc.collect()
        objects[i] = len(gc.get_objects()) - len(networks)
    assert [network() for network in networks] == [None] * 24
    # The first ones fill MindSpore's own caches. Later, threads of other tests in this process may
    # make a few objects, but far fewer than one object per network.
    assert objects[-1] - objects[3] < 10


def test_evaluating_networks_in_graph_mode_leave_nothing_behind(unique, graph_mode):
    table = create_table(ms.int64, 1, unique(), "zeros")
    networks = []
    for _ in range(4):
        net = SumOfLookups(*(SparseLookup(table) for _ in range(3))).set_train(False)
        net(Tensor([7], ms.int64)).asnumpy()
        networks.append(weakref.ref(net))
        del net
    gc.collect()
    assert [network() for network in networks] == [None] * 4
