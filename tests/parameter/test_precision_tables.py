# SPDX-License-Identifier: Apache-2.0
"""Tables of every precision: what goes in and out, and the same bits wherever rows live."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

import mindspore_rec as mr
from mindspore_rec import (
    CacheConfig,
    Eviction,
    HashEmbeddingLookup,
    MapParameter,
    SsdConfig,
    TableConfig,
)
from mindspore_rec.optim import LazyAdam
from mindspore_rec.parameter import from_bfloat16, to_bfloat16
from mindspore_rec.plan import row_bytes
from tests.parameter.rounding_reference import TrainedRow, round_to
from tests.support.clicks import rows_by_key
from tests.support.native_table import native_of
from tests.support.networks import Quadratic

DTYPES = {"bfloat16": ms.bfloat16, "float16": ms.float16}
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 6e-8, 2.9e-8, 3.4028235e38, 65519.0,
     65520.0, 1.00390625, -1.01171875, 1 / 3, 5.9604645e-08],
    np.float32,
)  # fmt: skip


def same_numbers(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether the bits are the same, but for those of NaN."""
    both = np.isnan(one) & np.isnan(other)
    return bool((both | (one.view(np.uint32) == other.view(np.uint32))).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_put_is_rounded_to_the_nearest(dtype: str) -> None:
    table = MapParameter(config=TableConfig(16, name="precision.put", value_dtype=DTYPES[dtype]))
    numbers = np.random.default_rng(1).normal(0, 3, (50, 16)).astype(np.float32)
    numbers[0] = SPECIAL
    keys = np.arange(50)
    table.write_rows(keys, numbers)
    read = table.read_rows(keys)
    assert read.dtype == np.float32
    assert same_numbers(read, round_to(dtype, numbers, None).reshape(50, 16))
    table.write_rows(keys, read)
    assert same_numbers(table.read_rows(keys), read)
    exported = table.export_rows()
    order = np.argsort(exported["keys"])
    assert same_numbers(exported["values"][order], read)
    table.clear_rows()
    table.import_rows(keys, numbers)
    assert same_numbers(table.read_rows(keys), read)
    table.close()


@pytest.mark.parametrize("dtype", DTYPES)
def test_first_and_unknown_values_are_rounded_to_the_nearest(dtype: str) -> None:
    settings: dict[str, Any] = {"initializer": "normal", "unknown_value": 0.3, "seed": 5}
    read = {}
    for name in ("float32", dtype):
        value_dtype = DTYPES.get(name, ms.float32)
        table = MapParameter(
            config=TableConfig(9, name="precision.first", value_dtype=value_dtype, **settings)
        )
        read[name] = table.insert_rows(np.arange(-40, 40)), table.read_rows(np.array([1000]))
        table.close()
    for wide, narrow in zip(read["float32"], read[dtype], strict=True):
        assert same_numbers(narrow, round_to(dtype, wide, None).reshape(wide.shape))
        assert not same_numbers(narrow, wide)


def test_a_map_parameter_takes_its_value_dtype_as_mindspore_spells_it() -> None:
    table = MapParameter(
        "precision.spelled", value_dtype=ms.bfloat16, value_shape=3, default_value="zeros"
    )
    assert table.value_dtype == ms.bfloat16
    table[Tensor([1, 2], ms.int32)] = Tensor([[1, 2, 1 / 3]] * 2, ms.float32)
    rows = table.get(Tensor([1], ms.int32))
    assert rows.dtype == ms.float32
    assert rows.asnumpy()[0, 2] == round_to("bfloat16", np.array([1 / 3], np.float32), None)[0]
    copy = table.clone()
    assert copy.value_dtype == ms.bfloat16
    assert native_of(copy).value_dtype == "bfloat16"
    table.close()
    copy.close()
    values = Tensor([[0.5], [2.0]], ms.float32).astype(ms.bfloat16)
    started = MapParameter(
        "precision.started", key_tensor=Tensor([4, 5], ms.int32), value_tensor=values
    )
    assert started.value_dtype == ms.bfloat16
    assert started.read_rows(np.array([5, 4])).tolist() == [[2.0], [0.5]]
    started.close()


def test_bfloat16_arrays() -> None:
    bits = np.arange(65536, dtype=np.uint16)
    wide = from_bfloat16(bits)
    back = to_bfloat16(wide)
    assert np.array_equal(back[~np.isnan(wide)], bits[~np.isnan(wide)])
    assert np.isnan(from_bfloat16(back[np.isnan(wide)])).all()
    expected = round_to("bfloat16", SPECIAL, None)
    assert same_numbers(from_bfloat16(to_bfloat16(SPECIAL)), expected)
    with pytest.raises(TypeError, match="values must be float32, got float64"):
        to_bfloat16(np.zeros(1))
    with pytest.raises(TypeError, match="bits must be uint16, got int64"):
        from_bfloat16(np.zeros(1, int))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_table_is_a_dict_of_rows_that_round_alike(dtype: str) -> None:
    """Random lookups, steps, puts and erasures; a dict with the same rounding beside."""
    rng = np.random.default_rng(3)
    name = "precision.model"
    rule: dict[str, Any] = {"initial_accumulator": 0.1}
    table = MapParameter(
        config=TableConfig(6, name=name, seed=9, value_dtype=DTYPES[dtype], initializer="normal")
    )
    native = native_of(table)
    native.bind_optimizer("adagrad", **rule)
    rows: dict[int, TrainedRow] = {}
    clock = 0
    for _ in range(120):
        ids = rng.choice(60, int(rng.integers(1, 20)), replace=False).astype(np.int64) - 30
        what = rng.integers(4)
        if what == 0:
            assert native.erase(ids) == sum(key in rows for key in ids.tolist())
            for key in ids.tolist():
                rows.pop(key, None)
        elif what == 1:
            numbers = rng.normal(0, 1, (len(ids), 6)).astype(np.float32)
            native.put(ids, numbers)
            for key, value in zip(ids.tolist(), numbers, strict=True):
                if key not in rows:
                    rows[key] = TrainedRow(
                        "adagrad", rule, value, (dtype, "float32"), "stochastic", 9, name, key
                    )
                rows[key].value = round_to(dtype, value, None)
        else:
            values, ticket = native.lookup_train(ids)
            for key, value in zip(ids.tolist(), values, strict=True):
                if key not in rows:
                    rows[key] = TrainedRow(
                        "adagrad", rule, value, (dtype, "float32"), "stochastic", 9, name, key
                    )
                assert value.tobytes() == rows[key].value.tobytes()
            gradient = rng.normal(0, 1, (len(ids), 6)).astype(np.float32)
            native.accumulate(ticket, gradient)
            native.apply(0.05, 0.0, 1.0, clock + 1)
            for i, key in enumerate(ids.tolist()):
                rows[key].step(gradient[i], 0.05, 0.0, clock + 1, clock)
            clock += 1
        assert sorted(native.keys().tolist()) == sorted(rows)
    for key, row in rows.items():
        kept = native.export_keys(np.array([key]), with_state=True)
        assert kept["values"][0].tobytes() == row.value.tobytes()
        assert kept["states"][0].tobytes() == row.states[0].tobytes()
    table.close()


def _trained(value: Any, state: Any, cache: CacheConfig | None, threads: int) -> bytes:
    ms.set_context(mode=ms.GRAPH_MODE)
    before = mr.get_num_threads()
    mr.set_num_threads(threads)
    config = TableConfig(
        7, name="precision.tiers", value_dtype=value, state_dtype=state, cache=cache
    )
    net = Quadratic(HashEmbeddingLookup(config=config))
    optimizer = LazyAdam(net.trainable_params(), learning_rate=0.01)
    step = mr.TrainStep(net, optimizer).set_train()
    for number in range(8):
        ids = np.random.default_rng(number).integers(-2000, 2000, (64, 4))
        step(Tensor(ids.astype(np.int64)))
    table = net.embedding.embedding_table
    rows = rows_by_key(native_of(table))
    if cache is not None and cache.ssd is not None:
        assert table.stats()["below_rows"] > 500
    table.close()
    mr.set_num_threads(before)
    return b"".join(rows[name].tobytes() for name in ("keys", "values", "states"))


@pytest.mark.parametrize(
    ("value", "state"),
    [(ms.bfloat16, ms.bfloat16), (ms.float16, ms.bfloat16), (ms.float32, ms.bfloat16)],
)
def test_the_same_bits_wherever_rows_live(tmp_path: Any, value: Any, state: Any) -> None:
    expected = _trained(value, state, None, 2)
    assert _trained(value, state, None, 1) == expected
    ssd = CacheConfig(host_rows=300, ssd=SsdConfig(tmp_path / "ssd"))
    assert _trained(value, state, ssd, 2) == expected
    assert _trained(value, state, CacheConfig(device_rows=260), 2) == expected
    both = CacheConfig(device_rows=260, host_rows=300, ssd=SsdConfig(tmp_path / "both"))
    assert _trained(value, state, both, 2) == expected


def test_norms_are_those_of_what_is_kept() -> None:
    table = MapParameter(
        config=TableConfig(
            2, name="precision.norm", value_dtype=ms.bfloat16,
            eviction=Eviction(min_norm=1.0, trigger="callback"),
        )
    )  # fmt: skip
    # 0.7067 is above half of the root of 2 as bfloat16, and below it as float32.
    table.write_rows(np.array([1, 2]), np.array([[0.7069, 0.7069], [0.5, 0.5]], np.float32))
    kept = table.read_rows(np.array([1]))[0]
    assert table.explain(1).norm == pytest.approx(float(np.sqrt((kept**2).sum())))
    table.evict(at_once=True)
    assert table.has_rows(np.array([1, 2])).tolist() == [bool((kept**2).sum() >= 1.0), False]
    table.close()


@pytest.mark.parametrize(
    ("value", "state", "dim", "block"),
    [
        ("float32", "float32", 16, 212),
        ("bfloat16", "bfloat16", 16, 116),
        ("bfloat16", "float32", 16, 180),
        ("float16", "bfloat16", 64, 404),
        ("bfloat16", "bfloat16", 3, 20 + 8 + 12),
    ],
)
def test_bytes_of_a_row(value: str, state: str, dim: int, block: int) -> None:
    dtypes = {**DTYPES, "float32": ms.float32}
    table = MapParameter(
        config=TableConfig(
            dim, name="precision.bytes", value_dtype=dtypes[value], state_dtype=dtypes[state]
        )
    )
    native_of(table).bind_optimizer("adam")
    assert table.row_sizes().block == block
    assert row_bytes(dim, "LazyAdam", value, state) == block + 8
    table.close()


@pytest.mark.parametrize("dtype", DTYPES)
def test_small_updates_are_lost_to_the_nearest_only(dtype: str) -> None:
    """500 updates of a part of the distance to the next number: by chance they add up."""
    rate = 2.0**-12 if dtype == "float16" else 2.0**-10
    ends = {}
    for rounding in ("stochastic", "nearest"):
        table = MapParameter(
            config=TableConfig(
                16, name="precision.small", value_dtype=DTYPES[dtype], rounding=rounding,
                initializer="ones",
            )
        )  # fmt: skip
        native = native_of(table)
        native.bind_optimizer("sgd")
        keys = np.arange(300)
        for step in range(1, 501):
            _, ticket = native.lookup_train(keys)
            native.accumulate(ticket, np.full((300, 16), -1.0, np.float32))
            native.apply(rate, 0.0, 1.0, step)
        ends[rounding] = native.lookup(keys).astype(np.float64)
        table.close()
    assert (ends["nearest"] == 1.0).all()
    errors = ends["stochastic"] - (1.0 + 500 * rate)
    assert abs(errors.mean()) < 4 * errors.std() / np.sqrt(errors.size)
