# SPDX-License-Identifier: Apache-2.0
"""MapParameter: its whole surface, inside and outside construct, in both modes."""

from __future__ import annotations

import copy
import gc
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from mindspore.common import initializer as ms_init

from mindspore_rec import MapParameter
from tests.parameter.test_parameter_arguments import MindRecDemo

DTYPES = pytest.mark.parametrize("dtype", [ms.int32, ms.int64], ids=["int32", "int64"])
EXTREMES = {
    ms.int32: [-1, -2, 0, -(1 << 31), (1 << 31) - 1],
    ms.int64: [-1, -2, 0, -(1 << 63), (1 << 63) - 1],
}


def keys_of(keys: Any, dtype: Any = ms.int32) -> Tensor:
    return Tensor(np.array(keys), dtype)


def values_of(*rows: Any) -> Tensor:
    return Tensor(np.array(rows, np.float32))


def as_dict(m: MapParameter) -> dict[int, list]:
    keys, values = m.get_data()
    return dict(zip(keys.asnumpy().tolist(), values.asnumpy().tolist(), strict=True))


def test_readme(mode) -> None:
    net = MindRecDemo()
    ones = Tensor(np.ones((3, 128)), ms.float32)
    out = net(Tensor([1, 2, 3], ms.int32), ones)
    np.testing.assert_array_equal(out.asnumpy(), ones.asnumpy())
    assert len(net.map) == 0
    net.map.close()


class Surface(nn.Cell):
    """Everything a graph may do with a MapParameter, in one program order."""

    def __init__(self, m: MapParameter) -> None:
        super().__init__()
        self.m = m

    def construct(self, key, value, new, gone):
        self.m[key] = value
        read = self.m[key]
        inserted = self.m.get(new)
        unknown = self.m.get(gone + 1000, False)
        self.m.put(gone, 2.0)
        before = gone in self.m
        filled = self.m(gone)
        self.m.erase(gone)
        after = gone not in self.m
        contains = self.m.contains(key)
        size = self.m.size()
        keys, values = self.m.get_data()
        return (
            (read, inserted, unknown, filled),
            (before, after, contains, size),
            (keys, values, self.m.get_keys(), self.m.get_values()),
        )


@DTYPES
@pytest.mark.parametrize("shape", [(2,), (2, 3)])
def test_surface_inside_construct(mode, unique, dtype, shape) -> None:
    m = MapParameter(name=unique(), key_dtype=dtype, value_shape=shape, default_value=0.5)
    keys = EXTREMES[dtype]
    value = np.arange(len(keys) * np.prod(shape), dtype=np.float32).reshape(len(keys), *shape)
    rows, checks, data = Surface(m)(
        keys_of(keys, dtype), Tensor(value), keys_of([[77]], dtype), keys_of([5], dtype)
    )
    read, inserted, unknown, filled = (row.asnumpy() for row in rows)
    np.testing.assert_array_equal(read, value)
    np.testing.assert_array_equal(inserted, np.full((1, 1, *shape), 0.5))
    np.testing.assert_array_equal(unknown, np.full((1, *shape), 0.5))
    np.testing.assert_array_equal(filled, np.full((1, *shape), 2.0))
    before, after, contains, size = checks
    assert bool(before) and bool(after)
    assert contains.asnumpy().all() and contains.shape == (len(keys),)
    assert size.asnumpy().tolist() == [len(keys) + 1]
    assert data[0].dtype == data[2].dtype == dtype
    for got_keys, got_values in (data[:2], data[2:]):
        got = dict(zip(got_keys.asnumpy().tolist(), got_values.asnumpy(), strict=True))
        assert sorted(got) == sorted([*keys, 77])
        for key, expected in zip(keys, value, strict=True):
            np.testing.assert_array_equal(got[key], expected)


@DTYPES
def test_surface_outside_construct(mode, unique, dtype) -> None:
    m = MapParameter(name=unique(), key_dtype=dtype, value_shape=2, default_value="zeros")
    keys = EXTREMES[dtype]
    value = np.arange(len(keys) * 2, dtype=np.float32).reshape(-1, 2)
    m[keys_of(keys, dtype)] = Tensor(value)
    np.testing.assert_array_equal(m[keys_of(keys, dtype)].asnumpy(), value)
    assert len(m) == len(keys) and all(key in m for key in keys) and 12 not in m
    assert m.erase(keys_of([-1, 99], dtype)) is m
    assert m.put(keys_of([4, 4], dtype), values_of([1, 1], [2, 2])) is m
    assert as_dict(m)[4] == [2, 2]  # of a key put twice the last value stays
    assert -1 not in m and len(m) == len(keys)
    assert m.get_keys().dtype == dtype
    assert m  # an empty map is not falsy, and neither is a full one
    m.erase(m.get_keys())
    assert len(m) == 0 and m
    assert m.get_keys().shape == (0,) and m.get_values().shape == (0, 2)


class Length(nn.Cell):
    def __init__(self, m: MapParameter) -> None:
        super().__init__()
        self.m = m

    def construct(self):
        return len(self.m), self.m.get_data()


def test_length_and_data_of_an_empty_map_in_construct(mode, unique) -> None:
    length, (keys, values) = Length(MapParameter(name=unique(), value_shape=3))()
    assert int(length) == 0 and keys.shape == (0,) and values.shape == (0, 3)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 3), (0, 3), (1, 2, 2)])
def test_keys_of_any_rank(mode, unique, shape) -> None:
    m = MapParameter(name=unique(), value_shape=2, default_value=0.5)
    keys = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    rows = m.get(Tensor(keys))
    np.testing.assert_array_equal(rows.asnumpy(), np.full((*shape, 2), 0.5, np.float32))
    value = np.random.default_rng(0).normal(size=(*shape, 2)).astype(np.float32)
    m.put(Tensor(keys), Tensor(value))
    np.testing.assert_array_equal(m.get(Tensor(keys), False).asnumpy(), value)
    assert m.contains(Tensor(keys)).shape == shape and len(m) == keys.size


class PutGet(nn.Cell):
    def __init__(self, m: MapParameter) -> None:
        super().__init__()
        self.m = m

    def construct(self, key, value):
        self.m[key] = value
        return self.m[key], self.m.contains(key), self.m.get_keys()


def test_dynamic_shapes(mode, unique) -> None:
    m = MapParameter(name=unique(), value_shape=2)
    net = PutGet(m)
    net.set_inputs(Tensor(shape=[None], dtype=ms.int32), Tensor(shape=[None, 2], dtype=ms.float32))
    for n in (3, 1, 5, 0, 4):
        value = np.full((n, 2), n, np.float32)
        rows, contains, keys = net(keys_of(np.arange(n)), Tensor(value))
        np.testing.assert_array_equal(rows.asnumpy(), value)
        assert contains.asnumpy().tolist() == [True] * n
        assert len(keys) == len(m)


def test_get_without_insert_changes_nothing(mode, unique) -> None:
    m = MapParameter(name=unique(), value_shape=2, default_value="normal")
    np.testing.assert_array_equal(m.get(keys_of([1, 2]), False).asnumpy(), np.zeros((2, 2)))
    assert len(m) == 0
    first = m.get(keys_of([1, 2])).asnumpy()
    assert len(m) == 2 and (first != 0).all()
    np.testing.assert_array_equal(m.get(keys_of([2, 1]), False).asnumpy(), first[::-1])


def test_starting_rows(mode, unique) -> None:
    m = MapParameter(
        name=unique(),
        key_tensor=keys_of([3, -7], ms.int64),
        value_tensor=values_of([[1], [2]], [[3], [4]]),
    )
    assert m.key_dtype == ms.int64 and m.value_shape == (2, 1)
    assert as_dict(m) == {3: [[1], [2]], -7: [[3], [4]]}


def test_clone_is_empty_and_apart(mode, unique) -> None:
    m = MapParameter(name=unique(), value_shape=(2, 2), default_value=0.5, requires_grad=False)
    m.put(keys_of([1]), 3.0)
    twin, ones = m.clone(), m.clone("ones")
    assert len({m.name, twin.name, ones.name}) == 3
    assert (len(twin), twin.value_shape, twin.requires_grad) == (0, (2, 2), False)
    twin.put(keys_of([2]), 1.0)
    assert len(m) == 1 and 2 not in m
    assert ones.get(keys_of([9]), False).asnumpy().tolist() == [[[1, 1], [1, 1]]]


@pytest.mark.parametrize(
    ("default", "check"),
    [
        (0.25, lambda v: (v == 0.25).all()),
        ("ones", lambda v: (v == 1).all()),
        ("zeros", lambda v: (v == 0).all()),
        ("normal", lambda v: abs(v.std() - 0.01) < 5e-4 and abs(v.mean()) < 5e-4),
        ("uniform", lambda v: v.min() >= -0.07 and v.max() < 0.07 and abs(v.mean()) < 2e-3),
        (ms_init.Normal(sigma=2.0, mean=1.0), lambda v: abs(v.std() - 2) < 0.1),
        (ms_init.TruncatedNormal(sigma=1.0, a=-1, b=1), lambda v: 0.9 < np.abs(v).max() <= 1),
        (ms_init.Uniform(0.5), lambda v: 0.45 < np.abs(v).max() <= 0.5),
        (ms_init.XavierUniform(), lambda v: np.abs(v).max() <= np.sqrt(6 / 32)),
    ],
)
def test_first_values_have_their_distribution(mode, unique, default, check) -> None:
    m = MapParameter(name=unique(), value_shape=16, default_value=default)
    assert check(m.get(keys_of(np.arange(1000))).asnumpy())


def test_admission_and_eviction(mode, unique) -> None:
    m = MapParameter(
        name=unique(), value_shape=1, default_value=5.0, permit_filter_value=3, evict_filter_value=1
    )
    assert m.get(keys_of([1, 1, 2])).asnumpy().ravel().tolist() == [5, 5, 5]
    assert len(m) == 0
    m.get(keys_of([1]))
    assert m.get_keys().asnumpy().tolist() == [1]
    m.bind_optimizer("sgd")
    m.apply_gradients(0.1)
    assert len(m) == 1
    m.apply_gradients(0.1)
    assert len(m) == 0 and m.get(keys_of([1]), False).asnumpy().tolist() == [[5]]


def test_a_frozen_map_is_only_read(mode, unique) -> None:
    m = MapParameter(name=unique(), requires_grad=False, default_value=0.5)
    m.put(keys_of([1]), 2.0)
    assert m.get(keys_of([1, 2])).asnumpy().ravel().tolist() == [2, 0.5]
    assert len(m) == 1
    m.requires_grad = True
    m.get(keys_of([2]))
    assert len(m) == 2


def test_export_then_import(mode, unique) -> None:
    m = MapParameter(name=unique(), value_shape=(1, 2), key_dtype=ms.int64)
    m.put(keys_of([1, -1], ms.int64), values_of([[1, 2]], [[3, 4]]))
    keys, values, statuses = m.export_data()
    assert (keys.dtype, values.shape, statuses.tolist()) == (np.int64, (2, 1, 2), [0, 0])
    twin = m.clone()
    twin.import_data((keys, values, statuses))
    assert as_dict(twin) == as_dict(m)
    raw = m.export_bytes()
    assert raw == (keys.tobytes(), values.tobytes(), statuses.tobytes())


def test_parts_of_an_export_have_a_state_only_if_it_is_asked_for(unique) -> None:
    m = MapParameter(name=unique(), value_shape=2)
    m.put(keys_of([1, 2]), values_of([1, 2], [3, 4]))
    for asked in ({}, {"with_state": False}, {"with_state": True}):
        parts: list[dict[str, np.ndarray]] = []
        m.export_parts(parts.append, **asked)
        assert sum(len(part["keys"]) for part in parts) == 2
        assert {"states" in part for part in parts} == {asked.get("with_state", False)}


def test_the_latest_of_several_event_times_is_the_batch_s(unique) -> None:
    m = MapParameter(name=unique(), value_shape=2)
    for times, latest in (([], None), ([5, 9, 7], 9), ([], 9), ([3], 9)):
        m.set_event_time(np.array(times, np.int64))
        assert m.event_time == latest


def test_base_and_deltas_equal_the_whole(mode, unique) -> None:
    rng = np.random.default_rng(5)
    m = MapParameter(name=unique(), value_shape=2)
    twin = m.clone()
    for n in range(8):
        keys = keys_of(rng.integers(0, 20, 6))
        m.put(keys, Tensor(rng.normal(size=(6, 2)).astype(np.float32)))
        m.erase(keys_of(rng.integers(0, 20, 3)))
        if n == 3:
            m.clear_rows()
        delta = m.export_data(incremental=True)
        assert n == 0 or not (delta[2] == 0).any()
        twin.import_data(delta)
        assert as_dict(twin) == as_dict(m)
    assert [len(part) for part in m.export_data(incremental=True)] == [0, 0, 0]


def test_slices_together_are_the_whole(mode, unique) -> None:
    m = MapParameter(name=unique(), value_shape=2)
    m.put(keys_of(np.arange(10)), Tensor(np.arange(20, dtype=np.float32).reshape(10, 2)))
    whole = as_dict(m)
    for incremental in (False, True):
        found: dict[int, list] = {}
        slices, last = 0, False
        while not last:
            keys, values, _, last = m.export_slice_data(incremental, slice_bytes=3 * 8)
            assert len(keys) <= 3
            found.update(zip(keys.tolist(), values.tolist(), strict=True))
            slices += 1
            if slices == 1 and not last:
                with pytest.raises(ValueError, match="incremental must stay"):
                    m.export_slice_data(not incremental)
        # The full export was itself the last export: an incremental one after it is empty.
        assert found == ({} if incremental else whole)
    m.put(keys_of([3]), 9.0)
    m.erase(keys_of([4]))
    keys, values, statuses, last = m.export_slice_data(True)
    assert (keys.tolist(), values.tolist(), statuses.tolist()) == ([3, 4], [[9, 9]], [1, 2])
    assert last


def test_a_map_that_is_gone_frees_its_name(mode, unique) -> None:
    name = unique()
    net = PutGet(MapParameter(name=name))
    net.m.put(keys_of([1]), 1.0)
    del net
    gc.collect()
    assert len(MapParameter(name=name)) == 0


@pytest.mark.parametrize("value", [1j, np.complex64(1 + 2j), np.complex128(3)])
def test_complex_values_are_refused(unique, value: complex) -> None:
    m = MapParameter(name=unique())
    with pytest.raises(TypeError, match="value_tensor must be real numbers, got"):
        m.put(keys_of([1]), value)
    assert len(m) == 0


def test_deepcopy_is_refused(unique) -> None:
    m = MapParameter(name=unique())
    with pytest.raises(TypeError, match=f"table '{m.name}': cannot be copied"):
        copy.deepcopy(m)


@ms.jit
def _jitted(keys: Tensor) -> Tensor:
    return _JIT_MAP.get(keys)


_JIT_MAP = MapParameter(name="test.jit", default_value=0.5)


def test_inside_a_jitted_function() -> None:
    assert _jitted(keys_of([1])).asnumpy().tolist() == [[0.5]]
    assert 1 in _JIT_MAP
