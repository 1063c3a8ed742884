# SPDX-License-Identifier: Apache-2.0
"""What users hand to a MapParameter: Tensors lazily initialised, NumPy arrays, wrong dtypes."""

from __future__ import annotations

import copy
import pickle

import mindspore as ms
import mindspore.nn as nn
import numpy as np
import pytest
from mindspore import Tensor
from mindspore.common.initializer import One

from mindspore_rec import (
    EmbeddingBag,
    EmbeddingLookup,
    HashEmbeddingLookup,
    LazyAdam,
    MapParameter,
    RecModel,
    StaticParameter,
)
from tests.support.networks import SumOfRows


def lazy(*shape: int, dtype=ms.float32) -> Tensor:
    return Tensor(shape=shape, dtype=dtype, init=One())


class MindRecDemo(nn.Cell):
    """The MapParameter example of MindRec's README: put, look up, erase, by a lazy value."""

    def __init__(self) -> None:
        nn.Cell.__init__(self)
        self.map = MapParameter(
            name="HashEmbeddingTable",
            key_dtype=ms.int32,
            value_dtype=ms.float32,
            value_shape=(128),
            default_value="normal",
            permit_filter_value=1,
            evict_filter_value=1000,
        )

    def construct(self, key, val):
        self.map[key] = val
        val2 = self.map[key]
        self.map.erase(key)
        return val2


def test_mindrecs_readme(mode) -> None:
    net = MindRecDemo()
    key = Tensor([1, 2], dtype=ms.int32)
    val = Tensor(shape=(2, 128), dtype=ms.float32, init=One())
    out = net(key, val)
    np.testing.assert_array_equal(out.asnumpy(), np.ones((2, 128), np.float32))
    assert len(net.map) == 0
    net.map.close()


def test_lazy_tensors_outside_a_graph(mode, unique) -> None:
    m = MapParameter(unique(), value_shape=2, default_value="zeros")
    m.put(Tensor([1, 2], ms.int32), lazy(2, 2))
    np.testing.assert_array_equal(m.get(Tensor([1, 2, 3], ms.int32)).asnumpy()[:, 0], [1, 1, 0])
    m[Tensor([4], ms.int32)] = lazy(1, 2)
    assert m[Tensor([4], ms.int32)].asnumpy().tolist() == [[1, 1]]
    assert m.get(lazy(3, dtype=ms.int32)).asnumpy().tolist() == [[1, 1]] * 3  # keys
    assert lazy(1, dtype=ms.int32) in m
    m.erase(lazy(1, dtype=ms.int32))
    assert 1 not in m and len(m) == 3


def test_lazy_tensors_at_the_start(mode, unique) -> None:
    keys = lazy(1, dtype=ms.int64)
    m = MapParameter(unique(), key_tensor=keys, value_tensor=lazy(1, 2), unknown_value=lazy(2))
    assert m.export_data()[0].tolist() == [1]
    assert m.get(Tensor([[1], [7]], ms.int64), False).asnumpy().tolist() == [[[1, 1]], [[1, 1]]]
    table = StaticParameter(3, 2, lazy(3, 2), name=unique())
    np.testing.assert_array_equal(table.asnumpy(), np.ones((3, 2)))
    table.set_data(lazy(3, 2))
    np.testing.assert_array_equal(table.asnumpy(), np.ones((3, 2)))


@pytest.mark.parametrize("train", [False, True])
def test_lazy_ids_and_weights_of_lookups(mode, unique, train) -> None:
    values = Tensor(np.arange(6, dtype=np.float32).reshape(3, 2))
    lookup = EmbeddingLookup(3, 2, values, name=unique())
    bag = EmbeddingBag(table=StaticParameter(3, 2, values, name=unique()))
    table = MapParameter(
        unique(), key_tensor=Tensor([0, 1], ms.int64), value_tensor=Tensor(values.asnumpy()[:2])
    )
    shared = HashEmbeddingLookup(2, table=table)
    if train:
        from mindspore_rec import SGD

        SGD([*lookup.trainable_params(), *bag.trainable_params(), *shared.trainable_params()])
    for cell in (lookup, bag, shared):
        cell.set_train(train)
    assert lookup(lazy(2, dtype=ms.int64)).asnumpy().tolist() == [[2, 3]] * 2
    assert shared(lazy(2, dtype=ms.int64)).asnumpy().tolist() == [[2, 3]] * 2
    got = bag(Tensor([[1, 2]], ms.int64), per_sample_weights=lazy(1, 2))
    assert got.asnumpy().tolist() == [[6, 8]]


# ---- NumPy arrays outside a graph


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("key_dtype", [ms.int32, ms.int64])
def test_arrays_outside_a_graph(mode, unique, dtype, key_dtype) -> None:
    if dtype == np.int32 and key_dtype == ms.int64:
        key_dtype = ms.int32
    m = MapParameter(unique(), key_dtype=key_dtype, value_shape=(2, 3), default_value=0.5)
    keys = np.array([[5, 6], [7, -1]], dtype)
    values = np.arange(24, dtype=np.float32).reshape(2, 2, 2, 3)
    assert m.put(keys, values) is m
    np.testing.assert_array_equal(m.get(keys).asnumpy(), values)
    np.testing.assert_array_equal(m(keys).asnumpy(), values)
    np.testing.assert_array_equal(m[keys.T].asnumpy(), values.swapaxes(0, 1))  # not contiguous
    np.testing.assert_array_equal(m.get(keys + 100, False).asnumpy(), np.full(values.shape, 0.5))
    assert m.contains(np.array([5, 99], dtype)).asnumpy().tolist() == [True, False]
    assert dtype(5) in m and dtype(99) not in m
    m[np.array([5], dtype)] = 2.0
    assert (m[np.array([5], dtype)].asnumpy() == 2).all()
    assert m.erase(np.array([5], dtype)) is m and len(m) == 3
    for number in (np.float32(2.5), np.float64(2.5), np.int64(2)):
        assert m.put(np.array([7], dtype), number) is m
        assert (m.get(np.array([7], dtype), False).asnumpy() == number).all()
    empty = np.zeros(0, dtype)
    assert m.get(empty).shape == (0, 2, 3) and m.contains(empty).shape == (0,)


WRONG = [
    (lambda m, k: m.contains(k(np.float64)), TypeError, "key must be int32 or int64, got float64"),
    (lambda m, k: m.get(k(np.uint64)), TypeError, "key must be int32 or int64, got uint64"),
    (lambda m, k: m(k(bool)), TypeError, "key must be int32 or int64, got bool"),
    (lambda m, k: m.erase(k(np.int16)), TypeError, "key must be int32 or int64, got int16"),
    (lambda m, k: m.contains(k(np.int64) + (1 << 31)), ValueError, "key_dtype=ms.int64"),
    (lambda m, k: m.put(k(np.int64) - (1 << 40), 1.0), ValueError, r"key must be in \[-2\*\*31,"),
    (lambda m, k: np.int64(1 << 40) in m, ValueError, "the range of its key_dtype int32"),
    (
        lambda m, k: m.put(k(np.int32), np.ones((2, 2))),
        TypeError,
        "value must be float32, got float64",
    ),
    (
        lambda m, k: m.put(k(np.int32), np.ones((3, 2), np.float32)),
        RuntimeError,
        r"value must have the shape of key, \[2\]",
    ),
    (
        lambda m, k: m.contains(Tensor([1, 2], ms.int64)),
        RuntimeError,
        "key must be int32, the table's key_dtype, got int64: make the table with "
        "key_dtype=ms.int64",
    ),
]


@pytest.mark.parametrize("call, error, message", WRONG)
def test_wrong_arguments_are_told_first_and_change_nothing(
    mode, unique, call, error, message
) -> None:
    name = unique()
    m = MapParameter(name, value_shape=2)
    with pytest.raises(error, match=f"^table '{name}': .*{message}"):
        call(m, lambda dtype: np.array([1, 2], dtype))
    assert len(m) == 0


# ---- errors of operators


def test_an_operators_sentence_comes_first_and_the_next_call_works(mode, unique) -> None:
    name = unique()
    net = SumOfRows(EmbeddingLookup(4, 2, "ones", name=name))
    for _ in range(2):
        with pytest.raises(RuntimeError) as caught:
            net(Tensor([[1, 9]], ms.int32)).asnumpy()
        assert str(caught.value).startswith(
            f"table '{name}': id 9 at position 1 is outside the vocabulary [0, 4); for ids "
            "without a vocabulary, such as hashes, there is HashEmbeddingLookup"
        )
        assert "Custom" not in str(caught.value)
        assert "C++ Call Stack" in caught.value.__dict__["mindspore_text"]
        assert net(Tensor([[1, 3]], ms.int32)).asnumpy().tolist() == [[2, 2]]


def test_other_errors_of_graphs_are_left_alone(mode) -> None:
    with pytest.raises(Exception, match="matmul|MatMul|shape|dim") as caught:
        nn.Dense(3, 2)(Tensor(np.ones((2, 4), np.float32))).asnumpy()
    assert caught.value.__cause__ is None


def test_a_training_goes_on_after_an_operators_error(mode, unique) -> None:
    name = unique()
    lookup = EmbeddingLookup(4, 2, "ones", name=name)
    net = nn.SequentialCell(lookup, nn.Flatten(), nn.Dense(4, 1))
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params()))
    good, bad = (
        (np.array([ids], np.int32), np.ones((1, 1), np.float32)) for ids in ([1, 2], [1, 7])
    )
    for steps in (1, 3):
        with pytest.raises(RuntimeError, match=f"^table '{name}': id 7 at position 1"):
            model.train(1, [good, bad, good], progress=False)
        assert lookup.embedding_table.step == steps  # nothing of the bad batch
        assert model.train(1, [good], progress=False).steps == 1
        assert model.predict(good[0]).shape == (1, 1)


def test_a_copy_with_a_table_is_refused(unique) -> None:
    name = unique()
    with pytest.raises(TypeError, match=f"^table '{name}': cannot be copied with its rows"):
        copy.deepcopy(EmbeddingLookup(4, 2, name=name))
    with pytest.raises(TypeError, match=f"^table '{name}': cannot be pickled .*save_checkpoint"):
        pickle.dumps(nn.SequentialCell(EmbeddingLookup(4, 2, name=name), nn.Dense(2, 1)))


def test_wide_ids_in_an_int32_table_are_told_what_to_do(mode, unique) -> None:
    name = unique()
    net = HashEmbeddingLookup(2, name=name)
    with pytest.raises(RuntimeError, match=f"^table '{name}': ids must be int32.*ms.int64$"):
        net(Tensor([1, 2], ms.int64)).asnumpy()
    assert net(Tensor([1, 2], ms.int32)).shape == (2, 2)
