# SPDX-License-Identifier: Apache-2.0
"""Rows with a schema: its columns alone, its checks, its time, label and weight."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mindspore_rec.data import BadRows, CsvFormat, Sample, read
from mindspore_rec.feature import (
    CategoryColumn,
    CrossColumn,
    IgnoredColumn,
    LabelColumn,
    ListColumn,
    NumberColumn,
    Schema,
    TextColumn,
    TimeColumn,
    WeightColumn,
)

COLUMNS = [CategoryColumn("user"), NumberColumn("price"), TimeColumn("ts"), LabelColumn("click")]


def frame_of(rows: int) -> pd.DataFrame:
    numbers = np.arange(rows)
    return pd.DataFrame(
        {
            "user": [f"u{n % 5}" for n in numbers],
            "more": numbers,
            "price": numbers / 4,
            "ts": 1_700_000_000 + numbers,
            "click": (numbers % 4 == 0).astype(int),
        }
    )


def test_only_the_columns_of_the_schema_are_read(tmp_path):
    pq.write_table(pa.table(frame_of(100)), tmp_path / "a.parquet", row_group_size=30)
    rows = read(tmp_path, Schema(COLUMNS))
    assert sorted(rows.names) == ["click", "price", "ts", "user"]
    train, valid, test = rows.split_by_time(0.8, 0.1)
    assert [len(each) for each in (train, valid, test)] == [80, 10, 10]
    [batch] = list(test.batches(10))
    assert min(batch["ts"].to_pylist()) == 1_700_000_090
    with pytest.raises(ValueError, match=r"has no column 'age', which the schema has: its columns"):
        read(tmp_path, Schema([*COLUMNS, NumberColumn("age")]))


def test_the_time_of_the_schema_has_its_format_if_it_is_named():
    frame = frame_of(4).assign(ts=["03.01.2026", "01.02.2026", "02.01.2026", "04.03.2026"])
    rows = read(frame, Schema([*COLUMNS[:2], TimeColumn("ts", format="%d.%m.%Y"), COLUMNS[3]]))
    for time in (None, "ts"):
        old, new = rows.split_by_time(0.5, time=time)
        assert old.to_table()["ts"].to_pylist() == ["03.01.2026", "02.01.2026"]
        assert new.to_table()["ts"].to_pylist() == ["01.02.2026", "04.03.2026"]


def test_columns_that_the_schema_reads_as_texts_keep_their_zeros(tmp_path):
    """A CSV reader infers numbers of digits, and 00900 would become 900."""
    values: dict[str, list[Any]] = {
        "zip": ["00900", "00901"],
        "code": ["01", "02"],
        "tags": ["007", "008"],
        "title": ["0042", "0043"],
        "price": ["1.299", "2.000"],
        "day": ["010226", "020226"],
        "crossed": [1, 2],
        "user": ["01", "02"],
        "click": [0, 1],
    }
    schema = Schema(
        [
            CategoryColumn("zip", values="text"),
            CategoryColumn("code", values="text"),
            ListColumn("tags", separator="|"),
            TextColumn("title"),
            NumberColumn("price", decimal=",", transform="none"),
            TimeColumn("day", format="%d%m%y"),
            IgnoredColumn("crossed"),
            CrossColumn("both", ("zip", "crossed")),
            CategoryColumn("user", values="whole"),
            LabelColumn("click"),
        ]
    )
    for name in ("a", "b"):
        pd.DataFrame(values).to_csv(tmp_path / f"{name}.csv", index=False)
    rows = read(tmp_path, schema, format=CsvFormat(types={"code": pa.int64()}))
    types = {field.name: str(field.type) for field in rows.arrow_schema}
    whole = {name: kind for name, kind in types.items() if kind != "string"}
    assert whole == dict.fromkeys(["code", "crossed", "user", "click"], "int64")
    table = rows.to_table()
    expected = {**values, "code": [1, 2], "user": [1, 2]}
    assert table.to_pydict() == {name: expected[name] * 2 for name in table.column_names}
    schema.fit(table)
    served = schema.arrays_of(pd.DataFrame(values).assign(code=["1", "2"]))
    for name, array in schema.arrays_of(table).items():
        np.testing.assert_array_equal(array[:2], served[name])
    # rows that were read without a schema, also in the middle of a pass
    plain = read(tmp_path)
    assert plain.arrow_schema.field("zip").type == pa.int64()
    assert plain.with_texts(schema).to_table().select(table.column_names)["zip"] == table["zip"]
    batches = plain.batches(1)
    batches.read_texts(schema)
    next(passing := iter(batches))
    state = batches.state_dict()
    again = plain.batches(1)
    again.load_state_dict(state)
    again.read_texts(schema)
    rest = [batch["zip"][0].as_py() for batch in passing]
    assert [batch["zip"][0].as_py() for batch in again] == rest == ["00901", "00900", "00901"]
    # a file of JSON stores types
    (tmp_path / "a.jsonl").write_text('{"zip": 900}\n')
    only = Schema([CategoryColumn("zip", values="text")])
    assert read(tmp_path / "a.jsonl", only).to_table().to_pydict() == {"zip": [900]}


def test_values_that_a_column_cannot_have_are_bad_rows(tmp_path):
    frame = frame_of(100)
    frame.loc[[31, 77], "click"] = 2
    pq.write_table(pa.table(frame), tmp_path / "a.parquet", row_group_size=30)
    with pytest.raises(ValueError, match=r"a\.parquet: column 'click' must be 0 or 1.* row 31 is"):
        read(tmp_path, Schema(COLUMNS)).to_table()
    rows = read(tmp_path, Schema(COLUMNS), bad_rows=BadRows(most_share=0.05))
    assert rows.to_table().num_rows == 98
    report = rows.report()
    assert (report.rows, report.bad) == (100, 2)
    assert [(each.where, each.text) for each in report.first] == [("row 31", "2"), ("row 77", "2")]
    frame.to_csv(tmp_path / "b.csv", index=False)
    rows = read(tmp_path / "b.csv", Schema(COLUMNS), bad_rows=BadRows(most_share=0.05))
    assert rows.to_table().num_rows == 98
    assert (rows.report().rows, rows.report().bad) == (100, 2)
    assert [each.where for each in rows.report().first] == ["row 31", "row 77"]


def test_thinned_negatives_keep_the_mean_of_the_label():
    frame = frame_of(20_000)
    rows = read(frame, Schema(COLUMNS), sample=Sample(negatives=0.1))
    assert rows.names[-1] == "weight"
    table = rows.to_table()
    click = table["click"].to_numpy()
    weight = table["weight"].to_numpy()
    assert len(table) < 7_000 and click.sum() == 5_000
    assert set(weight[click == 1]) == {1} and set(weight[click == 0]) == {10}
    assert abs(np.average(click, weights=weight) - 0.25) < 0.01


def test_thinned_rows_multiply_the_weight_of_the_schema():
    frame = frame_of(1000).assign(w=0.5)
    schema = Schema([*COLUMNS, WeightColumn("w")])
    table = read(frame, schema, sample=Sample(negatives=0.5)).to_table()
    assert set(zip(table["click"].to_pylist(), table["w"].to_pylist(), strict=True)) == {
        (1, 0.5),
        (0, 1.0),
    }
    assert "weight" not in table.column_names


def test_a_named_positive_label():
    frame = frame_of(1000)
    frame["click"] = np.where(frame["click"] == 1, "yes", "no")
    schema = Schema([*COLUMNS[:-1], LabelColumn("click", positive="yes")])
    table = read(frame, schema, sample=Sample(negatives=0.2)).to_table()
    counts = table["click"].to_pandas().value_counts()
    assert counts["yes"] == 250 and 100 < counts["no"] < 200
    named = read(frame, schema, sample=Sample(negatives=0.2, label="click"))
    assert named.to_table().equals(table)


@pytest.mark.parametrize("labels", [("yes", "no"), (2, 1), (1, -1)])
def test_a_sample_without_a_schema_refuses_other_labels(labels):
    frame = frame_of(100)
    frame["click"] = np.where(frame["click"] == 1, *labels)
    rows = read(frame, sample=Sample(negatives=0.2, label="click"))
    with pytest.raises(ValueError, match="sample: label 'click' must be 0 or 1.*pass a schema"):
        rows.to_table()
