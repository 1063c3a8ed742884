# SPDX-License-Identifier: Apache-2.0
"""TargetStatistics: no training row sees its own label, and every place makes the same numbers."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec import Schema
from mindspore_rec.common.columns.description import describe_pipeline, described_pipeline
from mindspore_rec.common.columns.value_sums import ValueSums
from mindspore_rec.data import Sample, infer_schema, read
from mindspore_rec.feature import (
    Category,
    CategoryColumn,
    Column,
    CrossColumn,
    FeaturePipeline,
    IntegerColumn,
    Label,
    LabelColumn,
    NumberColumn,
    TargetStatistics,
    TimeColumn,
    WeightColumn,
)


def columns_of(by: str, weighted: bool = True) -> list[Column]:
    return [
        CategoryColumn("user", statistics=by),
        IntegerColumn("year", statistics=by),
        CrossColumn("both", ("user", "year"), statistics=by),
        NumberColumn("price"),
        TimeColumn("ts"),
        *([WeightColumn("weight")] if weighted else []),
        LabelColumn("clicked"),
        LabelColumn("paid", binary=False),
    ]


def frame(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 12, rows)
    return pd.DataFrame(
        {
            "user": [None if each == 11 else f"u{each}" for each in user],
            "year": rng.integers(1990, 1994, rows),
            "price": rng.normal(size=rows).round(3),
            "ts": 1_700_000_000 + rng.integers(0, 10_000, rows),
            "weight": rng.choice([0.5, 1.0, 2.25], rows),
            "clicked": (rng.random(rows) < 0.1 + 0.07 * user).astype(int),
            "paid": rng.normal(size=rows) + user,
        }
    )


def trained(schema: Schema, rows: pd.DataFrame) -> np.ndarray:
    made: np.ndarray = schema.pipeline.batch(rows, learn=False, training=True)[0]["numbers"]
    return made


def statistics_of(schema: Schema) -> TargetStatistics:
    (made,) = [
        each
        for output in schema.pipeline._outputs
        for each in output.members
        if isinstance(each, TargetStatistics)
    ]
    return made


# ---- cross-fitting


@pytest.mark.parametrize("by", ["folds", "past"])
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1000),
    row=st.integers(0, 79),
    paid=st.floats(-1e6, 1e6),
)
def test_the_label_of_a_row_changes_no_number_of_the_row(
    by: str, seed: int, row: int, paid: float
) -> None:
    rows = frame(80, seed)
    changed = rows.copy()
    changed.loc[row, "clicked"] = 1 - rows.loc[row, "clicked"]
    changed.loc[row, "paid"] = paid
    schema = Schema(columns_of(by)).fit(rows)
    other = Schema(columns_of(by)).fit(changed)
    first, second = trained(schema, rows), trained(other, changed)
    assert first[row].tobytes() == second[row].tobytes()
    # A prediction sees all labels.
    assert schema.arrays_of(rows)["numbers"].tobytes() != other.arrays_of(rows)["numbers"].tobytes()
    # The label decides neither fold nor interval, so any order of the rows gives the same numbers.
    order = np.random.default_rng(seed).permutation(len(rows))
    np.testing.assert_array_equal(trained(schema, rows.iloc[order]), first[order])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000))
def test_past_statistics_see_no_later_label(seed: int) -> None:
    rows = frame(80, seed).sort_values("ts", ignore_index=True)
    later = rows.copy()
    later.loc[40:, "clicked"] = 1 - later.loc[40:, "clicked"]
    is_before = rows["ts"] < rows["ts"][40]
    first, second = (trained(Schema(columns_of("past")).fit(each), rows) for each in (rows, later))
    np.testing.assert_array_equal(first[is_before], second[is_before])
    means = first[:, [2, 3, 5, 6, 8, 9]]
    assert not means[rows["ts"] == rows["ts"][0]].any(), "nothing is before the first interval"
    assert means[-1].any()


def test_numbers_are_smoothed_means_of_other_folds() -> None:
    rows = frame(2000)
    schema = Schema(columns_of("folds", weighted=False)).fit(rows)
    assert schema.numbers == (
        "year", "price", "user.mean.clicked", "user.mean.paid", "user.count",
        "year.mean.clicked", "year.mean.paid", "year.count",
        "both.mean.clicked", "both.mean.paid", "both.count",
    )  # fmt: skip
    made = schema.arrays_of(rows)["numbers"][:, 2:5]
    user = rows["user"].fillna("")
    prior = (rows["clicked"].sum() + 1) / (len(rows) + 2)
    grouped = rows.groupby(user)
    count = grouped["clicked"].transform("count")
    mean = (grouped["clicked"].transform("sum") + 10 * prior) / (count + 10)
    odds = np.log(mean / (1 - mean)) - np.log(prior / (1 - prior))
    usual = rows["paid"].mean()
    paid = (grouped["paid"].transform("sum") + 10 * usual) / (count + 10)
    steps = (paid - usual) / rows["paid"].std(ddof=0)
    frequency = 2 * np.log1p(count) / np.log1p(count.max()) - 1
    expected = np.stack([np.tanh(odds / 2), np.tanh(steps / 2), frequency], axis=1)
    np.testing.assert_allclose(made, expected, atol=1e-6)
    # In training, a fifth of the rows is left out, so numbers differ but little.
    assert 0 < np.abs(trained(schema, rows)[:, 2:5] - made).max() < 0.3
    unknown = schema.arrays_of(rows.assign(user="new"))["numbers"][:, 2:5]
    assert (unknown == [0, 0, -1]).all()
    folds = np.bincount(statistics_of(schema)._rows.parts, minlength=5)
    assert len(folds) == 5 and statistics_of(schema)._rows.sums[:, 0].min() > 300


# ---- sums


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(-3, 3), st.integers(0, 3), st.floats(-9, 9)), min_size=0, max_size=40
    )
)
def test_sums_equal_plain_sums(rows: list[tuple[int, int, float]]) -> None:
    keys, parts = (np.array([row[k] for row in rows], np.int64) for k in (0, 1))
    labels = np.array([row[2] for row in rows], np.float64)
    sums = ValueSums.of(keys, parts, np.stack([np.ones(len(rows)), labels], axis=1), 4)
    for key in range(-4, 5):
        for part in range(5):
            asked = np.array([key]), np.array([part])
            chosen = {
                "total": keys == key,
                "before": (keys == key) & (parts < part),
                "without": (keys == key) & (parts != part),
            }
            for name, wanted in chosen.items():
                if name == "without" and part == 4:
                    continue
                made = getattr(sums, name)(*asked[: 1 if name == "total" else 2])
                np.testing.assert_allclose(made, [[wanted.sum(), labels[wanted].sum()]], atol=1e-9)
    halves = [ValueSums.of(k, p, s, 4) for k, p, s in (
        (keys[::2], parts[::2], np.ones((len(keys[::2]), 1))),
        (keys[1::2], parts[1::2], np.ones((len(keys[1::2]), 1))),
    )]  # fmt: skip
    whole = ValueSums.of(keys, parts, np.ones((len(rows), 1)), 4)
    merged = halves[0].merged(halves[1])
    for name in ("keys", "parts", "sums"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(whole, name))


def test_the_most_frequent_values_are_kept() -> None:
    keys = np.repeat(np.arange(10), np.arange(10) + 1)
    sums = ValueSums.of(keys, keys % 2, np.ones((len(keys), 1)), 2).kept(3)
    assert sums.values.tolist() == [7, 8, 9]
    assert sums.total(np.arange(10))[:, 0].tolist() == [0] * 7 + [8, 9, 10]


@pytest.mark.parametrize("by", ["folds", "past"])
@settings(max_examples=20, deadline=None)
@given(cut=st.integers(0, 300), seed=st.integers(0, 100))
def test_merged_statistics_equal_those_of_all_rows(by: str, cut: int, seed: int) -> None:
    rows = frame(300, seed)
    columns = [each for each in columns_of(by, weighted=False) if each.name != "paid"]
    whole = Schema(columns).fit(rows)
    first, second = copy.deepcopy(whole), copy.deepcopy(whole)
    first.fit_statistics([rows[:cut]])
    second.fit_statistics([rows[cut:]])
    statistics_of(first).merge(statistics_of(second))
    assert first.state_dict() == whole.state_dict()
    batches = copy.deepcopy(whole).fit_statistics(read(rows).batches(37))
    assert batches.state_dict() == whole.state_dict()


def test_weights_count_as_rows() -> None:
    rows = frame(400)
    rows["weight"] = np.random.default_rng(1).integers(0, 4, len(rows)).astype(float)
    repeated = rows.loc[rows.index.repeat(rows["weight"].astype(int))].assign(weight=1.0)
    columns = [each for each in columns_of("folds") if each.name != "paid"]
    one, two = (statistics_of(Schema(columns).fit(each)) for each in (rows, repeated))
    keys = one._values[0].values
    np.testing.assert_array_equal(one._values[0].total(keys), two._values[0].total(keys))


def test_thinned_rows_count_by_their_weight() -> None:
    rows = frame(4000).drop(columns=["weight", "paid"])
    rows["clicked"] = (rows["user"] == "u1").astype(int)
    columns = [each for each in columns_of("folds", False) if each.name != "paid"]
    schema = Schema(columns)
    thinned = read(rows, schema, sample=Sample(0.25, seed=1))
    schema.fit(thinned.to_table()).fit_statistics(thinned, "weight")
    weights = statistics_of(schema)._rows.total(np.zeros(1, np.int64))[0, 0]
    assert abs(weights / len(rows) - 1) < 0.1 and len(thinned) < 0.4 * len(rows)


# ---- every place


@pytest.mark.parametrize("by", ["folds", "past"])
def test_description_and_state_make_the_same_numbers(by: str) -> None:
    rows, new = frame(), frame(100, seed=1)
    schema = Schema(columns_of(by)).fit(rows)
    state = json.loads(json.dumps(schema.state_dict()))
    made = Schema.from_description(json.loads(json.dumps(schema.describe())))
    assert not made.is_fitted and made.has_statistics
    made.load_state_dict(state)
    pipeline = described_pipeline(json.loads(json.dumps(describe_pipeline(schema.pipeline))))
    pipeline.load_state_dict(state)
    expected = schema.arrays_of(new)["numbers"]
    for other in (made.arrays_of(new)["numbers"], pipeline.apply(new)["numbers"]):
        np.testing.assert_array_equal(other, expected)
    np.testing.assert_array_equal(trained(made, new), trained(schema, new))
    needed = new[schema.feature_names]
    assert "clicked" not in needed and "weight" not in needed and "ts" not in needed
    served = schema.arrays_of(needed, with_label=False)["numbers"]
    np.testing.assert_array_equal(served, expected)
    assert np.abs(expected[:, 2:]).max() <= 1 and np.isfinite(expected).all()


def test_a_damaged_state_is_refused_and_changes_nothing() -> None:
    schema = Schema(columns_of("folds")).fit(frame())
    before = schema.state_dict()
    state = json.loads(json.dumps(before))
    made = state["numbers"][-1]
    other = Schema(columns_of("past")).fit(frame()).state_dict()["numbers"][-1]
    wrong: list[Any] = [
        None,
        {},
        other,
        {**made, "values": made["values"][:2]},
        {**made, "edges": [3, 2]},
        {**made, "rows": made["values"][0]},
        {**made, "values": [{**made["values"][0], "pairs": 1 << 33}, *made["values"][1:]]},
        {**made, "values": [{**made["values"][0], "sums": "eJwDAAAAAAE="}, *made["values"][1:]]},
        {**made, "values": [{**made["values"][0], "keys": "?"}, *made["values"][1:]]},
        {**made, "values": [{**made["values"][0], "lengths": 7}, *made["values"][1:]]},
    ]
    for each in wrong:
        with pytest.raises((ValueError, KeyError, TypeError)):
            schema.load_state_dict({**state, "numbers": [*state["numbers"][:-1], each]})
        assert schema.state_dict() == before


def test_a_failed_fit_changes_nothing() -> None:
    schema = Schema(columns_of("folds")).fit(frame())
    before = schema.state_dict()
    with pytest.raises(ValueError, match="must have a column 'clicked'"):
        schema.fit_statistics([frame(), frame().drop(columns="clicked")])
    assert schema.state_dict() == before
    with pytest.raises(ValueError, match="learned nothing"):
        Schema(columns_of("folds")).fit_statistics([frame()])
    other = Schema(columns_of("past")).fit(frame().assign(ts=lambda each: each["ts"] + 7))
    with pytest.raises(ValueError, match="same intervals of time"):
        statistics_of(Schema(columns_of("past")).fit(frame())).merge(statistics_of(other))


def test_what_has_no_statistics() -> None:
    user, label = CategoryColumn("user", statistics="folds"), LabelColumn("clicked")
    with pytest.raises(ValueError, match="there is no label"):
        Schema([user, CategoryColumn("item")])
    with pytest.raises(ValueError, match="by folds of 'user' need a further column"):
        Schema([user, label])
    with pytest.raises(ValueError, match="must be of kind 'time'"):
        Schema([CategoryColumn("user", statistics="past"), label])
    with pytest.raises(ValueError, match="statistics must be one of"):
        CategoryColumn("user", statistics="mean")
    with pytest.raises(ValueError, match="one transform Times"):
        parts = [Category("a"), Category("b")]
        TargetStatistics(parts, [Label("y")], parts, "past")
    with pytest.raises(ValueError, match="one transform Times"):
        TargetStatistics(parts, [Label("y")], [Category("c")], "past")
    with pytest.raises(ValueError, match="at least one transform"):
        TargetStatistics([], [Label("y")], [Category("a")], "folds")
    with pytest.raises(ValueError, match="transforms to keys"):
        TargetStatistics([Label("y")], [Label("y")], [Category("a")], "folds")
    with pytest.raises(TypeError, match="one value per row"):
        TargetStatistics(["a"], [Label("y")], [Category("a")], "folds")  # type: ignore[list-item]


def test_a_pipeline_of_its_own_learns_by_fit_alone() -> None:
    parts = [Category("user"), Category("year")]
    means = TargetStatistics(parts, [Label("clicked")], parts, "folds")
    pipeline = FeaturePipeline({"numbers": [means], "label": Label("clicked")})
    assert not pipeline(frame())["numbers"][:, [0, 2]].any()
    assert pipeline.fit(frame()).apply(frame())["numbers"][:, [0, 2]].any()


def test_folds_of_a_value_that_determines_all_columns() -> None:
    """Rows of a shop are in one fold, so the other folds know nothing about the shop."""
    rng = np.random.default_rng(5)
    shop = rng.integers(0, 300, 6_000)
    rows = pd.DataFrame({"shop": shop.astype(str), "region": shop % 7, "clicked": shop % 2})
    columns = [CategoryColumn("shop", statistics="folds"), IntegerColumn("region")]
    with pytest.warns(RuntimeWarning, match="'shop' determine all other columns"):
        Schema([*columns, LabelColumn("clicked")]).fit(rows)
    assert infer_schema(rows, label="clicked").column("shop").statistics is None
    more = rows.assign(hour=rng.integers(0, 24, len(rows)), clicked=rng.integers(0, 2, len(rows)))
    schema = infer_schema(more, label="clicked")
    assert schema.column("shop").statistics == "folds"
    assert schema.fit(more).arrays_of(more)["numbers"].std(axis=0).min() > 0


def test_no_rows_and_no_states_are_refused() -> None:
    schema = Schema(columns_of("folds")).fit(frame())
    before = schema.arrays_of(frame())["numbers"]
    with pytest.raises(ValueError, match="at least one state"):
        schema.merge_statistics([])
    with pytest.raises(ValueError, match="column 'q' of weights"):
        schema.fit_statistics([frame()], weight="q")
    assert np.array_equal(schema.arrays_of(frame())["numbers"], before)
    with pytest.warns(RuntimeWarning, match="batches have no row"):
        schema.fit_statistics([])
