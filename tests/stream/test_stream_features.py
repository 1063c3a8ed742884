# SPDX-License-Identifier: Apache-2.0
"""Features of a stream against plain formulas; what they learn is their state."""

from __future__ import annotations

import datetime
import json
import math
import time
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from mindspore_rec.common.columns.hashing import category_keys
from mindspore_rec.feature import Cross, NumbersOfTexts, QuantileBucket
from mindspore_rec.stream import (
    Category,
    FeaturePipeline,
    Key,
    LogScale,
    MinMaxScale,
    Number,
    StandardScale,
    TimeCycle,
    TimePart,
)

VALUES = st.lists(
    st.one_of(st.none(), st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf])), max_size=20
)
BATCHES = st.lists(VALUES, min_size=1, max_size=6)


def finite(values: list[float | None]) -> list[float]:
    return [v for v in values if v is not None and math.isfinite(v)]


def column(values: list[float | None]) -> pa.Array:
    return pa.array(values, pa.float64())


@given(BATCHES)
def test_min_max_is_of_all_rows_so_far(batches):
    scale, seen = MinMaxScale("x", missing=-7.0), []
    for values in batches:
        made = scale.apply(column(values), learn=True)
        seen += finite(values)
        for value, got in zip(values, made.tolist(), strict=True):
            if value is None or not math.isfinite(value):
                assert got == -7.0
            elif min(seen) == max(seen):
                assert got == 0.0
            else:
                share = (value - min(seen)) / (max(seen) - min(seen))
                assert got == pytest.approx(share, abs=1e-6)
    assert scale.state_dict() == ([min(seen), max(seen)] if seen else [])


@given(BATCHES)
def test_standard_scale_is_of_all_rows_so_far(batches):
    scale, seen = StandardScale("x"), []
    for values in batches:
        made = scale.apply(column(values), learn=True)
        seen += finite(values)
        known = finite(values)
        if not known or np.std(seen) < 1e-3:
            continue
        places = [i for i, v in enumerate(values) if v is not None and math.isfinite(v)]
        expected = (np.array(known) - np.mean(seen)) / np.std(seen)
        np.testing.assert_allclose(made[places], expected, rtol=1e-4, atol=1e-4)


MAKERS = [
    lambda: MinMaxScale("x"),
    lambda: MinMaxScale("x", low=-1.0, high=5.0),
    lambda: LogScale("x"),
    lambda: LogScale("x", running=True),
    lambda: StandardScale("x"),
    lambda: Number("x", missing=2.0),
]


@pytest.mark.parametrize("make", MAKERS)
@given(batches=BATCHES, data=st.data())
def test_a_restart_changes_no_bit_and_applying_learns_nothing(make, batches, data):
    whole, again = make(), make()
    restart = data.draw(st.integers(0, len(batches)))
    for i, values in enumerate(batches):
        if i == restart:
            state = json.loads(json.dumps(again.state_dict()))
            again = make()
            again.load_state_dict(state)
        again.apply(column([1e7]), learn=False)
        expected = whole.apply(column(values), learn=True)
        got = again.apply(column(values), learn=True)
        assert got.tobytes() == expected.tobytes() and got.dtype == np.float32


@given(
    st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "", "é"])), min_size=1),
    st.integers(0, 5),
)
def test_keys_are_the_hash_however_strings_are_stored(values, begin):
    expected = category_keys("f", values)[begin:]
    plain = pa.array(values, pa.string())
    for stored in (plain, plain.cast(pa.large_string()), plain.dictionary_encode()):
        got = Category("x", field="f").apply(stored.slice(begin), learn=True)
        np.testing.assert_array_equal(got, expected)
    wide = pa.DictionaryArray.from_arrays(
        plain.dictionary_encode().indices,
        pa.array([*plain.dictionary_encode().dictionary.to_pylist(), *"0123456789" * 30]),
    )
    np.testing.assert_array_equal(
        Category("x", field="f").apply(wide.slice(begin), learn=True), expected
    )


@given(st.lists(st.one_of(st.none(), st.integers(-(2**33), 2**33)), min_size=1))
def test_parts_of_times_are_the_calendars(seconds):
    parts = {
        "minute": lambda t: t.minute,
        "hour": lambda t: t.hour,
        "weekday": lambda t: t.weekday(),
        "day": lambda t: t.day - 1,
        "month": lambda t: t.month - 1,
    }
    epoch = datetime.datetime(1970, 1, 1)
    times = [None if s is None else epoch + datetime.timedelta(seconds=s) for s in seconds]
    stored = [
        pa.array(seconds, pa.int64()),
        pa.array(seconds, pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp("ms")),
    ]
    for part, of in parts.items():
        numbers = [None if t is None else of(t) for t in times]
        expected = category_keys(f"t.{part}", pa.array(numbers, pa.int64()))
        for values in stored:
            got = TimePart("t", part).apply(values, learn=True)
            np.testing.assert_array_equal(got, expected)
    cycle = TimeCycle("t", "hour").apply(stored[0], learn=True)
    for t, (sine, cosine) in zip(times, cycle.tolist(), strict=True):
        angle = 0.0 if t is None else t.hour / 24 * 2 * math.pi
        expected_pair = (0.0, 0.0) if t is None else (math.sin(angle), math.cos(angle))
        assert (sine, cosine) == pytest.approx(expected_pair, abs=1e-6)


def make_pipeline(threads: int = 1, prepare: Any = ()) -> FeaturePipeline:
    return FeaturePipeline(
        {
            "ids": [Category("s"), Key("k"), TimePart("t", "hour")],
            "dense": [MinMaxScale("x"), TimeCycle("t", "weekday"), LogScale("x", running=True)],
            "label": Number("y"),
        },
        prepare,
        threads,
    )


def frame(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "s": rng.choice(np.array(["a", "b", None], object), rows),
            "k": rng.integers(-5, 5, rows),
            "t": rng.integers(0, 10**9, rows),
            "x": rng.normal(size=rows) * 10,
            "y": rng.integers(0, 2, rows),
        }
    )


def test_pipeline_puts_features_side_by_side_with_any_number_of_threads() -> None:
    one, two = make_pipeline(), make_pipeline(threads=2)
    for seed in range(3):
        rows = frame(20, seed)
        made, other = one(rows), two(pa.Table.from_pandas(rows))
        assert {name: (a.shape, a.dtype.name) for name, a in made.items()} == {
            "ids": ((20, 3), "int64"),
            "dense": ((20, 4), "float32"),
            "label": ((20, 1), "float32"),
        }
        for name in made:
            np.testing.assert_array_equal(made[name], other[name])
            assert made[name].flags.c_contiguous
        np.testing.assert_array_equal(made["ids"][:, 1], rows["k"])
    again = make_pipeline()
    again.load_state_dict(json.loads(json.dumps(one.state_dict())))
    before = one.state_dict()
    for name, array in one.apply(frame(20, 9)).items():
        np.testing.assert_array_equal(array, again.apply(frame(20, 9))[name])
    assert one.state_dict() == before


def test_functions_of_the_user_come_first() -> None:
    def double(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(x=rows["x"] * 2)

    def positive(rows: pd.DataFrame) -> pd.DataFrame:
        return rows[rows["x"] > 0]

    rows = frame(50, 1)
    made = make_pipeline(prepare=[double, positive])(rows)
    assert len(made["label"]) == int((rows["x"] > 0).sum())
    np.testing.assert_array_equal(made["label"][:, 0], rows["y"][rows["x"] > 0])


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (lambda: FeaturePipeline({}), TypeError, "outputs must be a dict"),
    (lambda: FeaturePipeline({"a": []}), TypeError, "one or more features"),
    (lambda: FeaturePipeline({"a": [Key("x"), Number("y")]}), ValueError, "keys only or of"),
    (lambda: FeaturePipeline({"a": Key("x")}, threads=0), ValueError, "threads must be in"),
    (
        lambda: FeaturePipeline({"a": Key("x")}, prepare=[cast(Any, 1)]),
        TypeError,
        "prepare must be",
    ),
    (lambda: make_pipeline()({"s": ["a"]}), ValueError, "must have a column 'k'"),
    (lambda: make_pipeline().load_state_dict({}), ValueError, "pipeline with outputs"),
    (lambda: MinMaxScale("x", low=1, high=1), ValueError, "low must be below high"),
    (lambda: LogScale("x", running=cast(Any, 1)), TypeError, "running must be a bool"),
    (lambda: TimePart("x", "year"), ValueError, "part must be one of"),
    (lambda: Number(""), TypeError, "column must be a name"),
    (lambda: Number("x").apply(pa.array(["a"]), True), ValueError, "must be numbers"),
    (lambda: Key("x").apply(pa.array([None, 1]), True), ValueError, "without missing values"),
    (lambda: TimePart("x", "day").apply(pa.array(["a"]), True), ValueError, "must be seconds"),
]


@pytest.mark.parametrize(("call", "error", "said"), REFUSED)
def test_refusals(call, error, said):
    with pytest.raises(error, match=said):
        call()


ORDINARY: list[Any] = [1.0, 2.0, 1_700_222_400.0]
NO_NUMBERS: list[Any] = [math.nan, math.inf, -math.inf, 1e308, -1e308, 3.5e38, None]
NO_TIMES = [*NO_NUMBERS, 1e19, 9.3e18, -1e18]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Number("x"),
        lambda: MinMaxScale("x"),
        lambda: LogScale("x"),
        lambda: LogScale("x", running=True),
        lambda: StandardScale("x"),
        *(lambda part=part: TimePart("x", part) for part in ("minute", "weekday", "month")),
        lambda: TimeCycle("x", "hour"),
    ],
)
def test_absurd_values_spoil_nothing(make):
    """Neither what is beside them nor what comes later: a stream has to live with what it gets."""
    feature, sober = make(), make()
    absurd = NO_NUMBERS if isinstance(feature, Number) else NO_TIMES
    missing = make().apply(column([None]), learn=False)
    made = feature.apply(column(ORDINARY + absurd), learn=True)
    np.testing.assert_array_equal(made[:3], sober.apply(column(ORDINARY), learn=True))
    np.testing.assert_array_equal(made[3:], missing.repeat(len(absurd), 0))
    assert feature.state_dict() == sober.state_dict()
    for value in absurd:
        np.testing.assert_array_equal(make().apply(column([value]), learn=True), missing)


def test_times_of_whole_numbers_and_timestamps_that_are_absurd():
    missing = TimePart("x", "hour").apply(pa.array([None], pa.int64()), learn=False)
    for kind in (pa.int64(), pa.uint64(), pa.timestamp("s"), pa.timestamp("us")):
        most = (1 << 64) - 1 if kind == pa.uint64() else (1 << 63) - 1
        made = TimePart("x", "hour").apply(pa.array([most], kind), learn=False)
        np.testing.assert_array_equal(made, missing)


def test_a_batch_that_fails_leaves_the_statistics_of_inner_transforms() -> None:
    for learner in (
        lambda: NumbersOfTexts(MinMaxScale("a")),
        lambda: Cross([QuantileBucket("a"), Category("c")]),
    ):
        feature = learner()
        other = Number("b") if feature.dtype is np.float32 else Key("b")
        pipeline = FeaturePipeline({"x": [feature, other]})
        a, worse = (["1", "2"], ["1", "9"]) if feature.dtype is np.float32 else ([1, 2], [1, 9])
        pipeline({"a": a, "c": [1, 2], "b": [3, 4]})
        before = json.dumps(pipeline.state_dict())
        with pytest.raises(ValueError, match="column 'b' must be"):
            pipeline({"a": worse, "c": [1, 2], "b": ["x", "y"]})
        assert json.dumps(pipeline.state_dict()) == before


def test_a_batch_that_fails_waits_for_the_columns_on_other_threads() -> None:
    class Slow(MinMaxScale):
        def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
            time.sleep(0.2)
            return super().apply(values, learn)

    pipeline = FeaturePipeline({"x": [Number("b"), Slow("a")]}, threads=2)
    with pytest.raises(ValueError, match="column 'b' must be numbers"):
        pipeline({"a": [1.0, 2.0], "b": ["x", "y"]})
    time.sleep(0.4)
    assert pipeline.state_dict()["x"] == [None, []]
