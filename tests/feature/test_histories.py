# SPDX-License-Identifier: Apache-2.0
"""Histories of a schema: the arrays equal a plain model, in every form of the lists."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec import Schema, category_keys
from mindspore_rec.common.columns.description import describe_pipeline, described_pipeline
from mindspore_rec.data import read
from mindspore_rec.feature import (
    CategoryColumn,
    Column,
    HistoryColumn,
    LabelColumn,
    ListColumn,
    ragged,
)

LENGTHS = st.one_of(st.integers(0, 4), st.sampled_from([0, 0, 0, 7, 50, 5000]))


def schema(
    length: int | None = None, keep: str | None = None, separator: str | None = None
) -> Schema:
    return Schema(
        [
            CategoryColumn("item", table="items", values="whole"),
            HistoryColumn(
                "seen",
                table="items",
                values="whole",
                length=length,
                keep=keep,
                separator=separator,
            ),
            HistoryColumn("kind", values="text", side_of="seen", separator=separator),
            HistoryColumn("at", values="int64", side_of="seen", separator=separator),
            HistoryColumn("price", values="float32", side_of="seen", separator=separator),
            LabelColumn("label"),
        ]
    )


@st.composite
def rows_of(draw: Any, least: int = 0) -> dict[str, list[Any]]:
    lengths = draw(st.lists(LENGTHS, min_size=least, max_size=8))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    rows: dict[str, list[Any]] = {"item": rng.integers(-5, 5, len(lengths)).tolist()}
    rows["seen"] = [rng.integers(-(2**60), 2**60, n).tolist() for n in lengths]
    rows["kind"] = [[f"k{k}" for k in rng.integers(0, 9, n)] for n in lengths]
    rows["at"] = [rng.integers(0, 2**40, n).tolist() for n in lengths]
    rows["price"] = [(rng.integers(-8, 8, n) / 4).tolist() for n in lengths]
    rows["label"] = [0] * len(lengths)
    return rows


def model(rows: dict[str, list[Any]], length: int, keep: str) -> dict[str, np.ndarray]:
    """Return the arrays of the histories, made row by row."""

    def kept(values: list[Any] | None) -> list[Any]:
        values = values or []
        return values[max(0, len(values) - length) :] if keep == "last" else values[:length]

    flat = {
        name: [value for row in rows[name] for value in kept(row)]
        for name in ("seen", "kind", "at", "price")
    }
    offsets = np.cumsum([0, *(len(kept(row)) for row in rows["seen"])])
    return {
        "seen.values": category_keys("items", np.array(flat["seen"], np.int64)),
        "kind.values": category_keys("kind", np.array(flat["kind"], object)),
        "at.values": np.array(flat["at"], np.int64),
        "price.values": np.array(flat["price"], np.float32),
        "seen.offsets": offsets.astype(np.int64),
    }


def assert_equal(made: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, array in expected.items():
        assert made[name].dtype == array.dtype, name
        np.testing.assert_array_equal(made[name], array, name)


TYPES = {
    "item": pa.int64(),
    "seen": pa.list_(pa.int64()),
    "kind": pa.list_(pa.string()),
    "at": pa.list_(pa.int64()),
    "price": pa.list_(pa.float64()),
    "label": pa.int64(),
}


def arrow(rows: dict[str, list[Any]], large: bool = False) -> pa.RecordBatch:
    arrays = []
    for name, kind in TYPES.items():
        if large and pa.types.is_list(kind):
            kind = pa.large_list(kind.value_type)
        arrays.append(pa.array(rows[name], kind))
    return pa.RecordBatch.from_arrays(arrays, list(TYPES))


@settings(max_examples=60, deadline=None)
@given(rows_of(), st.sampled_from([1, 2, 5, 100, 6000]), st.sampled_from(["last", "first"]))
def test_arrays_equal_a_plain_model_in_every_form(
    rows: dict[str, list[Any]], length: int, keep: str
) -> None:
    described = schema(length, keep)
    expected = model(rows, length, keep)
    batch = arrow(rows)
    assert_equal(described.arrays_of(batch), expected)
    assert_equal(described.arrays_of(arrow(rows, large=True)), expected)
    assert_equal(described.arrays_of(pa.Table.from_batches([batch, batch[:0]])), expected)
    if rows["item"]:
        frame = pd.DataFrame({name: pd.Series(column) for name, column in rows.items()})
        assert_equal(described.arrays_of(frame), expected)
        for name, dtype in (("seen", "int64"), ("at", "int64"), ("price", "f8")):
            frame[name] = [np.array(each, dtype) for each in rows[name]]
        assert_equal(described.arrays_of(frame), expected)
    offsets = np.cumsum([0, *map(len, rows["seen"])])
    pairs = {
        name: ragged(np.array([v for row in rows[name] for v in row], dtype), offsets)
        for name, dtype in (("seen", "int64"), ("kind", object), ("at", "int64"), ("price", "f4"))
    }
    columns = {name: np.array(rows[name], np.int64) for name in ("item", "label")}
    assert_equal(described.arrays_of({**columns, **pairs}), expected)
    texts = {name: ["|".join(map(str, row)) for row in rows[name]] for name in pairs}
    text_arrays = {name: pa.array(each, pa.string()) for name, each in texts.items()}
    assert_equal(schema(length, keep, "|").arrays_of({**columns, **text_arrays}), expected)


@settings(max_examples=40, deadline=None)
@given(rows_of(), rows_of(), st.sampled_from([2, 6000]))
def test_rows_that_are_split_off_or_joined_have_the_same_arrays(
    one: dict[str, list[Any]], other: dict[str, list[Any]], length: int
) -> None:
    described = schema(length)
    both = {name: one[name] + other[name] for name in one}
    batch, first = arrow(both), len(one["item"])
    assert_equal(described.arrays_of(batch[:first]), described.arrays_of(arrow(one)))
    assert_equal(described.arrays_of(batch[first:]), described.arrays_of(arrow(other)))
    joined = pa.Table.from_batches([arrow(one), arrow(other)])
    assert_equal(described.arrays_of(joined), described.arrays_of(batch))
    parts = [described.arrays_of(each) for each in (batch[:first], batch[first:])]
    made = described.arrays_of(batch)
    for name in ("seen.values", "kind.values", "at.values", "price.values"):
        np.testing.assert_array_equal(
            np.concatenate([each[name] for each in parts]), made[name], name
        )
    before, after = (each["seen.offsets"] for each in parts)
    np.testing.assert_array_equal(
        np.concatenate([before, before[-1] + after[1:]]), made["seen.offsets"]
    )


@settings(max_examples=15, deadline=None)
@given(rows=rows_of(least=1))
def test_csv_and_json_have_the_arrays_of_arrow(
    rows: dict[str, list[Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder: Path = tmp_path_factory.mktemp("histories")
    expected = schema().arrays_of(arrow(rows))
    lines = [dict(zip(rows, each, strict=True)) for each in zip(*rows.values(), strict=True)]
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (batch,) = read(path, schema()).batches(100).read()
    assert_equal(schema().arrays_of(batch.plain), expected)
    path = folder / "rows.csv"
    texts = {
        name: ["|".join(map(str, each)) if isinstance(each, list) else each for each in column]
        for name, column in rows.items()
    }
    pd.DataFrame(texts).to_csv(path, index=False)
    (batch,) = read(path, schema(separator="|")).batches(100).read()
    assert_equal(schema(separator="|").arrays_of(batch.plain), expected)


@settings(max_examples=30, deadline=None)
@given(rows_of())
def test_arrays_that_were_sent_by_rows_are_read_again(rows: dict[str, list[Any]]) -> None:
    described = schema(3)
    expected = described.arrays_of(arrow(rows))
    (sent,) = described.arrow_batches([arrow(rows)])
    assert "seen.offsets" not in sent.schema.names
    assert_equal(described.received().arrays_of(sent), expected)
    (sent,) = described.arrow_batches([arrow(rows).drop_columns("label")], training=False)
    assert sent.schema.names == ["ids", "seen.values", "kind.values", "at.values", "price.values"]


def test_a_history_of_a_list_column_has_the_keys_of_the_list() -> None:
    rows = {"item": [1, 2, 3], "seen": [[3, 4], [], [5]]}
    columns = [CategoryColumn("item", table="items", values="whole")]
    listed = Schema([*columns, ListColumn("seen", table="items", values="whole", length=2)])
    history = Schema([*columns, HistoryColumn("seen", table="items", values="whole")])
    ids = listed.arrays_of(rows)["ids"][:, 1:]
    made = history.arrays_of(rows)
    assert made["seen.values"].tolist() == [*ids[0], ids[2, 0]]
    assert [(each.name, each.histories) for each in history.tables] == [("items", ("seen",))]
    assert history.inputs == ["ids", "seen.values", "seen.offsets"]


def test_names_of_arrays_do_not_depend_on_the_order_of_side_columns() -> None:
    columns: list[Column] = [
        HistoryColumn("at", values="int64", side_of="seen"),
        CategoryColumn("user"),
        HistoryColumn("bought"),
        HistoryColumn("seen"),
        LabelColumn("label"),
    ]
    described = Schema(columns)
    assert described.arrays == [
        "ids",
        "bought.values",
        "bought.offsets",
        "seen.values",
        "at.values",
        "seen.offsets",
        "label",
    ]
    assert [[each.name for each in of] for of in described.histories] == [
        ["bought"],
        ["seen", "at"],
    ]


def test_times_and_missing_values_in_lists() -> None:
    described = schema()
    times = [datetime(2024, 1, 1, tzinfo=timezone.utc)]
    rows = {"item": [1], "seen": [[None]], "kind": [[None]], "at": [times], "price": [[None]]}
    made = described.arrays_of(rows, with_label=False)
    assert made["at.values"].tolist() == [1704067200]
    assert made["price.values"].tolist() == [0.0]
    assert made["kind.values"].tolist() == category_keys("kind", [None]).tolist()
    with pytest.raises(ValueError, match="'at' must have lists of whole numbers or times, none"):
        described.arrays_of({**rows, "at": [[None]]}, with_label=False)


def test_undecided_values_are_decided_by_fit() -> None:
    described = Schema([CategoryColumn("user"), HistoryColumn("seen")])
    described.fit({"user": [1], "seen": pa.array([["7"]])})
    assert [each.values for each in described.columns] == ["whole", "text"]


def test_descriptions_are_read_again() -> None:
    described = schema(7, "first", "|")
    again = Schema.from_description(json.loads(json.dumps(described.describe())))
    assert again.columns == described.columns
    pipeline = described_pipeline(json.loads(json.dumps(describe_pipeline(described.pipeline))))
    rows = {"item": [1], "seen": ["7|8"], "kind": ["a|b"], "at": ["1|2"], "price": ["0.5|"]}
    made = pipeline.apply(rows, described.inputs)
    assert_equal(made, described.arrays_of(rows, with_label=False))
    assert list(made) == described.inputs


ROWS: dict[str, Any] = {
    "item": [1, 2],
    "seen": [[1, 2], [3]],
    "kind": [["a", "b"], ["c"]],
    "at": [[5, 6], [7]],
    "price": [[0.5, 1], [2]],
    "label": [0, 1],
}


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"at": [[5, 6], [7, 8]]}, "'at' must be a list as long as the list of column 'seen', 1"),
        ({"seen": [["a", "b"], ["c"]]}, "'seen' must be lists of whole numbers .*, row 10 is"),
        ({"at": [[5, 6], [None]]}, "'at' must be lists of whole numbers or times, row 11 is"),
        ({"at": [[5, 0.5], [7]]}, "'at' must be lists of whole numbers or times, row 10 is"),
        ({"price": [["1", "?!"], ["2"]]}, "'price' must be lists of numbers, row 10 is"),
        ({"price": [[True, False], [[1]]]}, "'price'"),
        ({"seen": [1, 2]}, "'seen' must be lists for kind 'history', it is int64"),
        ({"seen": ["1|2", "3"]}, "'seen' must be lists for kind 'history', it is string"),
        ({"seen": [[[1], [2]], [[3]]]}, "'seen' must be lists of values"),
    ],
)
def test_a_row_that_does_not_fit_is_named(bad: dict[str, Any], sentence: str) -> None:
    schema().check(ROWS)
    with pytest.raises((ValueError, TypeError), match=sentence):
        schema().check({**ROWS, **bad}, "rows.jsonl", 10)


def test_arrays_of_lists_of_other_lengths_are_refused() -> None:
    sentence = "'at' must have as many values in each row as column 'seen', row 1 has 2 and 1"
    with pytest.raises(ValueError, match=sentence):
        schema().arrays_of({**ROWS, "at": [[5, 6], [7, 8]]})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"side_of": "other"}, "side_of must be a column of kind 'history' that is no side column"),
        ({"side_of": "seen", "length": 3}, "length must be left out: length and keep are of the"),
        ({"side_of": "seen", "keep": "last"}, "keep must be left out"),
        ({"values": "float32", "table": "items"}, "table must be left out: .* have no table"),
        ({"values": "int64", "admission": 2}, "admission must be left out"),
        ({"values": "double"}, "values must be"),
        ({"keep": "middle"}, "keep must be"),
        ({"length": 0}, "length must be"),
        ({"length": 65537}, "length must be"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Schema([CategoryColumn("user"), HistoryColumn("seen"), HistoryColumn("x", **options)])


def test_a_side_column_of_a_side_column_is_refused() -> None:
    columns = [HistoryColumn("a"), HistoryColumn("b", side_of="a"), HistoryColumn("c", side_of="b")]
    with pytest.raises(ValueError, match="got 'b'; there are \\['a'\\]"):
        Schema([CategoryColumn("user"), *columns])


@pytest.mark.parametrize(
    ("offsets", "error"),
    [
        ([0, 2], ValueError),
        ([1, 3], ValueError),
        ([0, 2, 1, 3], ValueError),
        ([], ValueError),
        ([[0, 3]], ValueError),
        ([0.0, 3.0], TypeError),
    ],
)
def test_offsets_that_are_none_are_refused(offsets: list[Any], error: type[Exception]) -> None:
    dtype = np.int64 if not offsets else None
    with pytest.raises(error, match="offsets must"):
        ragged(np.arange(3), np.array(offsets, dtype))


def test_texts_that_are_no_numbers_are_refused() -> None:
    columns = [CategoryColumn("item", table="items"), HistoryColumn("seen", table="items")]
    schema = Schema([*columns, HistoryColumn("price", side_of="seen", values="float32")])
    rows = {"item": ["a"], "seen": [["a", "b", "c"]], "price": [["1.5", "n/a", "2"]]}
    assert schema.arrays_of(rows)["price.values"].tolist() == [1.5, 0.0, 2.0]
    with pytest.raises(ValueError, match="column 'price' must have lists of numbers, got '1,5'"):
        schema.arrays_of({**rows, "price": [["1.5", "1,5", "x"]]})
