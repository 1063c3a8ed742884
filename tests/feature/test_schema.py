# SPDX-License-Identifier: Apache-2.0
"""Schema: one description of columns gives the arrays of a network, and names what does not fit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mindspore_rec import Schema, category_keys
from mindspore_rec.common.columns.description import describe_pipeline, described_pipeline
from mindspore_rec.data import infer_schema, read
from mindspore_rec.feature import (
    PADDING_KEY,
    CategoryColumn,
    Column,
    HistoryColumn,
    IgnoredColumn,
    IntegerColumn,
    Label,
    LabelColumn,
    ListColumn,
    NumberColumn,
    TextColumn,
    TimeColumn,
    WeightColumn,
)

COLUMNS = [
    CategoryColumn("user", table="people", admission=2, eviction=3600),
    CategoryColumn("friend", table="people", admission=2, eviction=3600),
    CategoryColumn("city", values="text", group=True),
    IntegerColumn("year", transform="min_max"),
    NumberColumn("price", decimal=","),
    NumberColumn("views", transform="log"),
    ListColumn("tags", length=3, embedding_dim=8),
    TextColumn("title", length=2),
    TimeColumn("ts", unit="ms", parts=("hour",)),
    IgnoredColumn("note"),
    WeightColumn("weight"),
    LabelColumn("clicked"),
    LabelColumn("bought", positive="yes"),
]


def frame(rows: int = 6) -> pd.DataFrame:
    rng = np.random.default_rng(rows)
    return pd.DataFrame(
        {
            "user": rng.integers(0, 3, rows),
            "friend": rng.integers(0, 3, rows),
            "city": [[7, 8, 9][i] for i in rng.integers(0, 3, rows)],
            "year": rng.integers(1990, 2000, rows).astype(float),
            "price": [["1.000,5", "2,5", None][i] for i in rng.integers(0, 3, rows)],
            "views": rng.integers(0, 100, rows),
            "tags": [list("abcde")[: i % 5] for i in range(rows)],
            "title": ["Red Sofa", "lamp", "", None, "a b c d", "lamp"][:rows],
            "ts": 1_700_000_000_000 + np.arange(rows) * 3_600_000,
            "note": ["?"] * rows,
            "weight": np.ones(rows),
            "clicked": [True, False] * (rows // 2),
            "bought": ["yes", "no"] * (rows // 2),
        }
    )


def test_mixed_numbers_have_the_keys_of_quantiles() -> None:
    rows = {"gain": [0.0] * 90 + [float(k) for k in range(10)]}
    plain, mixed = (
        Schema([NumberColumn("gain", name)]).fit(rows) for name in ("quantile", "mixed")
    )
    again = Schema([NumberColumn("gain", "mixed")])
    again.load_state_dict(mixed.state_dict())
    found = [each.arrays_of(rows) for each in (plain, mixed, again)]
    assert (found[0]["ids"] == found[1]["ids"]).all()
    assert np.ptp(found[1]["numbers"][91:]) > 2 * np.ptp(found[0]["numbers"][91:])
    assert (found[1]["numbers"] == found[2]["numbers"]).all()


def test_arrays_of_all_kinds() -> None:
    schema = Schema(COLUMNS)
    rows = frame()
    arrays = schema.fit(rows).arrays_of(rows)
    assert list(arrays) == schema.arrays == ["ids", "numbers", "weight", "label"]
    names = [field.name for field in schema.fields]
    assert names == [
        "user", "friend", "city", "year", "price.bucket", "ts.hour", "title", "tags"
    ]  # fmt: skip
    assert arrays["ids"].shape == (6, 6 + 3 + 2) and arrays["numbers"].shape == (6, 3)
    assert arrays["label"].tolist() == [[1, 1], [0, 0]] * 3 and schema.tasks == (
        "clicked",
        "bought",
    )
    by_name = {field.name: arrays["ids"][:, field.start : field.stop] for field in schema.fields}
    # columns of one table: equal values have equal keys
    assert (by_name["user"][:, 0] == category_keys("people", rows["user"])).all()
    assert (by_name["friend"][:, 0] == category_keys("people", rows["friend"])).all()
    assert (by_name["city"][:, 0] == category_keys("city", rows["city"].astype(str))).all()
    assert (by_name["tags"] == PADDING_KEY).sum(1).tolist() == [3, 2, 1, 0, 0, 3]
    assert (by_name["title"] == PADDING_KEY).sum(1).tolist() == [0, 1, 2, 2, 0, 1]
    assert by_name["title"][1, 0] == category_keys("title", ["lamp"])[0]
    # three groups of settings, one of them a named table
    assert [(g.name, g.embedding_dim, len(g.fields)) for g in schema.tables] == [
        ("people", 16, 2), (None, 16, 5), (None, 8, 1)
    ]  # fmt: skip
    seconds = schema.pipeline.batch(rows)[1]
    assert seconds == 1_700_000_000 + 5 * 3600


def test_described_and_learned_again() -> None:
    schema = Schema(COLUMNS, embedding_dim=4).fit(frame())
    made = Schema.from_description(json.loads(json.dumps(schema.describe())))
    assert made.columns == schema.columns and made.embedding_dim == 4 and not made.is_fitted
    made.load_state_dict(json.loads(json.dumps(schema.state_dict())))
    pipeline = described_pipeline(json.loads(json.dumps(describe_pipeline(schema.pipeline))))
    pipeline.load_state_dict(schema.pipeline.state_dict())
    rows = frame(4)
    for name, array in schema.arrays_of(rows).items():
        np.testing.assert_array_equal(array, made.arrays_of(rows)[name])
        np.testing.assert_array_equal(array, pipeline.apply(rows)[name])
    without = rows.drop(columns=["clicked", "bought", "weight"])
    assert list(schema.arrays_of(without, with_label=False)) == ["ids", "numbers"] == schema.inputs


SMALL = [CategoryColumn("user", values="whole"), NumberColumn("price")]


@pytest.mark.parametrize(
    ("columns", "rows", "words"),
    [
        (
            [LabelColumn("clicked")],
            {"clicked": [0, 1, 2]},
            "'clicked' must be 0 or 1.*row 12 is 2",
        ),
        (
            [LabelColumn("clicked")],
            {"clicked": [0, None, 1]},
            "label in each row, row 11 is None",
        ),
        ([TimeColumn("t")], {"t": [1_700_000_000_000] * 3}, r"unit: ms.*row 10 is 17"),
        ([TimeColumn("t")], {"t": ["01.02.2024"] * 3}, "texts such as '01.02.2024'.*format"),
        ([TimeColumn("t")], {"t": ["2024-01-01", "2024-01-01T10:00", "soon"]}, "row 12 is 'soon'"),
        (
            [TimeColumn("t", format="iso")],
            {"t": ["2024-01-01", "soon", ""]},
            "row 11 is 'soon'",
        ),
        ([WeightColumn("w")], {"w": [1.0, -2.0, 1.0]}, "weight of at least 0, row 11 is -2.0"),
        ([NumberColumn("n")], {"n": ["1,5", "2", "x"]}, "texts such as '1,5'.*decimal"),
        ([NumberColumn("n", decimal=".")], {"n": ["1.5", "", "x"]}, "numbers, row 12 is 'x'"),
        ([NumberColumn("n", decimal=",")], {"n": ["1,5", "1.299", "2.50"]}, "row 12 is '2.50'"),
        ([NumberColumn("n", decimal=".")], {"n": ["1.5", "1,299", "2,50"]}, "row 12 is '2,50'"),
        (
            [IntegerColumn("n", decimal=".")],
            {"n": ["7", "?", "1,299"]},
            "whole numbers of digits only .*row 12 is '1,299'",
        ),
        ([IntegerColumn("n")], {"n": [1.0, 2.5, 3.0]}, "whole numbers, row 11 is 2.5"),
        (
            [CategoryColumn("c")],
            {"c": [1.0, 2.5, 3.0]},
            "texts or whole numbers, row 11 is 2.5",
        ),
        ([ListColumn("l")], {"l": ["a|b", "c", "d"]}, r"separator: '\|'"),
        ([CategoryColumn("x")], {}, "must have a column 'x', they have 'user', 'price'"),
        ([CategoryColumn("uses")], {}, "'user' is similar"),
        ([], {"user": ["7", "8", "x"]}, "whole numbers .values: whole., row 12 is 'x'"),
    ],
)
def test_what_does_not_fit_is_named(
    columns: list[Column], rows: dict[str, Any], words: str
) -> None:
    schema = Schema([*SMALL, *columns])
    good = {"user": [1, 2, 3], "price": [1.0, 2.0, None]}
    with pytest.raises(ValueError, match=f"^clicks.csv: .*{words}") as error:
        schema.check({**good, **rows}, "clicks.csv", first_row=10)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("missing", [None, float("nan"), float("inf"), "beyond"])
@pytest.mark.parametrize("column", ["weight", "price"])
@pytest.mark.parametrize("decimal", [None, "."])
def test_labels_and_weights_that_are_missing_never_become_zero(
    column: str, missing: Any, decimal: str | None
) -> None:
    """`read` refuses them too; a feature that is a number may be missing."""
    schema = Schema(
        [
            CategoryColumn("user", values="whole"),
            NumberColumn("views"),
            WeightColumn("weight", decimal=decimal),
            LabelColumn("price", binary=False, decimal=decimal),
        ]
    )
    rows: dict[str, list[Any]] = {"user": [1, 2], "views": [None, 1.0]}
    rows |= {"weight": [1.0, 2.0], "price": [-5.0, 6.0]}
    schema.fit(rows)
    arrays = schema.arrays_of(rows)
    assert (arrays["label"].tolist(), arrays["weight"].tolist()) == ([[-5], [6]], [[1], [2]])
    rows[column] = [3.0, 1e300 if missing == "beyond" else missing]
    if decimal is not None:
        rows[column] = [None if each is None else str(each) for each in rows[column]]
    for refuses in (schema.arrays_of, Schema(schema.columns).fit):
        with pytest.raises(ValueError, match=f"column '{column}' must be .*row 1 is"):
            refuses(rows)
    with pytest.raises(ValueError, match=f"column '{column}' must be .*row 1 is"):
        list(schema.arrow_batches([pa.record_batch(rows)]))
    schema.arrays_of(rows, with_label=False)


def test_texts_that_are_no_whole_numbers_do_not_merge_in_fit() -> None:
    users = [str(2**63 + i) for i in range(4)]
    with pytest.raises(ValueError, match="values: whole.*row 0 is '9223372036854775808'"):
        Schema([CategoryColumn("user", values="whole")]).fit({"user": users})


@pytest.mark.parametrize("rows", [1, 3])
def test_a_list_that_is_missing_in_all_rows_is_empty(rows: int) -> None:
    columns = [ListColumn("tags", separator="|"), HistoryColumn("seen", separator="|")]
    schema = Schema(columns).fit({"tags": ["a|b", "c"], "seen": ["a", None]})
    arrays = schema.arrays_of({"tags": [None] * rows, "seen": [None] * rows})
    assert set(arrays["ids"].ravel()) == {PADDING_KEY}
    assert arrays["seen.offsets"].tolist() == [0] * (rows + 1)


@pytest.mark.parametrize("decimal", [".", ","])
def test_numbers_in_texts_of_two_notations(decimal: str) -> None:
    """A number of the other notation is no number; before, 2.50 was read as 250."""
    schema = Schema([CategoryColumn("c"), NumberColumn("n", "none", decimal=decimal)])
    numbers = np.array([0.5, 7.25, -999.5, 1410.16, -2_550_000.5])
    english = [f"{number:,.2f}" for number in numbers]
    german = [text.translate(str.maketrans(",.", ".,")) for text in english]
    texts, others = (english, german) if decimal == "." else (german, english)
    schema.fit({"c": texts, "n": texts})
    read = schema.arrays_of({"c": texts, "n": texts})["numbers"][:, 0]
    np.testing.assert_array_equal(read, numbers.astype(np.float32))
    faults = schema.faults(pa.record_batch({"c": others, "n": others}))
    assert [fault.rows.tolist() for fault in faults] == [[0, 1, 2, 3, 4]]
    missing = schema.arrays_of({"c": others, "n": others})["numbers"]
    np.testing.assert_array_equal(
        missing, schema.arrays_of({"c": others, "n": [None] * 5})["numbers"]
    )


@pytest.mark.parametrize("missing", [np.nan, np.float32("nan")])
def test_a_column_that_pandas_stores_as_nan_is_missing(missing: float) -> None:
    """A column of texts or lists is of floats in a data frame in which all values are missing."""
    columns: list[Column] = [
        TextColumn("t"),
        ListColumn("l"),
        ListColumn("s", separator="|"),
        HistoryColumn("h", table="l"),
        HistoryColumn("n", side_of="h", values="float32", separator="|"),
    ]
    schema = Schema([*columns, LabelColumn("y")])
    rows = {"t": ["a b"], "l": [["a"]], "s": ["a|b"], "h": [["a"]], "n": ["1"], "y": [1]}
    schema.fit(pd.DataFrame(rows))
    nothing = pd.DataFrame({**dict.fromkeys(rows, [missing, missing]), "y": [0, 1]})
    nones = pd.DataFrame({**dict.fromkeys(rows, [None, None]), "y": [0, 1]})
    assert nothing["t"].dtype == np.asarray(missing).dtype
    schema.check(nothing)
    expected = schema.arrays_of(nones)
    for name, array in schema.arrays_of(nothing).items():
        np.testing.assert_array_equal(array, expected[name])


@pytest.mark.parametrize("values", [[2**63, -1], [[2**64], [1, 2]]])
def test_integers_above_int64_are_named(values: list[Any]) -> None:
    words = r"column 'id' must have integers of int64, .*: convert all to texts, .astype\(str\)"
    schema = Schema([CategoryColumn("id"), LabelColumn("y")])
    frame = pd.DataFrame({"id": pd.Series(values, dtype=object), "y": [0, 1]})
    for refused in (
        lambda: schema.arrays_of({"id": values, "y": [0, 1]}),
        lambda: infer_schema(frame, label="y"),
        lambda: read(frame, schema),
    ):
        with pytest.raises(ValueError, match=words):
            refused()
    assert read(frame, columns=["y"]).to_table()["y"].to_pylist() == [0, 1]


def test_faults_name_all_rows() -> None:
    schema = Schema([*SMALL, LabelColumn("clicked")])
    rows = pa.record_batch(
        {"user": ["1", "?", "3", "!"], "price": [1.0] * 4, "clicked": [0, 1, 1, 5]}
    )
    faults = {fault.column: fault.rows.tolist() for fault in schema.faults(rows)}
    assert faults == {"user": [1, 3], "clicked": [3]}


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ({"columns": {"a": {"kind": "categry"}}}, "a.kind 'categry' is not known: category is"),
        ({"columns": {"a": {"kind": "category", "tabel": "t"}}},
         "a.tabel is not known for kind .category.: table is"),
        ({"colums": {"a": "category"}}, "schema.colums is not known: columns is similar"),
        ({"columns": {"a": {"kind": "number", "length": 2}}},
         "a.length is not known for kind 'number'"),
        ({"columns": {"a": {"kind": "category", "eviction": 5}}}, "must be of kind 'time'"),
        ({"columns": {"a": {"kind": "number", "buckets": 0}}}, "at least one column whose values"),
        ({"columns": {"t": "time", "u": "time", "a": "category"}}, "at most one column .*'time'"),
        ({"columns": {"a": {"kind": "category", "table": "t"},
                      "b": {"kind": "category", "table": "t", "admission": 2}}}, "'a' and 'b'"),
        ({"columns": {}}, "columns must be a mapping"),
        ([], "a schema must be a mapping"),
    ],
)  # fmt: skip
def test_what_is_no_schema(description: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Schema.from_description(description)


def test_a_schema_shows_its_columns() -> None:
    schema = Schema(SMALL)
    assert eval(repr(schema)).columns == schema.columns
    assert "<td>price</td><td>number</td>" in schema._repr_html_()


def test_failed_fit_and_load_change_nothing() -> None:
    schema = Schema(SMALL).fit({"user": [1, 2], "price": [1.0, 2.0]})
    before = schema.state_dict()
    with pytest.raises(ValueError, match="at least one row"):
        schema.fit({"user": [], "price": []})
    with pytest.raises(ValueError, match="price"):
        schema.fit({"user": [1]})
    with pytest.raises((ValueError, KeyError)):
        schema.load_state_dict({})
    assert schema.state_dict() == before


@pytest.mark.parametrize("first", [["7", "8", "a"], [7, 8, 9], [7.0, 8.0, None]])
def test_a_category_has_one_key_in_data_of_every_type(first: list[Any]) -> None:
    """A file in which all ids are digits has integers, and the next file may have texts."""
    schema = Schema([CategoryColumn("id"), LabelColumn("clicked")])
    before = Schema([CategoryColumn("id"), LabelColumn("clicked")])
    schema.fit({"id": first, "clicked": [1, 0, 1]})
    keys = [
        schema.arrays_of({"id": values}, with_label=False)["ids"].tolist()
        for values in (["7", "8"], [7, 8], np.array([7, 8], np.float32), np.array([7, 8], np.uint8))
    ]
    assert all(each == keys[0] for each in keys) and keys[0][0] != keys[0][1]
    assert schema.arrays_of({"id": first}, with_label=False)["ids"].tolist()[:2] == keys[0]
    assert schema.reads_like(before) and before.reads_like(schema)
    assert not schema.reads_like(
        Schema([CategoryColumn("id", admission=2), LabelColumn("clicked")])
    )
    made = Schema.from_description(schema.describe())
    assert made.arrays_of({"id": ["7", "8"]}, with_label=False)["ids"].tolist() == keys[0]


def test_a_number_has_one_bucket_in_columns_of_both_floats() -> None:
    schema = Schema([NumberColumn("price"), LabelColumn("clicked")])
    prices = np.arange(40) / 10
    schema.fit({"price": np.repeat(prices, 50), "clicked": np.tile([0, 1], 1000)})
    double = schema.arrays_of({"price": prices}, with_label=False)
    single = schema.arrays_of({"price": prices.astype(np.float32)}, with_label=False)
    for name in double:
        np.testing.assert_array_equal(double[name], single[name])


def test_ids_of_19_digits_in_texts_are_whole_numbers() -> None:
    schema = Schema([CategoryColumn("id", values="whole")])
    ids = [1234567890123456789, -(2**63), 2**63 - 1, 0, -7]
    as_numbers = schema.arrays_of({"id": ids})["ids"]
    np.testing.assert_array_equal(
        schema.arrays_of({"id": [str(k) for k in ids]})["ids"], as_numbers
    )


def test_a_time_is_read_alike_in_all_forms() -> None:
    """CSV has timestamps where data frames, JSON and requests have texts."""
    schema = Schema([CategoryColumn("user"), TimeColumn("t", parts=("hour", "weekday"))])
    texts = ["2026-01-01 00:00:03", "2026-03-05T23:59:59"]
    times = pd.to_datetime(pd.Series(texts), format="ISO8601")
    seconds = (times - pd.Timestamp(0)) // pd.Timedelta(seconds=1)
    forms: list[Any] = [texts, times, times.dt.strftime("%Y-%m-%dT%H:%M:%SZ"), seconds]
    made = [schema.arrays_of({"user": [1, 2], "t": t}, with_label=False)["ids"] for t in forms]
    assert all(np.array_equal(each, made[0]) for each in made[1:])


@pytest.mark.parametrize(
    ("values", "positive", "expected"),
    [
        ([True, False], "True", [1, 0]),
        ([True, False], "true", [1, 0]),
        ([True, False], "1", [1, 0]),
        ([True, False], 1.0, [1, 0]),
        ([True, False], "False", [0, 1]),
        ([True, False], False, [0, 1]),
        (["true", "FALSE"], True, [1, 0]),
        (["true", "False"], False, [0, 1]),
        (["true", "no"], "True", [1, 0]),
    ],
)
def test_the_positive_value_of_bools(values: list[Any], positive: Any, expected: list[int]):
    schema = Schema([CategoryColumn("user"), LabelColumn("bought", positive=positive)])
    rows = pa.record_batch({"user": ["a", "b"], "bought": values})
    assert schema.labels_of(rows)[:, 0].tolist() == expected
    assert schema.positives_of(rows).tolist() == [bool(each) for each in expected]


@pytest.mark.parametrize("positive", ["yes", "", 7, 0.5])
def test_bools_have_no_other_positive_value(positive: Any):
    schema = Schema([CategoryColumn("user"), LabelColumn("bought", positive=positive)])
    rows = pa.record_batch({"user": ["a", "b"], "bought": [True, False]})
    with pytest.raises(ValueError, match="'bought' has bools, so positive must be true or false"):
        schema.labels_of(rows)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_labels_of_every_type_of_text(kind: pa.DataType) -> None:
    answers = Label("bought", positive="yes").apply(pa.array(["yes", "no"], kind), learn=False)
    numbers = Label("bought").apply(pa.array(["0", " 1"], kind), learn=False)
    bools = Label("bought", positive=True).apply(pa.array(["false", "TRUE"], kind), learn=False)
    assert [each.tolist() for each in (answers, numbers, bools)] == [[1, 0], [0, 1], [0, 1]]


@pytest.mark.parametrize("values", [[3, 4], [3.0, 4.0], pa.array([3, 4], pa.uint8())])
@pytest.mark.parametrize("positive", ["4", "4.0", "4e0", 4, 4.0, np.int8(4)])
def test_the_positive_value_of_numbers(values: Any, positive: Any) -> None:
    assert Label("n", positive).apply(pa.array(values), learn=False).tolist() == [0, 1]


@pytest.mark.parametrize("positive", ["True", "yes", ""])
def test_numbers_have_no_positive_text(positive: str) -> None:
    with pytest.raises(ValueError, match="'n' has numbers, so positive must be a number, got"):
        Label("n", positive).apply(pa.array([1, 0]), learn=False)


@pytest.mark.parametrize(
    ("values", "positive"),
    [
        (pa.array([2**53, 2**53 + 1]), str(2**53 + 1)),
        (pa.array([2**53, 2**53 + 1]), 2**53 + 1),
        (pa.array([0.2, 0.1], pa.float32()), 0.1),
        (pa.array([0.2, 0.1], pa.float16()), "0.1"),
        (pa.array(["5", "4"]), 4.0),
        (pa.array(["0", "1"]), True),
        (pa.array(["1", "0"]), False),
    ],
)
def test_a_positive_value_is_compared_in_the_type_of_the_labels(
    values: pa.Array, positive: Any
) -> None:
    assert Label("y", positive).apply(values, learn=False).tolist() == [0, 1]


@pytest.mark.parametrize("positive", [300, -1, 10**400, 0.5, "1e999"])
def test_a_positive_value_that_the_type_cannot_have_is_never_there(positive: Any) -> None:
    labels = pa.array([44, 255], pa.uint8())
    assert Label("y", positive).apply(labels, learn=False).tolist() == [0, 0]
