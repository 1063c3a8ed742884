# SPDX-License-Identifier: Apache-2.0
"""infer_columns: what a data scientist expects of each column, and one sentence if it is wrong."""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mindspore_rec import Schema
from mindspore_rec.common.columns.schema.inference import Inferred, infer_columns
from mindspore_rec.feature import (
    CategoryColumn,
    Column,
    GroupColumn,
    IgnoredColumn,
    IntegerColumn,
    LabelColumn,
    ListColumn,
    NumberColumn,
    TextColumn,
    TimeColumn,
    WeightColumn,
)

ROWS = 2000
RNG = np.random.default_rng(7)
LABEL = (RNG.random(ROWS) < 0.3).astype(np.int8)
SECONDS = 1_700_000_000 + np.sort(RNG.integers(0, 30 * 86400, ROWS))
TIMES = pd.to_datetime(SECONDS, unit="s")
PARTS = ("hour", "weekday")
WORDS = ["sofa", "lamp", "red", "blue", "old", "new", "oak", "big", "set", "of"]


def drawn(values: Any) -> list[Any]:
    return [values[i] for i in RNG.integers(0, len(values), ROWS)]


def joined(between: str, values: list[str], low: int, high: int) -> list[str]:
    return [between.join(RNG.choice(values, RNG.integers(low, high + 1))) for _ in range(ROWS)]


def infer(values: Any, name: str = "x", **roles: Any) -> Inferred:
    """Infer the columns of a table with one feature, and check that they read the table."""
    column = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
    more = roles.pop("more", {})
    table = pa.table({name: column, "y": pa.array(LABEL[: len(column)]), "z": LABEL * 0.5, **more})
    inferred = infer_columns(table, label="y", ignore=["z"], **roles)
    more_category = CategoryColumn("more")
    schema = Schema([*inferred.columns, more_category])
    schema.check(table.append_column("more", [["a"] * len(table)]))
    return inferred


KINDS: dict[str, tuple[Any, str, Column]] = {
    "texts that recur": (drawn(["Lyon", "Paris", "Rome"]), "x", CategoryColumn("x")),
    "texts of several words that are few": (
        drawn(["United Kingdom of Britain", "Kingdom of Spain", "France"]),
        "x",
        CategoryColumn("x"),
    ),
    "a dictionary": (
        pa.array(drawn(["a", "b"])).dictionary_encode(),
        "x",
        CategoryColumn("x"),
    ),
    "texts of which some are numbers": (
        drawn(["85123A", "71053", "C2"]),
        "x",
        CategoryColumn("x", values="text"),
    ),
    "bools": (drawn([True, False]), "x", CategoryColumn("x", values="whole")),
    "a flag": (drawn([0, 1]), "x", CategoryColumn("x", values="whole")),
    "yes or nothing": (drawn(["yes", None]), "x", CategoryColumn("x")),
    "ids": (
        drawn(range(400)),
        "user_id",
        CategoryColumn("user_id", values="whole", statistics="folds"),
    ),
    "ids as floats": (
        drawn([7.0, 8.0, 9.0, None]),
        "itemId",
        CategoryColumn("itemId", values="whole"),
    ),
    "ids as texts": (
        drawn([str(i) for i in range(400)]),
        "CustomerID",
        CategoryColumn("CustomerID", values="whole", statistics="folds"),
    ),
    "ids as texts with a mark": (
        drawn([*map(str, range(400)), "?"]),
        "CustomerID",
        CategoryColumn("CustomerID", values="text", statistics="folds"),
    ),
    "hashes": (
        drawn(RNG.integers(-(2**62), 2**62, 1500)),
        "x",
        CategoryColumn("x", values="whole", statistics="folds"),
    ),
    "hashes of 64 bits": (
        pa.array(drawn(RNG.integers(2**62, 2**64, 1500, np.uint64)), pa.uint64()),
        "x",
        CategoryColumn("x", values="text", statistics="folds"),
    ),
    "postcodes": (drawn(["01067", "10115", "80331"]), "x", CategoryColumn("x", values="text")),
    "few whole numbers": (drawn(range(5)), "x", IntegerColumn("x")),
    "whole numbers as floats": (drawn([1.0, 2.0, 5.0, None]), "x", IntegerColumn("x")),
    "whole numbers as texts": (
        drawn(["1", "2", "30", "n/a"]),
        "x",
        IntegerColumn("x", decimal="."),
    ),
    "amounts that seldom recur": (
        np.floor(np.exp(RNG.normal(10, 2, ROWS))).astype(np.int64),
        "x",
        NumberColumn("x"),
    ),
    "numbers": (RNG.normal(size=ROWS), "x", NumberColumn("x")),
    "numbers, some infinite": ([*RNG.normal(size=ROWS - 1), np.inf], "x", NumberColumn("x")),
    "numbers as texts": (drawn(["1.5", "2", "?", ""]), "x", NumberColumn("x", decimal=".")),
    "commas between thousands": (
        drawn(["1,299.50", "3.5", "12", None]),
        "x",
        NumberColumn("x", decimal="."),
    ),
    "commas between thousands, without fractions": (
        drawn(["1,299,000", "350", "12,000", "n/a"]),
        "x",
        NumberColumn("x", decimal="."),
    ),
    "a decimal comma before three digits": (
        drawn(["1,250", "0,500"]),
        "x",
        NumberColumn("x", decimal=","),
    ),
    "a decimal comma": (
        drawn(["1.299,50", "3,5", "12", None]),
        "x",
        NumberColumn("x", decimal=","),
    ),
    "lists": (
        pa.array(drawn([[1, 2], [3], [], None])),
        "x",
        ListColumn("x", values="whole", length=2),
    ),
    "lists of texts": (drawn([["new"], ["red", "big", "old"]]), "x", ListColumn("x", length=3)),
    "long lists": (
        pa.array([list(range(RNG.integers(20, 60))) for _ in range(ROWS)]),
        "x",
        ListColumn("x", values="whole", length=59),
    ),
    "lists between bars": (
        joined("|", ["Action", "Drama", "Science Fiction", "War"], 1, 4),
        "x",
        ListColumn("x", separator="|", length=4),
    ),
    "lists between commas": (
        joined(",", ["12", "7", "13", "5"], 1, 12),
        "x",
        ListColumn("x", separator=","),
    ),
    "a history of ids": (
        joined(" ", [f"N{i}" for i in range(50)], 0, 12),
        "x",
        ListColumn("x", separator=" "),
    ),
    "free text": (joined(" ", WORDS, 3, 9), "x", TextColumn("x", length=9)),
    "free text with commas": (
        joined(" ", [*WORDS, "wood,", "soft,"], 4, 9),
        "x",
        TextColumn("x", length=9),
    ),
    "free text, each once": (
        [f"{i} big red sofa" for i in range(ROWS)],
        "x",
        TextColumn("x", length=4),
    ),
    "addresses of pages": (
        [f"https://shop.com/{'ab'[i % 2]}/{i}?ref=mail" for i in range(ROWS)],
        "x",
        TextColumn("x", length=7),
    ),
    "addresses of machines": (
        drawn([f"10.0.{i}.{i % 7}" for i in range(256)]),
        "x",
        CategoryColumn("x", statistics="folds"),
    ),
    "lists in brackets": (
        [f"[{each}]" for each in joined(", ", list("12345678"), 0, 6)],
        "x",
        TextColumn("x", length=6),
    ),
    "ids of 19 digits as texts": (
        [str(10**18 + int(i)) for i in RNG.permutation(ROWS)],
        "x",
        IgnoredColumn("x"),
    ),
    "all missing": (pa.nulls(ROWS), "x", IgnoredColumn("x")),
    "NaN everywhere": (pa.array([np.nan] * ROWS), "x", IgnoredColumn("x")),
    "empty texts": ([""] * ROWS, "x", IgnoredColumn("x")),
    "a constant": ([3] * ROWS, "x", IgnoredColumn("x")),
    "a number of the row": (range(ROWS), "x", IgnoredColumn("x")),
    "a hash in each row": (
        [f"{i:x}" for i in RNG.permutation(10**6)[:ROWS]],
        "x",
        IgnoredColumn("x"),
    ),
    "an id in each row": (RNG.permutation(10**6)[:ROWS], "order_id", IgnoredColumn("order_id")),
    "vectors": (pa.array([[0.5, 1.5]] * ROWS), "x", IgnoredColumn("x")),
    "structs": (pa.array([{"a": 1}] * ROWS), "x", IgnoredColumn("x")),
    "bytes": (pa.array([b"\xff"] * ROWS), "x", IgnoredColumn("x")),
    "a weight by its name": (RNG.random(ROWS), "sample_weight", IgnoredColumn("sample_weight")),
    "timestamps": (pa.array(TIMES), "x", TimeColumn("x", parts=PARTS)),
    "dates": (
        pa.array([t.date() for t in TIMES.to_pydatetime()]),
        "x",
        TimeColumn("x", parts=("weekday",)),
    ),
    "seconds": (SECONDS, "timestamp", TimeColumn("timestamp", parts=PARTS)),
    "milliseconds": (SECONDS * 1000, "ts", TimeColumn("ts", unit="ms", parts=PARTS)),
    "microseconds": (SECONDS * 1e6, "eventTime", TimeColumn("eventTime", unit="us", parts=PARTS)),
    "ISO 8601": (
        [t.isoformat() + "Z" for t in TIMES],
        "x",
        TimeColumn("x", format="iso", parts=PARTS),
    ),
    "days first": (
        [t.strftime("%d/%m/%Y %H:%M") for t in TIMES],
        "x",
        TimeColumn("x", format="%d/%m/%Y %H:%M", parts=PARTS),
    ),
    "a log of a server": (
        [t.strftime("%d/%b/%Y:%H:%M:%S +0000") for t in TIMES],
        "x",
        TimeColumn("x", format="%d/%b/%Y:%H:%M:%S %z", parts=PARTS),
    ),
    "hours as digits": (
        [int(t.strftime("%y%m%d%H")) for t in TIMES],
        "hour",
        TimeColumn("hour", format="%y%m%d%H"),
    ),
}


@pytest.mark.parametrize("case", KINDS)
def test_kind_of_a_column(case: str) -> None:
    values, name, expected = KINDS[case]
    more = {"city": pa.array(drawn(["a", "b"]))}
    inferred = infer(values, name, more=more)
    assert inferred.column(name).column == expected, inferred.column(name).why
    assert not inferred.warnings


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_units_of_a_named_time(unit: str) -> None:
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    columns = infer(SECONDS * factor, "when it was", time="when it was", more={"a": LABEL[::-1]})
    expected = TimeColumn("when it was", unit=None if unit == "s" else unit, parts=PARTS)
    assert columns.column("when it was").column == expected
    assert not columns.warnings


@pytest.mark.parametrize("form", ["floats", "whole numbers"])
def test_a_named_time_that_is_none_is_doubted(form: str) -> None:
    prices = np.arange(ROWS) % 90 + (5.25 if form == "floats" else 5)
    warnings = infer(prices, "price", time="price", more={"a": LABEL[::-1]}).warnings
    assert len(warnings) == 1
    pattern = "most values of the time 'price' are times before 1990, such as 49.*s since 1970"
    assert re.match(pattern, warnings[0])


def test_one_time_of_two() -> None:
    more = {"born": pa.array([datetime.date(1990, 1, 1 + i % 28) for i in range(ROWS)])}
    inferred = infer(pa.array(TIMES), "event_time", more={**more, "a": drawn("ab")})
    assert inferred.column("event_time").column.kind == "time"
    assert inferred.column("born").column.kind == "ignored"


def test_figures() -> None:
    entry = infer([None, "a", "b", "a"] * (ROWS // 4)).column("x")
    assert (entry.distinct, entry.missing_share) == (2, 0.25)


@pytest.mark.parametrize("form", ["{} €", "${}", "{}%", "{} kg"])
def test_numbers_that_are_not_read(form: str) -> None:
    inferred = infer(drawn([form.format(i) for i in range(100, 999)]))
    assert isinstance(inferred.column("x").column, CategoryColumn)
    assert re.fullmatch("column 'x' has numbers with .* make numbers.*", inferred.warnings[0])


def test_a_comma_that_could_be_a_decimal_point() -> None:
    inferred = infer(drawn([f"1,{i}" for i in range(100, 999)]))
    assert inferred.column("x").column == NumberColumn("x", decimal=".")
    assert re.fullmatch("column 'x' .* separator of thousands: .* ','", inferred.warnings[0])


def test_whole_floats_of_a_small_sample_are_numbers() -> None:
    """In the rows that were not read there may be fractions, which an IntegerColumn refuses."""
    prices = drawn([1.0, 2.0, 5.0])
    assert infer(prices).column("x").column == IntegerColumn("x")
    assert infer(prices, total_rows=10**6).column("x").column == NumberColumn("x")


def test_ids_that_may_recur_in_the_rest() -> None:
    """In 2,000 rows of a billion no id has to recur."""
    ids = RNG.integers(0, 10**12, ROWS)
    assert infer(ids, "user_id", total_rows=10**9).column("user_id").column.kind == "category"
    more = {"a": drawn("ab")}
    assert infer(ids, "user_id", total_rows=ROWS, more=more).column("user_id").column.kind == (
        "ignored"
    )


def test_values_that_never_recur_later() -> None:
    more = {"ts": SECONDS, "a": drawn("ab")}
    assert infer(np.arange(ROWS) // 5, "session_id", more=more).column("session_id").column == (
        IgnoredColumn("session_id")
    )


def test_roles() -> None:
    table = pa.table(
        {
            "user": drawn(range(30)),
            "query": [f"q{i % 600}" for i in range(ROWS)],
            "w": RNG.random(ROWS),
            "note": drawn("ab"),
            "bought": drawn(["yes", "no"]),
            "y": LABEL,
        }
    )
    roles: dict[str, Any] = {"weight": "w", "ignore": ["note"], "group": "user"}
    inferred = infer_columns(table, label=["y", "bought"], **roles)
    assert inferred.columns == (
        CategoryColumn("user", values="whole", group=True),
        CategoryColumn("query", statistics="folds"),
        WeightColumn("w"),
        IgnoredColumn("note"),
        LabelColumn("bought", positive="yes"),
        LabelColumn("y"),
    )
    prices = pa.table({"price": RNG.permutation(ROWS) // 2 * 7**3, "a": drawn("ab"), "y": LABEL})
    grouped = infer_columns(prices, label="y", group="price").column("price")
    assert isinstance(grouped.column, (GroupColumn, CategoryColumn))


@pytest.mark.parametrize(
    ("values", "asked", "expected", "positives"),
    [
        ([0, 1, 1, 0], "y", LabelColumn("y"), 2),
        ([0.0, 1.0, 1.0, 1.0], "y", LabelColumn("y"), 3),
        ([True, False, False, True], "y", LabelColumn("y", positive=True), 2),
        (["0", "1", "0", "0"], "y", LabelColumn("y"), 1),
        ([-1, 1, 1, -1], "y", LabelColumn("y", positive=1), 2),
        ([1.0, 2.0, 1.0, 1.0], "y", LabelColumn("y", positive=2), 1),
        (["no", "Yes", "Yes", "Yes"], "y", LabelColumn("y", positive="Yes"), 3),
        (["<=50K", ">50K", "<=50K", "<=50K"], "y", LabelColumn("y", positive=">50K"), 1),
        (
            ["a", "b", "c", "a"],
            LabelColumn("y", positive="a"),
            LabelColumn("y", positive="a"),
            2,
        ),
        ([1, 2, 3, 2], LabelColumn("y", positive=2), LabelColumn("y", positive=2), 2),
        (
            [True, False, False, False],
            LabelColumn("y", positive="true"),
            LabelColumn("y", positive="true"),
            1,
        ),
        (
            ["True", "false", "true", "FALSE"],
            LabelColumn("y", positive=True),
            LabelColumn("y", positive=True),
            2,
        ),
        ([1, 2, 3, 2], LabelColumn("y", binary=False), LabelColumn("y", binary=False), 8),
        (
            ["1,5", "2", "3", "2"],
            LabelColumn("y", binary=False),
            LabelColumn("y", binary=False, decimal=","),
            8.5,
        ),
    ],
)
def test_labels(values: Any, asked: Any, expected: Column, positives: float) -> None:
    table = pa.table({"x": ["a", "b", "a", "b"], "y": values})
    inferred = infer_columns(table, label=asked)
    assert inferred.column("y").column == expected
    labels = Schema(inferred.columns).labels_of(table.combine_chunks().to_batches()[0])
    assert labels.sum() == positives


def test_a_label_of_many_numbers_is_a_number() -> None:
    table = pa.table({"x": drawn("ab"), "seconds": RNG.exponential(9, ROWS)})
    assert infer_columns(table, label="seconds").column("seconds").column == (
        LabelColumn("seconds", binary=False)
    )


GOOD = pa.table({"user": ["a", "b", "a"], "clicked": [0, 1, 0], "ts": [1.7e9, 1.7e9, None]})
MISTAKES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no such label": (GOOD, {"label": "clickd"}, "label 'clickd' is no column: .*'clicked'"),
    "no such time": (GOOD, {"time": "t"}, "time 't' is no column"),
    "no such ignored": (GOOD, {"ignore": ["x"]}, "ignore 'x' is no column: .*'user', 'clicked'"),
    "the label twice": (GOOD, {"label": ["clicked", "clicked"]}, "'clicked' is label and label"),
    "the label as weight": (GOOD, {"weight": "clicked"}, "'clicked' is label and weight: name"),
    "the label is ignored": (GOOD, {"ignore": ["clicked"]}, "'clicked' is label and ignore"),
    "three values": ({"clicked": [0, 1, 2]}, {}, "two values, it has 3: 0, 1, 2; .*positive=0"),
    "three texts": ({"clicked": ["a", "b", "c"]}, {}, "it has 3: 'a', 'b', 'c'; name the value"),
    "constant": ({"clicked": [0, 0, 0]}, {}, "all 3 rows that were read have 0: .*rows="),
    "missing labels": ({"clicked": [0, None, 1]}, {}, "missing in 1 of 3 rows .* row 1 of them"),
    "NaN labels": ({"clicked": [np.nan, np.nan, np.nan]}, {}, "missing in all 3 rows"),
    "labels in lists": ({"clicked": [[0], [1], [0]]}, {}, "it is int64 in lists"),
    "times as labels": ({"clicked": [datetime.date(2026, 1, 1)] * 3}, {}, "times are no labels"),
    "no such positive": (
        GOOD,
        {"label": LabelColumn("clicked", positive=7)},
        "never is 7, .* values are 0, 1",
    ),
    "no positive of bools": (
        GOOD.set_column(1, "clicked", [[False, True, True]]),
        {"label": LabelColumn("clicked", positive="yes")},
        "label 'clicked' has bools, so positive must be true or false, got 'yes'",
    ),
    "infinite labels": (
        {"clicked": [1.0, np.inf, 2.0]},
        {"label": LabelColumn("clicked", binary=False)},
        "must be finite",
    ),
    "no rows": (GOOD.slice(0, 0), {}, "have no rows, only the columns 'user', 'clicked', 'ts'"),
    "one row": (GOOD.slice(0, 1), {}, "got one row"),
    "no columns": (pa.table({}), {}, "have no columns"),
    "nothing but the label": (GOOD.select(["clicked"]), {}, "there is only the label"),
    "no feature is left": (
        GOOD.select(["clicked", "user"]),
        {"ignore": ["user"]},
        "no column is left to predict from: 'user': Not read, as asked for; name",
    ),
    "a missing time": (GOOD, {"time": "ts"}, "time 'ts' is missing in 1 of 3 rows"),
    "numbers of texts": ({"ts": ["17", "18", "19"]}, {"time": "ts"}, "written as texts, .*'17'"),
    "digits as floats": ({"ts": [20260102.0] * 3}, {"time": "ts"}, "20260102 as floats: make int"),
    "times of words": (GOOD, {"time": "user"}, "such as 'a': convert it, pandas.to_datetime"),
    "times of old": (
        {"ts": pa.array([datetime.date(1950, 1, 1)] * 3)},
        {"time": "ts"},
        "between 1970 and 2106",
    ),
    "a negative weight": ({"w": [1.0, -2.0, 1.0]}, {"weight": "w"}, "must be 0 or more, got -2"),
    "a weight of 0": ({"w": [0, 0, 0]}, {"weight": "w"}, "is 0 in all rows"),
    "a missing weight": ({"w": [1.0, None, 1.0]}, {"weight": "w"}, "is missing in 1 rows"),
    "a weight of words": (GOOD, {"weight": "user"}, "must be of numbers, it is string"),
    "a group of fractions": ({"g": [0.5, 1.5, 0.5]}, {"group": "g"}, "fractions such as 0.5"),
    "a long name": (pa.table({"x" * 999: [1, 2], "clicked": [0, 1]}), {}, "the separator"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_sentence(mistake: str) -> None:
    columns, roles, sentence = MISTAKES[mistake]
    table = columns
    if isinstance(columns, dict):
        table = pa.table({**{name: GOOD[name] for name in GOOD.column_names}, **columns})
    with pytest.raises(ValueError, match=sentence) as caught:
        infer_columns(table, **{"label": "clicked", **roles})
    assert "\n" not in str(caught.value)


def test_two_columns_of_one_name() -> None:
    table = pa.Table.from_arrays([pa.array([1, 2])] * 2, ["clicked", "clicked"])
    with pytest.raises(ValueError, match="two columns named 'clicked': rename one"):
        infer_columns(table, label="clicked")


@pytest.mark.parametrize("label", [3, [], ["a", 3]])
def test_a_label_that_is_no_name(label: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="label must"):
        infer_columns(GOOD, label=label)


def test_a_copy_of_another_column() -> None:
    x = drawn(["a", "b", "c"])
    inferred = infer(x, more={"again": x})
    assert inferred.column("again").column == IgnoredColumn("again")
    assert re.fullmatch("column 'again' is in every row equal to 'x'.*", inferred.warnings[0])


def test_a_column_without_a_name() -> None:
    inferred = infer(drawn("ab"), more={"": range(ROWS)})
    assert [each.column.name for each in inferred.entries] == ["x", "y", "z"]
    assert "without a name" in inferred.warnings[0]
