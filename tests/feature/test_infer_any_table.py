# SPDX-License-Identifier: Apache-2.0
"""Any Arrow table gives columns that read this very table, or one sentence that says why not."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from hypothesis import given, strategies as st

from mindspore_rec import Schema
from mindspore_rec.common.columns.schema.inference import Inferred, infer_columns
from mindspore_rec.common.columns.schema.proposal import proposal_yaml
from tests.support.nightly import examples

NAMES = ["y", "user_id", "ts", "price", "on", "a b", "ümlaut", "x: 1", "#", "'", '"', "\n", "007"]
WORDS = ["red", "new", "Red sofa, new", "a|b", "b|c|a", "2026-01-02", "01/02/2026 10:00", "?", ""]
NUMBERS = ["7", " 7", "7.0", "007", "-3", "1,5", "1.299,50", "1e3", "nan", "n/a", "20260102", "x"]
DAY = datetime.datetime(2026, 1, 2, 3, 4, 5, 678)

VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-2, 2)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.int64(), st.integers(1_700_000_000_000, 1_800_000_000_000)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.uint16(), st.integers(0, 1)),
    (pa.float64(), st.floats()),
    (pa.float64(), st.integers(0, 3).map(float)),
    (pa.float32(), st.floats(width=32)),
    (pa.float16(), st.floats(width=16)),
    (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
    (pa.string(), st.sampled_from(WORDS)),
    (pa.large_string(), st.sampled_from(NUMBERS)),
    (pa.string_view(), st.sampled_from([*WORDS, *NUMBERS])),
    (pa.binary(), st.binary(max_size=3)),
    (pa.timestamp("us", "UTC"), st.just(DAY)),
    (pa.timestamp("s"), st.datetimes(datetime.datetime(1960, 1, 1), DAY)),
    (pa.date32(), st.dates(datetime.date(1990, 1, 1), datetime.date(2100, 1, 1))),
    (pa.date64(), st.just(DAY.date())),
    (pa.time64("us"), st.just(DAY.time())),
    (pa.duration("s"), st.just(datetime.timedelta(3))),
    (pa.decimal128(5, 1), st.decimals(-9, 9, places=1).map(decimal.Decimal)),
    (pa.list_(pa.int64()), st.lists(st.integers(0, 3) | st.none(), max_size=3)),
    (pa.large_list(pa.string()), st.lists(st.sampled_from(WORDS), max_size=3)),
    (pa.list_(pa.float32(), 2), st.lists(st.floats(width=32), min_size=2, max_size=2)),
    (pa.list_(pa.list_(pa.int64())), st.lists(st.lists(st.integers(0, 1)), max_size=2)),
    (pa.struct({"a": pa.int64()}), st.fixed_dictionaries({"a": st.integers(0, 1)})),
    (pa.map_(pa.string(), pa.int8()), st.just([("a", 1)])),
]


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.sampled_from([60, 250, 60, 250, 60, 250, 5, 2, 1, 0]))
    unlike = draw(st.sampled_from([True] * 9 + [False]))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=unlike))
    arrays = [column(draw, rows, draw(st.sampled_from(VALUES))) for _ in names]
    if draw(st.sampled_from([True] * 5 + [False])):
        label = pa.array((np.random.default_rng(rows).random(rows) < 0.4).astype(np.int8))
    else:
        label = column(draw, rows, draw(st.sampled_from(VALUES)))
    return pa.Table.from_arrays([*arrays, label], [*names, "label"])


def column(
    draw: st.DrawFn, rows: int, kind_and_values: tuple[pa.DataType, st.SearchStrategy[Any]]
) -> pa.Array:
    kind, values = kind_and_values
    few = draw(st.lists(values, min_size=1, max_size=6))
    if draw(st.booleans()):
        few.append(None)
    places = np.random.default_rng(draw(st.integers(0, 999))).integers(0, len(few), rows)
    array = pa.array([few[place] for place in places], kind)
    if draw(st.booleans()) and not pa.types.is_nested(kind) and not pa.types.is_string_view(kind):
        try:
            return array.dictionary_encode()
        except pa.ArrowNotImplementedError:
            return array
    return array


def columns_or_sentence(table: pa.Table, **roles: Any) -> Inferred | None:
    try:
        return infer_columns(table, label="label", **roles)
    except (TypeError, ValueError) as error:
        text = str(error)
        assert type(error) in (TypeError, ValueError), type(error)
        assert text and "\n" not in text and len(text) < 1000, text
        return None


@examples(150, 5000)
@given(tables(), st.sampled_from(["", "time", "group", "weight"]), st.sampled_from(NAMES))
def test_any_table_is_read_or_refused(table: pa.Table, role: str, name: str) -> None:
    inferred = columns_or_sentence(table, **({role: name} if role else {}))
    if inferred is None:
        return
    schema = Schema(inferred.columns)
    schema.check(table)
    arrays = schema.fit(table).arrays_of(table)
    assert all(len(array) == table.num_rows for array in arrays.values())
    document = yaml.safe_load(proposal_yaml(inferred, "a.parquet"))
    assert Schema.from_description({"columns": document["columns"]}).columns == inferred.columns
    for each in inferred.entries:
        assert each.why[-1] in ".?" and len(each.why) < 300


@pytest.mark.parametrize("rows", [0, 1])
def test_tables_without_enough_rows(rows: int) -> None:
    with pytest.raises(ValueError, match="must have rows|have no rows|one row"):
        infer_columns(pa.table({"x": [1] * rows, "y": [0] * rows}), label="y")
