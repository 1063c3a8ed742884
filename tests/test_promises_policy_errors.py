# SPDX-License-Identifier: Apache-2.0
"""What policies of admission and eviction promise about mistakes: each is named, none is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from mindspore_rec import (
    CountAdmission,
    EmbeddingBag,
    EvictCallback,
    Eviction,
    HashEmbeddingLookup,
    MapParameter,
    ProbabilityAdmission,
    SketchAdmission,
    StaleHandleError,
    _native,
    optim,
)
from mindspore_rec.common.rows.native_access import NativeAccess
from mindspore_rec.parameter import HashTable
from mindspore_rec.train import EvictedKeysCallback
from mindspore_rec.train.parameter.table_parameter import TableParameter
from tests.support.native_table import native_of
from tests.test_promises_errors import KEYS, ROWS, snapshot

NAN, INF = float("nan"), float("inf")
Message = tuple[Callable[..., Any], dict[str, Any], type[Exception], str]


def eviction(message: str, error: type[Exception] = ValueError, /, **arguments: Any) -> Message:
    return Eviction, arguments, error, message


POLICIES: list[Message] = [
    (CountAdmission, {"threshold": -2}, ValueError, r"admission threshold must be in \[-1, 1073"),
    (CountAdmission, {"threshold": 1 << 30}, ValueError, "admission threshold .*, got 1073741824"),
    (CountAdmission, {"threshold": 2.0}, TypeError, "admission threshold must be an int, got 2.0"),
    (CountAdmission, {"threshold": True}, TypeError, "admission threshold must be an int"),
    (
        CountAdmission,
        {"threshold": 2, "max_candidates": 15},
        ValueError,
        r"max_candidates must be None, -1 \(off\) or in \[16, .*, got 15",
    ),
    (CountAdmission, {"threshold": 2, "max_candidates": -2}, ValueError, "max_candidates .* -2"),
    (CountAdmission, {"threshold": 2, "max_candidates": "9"}, TypeError, "max_candidates .* int"),
    (SketchAdmission, {"threshold": -2}, ValueError, r"admission threshold must be in \[-1, 65535"),
    (SketchAdmission, {"threshold": 65536}, ValueError, "admission threshold .*, got 65536"),
    (SketchAdmission, {"threshold": 2, "sketch_bytes": 1023}, ValueError, "sketch_bytes .* 1023"),
    (SketchAdmission, {"threshold": 2, "sketch_bytes": 1e6}, TypeError, "sketch_bytes .* an int"),
    (ProbabilityAdmission, {"probability": 0}, ValueError, r"probability must be in \(0, 1\]"),
    (ProbabilityAdmission, {"probability": 1.01}, ValueError, r"probability .* got 1.01"),
    (ProbabilityAdmission, {"probability": -0.5}, ValueError, r"probability .* got -0.5"),
    (ProbabilityAdmission, {"probability": NAN}, ValueError, "probability must be finite"),
    (ProbabilityAdmission, {"probability": "1"}, TypeError, "probability must be a number"),
    eviction("an Eviction must have a rule: max_idle_steps, max_idle_seconds, max_rows"),
    eviction("an Eviction must have a rule", max_idle_steps=-1, min_norm=-1),
    *(
        eviction(rf"{name} must be .* \[1, .*, got 0", **{name: 0})
        for name in ("max_idle_steps", "max_idle_seconds", "max_rows", "max_bytes")
    ),
    *(
        eviction(f"{name} must be .*, got -2", **{name: -2})
        for name in ("max_idle_steps", "max_idle_seconds", "max_rows", "max_bytes")
    ),
    *(
        eviction(f"{name} must be an int, got 1.5", TypeError, **{name: 1.5})
        for name in ("max_idle_steps", "max_idle_seconds", "max_rows", "max_bytes")
    ),
    eviction("max_rows must be in", max_rows=(1 << 60) + 1),
    eviction("order must be one of 'lru', 'lfu', 'lfu_decay', 'score', got 'x'", order="x"),
    eviction("order='lfu' is for max_rows or max_bytes, which", max_idle_steps=1, order="lfu"),
    eviction("trigger must be one of 'step', 'callback', got 'x'", max_rows=9, trigger="x"),
    eviction("min_norm must be None, -1 .off. or > 0, got -2", min_norm=-2),
    eviction("min_norm must be None, -1 .off. or > 0, got 0", min_norm=0),
    eviction("min_norm must be finite, got inf", min_norm=INF),
    eviction("min_norm must be a number, got '1'", TypeError, min_norm="1"),
    eviction("half_life_steps must be given with order='lfu_decay'", max_rows=9, order="lfu_decay"),
    eviction("half_life_steps must be given with order='lfu_decay'", max_rows=9, half_life_steps=1),
    eviction(
        "half_life_steps must be > 0, got 0", max_rows=9, order="lfu_decay", half_life_steps=0
    ),
    eviction("half_life_steps must be finite", max_rows=9, order="lfu_decay", half_life_steps=INF),
    eviction(
        "half_life_steps must be a number",
        TypeError,
        max_rows=9,
        order="lfu_decay",
        half_life_steps="1",
    ),
    (EvictCallback, {"evict_enable": 1}, TypeError, "evict_enable must be a bool, got 1"),
    (EvictCallback, {"evict_time_interval": 0}, ValueError, r"evict_time_interval .* \[1, 2147483"),
    (EvictCallback, {"evict_time_interval": 1.5}, TypeError, "evict_time_interval must be an int"),
    (EvictCallback, {"evict_step_interval": 1 << 31}, ValueError, r"evict_step_interval .* \[1, "),
    (EvictCallback, {"evict_rows": 0}, ValueError, "evict_rows must be in"),
    (EvictCallback, {"evict_bytes": -1}, ValueError, "evict_bytes must be in"),
    (
        EvictCallback,
        {"evict_time_interval": None, "evict_step_interval": None},
        ValueError,
        "one of evict_time_interval, evict_step_interval, evict_rows and evict_bytes must be given",
    ),
    (EvictedKeysCallback, {"receiver": 3}, TypeError, "receiver must be a callable or a path"),
]


@pytest.mark.parametrize(("make", "arguments", "error", "message"), POLICIES)
def test_a_bad_policy_is_named(make, arguments, error, message) -> None:
    with pytest.raises(error, match=message):
        make(**arguments)


# ---------------------------------------------------------------- the making of a table

LFU = Eviction(max_rows=9, order="lfu")
CELLS: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (MapParameter, {"admission": 3}, "admission must be a CountAdmission, SketchAdmission or Prob"),
    (MapParameter, {"eviction": "lru"}, "eviction must be an Eviction, got 'lru'"),
    (
        MapParameter,
        {"admission": CountAdmission(2), "permit_filter_value": 2},
        "permit_filter_value must be left out with admission=",
    ),
    (
        MapParameter,
        {"eviction": LFU, "evict_filter_value": 2},
        "evict_filter_value must be left out with eviction=",
    ),
    *(
        (MapParameter, {name: value, "value_shape": 2}, f"table '.*': {name} must be {what}")
        for name in ("unknown_value", "serving_unknown_value")
        for value, what in [
            ([1.0, 2.0, 3.0], "a number or 2 numbers"),
            ([], "a number or 2 numbers"),
            (NAN, "finite"),
            ([0.0, INF], "finite"),
            ("high", "a number"),
            (True, "a number"),
            (np.ones((2, 2)), "a number"),
        ]
    ),
    *(
        (cell, {"embedding_size": 4, "faae_coefficient": value}, "faae_coefficient must be")
        for cell in (HashEmbeddingLookup, EmbeddingBag)
        for value in (0, -1, (1 << 20) + 1, 1.0, True)
    ),
    (
        HashEmbeddingLookup,
        {"embedding_size": 4, "admission": CountAdmission(2), "permit_filter_value": 2},
        "permit_filter_value must be left out with admission=",
    ),
    *(
        (
            EmbeddingBag,
            {"embedding_size": 4, "vocab_size": 9, name: value},
            f"{name} is for hash tables; with vocab_size leave it out",
        )
        for name, value in {
            "admission": CountAdmission(2),
            "eviction": LFU,
            "unknown_value": 1.0,
            "serving_unknown_value": 1.0,
            "faae_coefficient": 2,
            "evict_filter_value": 2,
        }.items()
    ),
]


@pytest.mark.parametrize(("make", "arguments", "message"), CELLS)
def test_a_bad_argument_of_a_table_is_named(unique, make, arguments, message) -> None:
    name = unique()
    with pytest.raises((TypeError, ValueError), match=message):
        make(**arguments, name=name)
    MapParameter(name=name).close()  # nothing was left behind


@pytest.mark.parametrize("make", [HashEmbeddingLookup, EmbeddingBag])
@pytest.mark.parametrize(
    "described",
    [
        {"admission": CountAdmission(2)},
        {"eviction": LFU},
        {"unknown_value": 1.0},
        {"unknown_value": np.ones(2, np.float32)},
        {"serving_unknown_value": Tensor(np.ones(2, np.float32))},
    ],
)
def test_what_describes_a_new_table_beside_a_given_one(filled, make, described) -> None:
    (argument,) = described
    with pytest.raises(ValueError, match=f"{argument} describes a new table; with table= it must"):
        make(2, table=filled, **described)


def test_values_of_unknown_keys_come_in_many_forms(pynative, unique) -> None:
    """And a scalar one is a number."""
    for value, row in [
        (2, [2.0, 2.0]),
        (np.float32(2), [2.0, 2.0]),
        (np.array(2.0), [2.0, 2.0]),
        (Tensor(2.0), [2.0, 2.0]),
        ((1, 2.5), [1.0, 2.5]),
        (Tensor([1.0, 2.5]), [1.0, 2.5]),
    ]:
        table = MapParameter(unique(), value_shape=2, unknown_value=value)
        assert table.get(Tensor([7], ms.int32), False).asnumpy().tolist() == [row]
        table.close()


# ---------------------------------------------------------------- a table in use


@pytest.fixture
def filled(unique):
    made = MapParameter(unique(), value_shape=2, key_dtype=ms.int64, eviction=LFU)
    made.bind_optimizer("adam")
    made.write_rows(KEYS, ROWS)
    yield made
    made.close()


IN_USE: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda m: m.set_threshold(-2), ValueError, r"admission threshold must be in \[-1, .*, got -2"),
    (lambda m: m.set_threshold(1 << 30), ValueError, "admission threshold must be in"),
    (lambda m: m.set_threshold(1 << 70), ValueError, "admission threshold must be in"),
    (lambda m: m.set_threshold(1.0), TypeError, "admission threshold must be an int"),
    (lambda m: m.set_eviction(3), TypeError, "eviction must be an Eviction, got 3"),
    (
        lambda m: m.set_eviction(Eviction(max_rows=9, order="score")),
        ValueError,
        "order cannot change to or from lfu_decay or score",
    ),
    (
        lambda m: m.set_eviction(Eviction(max_rows=9, order="lfu_decay", half_life_steps=1)),
        ValueError,
        "order cannot change to or from lfu_decay or score",
    ),
    (lambda m: m.set_event_time(0), ValueError, r"event time in seconds .* \[1, 4294967295\]"),
    (lambda m: m.set_event_time(-1), ValueError, "event time in seconds since 1970 must be in"),
    (lambda m: m.set_event_time(1 << 32), ValueError, "event time in seconds since 1970 must be"),
    (lambda m: m.set_event_time(1.5), TypeError, "event time in seconds since 1970 must be an int"),
    (lambda m: m.set_event_time(NAN), TypeError, "event time in seconds since 1970 must be an int"),
    (lambda m: m.set_event_time("9"), TypeError, "event time in seconds since 1970 must be an int"),
    (lambda m: m.set_event_time(np.array([5, 0, -1]) * -1 - 9), ValueError, "event time in second"),
    (lambda m: m.set_scores(KEYS, np.ones(3)), ValueError, "keeps no scores; make it with order="),
    (lambda m: m.set_scores(KEYS, np.ones(2)), ValueError, r"scores must have the shape of keys"),
    (lambda m: m.explain(1 << 63), ValueError, "key must be in"),
    (lambda m: m.explain("7"), TypeError, "key must be an int"),
    (lambda m: m.read_rows([1]), TypeError, r"ids must .* got list; numpy.array\(ids, numpy.int64"),
    (lambda m: m.has_rows(Tensor([1])), TypeError, r"keys must .* got Tensor; asnumpy\(\)"),
    (lambda m: m.digest(1 << 70), ValueError, r"parts must be in \[1, 65536\]"),
    (
        lambda m: native_of(m).set_eviction(max_idle_seconds=0),
        ValueError,
        "max_idle_seconds must be -1 or >= 1",
    ),
    (
        lambda m: native_of(m).set_eviction(max_rows=0),
        ValueError,
        "max_rows must be -1 or >= 1, got 0",
    ),
    (lambda m: native_of(m).set_eviction(max_bytes=-5), ValueError, "max_bytes must be -1 or >= 1"),
    (lambda m: native_of(m).set_eviction(min_norm=NAN), ValueError, "min_norm must be finite"),
    (
        lambda m: native_of(m).set_eviction(max_rows=1 << 62),
        ValueError,
        "max_rows must be -1 or >= 1",
    ),
    (lambda m: native_of(m).set_event_time(0), ValueError, r"event time must be in \[1, 2\^32\)"),
    (lambda m: native_of(m).set_event_time(1 << 32), ValueError, "event time must be in"),
    (lambda m: m.set_clock(1 << 32, 0), ValueError, r"step must be in \[0, 2\^32\)"),
    (
        lambda m: m.accumulate_by_handle(KEYS, ROWS),
        ValueError,
        r"handles must be int64 of shape \[..., 2\]",
    ),
    (
        lambda m: m.accumulate_by_handle(np.zeros((3, 2), np.int64), ROWS[:2]),
        ValueError,
        "grad must have one row a handle, got 2 rows for 3 handles",
    ),
    (
        lambda m: m.accumulate_by_handle(np.zeros((3, 2), np.int64), ROWS.astype(float)),
        TypeError,
        "gradients must be float32, got float64",
    ),
    (
        lambda m: m.accumulate_by_handle(np.zeros((3, 2), np.int64), ROWS),
        StaleHandleError,
        r"handles\[0\] is of another table: handles must come from lookup_with_handles",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), IN_USE)
def test_a_table_refuses_and_stays(filled, call, error, message) -> None:
    before = snapshot(native_of(filled))
    with pytest.raises(error, match=message) as caught:
        call(filled)
    assert f"table '{filled.name}': " in str(caught.value)
    assert snapshot(native_of(filled)) == before
    assert filled.eviction is LFU


# Methods of tables outside graphs. Operators of graphs check the arguments of the other classes.
# A Predictor checks the arguments of add_tiers.
METHODS = {
    name: method
    for part in MapParameter.__mro__
    if issubclass(part, NativeAccess) and part not in (MapParameter, HashTable, TableParameter)
    for name, method in vars(part).items()
    if inspect.isfunction(method) and name[0] != "_" and name != "add_tiers"
}
ONES = np.ones(3, np.uint32)
VALUES: dict[str, Any] = {
    **{name: KEYS for name in ("keys", "ids")},
    **{name: ONES for name in ("counts", "last_steps", "last_times")},
    **{name: ROWS for name in ("values", "gradients")},
    **{"handles": np.zeros((3, 2), np.int64), "take": print, "rule": "adam"},
}


def typed_arguments(method: Any) -> list[str]:
    hints = get_type_hints(method).items()
    return [name for name, hint in hints if name != "return" and hint is not Any]


@pytest.mark.parametrize(
    ("method", "argument"),
    [(name, argument) for name in METHODS for argument in typed_arguments(METHODS[name])],
)
def test_a_wrong_type_names_the_table_and_the_argument(filled, method, argument) -> None:
    hints = get_type_hints(METHODS[method])
    required = [
        name
        for name, each in inspect.signature(METHODS[method]).parameters.items()
        if name in hints and each.default is each.empty and each.kind is not each.VAR_KEYWORD
    ]
    arguments = {name: VALUES.get(name, 1) for name in required}
    message = f"table '{filled.name}': .*{argument} must"
    with pytest.raises((TypeError, ValueError), match=message):
        getattr(filled, method)(**{**arguments, argument: object()})


@pytest.mark.parametrize("constants", [{"gamma": 1.0}, {"beta1": "x"}])
def test_constants_that_a_rule_does_not_take(filled, constants) -> None:
    message = f"table '{filled.name}': bind_optimizer .*{next(iter(constants))}=.*help"
    with pytest.raises(TypeError, match=message):
        filled.bind_optimizer("adam", **constants)


def test_scores_that_are_not_numbers(unique) -> None:
    table = MapParameter(unique(), key_dtype=ms.int64, eviction=Eviction(max_rows=9, order="score"))
    table.bind_optimizer("sgd")
    table.write_rows(KEYS, ROWS[:, :1].copy())
    assert table.set_scores(KEYS, [1.0, 2.0, 3.0]) == 3
    with pytest.raises(ValueError, match="scores must not be NaN, got one at position 1"):
        table.set_scores(KEYS, [7.0, NAN, 7.0])
    assert [table.explain(int(key)).score for key in KEYS] == [1.0, 2.0, 3.0]
    with pytest.raises(TypeError, match="keys must be int32 or int64"):
        table.set_scores([1.5], [1.0])
    table.close()


def test_eviction_that_a_table_does_not_have(unique) -> None:
    table = MapParameter(unique())
    with pytest.raises(ValueError, match=f"table '{table.name}': has no eviction; give it an Evic"):
        table.evict()
    table.close()
    static = _native.Table(name=unique(), dim=1, vocabulary=9)
    with pytest.raises(ValueError, match="is static: no row ever leaves it"):
        static.evict()
    static.close()


def test_a_threshold_where_there_is_none(unique) -> None:
    table = MapParameter(unique(), admission=ProbabilityAdmission(0.5))
    for threshold in (3, 0, -1):
        with pytest.raises(ValueError, match="admits by probability and has no threshold to set"):
            table.set_threshold(threshold)
    sketch = MapParameter(unique(), admission=SketchAdmission(3, 1024))
    with pytest.raises(ValueError, match=r"admission threshold must be in \[-1, 15\], got 16"):
        sketch.set_threshold(16)  # its counters have four bits
    assert sketch.explain(1).threshold == 3


def test_age_in_seconds_without_a_time_names_what_is_missing(mode, unique) -> None:
    """In a network, by handle and by trigger; with a time it works."""
    rules = Eviction(max_idle_seconds=60, trigger="callback")
    embedding = HashEmbeddingLookup(2, name=unique(), eviction=rules).set_train()
    table = embedding.embedding_table
    optimizer = optim.SGD(embedding.trainable_params(), 0.1)
    message = (
        rf"table '{table.name}': evicts by age in seconds \(max_idle_seconds=60\) but has no event "
        r"time; name the timestamp column of the batches, or call set_event_time\(seconds\)"
    )
    ids = Tensor([1, 2], ms.int32)
    for call in (
        lambda: embedding(ids).asnumpy(),
        lambda: table.lookup_with_handles(ids),
        lambda: table.evict(),
    ):
        with pytest.raises((ValueError, RuntimeError), match=message):
            call()
    assert len(table) == 0
    embedding.set_train(False)
    embedding(ids)  # evaluation needs no time
    table.set_event_time(Tensor([5, 9, 7]))
    assert table.event_time == 9
    _, handles = table.lookup_with_handles(ids)
    optimizer.apply_by_handle(np.ones((2, 2), np.float32), handles)
    table.evict()
    assert len(table) == 2


CREATION = [
    ({"admission_kind": "luck"}, "admission_kind 'luck' is unknown; legal: count, sketch, prob"),
    ({"order": "luck"}, "order 'luck' is unknown; legal: lru, lfu, lfu_decay, score"),
    ({"max_candidates": 15}, "max_candidates must be -1 or >= 16, got 15"),
    ({"admission_kind": "sketch", "sketch_bytes": 1023}, "sketch_bytes must be >= 1024, got 1023"),
    ({"admission_kind": "probability", "probability": 0.0}, r"probability must be in \(0, 1\]"),
    ({"admission_kind": "probability", "probability": NAN}, r"probability must be in \(0, 1\]"),
    ({"order": "lfu_decay"}, "half_life_steps must be a finite number > 0"),
    ({"order": "lfu_decay", "half_life_steps": INF}, "half_life_steps must be a finite number > 0"),
    ({"unknown_value": [1.0, 2.0, 3.0]}, "unknown_value must have 1 or 2 floats, got 3"),
    ({"serving_unknown_value": [1.0] * 3}, "serving_unknown_value must have 1 or 2 floats, got 3"),
]


@pytest.mark.parametrize(("arguments", "message"), CREATION)
def test_a_native_table_that_cannot_be(unique, arguments, message) -> None:
    name = unique()
    with pytest.raises(ValueError, match=message):
        _native.Table(**{"name": name, "dim": 2, **arguments})
    _native.Table(name=name, dim=2).close()
