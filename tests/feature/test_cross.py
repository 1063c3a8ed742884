# SPDX-License-Identifier: Apache-2.0
"""Cross: several columns have one key, and the key is the same in every place that makes it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec import FeaturePipeline, FeatureSpec, Schema
from mindspore_rec.common.columns.description import describe_pipeline, described_pipeline
from mindspore_rec.feature import (
    Categories,
    Category,
    CategoryColumn,
    Cross,
    CrossColumn,
    GroupColumn,
    IgnoredColumn,
    IntegerColumn,
    LabelColumn,
    ListColumn,
    Number,
    NumberColumn,
    TimeColumn,
)

COLUMNS = [
    CategoryColumn("user"),
    IntegerColumn("year"),
    NumberColumn("price", decimal=","),
    NumberColumn("plain", buckets=0),
    ListColumn("tags"),
    TimeColumn("ts", unit="ms"),
    GroupColumn("session"),
    IgnoredColumn("note"),
    LabelColumn("clicked"),
]
CROSSES = [
    CrossColumn("user_year", ("user", "year"), admission=2),
    CrossColumn("price_hour", ("price", "ts.hour", "ts.weekday")),
    CrossColumn("all", ("session", "note", "user", "price"), table="all", embedding_dim=4),
]


def frame(rows: int = 200, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "user": rng.integers(0, 5, rows),
            "year": rng.integers(1990, 1993, rows),
            "price": [f"{each},5" for each in rng.integers(0, 50, rows)],
            "plain": rng.normal(size=rows),
            "tags": [["a"]] * rows,
            "ts": 1_700_000_000_000 + 3_600_000 * rng.integers(0, 100, rows),
            "session": rng.integers(0, 3, rows),
            "note": [["x", None, "7"][k] for k in rng.integers(0, 3, rows)],
            "clicked": rng.integers(0, 2, rows),
        }
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", None])), min_size=1))
def test_rows_have_one_key_if_all_their_values_are_equal(rows: list[tuple[int, Any]]) -> None:
    columns = {"a": [a for a, _ in rows], "b": pd.array([b for _, b in rows], "string")}
    cross = FeaturePipeline({"ids": [Cross([Category("a"), Category("b")])]})
    keys = cross.apply(columns)["ids"][:, 0].tolist()
    assert len(set(keys)) == len(set(rows)) == len(set(zip(rows, keys, strict=True)))
    swapped = FeaturePipeline({"ids": [Cross([Category("b"), Category("a")])]})
    assert not set(swapped.apply(columns)["ids"][:, 0].tolist()) & set(keys)


def test_a_schema_makes_one_key_in_training_and_from_its_description() -> None:
    schema = Schema([*COLUMNS, *CROSSES], embedding_dim=8).fit(frame())
    assert [field.name for field in schema.fields if field.column in ("user_year", "all")] == [
        "user_year", "all",
    ]  # fmt: skip
    assert [(each.name, each.embedding_dim, each.admission) for each in schema.tables] == [
        (None, 8, None), (None, 8, 2), ("all", 4, None)
    ]  # fmt: skip
    rows = frame(50, seed=1)
    arrays = schema.arrays_of(rows)
    made = Schema.from_description(json.loads(json.dumps(schema.describe())))
    made.load_state_dict(json.loads(json.dumps(schema.state_dict())))
    pipeline = described_pipeline(json.loads(json.dumps(describe_pipeline(schema.pipeline))))
    pipeline.load_state_dict(json.loads(json.dumps(schema.state_dict())))
    trained = schema.pipeline.batch(rows, learn=False, training=True)[0]
    texts = rows.assign(user=rows["user"].astype(str), session=rows["session"].astype(float))
    for other in (made.arrays_of(rows), pipeline.apply(rows), trained, schema.arrays_of(texts)):
        np.testing.assert_array_equal(arrays["ids"], other["ids"])
    field = next(each for each in schema.fields if each.name == "user_year")
    keys = arrays["ids"][:, field.start]
    pairs = list(zip(rows["user"], rows["year"], strict=True))
    assert len(set(keys.tolist())) == len(set(pairs)) == len(set(zip(pairs, keys, strict=True)))


def test_only_the_columns_of_a_cross_are_read() -> None:
    schema = Schema([*COLUMNS[5:], CrossColumn("cross", ("note", "ts.hour"))])
    assert schema.raw_columns == ["ts", "session", "note", "clicked"]
    assert schema.feature_names == ["ts", "note"]
    rows = frame(9)[["ts", "note"]]
    assert schema.arrays_of(rows, with_label=False)["ids"].shape == (9, 1)
    with pytest.raises(ValueError, match="must have a column 'note'"):
        schema.arrays_of(rows[["ts"]], with_label=False)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["user"], "be 2 to 4 names"),
        (["user", "user"], "be different"),
        (["user", "years"], "columns of the schema or parts of its time, got 'years'"),
        (["user", "ts.second"], "columns of the schema or parts of its time, got 'ts.second'"),
        (["user", "ts"], "one key per row, 'ts' is a time: name a part"),
        (["user", "plain"], "one key per row, 'plain' is a number: it needs buckets"),
        (["user", "tags"], "one key per row, 'tags' is a list"),
        (["user", "clicked"], "one key per row, 'clicked' is a label"),
        (["user", "cross"], "one key per row, 'cross' is a cross"),
    ],
)
def test_what_cannot_be_crossed(columns: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=f"column 'cross': columns must.*{words}"):
        Schema([*COLUMNS, CrossColumn("cross", tuple(columns))])


def test_what_is_no_cross() -> None:
    with pytest.raises(ValueError, match="2 to 4, got 1"):
        Cross([Category("a")])
    with pytest.raises(ValueError, match="one key per row, Number"):
        Cross([Category("a"), Number("b")])
    with pytest.raises(ValueError, match="one key per row, Categories"):
        Cross([Category("a"), Categories("b")])
    with pytest.raises(TypeError, match="transforms of one column"):
        Cross([Category("a"), Cross([Category("a"), Category("b")])])
    cross = Cross([Category("a"), Category("b")])
    with pytest.raises(ValueError, match="must be of 2 parts"):
        cross.load_state_dict([None])
    with pytest.raises(ValueError, match="reads several"):
        FeatureSpec("x", transform=cross)
