# SPDX-License-Identifier: Apache-2.0
"""Wrong data and arguments: each works, or ends in one sentence that names place and mend."""

from __future__ import annotations

import gzip
import re
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from mindspore_rec.data import BadRows, CsvFormat, JsonLinesFormat, Sample, read


def fails(make, *texts: str, error: type[Exception] = ValueError) -> None:
    """Check that an error of one sentence has all of the texts."""
    with pytest.raises(error) as raised:
        make()
    message = str(raised.value)
    assert "\n" not in message
    for each in texts:
        assert each in message, message


def csv(folder, *texts: str) -> str:
    for number, text in enumerate(texts):
        (folder / f"{number}.csv").write_text(text)
    return str(folder)


def parquet(folder, *columns: dict) -> str:
    for number, each in enumerate(columns):
        pq.write_table(pa.table(each), folder / f"{number}.parquet")
    return str(folder)


def test_a_column_that_the_second_file_lacks(tmp_path):
    text = csv(tmp_path, "id,x\n1,2\n", "id,y\n1,2\n")
    fails(lambda: read(text).to_table(), "1.csv has no column 'x'", "0.csv has", "['id', 'y']")
    assert read(text, columns=["id"]).to_table()["id"].to_pylist() == [1, 1]
    for each in tmp_path.iterdir():
        each.unlink()
    path = parquet(tmp_path, {"id": [1], "x": [2]}, {"id": [1]})
    fails(lambda: read(path).count() or read(path).to_table(), "1.parquet has no column 'x'")
    fails(lambda: list(read(path).batches(2)), "1.parquet has no column 'x'")


def test_a_type_that_changes_between_files(tmp_path):
    path = parquet(tmp_path, {"id": [1]}, {"id": ["a"]})
    fails(
        lambda: read(path).to_table(),
        "column 'id' has the type string in",
        "1.parquet, and int64 in",
        "one type in all files",
    )
    parquet(tmp_path, {"id": [1]}, {"id": [1.0, 2.5]})
    fails(lambda: read(path).to_table(), "1.parquet: column 'id' has the value 2.5 in row 1")
    for each in tmp_path.iterdir():
        each.unlink()
    text = csv(tmp_path, "id\n1\n", "id\n2\nabc\n")
    fails(lambda: read(text).to_table(), "1.csv, line 3: column 'id'", "'abc'", "int64", "types={")
    read(text, format=CsvFormat(types={"id": pa.string()})).to_table()


def test_empty_and_broken_files(tmp_path):
    (tmp_path / "a.csv").touch()
    fails(lambda: read(tmp_path / "a.csv"), "a.csv is empty: it has 0 bytes")
    (tmp_path / "b.csv").write_text("id,x\n")
    rows = read(tmp_path / "b.csv")
    assert rows.to_table().num_rows == 0 and rows.head().num_rows == 0
    assert rows.sample(3).num_rows == 0
    fails(lambda: list(rows.batches(4)), "b.csv has no rows")
    (tmp_path / "c.parquet").write_bytes(b"PAR1 but not really")
    fails(lambda: read(tmp_path / "c.parquet"), "c.parquet is no complete Parquet file")
    pq.write_table(pa.table({"id": range(1000)}), tmp_path / "d.parquet")
    data = (tmp_path / "d.parquet").read_bytes()
    (tmp_path / "d.parquet").write_bytes(data[: len(data) // 2])
    fails(lambda: read(tmp_path / "d.parquet"), "d.parquet is no complete Parquet file")
    (tmp_path / "e.arrow").write_bytes(b"ARROW1 no")
    fails(lambda: read(tmp_path / "e.arrow"), "e.arrow is no complete Arrow file")
    packed = gzip.compress(b"id\n" + b"1\n" * 1000)
    (tmp_path / "f.csv.gz").write_bytes(packed[:-9])
    fails(lambda: read(tmp_path / "f.csv.gz").to_table(), "f.csv.gz cannot be decompressed")
    (tmp_path / "g.jsonl").write_text("no json\n")
    fails(lambda: read(tmp_path / "g.jsonl"), "g.jsonl has no line with a JSON object")


def test_sources_that_are_not_there(tmp_path):
    missing = FileNotFoundError
    fails(lambda: read(tmp_path / "no.csv"), "there is no file or folder", "no.csv", error=missing)
    fails(lambda: read(f"{tmp_path}/*.csv"), "no file matches", error=missing)
    fails(lambda: read(tmp_path), "there is no file in the folder", error=missing)
    fails(lambda: read([]), "at least one path, got an empty list")
    fails(lambda: read(3), "must be a path, a list of paths, or a data frame", error=TypeError)
    fails(lambda: read("nowhere://a/b.csv"), "nowhere://a/b.csv cannot be opened")
    (tmp_path / "a.data").write_text("id\n1\n")
    fails(lambda: read(tmp_path / "a.data"), "format of", "a.data is not known", "format='parquet'")
    assert read(tmp_path / "a.data", format="csv").count() == 1
    parquet(tmp_path, {"id": [1]})
    csv(tmp_path, "id\n1\n")
    fails(lambda: read(tmp_path), "must have one format", "0.csv", "0.parquet")
    fails(lambda: read(tmp_path, format="xls"), "format must be one of 'parquet', 'csv'")


def test_columns_that_are_not_there_or_twice(tmp_path):
    path = csv(tmp_path, "id,x,id\n1,2,3\n")
    fails(lambda: read(path), "0.csv has two columns named 'id'")
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    fails(lambda: read(frame), "two columns named 'a'")
    rows = read(pa.table({"id": [1], "x": [2]}))
    fails(lambda: rows.select(["y"]), "has no column 'y': its columns are ['id', 'x']")
    fails(lambda: rows.select(["x", "x"]), "names that differ")
    fails(lambda: rows.split_by_time(0.5), "needs a time column")
    fails(lambda: rows.split_by_time(0.5, time="when"), "has no column 'when'")
    mixed = pd.DataFrame({"a": [1, "b"]})
    fails(lambda: read(mixed), "the DataFrame has a column with values of several")


def test_filters_that_leave_nothing_or_do_not_fit():
    rows = read(pa.table({"id": [1, 2]}))
    none = rows.where(pc.field("id") > 9)
    fails(lambda: list(none.batches(2)), "has no rows for which", "id > 9")
    assert rows.where([("id", ">", 1)]).to_table()["id"].to_pylist() == [2]
    fails(lambda: rows.where(pc.field("no") > 9).count(), "does not fit", "no")
    fails(lambda: rows.where(pc.field("id")).count(), "must be true or false for each row")
    fails(lambda: rows.where("id > 3"), "must be an expression", error=TypeError)
    fails(lambda: rows.where(pc.field("id") > "a").count(), "does not fit")


def test_text_that_is_not_utf8(tmp_path):
    (tmp_path / "a.csv").write_bytes("id,ort\n1,Köln\n".encode("latin-1"))
    mend = "CsvFormat(encoding='latin-1')"
    fails(lambda: read(tmp_path / "a.csv").to_table(), "a.csv, line 2: column 'ort'", mend)
    latin = CsvFormat(encoding="latin-1")
    assert read(tmp_path / "a.csv", format=latin).to_table()["ort"].to_pylist() == ["Köln"]
    (tmp_path / "b.csv").write_bytes("größe\n1\n".encode("latin-1"))
    fails(lambda: read(tmp_path / "b.csv"), "b.csv has a header that is not UTF-8 text", mend)
    assert read(tmp_path / "b.csv", format=latin).names == ["größe"]
    fails(lambda: CsvFormat(encoding="utf-16"), "line break as one byte, got 'utf-16'")
    fails(lambda: CsvFormat(encoding="klingon"), "encoding must be known to Python")
    ascii_text = CsvFormat(encoding="ascii")
    fails(lambda: read(tmp_path / "a.csv", format=ascii_text), "no text in the encoding ascii")


def test_a_decimal_comma(tmp_path):
    path = csv(tmp_path, "x;y\n1.5;2\n", "x;y\n2,5;3\n")
    fails(lambda: read(path).to_table(), "1.csv, line 2", "'2,5'", "CsvFormat(decimal=',')")


def test_arguments_out_of_range():
    rows = read(pa.table({"id": [1, 2], "label": [0, 1]}))
    fails(lambda: rows.batches(0), "batch_size must be in [1")
    fails(lambda: rows.batches(4, seed=-1), "seed must be in [0")
    fails(lambda: rows.batches(4, threads=0), "threads must be in [1, 1024]")
    fails(lambda: rows.batches(4).split_by_worker(2, 2), "worker must be in [0, 1], got 2")
    fails(lambda: rows.split(), "at least one share")
    fails(lambda: rows.split(0.5, 0.6), "add up to at most 1, got [0.5, 0.6]")
    fails(lambda: rows.split(1.5), "each share must be in (0, 1)")
    fails(lambda: BadRows(most_share=2), "most_share must be in [0, 1]")
    fails(lambda: Sample(negatives=0), "negatives must be in (0, 1]")
    fails(lambda: CsvFormat(separator=",,"), "separator must be one character")
    fails(lambda: read(rows.to_table(), sample=Sample(negatives=0.5)), "must name its label")
    no = Sample(negatives=0.5, label="no")
    fails(lambda: read(rows.to_table(), sample=no), "has no column 'no'")
    wrong: Any = 0.1
    fails(
        lambda: read(rows.to_table(), bad_rows=wrong), "bad_rows must be BadRows", error=TypeError
    )


def test_bad_rows_are_counted_and_kept(tmp_path):
    lines = [f"{n},{n / 2}" for n in range(1000)]
    lines[10], lines[500], lines[999] = "10", "five,2", "999,1,2"
    (tmp_path / "a.csv").write_text("\n".join(["id,x", *lines]) + "\n")
    fails(
        lambda: read(tmp_path / "a.csv").to_table(),
        "a.csv, line 12:",
        "Expected 2 columns, got 1",
        "BadRows(most_share=",
    )
    kept = tmp_path / "bad.jsonl"
    rows = read(tmp_path / "a.csv", bad_rows=BadRows(most_share=0.01, keep=kept))
    for _ in range(2):  # a row that is read twice is counted once
        assert rows.to_table().num_rows == 997
    report = rows.report()
    assert (report.rows, report.bad) == (1000, 3)
    assert [each.where for each in report.first] == ["line 12", "line 502", "line 1001"]
    assert report.first[1].text == "five,2"
    assert "column 'id' has the value 'five', and must be int64" in report.first[1].reason
    assert str(report).startswith("3 of 1000 rows could not be read\n")
    frame = pd.read_json(kept, lines=True)
    assert frame.columns.tolist() == ["file", "where", "reason", "text"] and len(frame) == 3
    strict = read(tmp_path / "a.csv", bad_rows=BadRows(most_share=0.002))
    fails(strict.to_table, "3 of 1000 rows cannot be read, more than the share 0.002", "line 12")
    fails(lambda: list(strict.batches(100)), "more than the share 0.002")


def test_bad_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1}\n{"id": 2\n\n{"id": "x"}\n[3]\n{"id": 4}\n')
    fails(lambda: read(path).to_table(), "a.jsonl, line 2")
    rows = read(path, bad_rows=BadRows(most_share=0.9))
    assert rows.to_table()["id"].to_pylist() == [1, 4]
    assert [each.where for each in rows.report().first] == ["line 2", "line 4", "line 5"]
    assert read(path, format=JsonLinesFormat(), bad_rows=BadRows(0.9)).names == ["id"]


def test_json_lines_that_are_not_utf8(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"ort": "Bonn"}\n{"ort": "Köln"}\n'.encode("latin-1"))
    fails(lambda: read(path).to_table(), "a.jsonl, line 2", "not UTF-8 text: name the encoding")
    latin = JsonLinesFormat(encoding="latin-1")
    assert read(path, format=latin).to_table()["ort"].to_pylist() == ["Bonn", "Köln"]


def test_messages_are_one_sentence_of_the_file(tmp_path):
    (tmp_path / "a.csv").write_text('id,t\n1,"a\nb"\n2\n')
    quoted = CsvFormat(newlines_in_values=True)
    fails(lambda: read(tmp_path / "a.csv", format=quoted).to_table(), "a.csv, line 4")
    assert re.match(r"Rows of .*a\.csv with the columns id, t", repr(read(tmp_path / "a.csv")))
