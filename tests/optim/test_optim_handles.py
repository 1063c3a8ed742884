# SPDX-License-Identifier: Apache-2.0
"""Training by handle: the same bits as training in a graph, or nothing at all."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec import CountAdmission, Eviction, MapParameter, StaleHandleError, optim
from tests.support.clicks import rows_by_key
from tests.support.networks import WeighedLookups

DIM = 3


@pytest.fixture
def make(unique):
    made: list[MapParameter] = []

    def one(name: str | None = None, **arguments: Any) -> MapParameter:
        arguments = {"key_dtype": ms.int64, "value_shape": DIM} | arguments
        made.append(MapParameter(name or unique(), **arguments))
        return made[-1]

    yield one
    for table in made:
        table.close()


def columns(table: MapParameter) -> list[np.ndarray]:
    return list(rows_by_key(table).values())


def contents(table: MapParameter) -> tuple[int, list[bytes]]:
    return table.step, [column.tobytes() for column in columns(table)]


def schedule() -> nn.learning_rate_schedule.LearningRateSchedule:
    return nn.ExponentialDecayLR(0.1, 0.5, 2)


OPTIMIZERS = [
    lambda params: optim.SGD(params, 0.1, weight_decay=0.01),
    lambda params: optim.LazyAdam(params, schedule()),
    lambda params: optim.Adam(params, 0.1, loss_scale=4.0),
    lambda params: optim.FTRL(params, 0.1),
    lambda params: optim.Adagrad(
        [{"params": params[:1], "lr": 0.3, "weight_decay": 0.1}, {"params": params[1:]}], 0.1
    ),
    lambda params: optim.LazyAdam(params, 0.1, clip_global_norm=0.5),
]


@pytest.mark.parametrize("which", range(len(OPTIMIZERS)))
def test_the_same_bits_as_in_a_graph(make, pynative, which) -> None:
    """Repeated and not admitted ids, rows that are evicted, two tables of one optimizer."""
    rng = np.random.default_rng(which)
    batches = [
        (rng.integers(-4, 12, (4, 5)), rng.normal(size=(4, 5, DIM)).astype(np.float32))
        for _ in range(8)
    ]

    def run(by_handle: bool) -> list[np.ndarray]:
        rules = {"admission": CountAdmission(3), "eviction": Eviction(max_rows=9)}
        tables = [make("by handle.0", **rules), make("by handle.1", seed=5)]
        net = WeighedLookups(*tables).set_train()
        optimizer = OPTIMIZERS[which](net.trainable_params())
        grad = ms.value_and_grad(net, None, optimizer.parameters)
        for ids, numbers in batches:
            if by_handle:
                found = [table.lookup_with_handles(ids) for table in tables]
                assert found[0][0].shape == (4, 5, DIM) and found[0][1].shape == (4, 5, 2)
                optimizer.apply_by_handle([numbers] * 2, [handles for _, handles in found])
            else:
                optimizer(grad(Tensor(ids), Tensor(numbers))[1])
        result = [column for table in tables for column in columns(table)]
        assert int(optimizer.global_step.asnumpy()[0]) == len(batches)
        for table in tables:
            table.close()
        return result

    clipped = which == len(OPTIMIZERS) - 1  # a graph has the global norm in float32
    for got, expected in zip(run(by_handle=True), run(by_handle=False), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5 if clipped else 0, atol=0)


IDS = np.array([7, 8, 7, 9])
ONES = np.ones((4, DIM), np.float32)


def leave(how: str, table: MapParameter) -> None:
    ids = np.array([9])
    if how == "erase":
        table.erase_rows(ids)
    elif how == "clear":
        table.clear_rows()
    elif how == "rebind":
        optim.SGD([table.anchor], 0.1)
    elif how == "evict":
        table.set_eviction(Eviction(max_rows=2))
        table.evict(at_once=True)
    elif how == "due":  # not swept: only the clock has moved
        table.set_event_time(1000)
    elif how == "erase and put":  # in the same place in memory
        table.erase_rows(ids)
        table.write_rows(ids, ONES[:1])
    elif how == "due and put":
        table.set_event_time(1000)
        table.write_rows(ids, ONES[:1])


@pytest.mark.filterwarnings("ignore:table .* is taken over")
@pytest.mark.parametrize(
    "how", ["erase", "clear", "rebind", "evict", "due", "erase and put", "due and put"]
)
def test_a_stale_handle_changes_nothing(make, how) -> None:
    """Neither its own table nor another one of the same step."""
    table, other = make(eviction=Eviction(max_idle_seconds=10)), make()
    table.set_event_time(5)
    optimizer = optim.LazyAdam([table.anchor, other.anchor], 0.1)
    _, handles = table.lookup_with_handles(IDS)
    _, others = other.lookup_with_handles(IDS)
    first = other.read_rows(np.unique(IDS))
    optimizer.apply_by_handle([ONES, ONES], [handles, others])
    leave(how, table)
    before = contents(table), contents(other)
    with pytest.raises(StaleHandleError, match=rf"table '{table.name}': handles\[\d\] "):
        optimizer.apply_by_handle([ONES, ONES], [others, handles])
    assert (contents(table), contents(other)) == before
    assert int(optimizer.global_step.asnumpy()[0]) == 1
    optimizer.apply_by_handle(ONES, others)  # what failed left no gradient behind
    twin = make()
    twin.write_rows(np.unique(IDS), first)
    twin_optimizer = optim.LazyAdam([twin.anchor], 0.1)
    for _ in range(2):
        twin_optimizer.apply_by_handle(ONES, twin.lookup_with_handles(IDS)[1])
    np.testing.assert_array_equal(twin.read_rows(IDS), other.read_rows(IDS))


def test_a_handle_is_good_while_all_rows_stay(make) -> None:
    """Other rows may come, and steps pass."""
    table = make(default_value=1.0)
    optimizer = optim.SGD([table.anchor], 1.0)
    _, handles = table.lookup_with_handles(IDS)
    for new in range(100, 5000, 70):
        table.insert_rows(np.arange(new, new + 70))
        optimizer.apply_by_handle(ONES, handles)
    steps = len(range(100, 5000, 70))
    assert table.read_rows(np.array([7, 8, 100]))[:, 0].tolist() == [
        1 - 2 * steps,
        1 - steps,
        1,
    ]


def test_a_frozen_table_gives_handles_that_train_nothing(make) -> None:
    table = make()
    optimizer = optim.SGD([table.anchor], 1.0)
    table.write_rows(IDS[:2], ONES[:2])
    table.requires_grad = False
    rows, handles = table.lookup_with_handles(IDS)
    assert (handles.asnumpy()[:, 0] == -1).all() and len(table) == 2
    np.testing.assert_array_equal(rows.asnumpy()[:2], ONES[:2])
    optimizer.apply_by_handle(ONES, handles)
    np.testing.assert_array_equal(table.read_rows(IDS[:2]), ONES[:2])


def test_gradients_of_tensors_are_those_of_arrays(make) -> None:
    table = make()
    table.bind_optimizer("sgd")
    _, handles = table.lookup_with_handles(IDS)
    norms = []
    for kind in (lambda tensor: tensor, Tensor.asnumpy):
        table.accumulate_by_handle(kind(handles), kind(Tensor(ONES)))
        norms.append(table.gradient_squared_norm())
        table.discard_gradients()
    assert norms[0] == norms[1] > 0


def test_mistakes_are_named_and_change_nothing(make) -> None:
    table, foreign = make(), make()
    optimizer = optim.LazyAdam([table.anchor], 0.1)
    optim.LazyAdam([foreign.anchor], 0.1)
    _, handles = (each.asnumpy() for each in table.lookup_with_handles(IDS))
    _, foreigners = (each.asnumpy() for each in foreign.lookup_with_handles(IDS))
    mixed = np.concatenate([handles[:2], foreigners[:2]])
    made_up = handles.copy()
    made_up[3, 0] = 12345
    before = contents(table), contents(foreign)
    cases: list[tuple[Any, Any, type[Exception], str]] = [
        (ONES, foreigners, StaleHandleError, r"handles\[0\] is of a table that this LazyAdam does"),
        (ONES, mixed, StaleHandleError, rf"table '{table.name}': handles\[2\] is of another table"),
        (ONES, made_up, StaleHandleError, rf"table '{table.name}': handles\[3\] names no row"),
        (ONES, handles[:, :1], ValueError, r"handles must be int64 of shape \[..., 2\].*\(4, 1\)"),
        (ONES, handles.astype(np.int32), ValueError, "handles must be int64 of shape .* int32"),
        (ONES, np.array(7), ValueError, r"handles must be int64 of shape"),
        (ONES[:3], handles, ValueError, rf"'{table.name}': grads must be float32 \(4, 3\), got"),
        (ONES[:, :2], handles, ValueError, r"grads must be float32 \(4, 3\), got float32 \(4, 2\)"),
        (ONES * 1.0j, handles, ValueError, r"grads must be float32 \(4, 3\), got complex"),
        ([ONES], [handles, handles], ValueError, "grads and handles must be two lists of the same"),
        (ONES, [handles], ValueError, "grads and handles must be two lists of the same length"),
    ]
    for grads, given, error, message in cases:
        with pytest.raises(error, match=message):
            optimizer.apply_by_handle(grads, given)
        assert (contents(table), contents(foreign)) == before
    assert int(optimizer.global_step.asnumpy()[0]) == 0
    optimizer.apply_by_handle(ONES, handles)
    assert contents(table) != before[0]


def test_a_later_optimizer_of_one_table_stops_the_step_of_all_tables(make) -> None:
    first, second = make(), make()
    optimizer = optim.SGD([first.anchor, second.anchor], 1.0)
    handles = [table.lookup_with_handles(IDS)[1] for table in (first, second)]
    optim.SGD([second.anchor], 1.0)
    before = contents(first), contents(second)
    with pytest.raises(RuntimeError, match=f"'{second.name}': another optimizer was created"):
        optimizer.apply_by_handle([ONES, ONES], handles)
    assert (contents(first), contents(second)) == before
    assert int(optimizer.global_step.asnumpy()[0]) == 0
