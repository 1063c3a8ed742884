# SPDX-License-Identifier: Apache-2.0
"""Numbers by their place among others, whatever numbers come."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from mindspore_rec.common.columns.hashing import category_keys
from mindspore_rec.stream import FeaturePipeline, MixedScale, QuantileBucket, QuantileScale

ANY = st.lists(st.floats() | st.none(), max_size=60)
BAD = [-1.0, -1e300, 1e300, math.inf, -math.inf, math.nan, None, 0.0, -0.0, 5e-324]


KINDS = st.sampled_from([QuantileScale, MixedScale])


@given(kind=KINDS, learned=ANY, given_=ANY, buckets=st.sampled_from([2, 3, 16, 256]))
def test_any_number_has_a_place_and_a_bucket(kind, learned, given_, buckets):
    scale = kind("x", buckets, missing=0.5).fit(learned)
    places, keys = scale.scaled(given_), scale.keys(given_)
    assert places.dtype == np.float32 and keys.dtype == np.int64
    assert len(places) == len(keys) == len(given_)
    assert np.isfinite(places).all() and (np.abs(places) <= 1).all()
    missing = [x is None or math.isnan(x) for x in given_]
    assert (places[missing] == 0.5).all()
    assert (keys[missing] == category_keys("x.bucket", [None])).all()
    there = [(x, p, k) for x, p, k, m in zip(given_, places, keys, missing, strict=True) if not m]
    there.sort(key=lambda each: each[0])
    for (x, place, key), (y, next_place, next_key) in zip(there, there[1:], strict=False):
        assert place <= next_place
        assert x != y or key == next_key


@given(kind=KINDS, learned=ANY)
def test_what_was_learned_goes_through_json(kind, learned):
    scale = kind("x", 8).fit(learned)
    again = kind("x", 8)
    again.load_state_dict(json.loads(json.dumps(scale.state_dict())))
    assert np.array_equal(scale.scaled(BAD), again.scaled(BAD))
    assert np.array_equal(scale.keys(BAD), again.keys(BAD))


def test_places_are_even_whatever_the_unit():
    values = np.random.default_rng(0).permutation(np.arange(10_000.0))
    for of in (lambda x: x, np.exp2, lambda x: -1e9 + x, np.sqrt):
        numbers = of(values / 100)
        places = QuantileScale("x").fit(numbers).scaled(numbers)
        assert np.allclose(places, 2 * (values + 0.5) / 10_000 - 1, atol=0.01)


def test_one_absurd_value_moves_nothing():
    values = np.random.default_rng(0).normal(size=10_000)
    plain = QuantileScale("x", 64).fit(values)
    spoiled = QuantileScale("x", 64).fit([*values, 1e300, -1e300, math.inf, math.nan, None])
    assert np.abs(plain.scaled(values) - spoiled.scaled(values)).max() < 0.05


def test_frequent_values_have_buckets_of_their_own():
    values = np.array([0.0] * 950 + list(range(1, 51)))
    scale = QuantileScale("gain", 16).fit(values)
    none, least, one, last = scale.keys([0.0, 1e-9, 1.0, 50.0])
    assert none != least == one != last != none
    few = QuantileScale("code", 16).fit([94, 95] * 50)
    assert len(set(few.keys([94, 95]).tolist())) == 2


@given(values=st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=60))
def test_mixed_places_are_means_of_places_among_rows_and_among_distinct_values(values):
    distinct = sorted(set(values))
    rows = QuantileScale("x", 64).fit(values).scaled(distinct)
    alone = QuantileScale("x", 64).fit(distinct).scaled(distinct)
    mixed = MixedScale("x", 64).fit(values)
    assert np.allclose(mixed.scaled(distinct), (rows + alone) / 2, atol=1e-6)
    assert np.array_equal(mixed.keys(values), QuantileScale("x", 64).fit(values).keys(values))


def test_mixed_places_keep_rare_values_apart():
    values = [0.0] * 9_900 + list(range(1, 101))
    plain, mixed = (
        kind("gain").fit(values).scaled([1.0, 100.0]) for kind in (QuantileScale, MixedScale)
    )
    assert plain[1] - plain[0] < 0.02 and mixed[1] - mixed[0] > 0.9


def test_kinds_of_arrays_are_alike():
    values = [3, None, 1, 2]
    scale = QuantileScale("x", 4).fit(values)
    expected = scale.scaled(values)
    for given_ in (
        pd.Series(values),
        pd.Series(values, dtype="Int64"),
        np.array([3, np.nan, 1, 2]),
        pa.array(values),
        pa.chunked_array([values[:2], values[2:]]),
    ):
        assert np.array_equal(scale.scaled(given_), expected)
    assert len(scale.scaled([])) == 0
    assert scale.scaled(pd.Series([None, None], dtype=object)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("work", "error", "message"),
    [
        (lambda: QuantileScale("x", 1), ValueError, "buckets must be in"),
        (lambda: QuantileScale("x", sample=0), ValueError, "sample must be in"),
        (
            lambda: QuantileScale("x").fit(["a"]),
            ValueError,
            "'x' must be numbers, it is texts such as 'a'",
        ),
        (lambda: QuantileScale("x").fit([[1.0]]), ValueError, "one-dimensional, got 2"),
        (lambda: QuantileScale("x").fit([1, "a"]), TypeError, "column 'x' must be numbers"),
        (
            lambda: QuantileScale("x", 4).load_state_dict(QuantileScale("x", 8).state_dict()),
            ValueError,
            "buckets must be 8, as in the state, got 4",
        ),
        (
            lambda: MixedScale("x").load_state_dict(QuantileScale("x").state_dict()),
            ValueError,
            "none of a MixedScale",
        ),
        (
            lambda: QuantileScale("x").load_state_dict(MixedScale("x").state_dict()),
            ValueError,
            "none of a QuantileScale",
        ),
    ],
)
def test_refusals(work, error, message):
    with pytest.raises(error, match=message):
        work()


def batches(rows: int = 400) -> list[pa.RecordBatch]:
    rng = np.random.default_rng(1)
    x = np.where(
        rng.random(rows) < 0.1, rng.choice(np.array(BAD, float), rows), rng.normal(size=rows)
    )
    whole = pa.record_batch({"x": pa.array(x, mask=rng.random(rows) < 0.05)})
    return [whole.slice(at, 40) for at in range(0, rows, 40)]


def test_on_a_stream_the_first_numbers_are_learned_from_also_after_a_restart():
    def made() -> FeaturePipeline:
        return FeaturePipeline(
            {"n": QuantileScale("x", 8, sample=150), "k": QuantileBucket("x", 8, sample=150)}
        )

    given_ = batches()
    whole = made()
    expected = [whole(batch) for batch in given_]
    for cut in (0, 1, 3, 4, 9):
        before, after = made(), made()
        for batch in given_[:cut]:
            before(batch)
        after.load_state_dict(json.loads(json.dumps(before.state_dict())))
        for batch, out in zip(given_[cut:], expected[cut:], strict=True):
            found = after(batch)
            assert all(np.array_equal(found[name], out[name]) for name in ("n", "k"))
    seen = np.concatenate([batch["x"].to_numpy(zero_copy_only=False) for batch in given_])
    once = QuantileScale("x", 8).fit(seen[np.isfinite(seen)][:150])
    assert np.array_equal(once.scaled(given_[-1]["x"]), expected[-1]["n"].reshape(-1))
    assert np.array_equal(once.keys(given_[-1]["x"]), expected[-1]["k"].reshape(-1))
