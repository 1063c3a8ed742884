# SPDX-License-Identifier: Apache-2.0
"""What tables promise about a step: one a table and batch, over sums added in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mindspore import Tensor, nn, ops

from mindspore_rec import HashEmbeddingLookup, MapParameter, _native, optim
from tests.parameter.table_model import EDGE_KEYS

DIM = 6
KEYS = np.array([*EDGE_KEYS, *range(2, 30)], np.int64)
OPTIMIZERS: dict[str, Callable[[Any], nn.Optimizer]] = {
    "sgd": lambda params: optim.SGD(params, 0.1),
    "adam": lambda params: optim.Adam(params, 0.1),
    "ftrl": lambda params: optim.FTRL(params, 0.1),
}


class Lookups(nn.Cell):
    """One lookup an embedding, all of one table; a row's gradient is a function of that row."""

    def __init__(self, embeddings: list[HashEmbeddingLookup]) -> None:
        super().__init__()
        self.embeddings = nn.CellList(embeddings)

    def construct(self, *ids_and_weights):
        loss = 0.0
        n = len(self.embeddings)
        for i in range(n):
            rows = self.embeddings[i](ids_and_weights[i])
            loss = loss + (rows * rows * ids_and_weights[n + i]).sum()
        return loss


def shared(name: str, lookups: int, **arguments: Any) -> tuple[MapParameter, Lookups]:
    table = MapParameter(name=name, key_dtype=ms.int64, value_shape=DIM, **arguments)
    cells = [HashEmbeddingLookup(DIM, table=table) for _ in range(lookups)]
    return table, Lookups(cells).set_train()


def rows_of(table: MapParameter) -> dict[int, tuple[bytes, bytes]]:
    rows = table.export_rows(with_state=True)
    return {
        key: (value.tobytes(), state.tobytes())
        for key, value, state in zip(
            rows["keys"].tolist(), rows["values"], rows["states"], strict=True
        )
    }


def batches(lengths: tuple[int, ...], steps: int = 3) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(7)
    return [
        [rng.choice(KEYS, n) for n in lengths]
        + [rng.normal(size=(n, DIM)).astype(np.float32) for n in lengths]
        for _ in range(steps)
    ]


def run(
    name: str, kind: str, data: list[list[np.ndarray]], join: bool, micro: bool = False
) -> dict[int, tuple[bytes, bytes]]:
    """Trains on batches of several lookups, or of their concatenation."""
    n = len(data[0]) // 2
    table, net = shared(name, 1 if join or micro else n)
    optimizer = OPTIMIZERS[kind](net.trainable_params())
    step = nn.TrainOneStepCell(net, optimizer).set_train()
    grad = ops.grad(net, None, optimizer.parameters)
    for batch in data:
        if micro:  # one forward and backward pass a part, then one step
            parts = [grad(Tensor(batch[i]), Tensor(batch[n + i])) for i in range(n)]
            optimizer(tuple(sum(each[1:], each[0]) for each in zip(*parts, strict=True)))
        elif join:
            step(Tensor(np.concatenate(batch[:n])), Tensor(np.concatenate(batch[n:])))
        else:
            step(*(Tensor(part) for part in batch))
    rows = rows_of(table)
    table.close()
    return rows


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_several_lookups_are_one_lookup_of_them_all(mode, unique, kind) -> None:
    """Bit for bit, optimizer state included, in networks of two and of three lookups."""
    name = unique()
    for lengths in [(40, 25), (5, 60, 7)]:
        data = batches(lengths)
        assert run(name, kind, data, join=False) == run(name, kind, data, join=True)


def test_micro_batches_are_one_batch(mode, unique) -> None:
    name = unique()
    data = batches((40, 25, 3))
    assert run(name, "adam", data, join=False, micro=True) == run(name, "adam", data, join=True)


def test_threads_do_not_change_bits(mode, unique, threads) -> None:
    name = unique()
    data = batches((3000, 2500))  # enough for the threaded path
    results = []
    for n in (1, 2, 3):
        threads(n)
        results.append(run(name, "adam", data, join=False))
    assert results[0] == results[1] == results[2]
    assert results[0] == run(name, "adam", data, join=True)


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(0, 1500), min_size=1, max_size=4),
    order=st.permutations(range(4)),
    threads=st.integers(1, 3),
    distinct=st.integers(1, 200),
    kind=st.sampled_from(["sgd", "adam", "adagrad", "row_wise_adagrad", "rmsprop"]),
)
def test_gradients_may_report_in_any_order(lengths, order, threads, distinct, kind) -> None:
    """The sum is that of one lookup, added position by position in single precision."""
    rng = np.random.default_rng(len(lengths))
    ids = [rng.integers(-distinct, distinct, n) for n in lengths]
    grads = [rng.normal(size=(n, DIM)).astype(np.float32) for n in lengths]
    before = _native.get_num_threads()
    _native.set_num_threads(threads)

    def train(parts: list[np.ndarray], gradients: list[np.ndarray]) -> dict[str, np.ndarray]:
        table = _native.Table(name="order", dim=DIM, init_kind="normal", init_b=1.0)
        table.bind_optimizer(kind)
        tickets = [table.lookup_train(part)[1] for part in parts]
        for i in order:
            if i < len(parts):
                table.accumulate(tickets[i], gradients[i])
        table.apply(0.1)
        keys = np.unique(np.concatenate(ids))
        rows = table.export_keys(keys, with_state=True)
        table.close()
        return rows

    apart = train(ids, grads)
    _native.set_num_threads(before)
    joined = train([np.concatenate(ids)], [np.concatenate(grads)])
    assert apart.keys() == joined.keys()
    for field, column in joined.items():
        np.testing.assert_array_equal(apart[field], column)


def test_a_key_gets_one_update_of_its_summed_gradient(mode, unique) -> None:
    """Adam's step does not grow with the number of occurrences, as several steps would."""
    table, net = shared(unique(), 2, default_value="zeros")

    class Sum(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def construct(self, a, b):
            return self.net.embeddings[0](a).sum() + self.net.embeddings[1](b).sum()

    cell = Sum()
    step = nn.TrainOneStepCell(cell, optim.Adam(cell.trainable_params(), 0.1)).set_train()
    step(Tensor([5, 5, 5], ms.int64), Tensor([5, 6], ms.int64))
    rows = table.export_keys(np.array([5, 6]), with_state=True)
    np.testing.assert_allclose(rows["values"], -0.1, rtol=1e-6)
    np.testing.assert_allclose(rows["states"][:, 0], [0.4, 0.1], rtol=1e-6)
    assert table.step == 1


def test_a_lookup_that_misses_the_loss_leaves_the_others_right(mode, unique) -> None:
    table, net = shared(unique(), 2, default_value="zeros")

    class OnlyOne(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def construct(self, ids):
            unused = self.net.embeddings[0](ids)
            return self.net.embeddings[1](ids).sum(), ops.stop_gradient(unused)

    cell = OnlyOne().set_train()
    optimizer = optim.SGD(cell.trainable_params(), 1.0)
    grad = ms.value_and_grad(cell, None, optimizer.parameters, has_aux=True)
    for n in range(1, 4):
        _, token = grad(Tensor([1, 2], ms.int64))
        optimizer(token)
        assert (table.read_rows(np.array([1, 2])) == -n).all()
