# SPDX-License-Identifier: Apache-2.0
"""create_table: what reaches the table, and what is refused."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor
from mindspore.common.initializer import Normal

from mindspore_rec import (
    SGD,
    CacheConfig,
    CountAdmission,
    Eviction,
    FeatureSpec,
    MapParameter,
    ProbabilityAdmission,
    SketchAdmission,
    SsdConfig,
    create_table,
    sparse_lookup,
)

TIME = FeatureSpec("time", is_timestamp=True)


def make(unique, **arguments):
    described = {"key_dtype": ms.int64, "dim": 3, "name": unique(), "emb_initializer": "ones"}
    return create_table(**{**described, **arguments})


@pytest.mark.parametrize("key_dtype", [ms.int32, ms.int64])
@pytest.mark.parametrize("dim", [1, 8, 8192])
def test_a_table_is_a_map_parameter(unique, pynative, key_dtype, dim):
    name = unique()
    table = create_table(key_dtype, dim, name, "ones")
    assert isinstance(table, MapParameter)
    assert (table.name, table.dim, table.key_dtype, table.seed) == (name, dim, key_dtype, 0)
    assert table.get(Tensor([[7, 7]], key_dtype)).shape == (1, 2, dim)


@pytest.mark.parametrize("init", [0.5, "uniform", Normal(0.1)])
def test_first_values_are_those_of_the_initializer(unique, pynative, init):
    name = unique()
    ids = Tensor(np.arange(100))
    table = create_table(ms.int64, 2, name, init, seed=5)
    values = table.get(ids).asnumpy()
    table.close()
    expected = MapParameter(
        name=name, key_dtype=ms.int64, value_shape=2, default_value=init, seed=5
    )
    assert np.array_equal(values, expected.get(ids).asnumpy())


def test_of_two_open_tables_with_one_name_the_newer_is_used(unique):
    table = make(unique)
    newer = make(unique, name=table.name)
    with pytest.raises(RuntimeError, match="a newer table has this name"):
        table.size()
    assert newer.size() == 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": "a b"}, ValueError, "name must be 1 to 100 of the characters"),
        ({"name": "x" * 101}, ValueError, "name must be 1 to 100 of the characters"),
        ({"name": None}, TypeError, "name must be a str, got None"),
        ({"key_dtype": ms.float32}, TypeError, "key_dtype must be mindspore.int32 or int64, got F"),
        ({"dim": 0}, ValueError, r"table 't': dim must be in \[1, 8192\], got 0"),
        ({"dim": 8193}, ValueError, r"dim must be in \[1, 8192\], got 8193"),
        ({"dim": (8,)}, TypeError, r"dim must be an int, got \(8,\)"),
        ({"emb_initializer": "gamma"}, ValueError, "'t': emb_initializer must be a number, or 'n"),
        (
            {"device_vocabulary_size": -1},
            ValueError,
            r"device_vocabulary_size must be in \[0, 1000",
        ),
        ({"host_vocabulary_size": 9}, ValueError, r"must be 0 without.*Eviction\(max_rows=9\)"),
        ({"ssd_vocabulary_size": 9}, ValueError, "host_vocabulary_size must be at least 1 with"),
        ({"ssd_data_path": ("/",)}, ValueError, "ssd_data_path must be None without ssd_voc"),
        (
            {"host_vocabulary_size": 9, "ssd_vocabulary_size": 9, "ssd_data_path": ("a", "b")},
            ValueError,
            "ssd_data_path must be one directory",
        ),
        (
            {"host_vocabulary_size": 9, "cache": CacheConfig(host_rows=9, ssd=SsdConfig("."))},
            ValueError,
            "host_vocabulary_size is part of cache",
        ),
        ({"cache": {"host_rows": 9}}, TypeError, "cache must be a CacheConfig or None"),
        ({"optimizer": object}, ValueError, "optimizer must be None: an optimizer is given its"),
        ({"default_value": "zeros"}, TypeError, "default_value must be a number, got 'zeros'"),
        ({"default_value": np.inf}, ValueError, "default_value must be finite, got inf"),
        (
            {"default_value": np.zeros(2, np.float32)},
            ValueError,
            r"table 't': default_value must be a number or float32 \[3\], got float32 \[2\]",
        ),
        (
            {"serving_default_value": np.zeros(3)},
            ValueError,
            r"serving_default_value must be a number or float32 \[3\], got float64 \[3\]",
        ),
        (
            {"serving_default_value": Tensor([np.nan] * 3, ms.float32)},
            ValueError,
            "serving_default_value must be finite",
        ),
        ({"padding_keys": []}, ValueError, "padding_keys must be different keys, at least one"),
        ({"padding_keys": [1, 1]}, ValueError, r"must be different keys, at least one, got \[1, 1"),
        ({"padding_keys": 1.0}, TypeError, "padding_keys must be an int, got 1.0"),
        ({"padding_keys": 1 << 63}, ValueError, r"padding_keys must be in \[-9223372036854775808,"),
        (
            {"padding_keys": 1 << 31, "key_dtype": ms.int32},
            ValueError,
            r"padding_keys must be in \[-2147483648, 2147483647\], got 2147483648",
        ),
        ({"seed": -1}, ValueError, r"seed must be in \[0, 18446744073709551615\], got -1"),
        ({"specs": 7}, TypeError, "specs must be FeatureSpec objects, got 7"),
        ({"specs": FeatureSpec("u")}, ValueError, "specs must have a feature with table_name 't'"),
        ({"admission": 2}, TypeError, "admission must be a CountAdmission, SketchAdmission or Pro"),
        ({"eviction": 60}, TypeError, "eviction must be an Eviction, got 60"),
        (
            {"specs": FeatureSpec("t", access_threshold=2), "admission": CountAdmission(3)},
            ValueError,
            "feature 't' has access_threshold=2, and table 't' has threshold=3: they must be",
        ),
        (
            {"specs": FeatureSpec("t", access_threshold=2), "admission": ProbabilityAdmission(1)},
            ValueError,
            "feature 't' has access_threshold=2, and table 't' has threshold=None",
        ),
        (
            {
                "specs": [FeatureSpec("t", eviction_threshold=60), TIME],
                "eviction": Eviction(max_rows=3),
            },
            ValueError,
            "feature 't' has eviction_threshold=60, and table 't' has max_idle_seconds=None: they",
        ),
    ],
)
def test_bad_arguments_make_no_table(unique, arguments, error, message):
    with pytest.raises(error, match=message):
        make(unique, **{"name": "t", **arguments})
    make(unique, name="t").close()


def test_specs_without_thresholds_set_no_policy(unique, pynative):
    name = unique()
    table = make(unique, name=name, specs=FeatureSpec("user", table_name=name))
    table.get(Tensor([1], ms.int64))
    assert table.stats()["rows"] == 1


def test_specs_set_the_policies(unique):
    name = unique()
    specs = [FeatureSpec("u", name, access_threshold=2, eviction_threshold=60), TIME]
    table = make(unique, name=name, specs=specs)
    assert table.admission == CountAdmission(2)
    assert table.eviction == Eviction(max_idle_seconds=60)


def test_policies_beside_specs_with_the_same_thresholds(unique):
    name = unique()
    specs = [FeatureSpec("u", name, access_threshold=2, eviction_threshold=60), TIME]
    admission = SketchAdmission(2)
    eviction = Eviction(max_idle_seconds=60, max_rows=1000, trigger="callback")
    table = make(unique, name=name, specs=specs, admission=admission, eviction=eviction)
    assert (table.admission, table.eviction) == (admission, eviction)


def train(table, ids):
    """What ids read in a training step, whose gradients are 0."""
    optimizer = SGD([table.anchor], learning_rate=1.0)
    ids = Tensor(ids, ms.int64)
    step = ms.value_and_grad(lambda ids: sparse_lookup(table, ids), None, optimizer.parameters)
    rows, gradients = step(ids)
    optimizer(gradients)
    return rows.asnumpy()


def test_a_threshold_of_zero_freezes_the_counts(unique, pynative):
    name = unique()
    table = make(unique, name=name, specs=FeatureSpec("u", name, access_threshold=0))
    for _ in range(3):
        train(table, [1, 1])
    assert table.stats()["rows"] == 0
    table.set_threshold(1)
    train(table, [1])
    assert table.stats()["rows"] == 1


@pytest.mark.parametrize("as_tensor", [False, True])
def test_what_unknown_keys_read(unique, pynative, as_tensor):
    row = np.array([1, 2, 3], np.float32)
    table = make(
        unique,
        admission=CountAdmission(2),
        default_value=-5,
        serving_default_value=Tensor(row) if as_tensor else row,
    )
    ids = Tensor([8], ms.int64)
    assert sparse_lookup(table, ids, False).asnumpy().tolist() == [row.tolist()]
    assert train(table, [8]).tolist() == [[-5, -5, -5]]
    assert sparse_lookup(table, ids, False).asnumpy().tolist() == [row.tolist()]
    assert train(table, [8]).tolist() == [[1, 1, 1]]  # admitted: its first value


def test_serving_reads_as_training_by_default(unique, pynative):
    table = make(unique, default_value=4)
    assert sparse_lookup(table, Tensor([8], ms.int64), False).asnumpy().tolist() == [[4, 4, 4]]
