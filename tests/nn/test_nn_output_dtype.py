# SPDX-License-Identifier: Apache-2.0
"""Lookups that hand rows over as bfloat16: the same numbers, and the same training, as float32."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, ops

import mindspore_rec as mr
from mindspore_rec import (
    CacheConfig,
    CountAdmission,
    EmbeddingLookup,
    HashEmbeddingLookup,
    MapParameter,
    SsdConfig,
    TableConfig,
    optim,
    tables_of,
)
from mindspore_rec.parameter import from_bfloat16, to_bfloat16
from tests.support.clicks import rows_by_key
from tests.support.networks import WeighedLookups

DIM = 20


def numbers(rows: Tensor) -> np.ndarray:
    """The numbers of a Tensor of either type, as float32."""
    return ops.cast(rows, ms.float32).asnumpy()


def rounded(values: np.ndarray) -> np.ndarray:
    return from_bfloat16(to_bfloat16(values))


def narrow_config(name: str, **settings: Any) -> TableConfig:
    return TableConfig(DIM, name=name, value_dtype=ms.bfloat16, state_dtype=ms.bfloat16, **settings)


@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (2, 3, 2)])
def test_the_numbers_are_those_of_float32(mode: Any, unique: Any, shape: tuple[int, ...]) -> None:
    table = MapParameter(config=narrow_config(unique(), unknown_value=0.3))
    optim.SGD(table.trainable_params(), 0.1)
    wide = HashEmbeddingLookup(table=table, padding_key=2)
    narrow = HashEmbeddingLookup(table=table, padding_key=2, output_dtype=ms.bfloat16)
    keys = Tensor(np.random.default_rng(1).integers(0, 5, shape).astype(np.int64))
    for training in (False, True, False):
        expected = wide.set_train(training)(keys)
        got = narrow.set_train(training)(keys)
        assert (got.dtype, expected.dtype) == (ms.bfloat16, ms.float32)
        assert got.shape == (*shape, DIM)
        assert numbers(got).tobytes() == expected.asnumpy().tobytes()
    assert not np.any(numbers(got)[keys.asnumpy() == 2])


def trained(lookups: Any, weights: list[np.ndarray], learning_rate: float = 0.01) -> bytes:
    """Train a network over lookups; return all that its table has then."""
    net = WeighedLookups(*lookups)
    step = mr.TrainStep(net, optim.LazyAdam(net.trainable_params(), learning_rate)).set_train()
    for number, weight in enumerate(weights):
        drawn = np.random.default_rng(number).integers(0, 900, weight.shape[:-1])
        step(Tensor(drawn.astype(np.int64)), Tensor(weight))
    table = tables_of(net)[0]
    rows = rows_by_key(table)
    table.close()
    return b"".join(rows[name].tobytes() for name in ("keys", "values", "states"))


def weights_of(steps: int, *, exact: bool, rows: int = 300) -> list[np.ndarray]:
    drawn = [
        np.random.default_rng(100 + i).normal(size=(rows, 4, DIM)).astype(np.float32)
        for i in range(steps)
    ]
    return [rounded(each) if exact else each for each in drawn]


KINDS = ("plain", "admission", "static", "ssd", "device", "both")


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_that_of_float32(mode: Any, tmp_path: Any, kind: str) -> None:
    """Gradients that bfloat16 has: all bits of rows and states are those of float32's lookup."""
    weights = weights_of(6, exact=True)
    found = []
    for narrow in (False, True):
        dtypes = {"both": (ms.float32, ms.bfloat16) if narrow else (ms.float32, ms.float32)}.get(
            kind, (ms.bfloat16 if narrow else ms.float32,)
        )
        settings: dict[str, Any] = {}
        if kind == "admission":
            settings["admission"] = CountAdmission(2)
        elif kind == "static":
            settings["vocab_size"] = 900
        elif kind == "ssd":
            settings["cache"] = CacheConfig(host_rows=800, ssd=SsdConfig(tmp_path / f"ssd{narrow}"))
        elif kind == "device":
            settings["cache"] = CacheConfig(device_rows=900)
        config = narrow_config(f"output_dtype.{kind}", **settings)
        if kind == "static":
            lookups = [EmbeddingLookup(config=config, output_dtype=dtypes[0])]
        else:
            table = MapParameter(config=config)
            lookups = [HashEmbeddingLookup(table=table, output_dtype=each) for each in dtypes]
        found.append(trained(lookups, weights))
        del lookups
    assert found[0] == found[1]


def test_a_gradient_of_float32_is_rounded_once(mode: Any) -> None:
    """The cast behind the lookup rounds it: training is that of rounded gradients."""
    found = []
    for exact, dtype in ((True, ms.float32), (False, ms.bfloat16), (False, ms.float32)):
        lookup = HashEmbeddingLookup(
            config=narrow_config("output_dtype.rounded"), output_dtype=dtype
        )
        found.append(trained([lookup], weights_of(3, exact=exact)))
        del lookup
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_one_thread_and_several_give_the_same_bits(graph_mode: Any) -> None:
    before = mr.get_num_threads()
    found = set()
    for threads in (1, 3):
        mr.set_num_threads(threads)
        lookup = HashEmbeddingLookup(
            config=narrow_config("output_dtype.threads"), output_dtype=ms.bfloat16
        )
        found.add(trained([lookup], weights_of(3, exact=False, rows=1000)))
        del lookup
    mr.set_num_threads(before)
    assert len(found) == 1


def test_dynamic_shapes(mode: Any, unique: Any) -> None:
    config = TableConfig(2, name=unique(), value_dtype=ms.bfloat16, initializer=0.0)
    lookup = HashEmbeddingLookup(config=config, output_dtype=ms.bfloat16)
    net = WeighedLookups(lookup)
    net.set_inputs(
        Tensor(shape=[None, None], dtype=ms.int64), Tensor(shape=[None, None, 2], dtype=ms.float32)
    )
    optimizer = optim.SGD(net.trainable_params(), 1.0)
    grad = ms.value_and_grad(net.set_train(), None, optimizer.parameters)
    total = 0
    for n, m in ((2, 3), (1, 1), (4, 2), (3, 3)):
        keys = Tensor(np.full((n, m), 9, np.int64))
        _, token = grad(keys, Tensor(np.ones((n, m, 2), np.float32)))
        optimizer(token)
        total += n * m
    assert lookup.embedding_table.read_rows(np.array([9])).tolist() == [[-total, -total]]


def test_what_cannot_be_handed_over_is_refused(unique: Any) -> None:
    for dtype in (ms.float32, ms.float16):
        config = TableConfig(4, name=unique(), value_dtype=dtype)
        with pytest.raises(ValueError, match="output_dtype must be float32 with value_dtype Float"):
            HashEmbeddingLookup(config=config, output_dtype=ms.bfloat16)
    with pytest.raises(ValueError, match="output_dtype must be float32 with value_dtype Float32"):
        EmbeddingLookup(10, 4, output_dtype=ms.bfloat16, name=unique())
    config = narrow_config(unique())
    with pytest.raises(ValueError, match="output_dtype must be float32 or bfloat16, got Float16"):
        HashEmbeddingLookup(config=config, output_dtype=ms.float16)
    with pytest.raises(ValueError, match="output_dtype must be float32 with max_norm"):
        HashEmbeddingLookup(config=narrow_config(unique()), max_norm=1.0, output_dtype=ms.bfloat16)
    with pytest.raises(ValueError, match="output_dtype is for target='CPU' only"):
        EmbeddingLookup(10, 4, target="DEVICE", sparse=False, output_dtype=ms.bfloat16)
