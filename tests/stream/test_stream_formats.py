# SPDX-License-Identifier: Apache-2.0
"""Formats: what is good is read, what is bad is found, whoever stands beside it."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from mindspore_rec.stream import ArrowFormat, Format, JsonFormat, TsvFormat, pack

SCHEMA = pa.schema({"x": pa.int64(), "s": pa.string(), "f": pa.float32()})
ROWS = pa.table({"x": [1, 2, 3], "s": ["a", None, "é"], "f": [0.5, None, -1.0]}, SCHEMA)

TSV = st.one_of(
    st.sampled_from(
        [b"1\ta\t0.5", b"2\t\t\n", b"3\tb\t1\n4\tc\t2", b"5\td\t3\r\n", b"6\te\r\t4", b"\n"]
        + [
            b"x\ta\t1",
            b"1\ta",
            b"1\ta\t1\t1",
            b"",
            b"\xef\xbb\xbf1\ta\t1",
            b"1\t\xff\t1",
            b'"1\ta\t1',
        ]
    ),
    st.binary(max_size=12),
)
JSON = st.one_of(
    st.sampled_from(
        [b'{"x": 1}', b'{"x": 2, "s": "a", "f": 1e3}\n', b'{"x": 3}\n{"x": 4}', b"{}", b"[]"]
        + [b'{"x": 1}{"x": 2}', b'{"x": 1', b"}", b'{"x": "a"}', b'{"x": 1.5}', b"\n", b"null"]
        + [b'{"x": 99999999999999999999}', b'{"s": "\n"}', b'{"x": {"y": 1}', b'{"x": 1} {"x": 1}']
    ),
    st.binary(max_size=12),
)


@given(st.lists(TSV.filter(bool), min_size=1, max_size=8))
def test_lines_of_tsv_do_not_touch_each_other(values):
    check(TsvFormat(SCHEMA), values)


@given(st.lists(JSON.filter(bool), min_size=1, max_size=8))
def test_lines_of_json_do_not_touch_each_other(values):
    check(JsonFormat(SCHEMA), values)


def check(format: Format, values: list[bytes]) -> None:
    """Many at once are read as one by one."""
    together = format.decode(values)
    rows = []
    for i, value in enumerate(values):
        alone = format.decode([value])
        assert together.counts[i] == alone.counts[0]
        assert (i in together.bad) == bool(alone.bad)
        rows += alone.rows.to_pylist()
    assert str(together.rows.to_pylist()) == str(rows)
    assert together.counts.sum() == together.rows.num_rows


@given(st.data())
def test_a_damaged_arrow_message_is_bad_or_has_its_rows(data):
    good = bytearray(pack(ROWS))
    kind = data.draw(st.sampled_from(["cut", "flip", "flip", "swap"]))
    place = data.draw(st.integers(0, len(good) - 1))
    if kind == "cut":
        del good[place:]
    elif kind == "flip":
        good[place] ^= 1 << data.draw(st.integers(0, 7))
    else:
        good[place:] = good[place:][::-1]
    decoded = ArrowFormat(SCHEMA).decode([pack(ROWS), bytes(good) or b"x", pack(ROWS)])
    assert set(decoded.bad) <= {1}
    assert decoded.rows.slice(0, 3).equals(ROWS.to_batches()[0])
    if kind == "cut":
        assert 1 in decoded.bad
    decoded.rows.validate(full=True)
    decoded.rows.to_pylist()


def test_schemas() -> None:
    extra = ROWS.append_column("more", pa.array([1, 2, 3]))
    swapped = ROWS.select(["f", "s", "x"])
    for table in (extra, swapped):
        assert ArrowFormat(SCHEMA).decode([pack(table)]).rows.equals(ROWS.to_batches()[0])
    strict = pa.schema([pa.field("x", pa.int64()), pa.field("s", pa.string(), nullable=False)])
    for schema, reason, said in (
        (strict, "null", "column 's' has missing values"),
        (pa.schema({"y": pa.int64()}), "schema", "column 'y' is missing"),
        (pa.schema({"x": pa.int32()}), "schema", "column 'x' is int64, expected int32"),
    ):
        error = ArrowFormat(schema).decode([pack(ROWS)]).bad[0]
        assert error.reason == reason and said in error.detail
    learned = ArrowFormat()
    decoded = learned.decode([b"rubbish", pack(ROWS), pack(swapped.drop_columns("x"))])
    assert learned.schema == SCHEMA and sorted(decoded.bad) == [0, 2]


@pytest.mark.parametrize("format", [ArrowFormat(SCHEMA), TsvFormat(SCHEMA), JsonFormat(SCHEMA)])
def test_nothing_is_no_rows(format: Format) -> None:
    decoded = format.decode([])
    assert (decoded.rows.num_rows, decoded.rows.schema, decoded.bad) == (0, SCHEMA, {})


def test_large_messages_of_lines() -> None:
    numbers = np.arange(50_000)
    text = b"".join(b"%d\ta\t0.5\n" % i for i in numbers)
    assert TsvFormat(SCHEMA).decode([text, text]).rows["x"].to_pylist() == [*numbers, *numbers]
    lines = "\n".join(json.dumps({"x": int(i)}) for i in numbers).encode()
    assert JsonFormat(SCHEMA).decode([lines]).rows["x"].to_pylist() == list(numbers)


def test_refusals() -> None:
    with pytest.raises(TypeError, match="schema must be"):
        ArrowFormat({"x": int})
    with pytest.raises(ValueError, match="distinct names"):
        TsvFormat(pa.schema([("x", pa.int64()), ("x", pa.int64())]))
