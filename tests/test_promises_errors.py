# SPDX-License-Identifier: Apache-2.0
"""What tables promise about mistakes: nothing is lost in silence, a bad input changes nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec import (
    EmbeddingBag,
    EmbeddingLookup,
    HashEmbeddingLookup,
    MapParameter,
    NoOptimizerError,
    StaticParameter,
    TableClosedError,
    TableConfig,
    _native,
    optim,
    set_num_threads,
)
from tests.support.clicks import rows_by_key
from tests.support.native_table import native_of
from tests.support.networks import SumOf

KEYS = np.array([1, 2, -1], np.int64)
ROWS = np.ones((3, 2), np.float32)


def ids(*values: Any, dtype: Any = ms.int32) -> Tensor:
    return Tensor(np.array(values), dtype)


def snapshot(table: _native.Table) -> list:
    stats = table.stats()
    return [column.tolist() for column in rows_by_key(table).values()] + [
        stats[name] for name in ("step", "candidates", "inserted", "evicted", "erased")
    ]


# ---------------------------------------------------------------- the native table


@pytest.fixture
def table(unique):
    made = _native.Table(name=unique(), dim=2, init_kind="normal", init_b=1.0)
    made.bind_optimizer("adam")
    made.put(KEYS, ROWS)
    yield made
    made.close()


NATIVE: list[tuple[Callable[[_native.Table], Any], type[Exception], str]] = [
    (lambda t: t.lookup(np.array([1.0])), TypeError, "ids must be int32 or int64, got float64"),
    (lambda t: t.lookup_train(np.array([True])), TypeError, "ids must be int32 or int64, got bool"),
    (lambda t: t.lookup(KEYS[::2]), ValueError, "ids must be C-contiguous"),
    (lambda t: t.put(KEYS, ROWS[:2]), ValueError, r"values must .* of 2 floats .*\(2, 2\)"),
    (lambda t: t.put(KEYS, ROWS.reshape(2, 3)), ValueError, "values must have one row"),
    (lambda t: t.put(KEYS, ROWS.astype(float)), TypeError, "values must be float32, got float64"),
    (lambda t: t.erase(np.array(["a"])), TypeError, "keys must be int32 or int64"),
    (lambda t: t.contains(KEYS.astype(np.uint64)), TypeError, "keys must be int32 or int64"),
    (lambda t: t.apply(float("nan")), ValueError, "learning_rate must be a finite number >= 0"),
    (lambda t: t.apply(-1.0), ValueError, "learning_rate must be a finite number >= 0"),
    (lambda t: t.apply(0.1, float("inf")), ValueError, "weight_decay must be a finite number >= 0"),
    (lambda t: t.accumulate(999, ROWS), RuntimeError, "a lookup it no longer knows"),
    (lambda t: t.set_admission_threshold(-2), ValueError, r"admission threshold must be in \[-1"),
    (
        lambda t: t.set_eviction(max_idle_steps=0),
        ValueError,
        "max_idle_steps must be -1 or >= 1",
    ),
    (
        lambda t: t.set_eviction(max_idle_steps=-2),
        ValueError,
        "max_idle_steps must be -1 or >= 1",
    ),
    (lambda t: t.set_clock(-1, 0), ValueError, r"step must be in \[0, 2\^32\)"),
    (lambda t: t.export_since(1), ValueError, "mark 1 is not one of this table's"),
    (lambda t: t.import_rows(KEYS, ROWS[:1]), ValueError, "values must have one row"),
    (lambda t: t.import_rows(KEYS, states=ROWS), ValueError, "states has 2 floats a row.* 4"),
    (lambda t: t.import_rows(KEYS.astype(np.int32)), TypeError, "keys must be int64, got int32"),
    (
        lambda t: t.import_rows(KEYS, counts=np.ones(2, np.uint32)),
        ValueError,
        "counts must have one entry a key, got 2 for 3",
    ),
    (lambda t: t.import_rows(KEYS, last_steps=KEYS), TypeError, "last_steps must .* uint32"),
]


@pytest.mark.parametrize(("call", "error", "message"), NATIVE)
def test_native_table_refuses_and_stays(table, call, error, message) -> None:
    before = snapshot(table)
    with pytest.raises(error, match=message) as caught:
        call(table)
    assert f"table '{table.name}': " in str(caught.value)
    assert snapshot(table) == before


def test_a_gradient_of_another_shape(table) -> None:
    _, ticket = table.lookup_train(KEYS)
    for wrong in (ROWS[:2], np.ones((3, 3), np.float32), np.ones((2, 3), np.float32)):
        with pytest.raises(ValueError, match=f"table '{table.name}': .*grad"):
            table.accumulate(ticket, wrong)
    table.accumulate(ticket, ROWS)  # the right one is still welcome, once
    with pytest.raises(RuntimeError, match="no longer knows"):
        table.accumulate(ticket, ROWS)


CREATION: list[tuple[dict[str, Any], str]] = [
    ({"dim": 0}, r"dim must be in \[1, 8192\], got 0"),
    ({"dim": 8193}, r"dim must be in \[1, 8192\], got 8193"),
    ({"admission_threshold": -2}, r"admission threshold must be in \[-1"),
    ({"max_idle_steps": 0}, "max_idle_steps must be -1 or >= 1"),
    ({"vocabulary": -1}, "vocabulary must be in"),
    ({"init_kind": "nonsense"}, "initializer kind 'nonsense' is unknown; legal: constant"),
]


@pytest.mark.parametrize(("arguments", "message"), CREATION)
def test_a_table_that_cannot_be_leaves_its_name_free(unique, arguments, message) -> None:
    name = unique()
    with pytest.raises(ValueError, match=message):
        _native.Table(**{"name": name, "dim": 2, **arguments})
    _native.Table(name=name, dim=2).close()


def test_a_name_is_used_once(unique) -> None:
    name = unique()
    table = _native.Table(name=name, dim=1)
    with pytest.raises(ValueError, match=f"name '{name}' is already used by an open table"):
        _native.Table(name=name, dim=1)
    table.close()
    MapParameter(name=name).close()


def test_a_closed_table_says_so(mode, unique) -> None:
    m = MapParameter(name=unique())
    m.close()
    m.close()
    message = f"table '{m.name}': is closed"
    for call in (lambda: m.get(ids(1)), lambda: m.put(ids(1), 1.0), lambda: m.erase(ids(1))):
        with pytest.raises(RuntimeError, match=message):
            call()
    with pytest.raises(TableClosedError, match=message):
        _ = m.row_count


@pytest.mark.parametrize("n", [0, -1, 1025])
def test_number_of_threads(n) -> None:
    with pytest.raises(ValueError, match=r"num_threads must be in \[1, 1024\]"):
        set_num_threads(n)


# ---------------------------------------------------------------- parameters and cells


@pytest.fixture
def filled(unique):
    made = MapParameter(name=unique(), value_shape=2, default_value="normal")
    made.put(ids(1, 2, -1), Tensor(ROWS))
    yield made
    made.close()


MAP: list[tuple[Callable[[MapParameter], Any], str]] = [
    (lambda m: m.get(ids(1.0, dtype=ms.float32)), "key must be int32 or int64, got float32"),
    (lambda m: m.get(ids(True, dtype=ms.bool_), False), "key must be int32 or int64, got bool"),
    (lambda m: m.get(ids(1, dtype=ms.int64)), "key must be int32, the table's key_dtype"),
    (lambda m: m.put(ids(1, dtype=ms.int64), 1.0), "key must be int32, the table's key_dtype"),
    (lambda m: m.put(ids(1, 2), Tensor(ROWS)), r"value must have the shape of key, \[2\]"),
    (lambda m: m.put(ids(1, 2, 3), Tensor(ROWS.reshape(2, 3))), "value must have the shape of key"),
    (lambda m: m.put(ids(1), Tensor(ROWS[:1], ms.float16)), "value must be float32, got float16"),
    (lambda m: m.erase(ids(1.0, dtype=ms.float32)), "key must be int32 or int64, got float32"),
    (lambda m: m.import_data((KEYS, ROWS)), "data must be .* got 2 parts"),  # type: ignore[arg-type]
    (lambda m: m.import_data((KEYS, ROWS[:2], KEYS * 0)), "values must have shape"),
    (lambda m: m.import_data((KEYS, ROWS, KEYS[:1])), "keys and statuses must have the same shape"),
    (lambda m: m.import_data((KEYS, ROWS, KEYS * 0 + 3)), "statuses must be 0 .*, 1 .* or 2 "),
    (lambda m: m.import_data((KEYS * 1.0, ROWS, KEYS * 0)), "keys must be int32 or int64"),
    (lambda m: m.import_data((KEYS << 40, ROWS, KEYS * 0)), r"keys must be in \[-2\*\*31, 2\*\*31"),
    (lambda m: m.import_data((KEYS, ROWS * 1.0e0 > 0, KEYS * 0)), "values must be float32"),
    (lambda m: m.export_slice_data(slice_bytes=0), "slice_bytes"),
]


@pytest.mark.parametrize(("call", "message"), MAP)
def test_map_parameter_refuses_and_stays(mode, filled, call, message) -> None:
    before = snapshot(native_of(filled))
    with pytest.raises((TypeError, ValueError, RuntimeError), match=message) as caught:
        call(filled)
    assert filled.name in str(caught.value)
    assert snapshot(native_of(filled)) == before


ARGUMENTS: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (MapParameter, {"permit_filter_value": 0}, "permit_filter_value"),
    (MapParameter, {"permit_filter_value": 1.5}, "permit_filter_value"),
    (MapParameter, {"evict_filter_value": 0}, "evict_filter_value"),
    (MapParameter, {"evict_filter_value": -1}, "evict_filter_value"),
    (MapParameter, {"key_dtype": ms.float32}, "key_dtype must be Int32 or Int64"),
    (MapParameter, {"value_dtype": ms.int8}, "value_dtype must be Float32 or BFloat16 or Float16"),
    (MapParameter, {"value_shape": ()}, "value_shape"),
    (MapParameter, {"value_shape": 0}, "value_shape"),
    (MapParameter, {"value_shape": (100, 100)}, "value_shape must have at most 8192"),
    (MapParameter, {"value_shape": 2.5}, "value_shape must be an int"),
    (MapParameter, {"default_value": "nonsense"}, "default_value must be .*'normal'"),
    (MapParameter, {"default_value": float("nan")}, "default_value"),
    (MapParameter, {"default_value": None}, "default_value must be"),
    (MapParameter, {"default_value": ms.common.initializer.Normal(-1.0)}, "default_value must"),
    (MapParameter, {"seed": -1}, "seed"),
    (MapParameter, {"requires_grad": 1}, "requires_grad must be a bool"),
    (MapParameter, {"key_tensor": ids(1)}, "key_tensor and value_tensor must be given together"),
    (
        MapParameter,
        {"key_tensor": ids(1), "value_tensor": Tensor(ROWS)},
        r"key_tensor must be \[n\] and value_tensor",
    ),
    (HashEmbeddingLookup, {"embedding_size": 0}, "embedding_size"),
    (HashEmbeddingLookup, {"embedding_size": 4, "sparse": False}, "sparse must be True"),
    (HashEmbeddingLookup, {"embedding_size": 4, "max_norm": 0.0}, "max_norm"),
    (HashEmbeddingLookup, {"embedding_size": 4, "max_norm": float("nan")}, "max_norm"),
    (HashEmbeddingLookup, {"embedding_size": 4, "padding_key": 1 << 63}, "padding_key"),
    (HashEmbeddingLookup, {"embedding_size": 4, "padding_key": 1.0}, "padding_key"),
    (HashEmbeddingLookup, {"embedding_size": 4, "param_init": "nonsense"}, "param_init|default"),
    (HashEmbeddingLookup, {"embedding_size": 4, "table": 3}, "table must be a MapParameter"),
    (EmbeddingLookup, {"vocab_size": 0, "embedding_size": 4}, "vocab_size"),
    (EmbeddingLookup, {"vocab_size": 4, "embedding_size": 0}, "embedding_size"),
    (EmbeddingLookup, {"vocab_size": 4, "embedding_size": 4, "target": "GPU"}, "target must be"),
    (
        EmbeddingLookup,
        {"vocab_size": 4, "embedding_size": 4, "out_of_range": "wrap"},
        "out_of_range must be one of 'error', 'zeros'",
    ),
    (
        EmbeddingLookup,
        {"vocab_size": 4, "embedding_size": 4, "target": "DEVICE"},
        "sparse must be False with target='DEVICE'",
    ),
    (
        EmbeddingLookup,
        {"vocab_size": 4, "embedding_size": 2, "param_init": Tensor(ROWS)},
        r"param_init must be a float32 Tensor of shape \(4, 2\)",
    ),
    (
        EmbeddingBag,
        {"embedding_size": 4, "mode": "max"},
        "mode must be one of 'sum', 'mean', 'sqrtn'",
    ),
    (
        EmbeddingBag,
        {"embedding_size": 4, "vocab_size": 4, "permit_filter_value": 2},
        "permit_filter_value is for hash tables",
    ),
    (StaticParameter, {"vocab_size": True, "embedding_dim": 2}, "vocab_size"),
]


@pytest.mark.parametrize(("make", "arguments", "message"), ARGUMENTS)
def test_a_bad_argument_is_named(unique, make, arguments, message) -> None:
    name = unique()
    with pytest.raises((TypeError, ValueError), match=message):
        make(**arguments, name=None if arguments.get("table") else name)
    MapParameter(name=name).close()  # nothing was left behind


def test_ids_of_another_type(pynative, unique) -> None:
    embedding = HashEmbeddingLookup(2, name=unique())
    optim.SGD(embedding.trainable_params(), 0.1)
    net = SumOf(embedding).set_train()
    for wrong in (ids(1.0, dtype=ms.float32), ids(1, dtype=ms.int64)):
        with pytest.raises(RuntimeError, match="ids must be int32.*got"):
            net(wrong)
    assert len(embedding.embedding_table) == 0


def test_an_id_outside_the_vocabulary(mode, unique) -> None:
    embedding = EmbeddingLookup(5, 2, "ones", name=unique())
    net = SumOf(embedding)
    step = nn.TrainOneStepCell(net, optim.SGD(net.trainable_params(), 1.0)).set_train()
    before = snapshot(native_of(embedding.embedding_table))
    with pytest.raises(RuntimeError, match=r"id 7 at position 2 is outside the vocabulary \[0, 5"):
        step(ids(1, 2, 7, -3))
    assert snapshot(native_of(embedding.embedding_table)) == before
    # MindSpore runs no graph again in which an operator failed: a new one is compiled.
    step.compile_cache.clear()
    step(ids(1, 2, 4, 3))
    expected = [[1, 1]] + [[0, 0]] * 4
    assert embedding.embedding_table.asnumpy().tolist() == expected


def test_bags_that_do_not_fit(pynative, unique) -> None:
    bag = EmbeddingBag(TableConfig(2, name=unique(), key_dtype=ms.int32), "mean").set_train(False)
    two, weight = ids(1, 2), Tensor(np.ones(1, np.float32))
    for inputs, message in [
        ((two, ids(0, 3)), r"offsets\[1\] is 3"),
        ((two, ids(1, 2)), "offsets must start at 0"),
        ((two, ids(0, 2, 1)), "offsets must start at 0 and rise"),
        ((two, ids(0.0, dtype=ms.float32)), "offsets must be int32 or int64, got float32"),
        ((two, ids(0), weight), "per_sample_weights must have the shape of ids"),
        ((two, ids(0), ids(1, 2, dtype=ms.float64)), "per_sample_weights must be float32"),
        ((two,), r"ids must be \[bags, length\] without offsets"),
        ((ids([1, 2]), ids(0)), r"ids must be \[bags, length\] without offsets"),
    ]:
        with pytest.raises((RuntimeError, ValueError), match=message):
            bag(*inputs)


# ---------------------------------------------------------------- nothing is lost in silence


def test_training_without_an_optimizer(mode, unique) -> None:
    name = unique()
    embedding = HashEmbeddingLookup(2, name=name)
    message = re.escape(f"table '{name}': is looked up in training mode but no optimizer covers it")
    with pytest.raises(RuntimeError, match=message):
        SumOf(embedding).set_train()(ids(1))
    with pytest.raises(NoOptimizerError, match=message):
        native_of(embedding.embedding_table).lookup_train(KEYS)
    assert len(embedding.embedding_table) == 0


def test_an_optimizer_that_does_not_know_tables(mode, unique) -> None:
    embedding = HashEmbeddingLookup(2, name=unique())
    net = SumOf(embedding)
    step = nn.TrainOneStepCell(net, nn.Adam(net.trainable_params())).set_train()
    with pytest.raises(RuntimeError, match="no optimizer covers it.*mindspore_rec.optim"):
        step(ids(1, 2))
    assert len(embedding.embedding_table) == 0


def test_the_gradient_of_an_evaluation_lookup(mode, unique) -> None:
    embedding = HashEmbeddingLookup(2, name=unique())
    net = SumOf(embedding)
    optimizer = optim.SGD(net.trainable_params(), 0.1)
    grad = ms.value_and_grad(net.set_train(False), None, optimizer.parameters)
    with pytest.raises(RuntimeError, match="in evaluation mode, so it would never learn"):
        # The backward pass is asynchronous: its error comes when its result is asked for.
        grad(ids(1))[1][0].asnumpy()


def test_a_gradient_after_the_step(table) -> None:
    rows, ticket = table.lookup_train(KEYS)
    table.apply(0.1)
    with pytest.raises(RuntimeError, match="a step was taken, or gradients discarded, between"):
        table.accumulate(ticket, rows)


# ---------------------------------------------------------------- out of memory

OUT_OF_MEMORY = """
import os, resource, sys
import numpy as np
from mindspore_rec import OutOfMemoryError, _native

def rows_of(table):
    rows = table.export_rows(with_state=True)
    order = np.argsort(rows["keys"])
    return [c[order].tobytes() for c in rows.values()] + [table.stats()["candidates"]]

def attempt(trial):
    rng = np.random.default_rng(trial)
    table = _native.Table(
        name=f"memory{trial}", dim=int(rng.choice([1, 8, 32])), init_kind="normal", init_b=1.0,
        admission_threshold=int(rng.choice([-1, 2])), max_idle_steps=int(rng.choice([-1, 5])),
    )
    table.bind_optimizer("adam")
    have, n = int(rng.choice([0, 1000, 20000])), int(rng.choice([2000, 20000, 50000]))
    table.put(np.arange(have), np.ones((have, table.dim), np.float32))
    if trial % 2:
        table.mark()
    keys = rng.integers(0, 2 * have + n, n)
    values = np.ones((n, table.dim), np.float32)
    _, ticket = table.lookup_train(keys[: n // 2])
    before = rows_of(table)
    call = [
        lambda: table.lookup_train(keys),
        lambda: table.lookup(keys, insert=True),
        lambda: table.put(keys, values),
        lambda: table.import_rows(keys, values),
        lambda: table.accumulate(ticket, values[: n // 2]),
        lambda: table.erase(keys),
    ][trial % 6]
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + int(rng.random() ** 3 * (24 << 20)), hard))
    try:
        call()
        return 0
    except OutOfMemoryError as error:
        assert f"table '{table.name}': out of memory; the table is as it was" in str(error)
        failed = 1
    except MemoryError:  # NumPy's, for the result
        failed = 0
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    assert rows_of(table) == before, trial
    call()  # with memory it works again
    table.apply(0.1)
    return failed

failures = 0
for trial in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        os._exit(attempt(trial))
    status = os.waitpid(child, 0)[1]
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) in (0, 1), (trial, status)
    failures += os.WEXITSTATUS(status)
print("out of memory", failures)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS binds on Linux")
def test_out_of_memory_leaves_the_table_as_it_was() -> None:
    """Under a random limit of address space, in processes of their own."""
    found = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY, "42"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    assert int(found.stdout.split()[-1]) >= 5, found.stdout
