# SPDX-License-Identifier: Apache-2.0
"""Formats of a Schema: types follow from columns, and what does not fit is named."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from mindspore_rec import Schema
from mindspore_rec.common.stream.schema_format import message_types, schema_format
from mindspore_rec.feature import (
    CategoryColumn,
    Column,
    IgnoredColumn,
    IntegerColumn,
    LabelColumn,
    ListColumn,
    NumberColumn,
    TextColumn,
    TimeColumn,
    WeightColumn,
)
from mindspore_rec.stream import pack

COLUMNS: list[Column] = [
    CategoryColumn("user", values="whole"),
    CategoryColumn("city", values="text"),
    NumberColumn("price"),
    NumberColumn("rent", decimal=","),
    IntegerColumn("visits"),
    ListColumn("tags", separator="|"),
    TextColumn("title"),
    IgnoredColumn("note"),
    TimeColumn("ts", unit="ms"),
    WeightColumn("w"),
    LabelColumn("clicked"),
]
GOOD = {
    "user": 7, "city": "Rome", "price": 1.5, "rent": "2,5", "visits": 3, "tags": "a|b",
    "title": "a b", "note": "x", "ts": 1_700_000_000_000, "w": 2, "clicked": 1,
}  # fmt: skip
SCHEMA = Schema(COLUMNS)
KEY = CategoryColumn("city", values="text")
FAULTS = {
    "clicked": (2, "column 'clicked' must be 0 or 1 (positive: names the value"),
    "rent": ("much", "column 'rent' must be numbers with a decimal comma, row 0 is 'much'"),
    "ts": (-1, "column 'ts' must be between the years 1970 and 2106, row 0 is -1"),
    "w": (-2.0, "column 'w' must be a weight of at least 0, row 0 is -2.0"),
}


def test_types_follow_from_columns() -> None:
    types = message_types(SCHEMA, "json")
    assert "note" not in types.names and message_types(SCHEMA, "tsv").names == [*GOOD]
    assert [str(each) for each in types.types] == [
        "int64", "string", "double", "string", "int64", "string", "string", "int64", "double",
        "double",
    ]  # fmt: skip
    more: dict[str, tuple[Column, pa.DataType]] = {
        "a time as text": (TimeColumn("ts", format="iso"), pa.string()),
        "seconds": (TimeColumn("ts"), pa.float64()),
        "a list": (ListColumn("tags", values="whole"), pa.list_(pa.int64())),
        "a positive text": (LabelColumn("l", positive="yes"), pa.string()),
        "a positive number": (LabelColumn("l", positive=2), pa.float64()),
        "a positive number above 2^53": (LabelColumn("l", positive=1 << 53), pa.int64()),
        "a positive bool": (LabelColumn("l", positive=True), pa.bool_()),
        "a number": (LabelColumn("l", binary=False), pa.float64()),
    }
    for name, (column, kind) in more.items():
        assert message_types(Schema([KEY, column]), "json").types[1] == kind, name


@pytest.mark.parametrize("name", ["json", "tsv", "arrow"])
def test_a_value_that_does_not_fit_is_named(name: str) -> None:
    def message(changes: dict[str, object]) -> bytes:
        row = GOOD | changes
        if name == "arrow":
            return pack(pa.table({each: [value] for each, value in row.items()}))
        if name == "json":
            return json.dumps(row).encode()
        return "\t".join("" if each is None else str(each) for each in row.values()).encode()

    changes = {each: value for each, (value, _) in FAULTS.items()}
    values = [message({}), message({"price": None}) if name != "arrow" else message({})]
    values += [message({each: value}) for each, value in changes.items()]
    values += [message({"clicked": 0})]
    if name == "arrow":  # the types of a message that does not fit are not kept
        values = [pack(pa.table({"user": [1.5]})), *values]
    decoded = schema_format(name, SCHEMA).decode(values)
    first = len(values) - len(FAULTS) - 1
    assert decoded.rows.num_rows == 3
    assert sorted(decoded.bad) == [*range(0, first - 2), *range(first, len(values) - 1)]
    for place, (_, words) in enumerate(FAULTS.values(), first):
        assert decoded.bad[place].reason in ("value", "schema"), decoded.bad[place]
        assert words in decoded.bad[place].detail or name == "arrow"
    assert SCHEMA.faults(decoded.rows) == []
    arrays = Schema([KEY, LabelColumn("clicked")]).arrays_of(decoded.rows)
    assert arrays["label"][:, 0].tolist() == [1, 1, 0]


def test_an_arrow_message_without_a_column_is_bad() -> None:
    decoded = schema_format("arrow", SCHEMA).decode([pack(pa.table({"user": [1]}))])
    assert decoded.bad[0].reason == "schema"
    assert decoded.bad[0].detail.startswith("data must have a column 'city', they have 'user'")


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (CategoryColumn("user"), "column 'user' must have values='text' or values='whole'"),
        (ListColumn("tags", values="text"), "column 'tags' must have a separator"),
    ],
)
def test_types_that_do_not_follow_are_an_error(column: Column, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        schema_format("tsv", Schema([column]))
