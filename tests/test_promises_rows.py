# SPDX-License-Identifier: Apache-2.0
"""What tables promise about rows: any key, first values, lookups that only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, strategies as st
from mindspore import Tensor, nn

from mindspore_rec import HashEmbeddingLookup, _native, optim, set_num_threads
from tests.parameter.table_model import EDGE_KEYS, INT64_MAX, INT64_MIN
from tests.support.native_table import native_of
from tests.support.networks import Quadratic

DIM = 5
INITIALIZERS = [
    {"init_kind": "normal", "init_b": 0.01},
    {"init_kind": "uniform", "init_a": -1.0, "init_b": 1.0},
    {"init_kind": "truncated_normal", "init_b": 1.0},
]
KEYS = st.lists(
    st.sampled_from(EDGE_KEYS) | st.integers(INT64_MIN, INT64_MAX), min_size=1, max_size=60
)


@contextmanager
def table(**arguments: Any) -> Iterator[_native.Table]:
    made = _native.Table(**{"name": "promise", "dim": DIM, **INITIALIZERS[0], **arguments})
    try:
        yield made
    finally:
        made.close()


@given(keys=KEYS)
def test_any_key_has_a_row_of_its_own(keys: list[int]) -> None:
    distinct = np.unique(np.array(keys, np.int64))
    values = np.random.default_rng(0).normal(size=(len(distinct), DIM)).astype(np.float32)
    with table() as t:
        t.put(distinct, values)
        np.testing.assert_array_equal(t.lookup(distinct), values)
        assert sorted(t.keys().tolist()) == distinct.tolist()


@given(
    keys=KEYS,
    init=st.sampled_from(INITIALIZERS),
    seed=st.integers(0, (1 << 64) - 1),
    threads=st.integers(1, 3),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    workers=st.integers(1, 4),
    how=st.sampled_from(["insert", "train", "put"]),
    random=st.randoms(use_true_random=False),
)
def test_a_first_value_depends_on_seed_name_and_key_only(
    keys, init, seed, threads, cuts, workers, how, random
) -> None:
    """Not on order, batches, threads, other keys, what brought the row, or which worker has it."""
    distinct = np.unique(np.array(keys, np.int64))
    with table(seed=seed, **init) as t:
        expected = {int(k): t.lookup(np.array([k]), insert=True)[0] for k in distinct}
    shuffled = list(keys)
    random.shuffle(shuffled)
    before = _native.get_num_threads()
    set_num_threads(threads)
    found: dict[int, np.ndarray] = {}
    for worker in range(workers):
        mine = np.array([k for k in shuffled if k % workers == worker], np.int64)
        with table(seed=seed, **init) as t:
            t.bind_optimizer("adam")
            for batch in np.split(mine, sorted(cut for cut in cuts if cut < len(mine))):
                if how == "insert":
                    t.lookup(batch, insert=True)
                elif how == "train":
                    t.lookup_train(batch)
                else:
                    t.import_rows(np.unique(batch))
            found.update(zip(mine.tolist(), t.lookup(mine), strict=True))
    set_num_threads(before)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value)


def test_a_first_value_depends_on_each_of_them() -> None:
    keys = np.array([1, 2], np.int64)

    def value(**arguments: Any) -> np.ndarray:
        with table(**arguments) as t:
            return t.lookup(keys, insert=True)

    one = value()
    assert len(np.unique(one)) == one.size
    assert not np.isin(value(seed=1), one).any()
    assert not np.isin(value(name="promise2"), one).any()


@pytest.mark.parametrize("how", ["evicted", "erased", "cleared"])
def test_a_key_that_comes_back_starts_anew(how) -> None:
    keys = np.array(EDGE_KEYS, np.int64)
    with table(max_idle_steps=1, admission_threshold=2) as t:
        t.bind_optimizer("adam")

        def train() -> tuple[np.ndarray, dict[str, np.ndarray]]:
            rows, ticket = t.lookup_train(np.repeat(keys, 2))
            start = t.export_keys(keys, with_state=True)
            t.accumulate(ticket, np.ones_like(rows))
            t.apply(0.1)
            return rows, start

        first, start = train()
        assert (t.lookup(keys) != first[::2]).all()
        if how == "evicted":
            t.apply(0.1)
            assert t.size() == 0
        elif how == "erased":
            assert t.erase(keys) == len(keys)
        else:
            t.clear()
        # The counter is gone too: once is not enough.
        rows, _ = t.lookup_train(keys)
        assert (rows == 0).all() and t.size() == 0
        t.discard_gradients()
        t.erase(keys)
        again, restart = train()
        np.testing.assert_array_equal(again, first)
        for field in ("values", "states", "counts"):
            np.testing.assert_array_equal(restart[field], start[field])
        assert (restart["states"] == 0).all()


def test_evaluation_only_reads(mode, unique) -> None:
    """In a network: no insert, count or touch, unknown and not admitted ids read the default."""
    embedding = HashEmbeddingLookup(
        4, param_init=2.0, permit_filter_value=2, evict_filter_value=50, name=unique()
    )
    net = Quadratic(embedding)
    step = nn.TrainOneStepCell(net, optim.Adam(net.trainable_params(), 0.1)).set_train()
    step(Tensor([1, 1, 2], ms.int32))
    step(Tensor([1, 3], ms.int32))
    native = native_of(embedding.embedding_table)
    before, counted = native.export_rows(with_state=True), native.stats()
    assert before["keys"].tolist() == [1] and counted["candidates"] == 2
    net.set_train(False)
    for _ in range(3):
        rows = embedding(Tensor([[1, 2], [3, 99]], ms.int32)).asnumpy()
        assert (rows.reshape(4, 4)[1:] == 2.0).all() and (rows[0, 0] != 2.0).all()
        net(Tensor([2, 3, 99], ms.int32))
    after = native.export_rows(with_state=True)
    for field, column in before.items():
        np.testing.assert_array_equal(after[field], column)
    assert native.stats()["candidates"] == counted["candidates"]
    # Switched back, the same network trains again: the second occurrence admits.
    step.set_train()
    step(Tensor([2], ms.int32))
    assert sorted(native.keys().tolist()) == [1, 2]
