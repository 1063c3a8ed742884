# SPDX-License-Identifier: Apache-2.0
"""SparseLookup in networks, sparse_lookup outside, and variables of a network apart."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, strategies as st
from mindspore import Tensor, nn

from mindspore_rec import (
    SGD,
    FeatureSpec,
    MapParameter,
    NoOptimizerError,
    SparseLookup,
    StaticParameter,
    TrainStep,
    create_table,
    get_dense_and_sparse_variable,
    sparse_lookup,
)
from tests.support.networks import SumOfLookups

BIG = (1 << 60) + 1  # next to it are numbers that a float, or an int32, cannot tell from it
KEYS = [0, 7, -5, BIG - 1, BIG, BIG + 1, -(1 << 63), (1 << 63) - 1]


def trained(net):
    return TrainStep(net, SGD(net.trainable_params(), learning_rate=1.0)).set_train()


def rows_of(table):
    keys, values, _ = table.export_data()
    return {int(key): value.tolist() for key, value in zip(keys, values, strict=True)}


def test_training_inserts_and_learns_evaluation_reads(unique, mode):
    table = create_table(ms.int64, 2, unique(), "ones")
    net = SumOfLookups(SparseLookup(table))
    ids = Tensor([[3, 3], [4, 9]], ms.int64)
    assert float(net(ids)) == 8.0  # as the initializer says, for there is no row
    assert rows_of(table) == {}
    assert float(trained(net)(ids)) == 8.0
    assert rows_of(table) == {3: [-1, -1], 4: [0, 0], 9: [0, 0]}


def test_two_lookups_are_one_step(unique, mode):
    table = create_table(ms.int64, 1, unique(), "ones")
    net = SumOfLookups(SparseLookup(table), SparseLookup(table))
    trained(net)(Tensor([1, 2, 2], ms.int64))
    assert rows_of(table) == {1: [-1], 2: [-3]}
    assert table.step == 1


def test_a_lookup_that_does_not_train_only_reads(unique, mode):
    table = create_table(ms.int64, 1, unique(), "ones")
    net = SumOfLookups(SparseLookup(table), SparseLookup(table, is_train=False))
    step = trained(net)
    ids = Tensor([1, 2], ms.int64)
    assert [float(step(ids)) for _ in range(2)] == [4.0, 0.0]
    assert rows_of(table) == {1: [-1], 2: [-1]}  # not -3: half of the loss gives no gradient


@pytest.mark.parametrize("ids_dtype", [ms.int32, ms.int64])
@pytest.mark.parametrize("padding", [7, [7], [7, 0, -5]])
def test_padding_keys_of_both_widths(unique, pynative, ids_dtype, padding):
    table = create_table(ms.int64, 1, unique(), "ones", padding_keys=padding)
    ids = Tensor([[7, 0], [-5, 8]], ids_dtype)
    found = SparseLookup(table)(ids).asnumpy().ravel()
    assert np.array_equal(found, ~np.isin(ids.asnumpy().ravel(), padding))
    assert np.array_equal(sparse_lookup(table, ids, False).asnumpy().ravel(), found)


@pytest.mark.parametrize("dynamic", [False, True])
def test_many_padding_keys_are_exact(unique, mode, dynamic):
    padding = [BIG, 0, -(1 << 63)]
    table = create_table(ms.int64, 1, unique(), "ones", padding_keys=padding)
    step = trained(SumOfLookups(SparseLookup(table)))
    if dynamic:
        step.set_inputs(Tensor(shape=[None], dtype=ms.int64))
    others = sorted(set(KEYS) - set(padding))
    assert float(step(Tensor(KEYS, ms.int64))) == len(others)
    assert rows_of(table) == {key: [0] for key in others}


def test_padding_keys_of_an_int32_table(unique, pynative):
    table = create_table(ms.int32, 1, unique(), "ones", padding_keys=[-(1 << 31), 1])
    lookup = SparseLookup(table)
    found = lookup(Tensor([1, -(1 << 31), 2, (1 << 31) - 1], ms.int32)).asnumpy()
    assert found.ravel().tolist() == [0, 0, 1, 1]
    with pytest.raises(RuntimeError, match="int32"):
        lookup(Tensor([2], ms.int64)).asnumpy()
    with pytest.raises(TypeError, match="ids must be int32 or int64"):
        lookup(Tensor([2.0], ms.float32))


@given(
    padding=st.lists(st.sampled_from(KEYS), unique=True, min_size=1, max_size=4),
    ids=st.lists(st.sampled_from(KEYS), min_size=1, max_size=20),
)
def test_padding_against_a_model(padding, ids):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    table = create_table(ms.int64, 1, "test.padding_model", "ones", padding_keys=padding)
    found = sparse_lookup(table, Tensor(np.array(ids)), False).asnumpy().ravel().tolist()
    table.close()
    assert found == [float(key not in padding) for key in ids]


@pytest.mark.parametrize(
    ("described", "error", "message"),
    [
        ({"table_name": "other"}, ValueError, "feature 'f' is of table 'other', and not of '{}'"),
        ({"is_timestamp": True}, ValueError, "feature 'f' is the timestamp, and not looked up"),
        ({"access_threshold": 3}, ValueError, "'f' has access_threshold=3, and table '{}' has thr"),
        (
            {"eviction_threshold": 9},
            ValueError,
            "has max_idle_seconds=None: give create_table specs",
        ),
    ],
)
def test_features_that_do_not_fit_the_table(unique, described, error, message):
    table = create_table(ms.int64, 1, unique(), "ones")
    if not described.get("is_timestamp"):
        described = {"table_name": table.name, **described}
    spec = FeatureSpec("f", **described)
    with pytest.raises(error, match=message.format(table.name)):
        SparseLookup(table, spec)
    with pytest.raises(error, match=message.format(table.name)):
        sparse_lookup(table, spec, False, batch={"f": Tensor([1], ms.int64)})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"table": 7}, TypeError, "table must be a MapParameter, as create_table makes it, got in"),
        ({"spec": "user"}, TypeError, "spec must be a FeatureSpec, got str"),
        ({"is_train": 1}, TypeError, "is_train must be a bool, got 1"),
    ],
)
def test_bad_arguments_of_the_cell(unique, arguments, error, message):
    arguments = {"table": create_table(ms.int64, 1, unique(), "ones"), **arguments}
    with pytest.raises(error, match=message):
        SparseLookup(**arguments)


def test_tables_of_another_kind(unique):
    with pytest.raises(TypeError, match="table must be a MapParameter, .* got StaticParameter"):
        SparseLookup(StaticParameter(4, 2, name=unique()))
    with pytest.raises(ValueError, match=r"value_shape must have one dimension, got \(2, 2\)"):
        SparseLookup(MapParameter(name=unique(), value_shape=(2, 2)))


def test_function_of_a_feature_takes_its_column(unique, pynative):
    table = create_table(ms.int64, 2, unique(), "ones")
    spec = FeatureSpec("item", table_name=table.name, index_key=3)
    batch = {"item": Tensor([[1], [2]], ms.int64), "user": Tensor([5], ms.int64)}
    assert sparse_lookup(table, spec, False, batch=batch).shape == (2, 1, 2)
    assert rows_of(table) == {}


def test_function_trains_under_an_optimizer_only(unique, pynative):
    table = create_table(ms.int64, 1, unique(), "ones")
    ids = Tensor([1, 2], ms.int64)
    with pytest.raises((NoOptimizerError, RuntimeError), match=table.name):
        sparse_lookup(table, ids).asnumpy()
    optimizer = SGD([table.anchor], learning_rate=1.0)
    gradients = ms.value_and_grad(
        lambda ids: sparse_lookup(table, ids).sum(), None, optimizer.parameters
    )
    optimizer(gradients(ids)[1])
    assert rows_of(table) == {1: [0], 2: [0]}


def test_function_in_a_network(unique, mode):
    table = create_table(ms.int64, 1, unique(), "ones", padding_keys=[0, BIG])

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.table = table

        def construct(self, ids):
            return sparse_lookup(self.table, ids).sum()

    assert float(trained(Net())(Tensor([0, BIG, BIG + 1], ms.int64))) == 1.0
    assert rows_of(table) == {BIG + 1: [0]}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"table": 7}, TypeError, "table must be a MapParameter"),
        ({"ids": [1, 2]}, TypeError, "ids must be a Tensor or a FeatureSpec, got list"),
        ({"is_train": None}, TypeError, "is_train must be a bool, got None"),
        ({"batch": {}}, ValueError, "batch must be left out where ids is a Tensor"),
        ({"ids": "spec"}, TypeError, "batch must be a dict of columns, .* 'f', got NoneType"),
        ({"ids": "spec", "batch": {"g": 1}}, ValueError, r"must have feature 'f', got \['g'\]"),
    ],
)
def test_bad_arguments_of_the_function(unique, arguments, error, message):
    table = create_table(ms.int64, 1, unique(), "ones")
    arguments = {"table": table, "ids": Tensor([1], ms.int64), "is_train": False, **arguments}
    if isinstance(arguments["ids"], str):
        arguments["ids"] = FeatureSpec("f", table_name=table.name)
    with pytest.raises(error, match=message):
        sparse_lookup(**arguments)


def test_dense_and_sparse_variables(unique):
    one, two = (create_table(ms.int64, 2, unique(), "ones") for _ in range(2))
    frozen = create_table(ms.int64, 2, unique(), "ones")
    frozen.requires_grad = False
    net = nn.SequentialCell(
        SparseLookup(two),
        nn.Dense(2, 3),
        SparseLookup(one),
        SparseLookup(two),
        SparseLookup(frozen),
    )
    dense, sparse = get_dense_and_sparse_variable(net)
    assert [p.shape for p in dense] == [(3, 2), (3,)]
    assert [p.mindspore_rec_table for p in sparse] == [two, one]
    assert dense + sparse != [] and len(dense + sparse) == len(net.trainable_params())
    with pytest.raises(TypeError, match="net must be a mindspore.nn.Cell, got list"):
        get_dense_and_sparse_variable([])
