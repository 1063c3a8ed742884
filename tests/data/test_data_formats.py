# SPDX-License-Identifier: Apache-2.0
"""Formats and places: the same rows from every format, compression, folder, glob and frame."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from unittest import mock

import fsspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from mindspore_rec.common.data import text_blocks
from mindspore_rec.data import CsvFormat, JsonLinesFormat, read

ROWS = 500
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "text": pa.array([f'é, "{r % 9}"' if r % 5 else None for r in range(1, ROWS + 1)]),
        "x": pa.array([r / 8 + 0.5 if r % 3 else None for r in range(1, ROWS + 1)], pa.float64()),
        "label": pa.array([r % 2 for r in range(ROWS)], pa.int64()),
    }
)


def write_csv(path: Path, codec: str | None = None, table: pa.Table = TABLE) -> Path:
    with pa.output_stream(path, compression=codec) as out:
        pa.csv.write_csv(table, out)
    return path


def write_json(path: Path, codec: str | None = None) -> Path:
    text = TABLE.to_pandas().to_json(orient="records", lines=True, force_ascii=False)
    with pa.output_stream(path, compression=codec) as out:
        out.write(text.encode())
    return path


def write_ipc(path: Path, make=pa.ipc.new_file, codec: str | None = None) -> Path:
    with pa.output_stream(path, compression=codec) as out, make(out, TABLE.schema) as file:
        file.write_table(TABLE, max_chunksize=37)
    return path


WRITERS = {
    "a.parquet": lambda path: pq.write_table(TABLE, path, row_group_size=70),
    "a.csv": write_csv,
    "a.csv.gz": lambda path: write_csv(path, "gzip"),
    "a.csv.zst": lambda path: write_csv(path, "zstd"),
    "a.csv.bz2": lambda path: write_csv(path, "bz2"),
    "a.tsv": lambda path: path.write_text(TABLE.to_pandas().to_csv(sep="\t", index=False)),
    "a.jsonl": write_json,
    "a.ndjson.gz": lambda path: write_json(path, "gzip"),
    "a.arrow": write_ipc,
    "a.feather": lambda path: __import__("pyarrow.feather").feather.write_feather(TABLE, path),
    "a.arrows": lambda path: write_ipc(path, pa.ipc.new_stream),
    "a.arrows.zst": lambda path: write_ipc(path, pa.ipc.new_stream, "zstd"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_all_formats_are_the_same_rows(tmp_path, name):
    WRITERS[name](tmp_path / name)
    with mock.patch.object(text_blocks, "BLOCK", 1000):
        rows = read(tmp_path / name)
        assert rows.to_table().equals(TABLE)
        assert len(rows) == ROWS and rows.arrow_schema.equals(TABLE.schema)
        assert rows.select(["label", "id"]).to_table().equals(TABLE.select(["label", "id"]))
        assert rows.where(pc.field("id") < 7).to_table().equals(TABLE.slice(0, 7))
        assert rows.head(3).equals(TABLE.slice(0, 3))
        drawn = rows.sample(50, seed=1)
        assert drawn.num_rows == 50 and len(set(drawn["id"].to_pylist())) == 50
        assert rows.sample(10**6)["id"].to_pylist() == list(range(ROWS))
        shuffled = rows.batches(64, shuffle=True, seed=1, buffer_rows=200)
        assert sorted(sum((b["id"].to_pylist() for b in shuffled), [])) == list(range(ROWS))


@pytest.mark.parametrize(
    "make",
    [
        lambda: TABLE,
        lambda: TABLE.to_pandas(),
        lambda: pl.from_arrow(TABLE),
        lambda: TABLE.combine_chunks().to_batches()[0],
        lambda: TABLE.to_reader(),
    ],
    ids=["table", "pandas", "polars", "batch", "reader"],
)
def test_frames_are_the_same_rows(make):
    rows = read(make())
    assert rows.to_table().cast(TABLE.schema).equals(TABLE)
    assert len(rows.split(0.5)[0]) + len(rows.split(0.5)[1]) == ROWS


def test_categoricals_and_dictionaries_stay_encoded(tmp_path):
    encoded = TABLE.set_column(1, "text", TABLE["text"].dictionary_encode())
    pq.write_table(encoded, tmp_path / "a.parquet", row_group_size=100)
    pq.write_table(TABLE, tmp_path / "b.parquet", row_group_size=100)  # plain text
    rows = read(tmp_path)
    assert pa.types.is_dictionary(rows.arrow_schema.field("text").type)
    for shuffle in (False, True):
        found: dict[int, str | None] = {}
        for batch in rows.batches(150, shuffle=shuffle):
            found.update(zip(batch["id"].to_pylist(), batch["text"].to_pylist(), strict=True))
        assert found == dict(zip(range(ROWS), TABLE["text"].to_pylist(), strict=True))


def test_folders_globs_and_lists(tmp_path):
    for day in (1, 2, 10):
        for hour in ("a b", "c"):
            folder = tmp_path / f"day={day}" / f"hour={hour.replace(' ', '%20')}"
            folder.mkdir(parents=True)
            pq.write_table(pa.table({"id": [day]}), folder / "part-0.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".hidden.parquet").write_bytes(b"no")
    rows = read(tmp_path)
    assert rows.names == ["id", "day", "hour"]
    table = rows.to_table()
    assert table["day"].to_pylist() == table["id"].to_pylist() == [1, 1, 10, 10, 2, 2]
    assert set(table["hour"].to_pylist()) == {"a b", "c"}
    part = rows.where((pc.field("day") == 10) & (pc.field("hour") == "c"))
    assert part.to_table().num_rows == 1 and len(part._selection.parts()) == 1
    assert len(read(f"{tmp_path}/day=1/*/*.parquet")) == 2
    assert len(read(f"{tmp_path}/**/part-?.parquet")) == 6
    assert read(f"{tmp_path}/**/*.parquet").names == ["id", "day", "hour"]
    assert len(read([f"{tmp_path}/day=1", f"{tmp_path}/day=2/hour=c/part-0.parquet"])) == 3
    (tmp_path / "odd [1]*.parquet").write_bytes(
        (tmp_path / "day=1/hour=c/part-0.parquet").read_bytes()
    )
    assert len(read(tmp_path / "odd [1]*.parquet")) == 1


def test_file_systems_and_uris(tmp_path, monkeypatch):
    path = write_csv(tmp_path / "a.csv")
    assert read(path.as_uri()).to_table().equals(TABLE)
    assert read(f"{tmp_path.as_uri()}/*.csv").to_table().equals(TABLE)
    local = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    assert read("a.csv", filesystem=local).to_table().equals(TABLE)
    memory = fsspec.filesystem("memory")
    memory.pipe("/click logs/a.csv", path.read_bytes())
    assert read("/click logs/*.csv", filesystem=memory).to_table().equals(TABLE)
    assert read("memory://click logs/a.csv").to_table().equals(TABLE)
    with pytest.raises(TypeError, match="must be a file system of pyarrow.fs or fsspec, got str"):
        read("a.csv", filesystem="s3")
    monkeypatch.chdir(tmp_path)
    assert read("*.csv").to_table().equals(TABLE)
    assert read("a.csv").to_table().equals(TABLE)


def test_csv_as_people_write_it(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes('stadt;preis;zeit\r\nKöln;1,5;2024-01-02\r\n"a;b";;\r\n'.encode("latin-1"))
    rows = read(path, format=CsvFormat(encoding="latin-1", decimal=","))
    assert rows.to_table().to_pydict() == {
        "stadt": ["Köln", "a;b"],
        "preis": [1.5, None],
        "zeit": [datetime.date(2024, 1, 2), None],
    }
    path.write_bytes(b'\xef\xbb\xbfid,name\n1,\'a\'\n2,"b\nc"\n\n3,"say ""x"""')
    rows = read(path, format=CsvFormat(newlines_in_values=True, types={"id": pa.string()}))
    assert rows.to_table().to_pydict() == {
        "id": ["1", "2", "3"],
        "name": ["'a'", "b\nc", 'say "x"'],
    }
    path.write_text("7|x\n8|-\n")
    rows = read(path, format=CsvFormat(separator="|", names=("n", "t"), missing=("-",)))
    assert rows.to_table().to_pydict() == {"n": [7, 8], "t": ["x", None]}


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_names_of_columns_stay_texts(tmp_path, separator):
    names = ["id", "007", "1.50", "NA", "true"]
    (tmp_path / "a.csv").write_text(f"{separator.join(names)}\n{separator.join('12345')}\n")
    assert read(tmp_path / "a.csv").names == names


@pytest.mark.parametrize("rows", [10, 300_000])
def test_line_breaks_between_quotes_are_refused_in_files_of_any_size(tmp_path, rows):
    path = tmp_path / "a.csv"
    path.write_text("user,text\n" + "".join(f'u{i},"one\ntwo, 2"\n' for i in range(rows)))
    with pytest.raises(ValueError, match=r"CsvFormat\(newlines_in_values=True\)"):
        read(path).to_table()
    assert read(path, format=CsvFormat(newlines_in_values=True)).to_table().num_rows == rows
    path.write_text('size,text\n5" nail,a\n\n"say ""x""",b\n')
    assert read(path).to_table()["size"].to_pylist() == ['5" nail', 'say "x"']


@pytest.mark.parametrize("place", [3, 400_000])
def test_a_single_line_break_between_quotes_is_refused(tmp_path, place):
    path = tmp_path / "a.csv"
    lines = [f"user {i:08},some text\n" for i in range(400_001)]
    start = sum(map(len, lines[:place])) + len("a,b\n")
    lines[place] = 'user,"first\nsecond"\n'
    path.write_text("a,b\n" + "".join(lines))
    with pytest.raises(ValueError, match="newlines_in_values"):
        read(path).to_table()
    padding = (4 << 20) - start % (4 << 20) - len('user,"fi')  # the line break ends a block
    path.write_text("a,b\n" + "x" * (padding - 2) + ",\n" + "".join(lines))
    with pytest.raises(ValueError, match="newlines_in_values"):
        read(path).to_table()


def test_lines_that_end_with_a_carriage_return_alone(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"user,clicked\rann,1\rbob,0\r")
    with pytest.raises(ValueError, match="convert the file"):
        read(tmp_path / "a.csv")


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_whole_numbers_beyond_int64_stay_apart(tmp_path, ending):
    users = [2**64 - 1 - i for i in range(40)]
    frame = pd.DataFrame({"user": np.array(users, np.uint64), "size": [1e300] * 40})
    path = tmp_path / f"a.{ending}"
    if ending == "csv":
        frame["longer"] = [str(10**25 + i) for i in range(40)]
        frame.to_csv(path, index=False)
    else:
        frame.to_json(path, orient="records", lines=True)
    table = read(path).to_table()
    assert table["user"].to_pylist() == users
    assert table["size"].to_pylist() == [1e300] * 40
    assert ending == "jsonl" or table["longer"].to_pylist() == frame["longer"].tolist()


def test_partitions_that_are_almost_numbers(tmp_path):
    for name in ("--1", "a", "²"):
        (tmp_path / f"u={name}").mkdir()
        pq.write_table(pa.table({"a": [1, 2]}), tmp_path / f"u={name}" / "x.parquet")
    assert len(read(tmp_path).where(pc.field("u") == "²")) == 2


def test_columns_in_another_order_and_types_that_fit(tmp_path):
    write_csv(tmp_path / "a.csv")
    write_csv(tmp_path / "b.csv", table=TABLE.select(["label", "x", "text", "id"]))
    rows = read(tmp_path)
    assert rows.to_table().equals(pa.concat_tables([TABLE, TABLE]))
    pq.write_table(TABLE, tmp_path / "a.parquet")
    small = TABLE.set_column(0, "id", TABLE["id"].cast(pa.int16()))
    pq.write_table(small, tmp_path / "b.parquet")
    rows = read(f"{tmp_path}/*.parquet")
    assert rows.to_table().equals(pa.concat_tables([TABLE, TABLE]))


def test_json_lines_with_keys_that_come_and_go(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n\n{"b": [1, 2], "a": null}\n{"c": 1}\n')
    rows = read(tmp_path / "a.jsonl", format=JsonLinesFormat(types={"c": pa.float32()}))
    assert rows.to_table().select(["a", "b", "c"]).to_pydict() == {
        "a": [1, None, None],
        "b": [None, [1, 2], None],
        "c": [None, None, 1.0],
    }


def test_blocks_of_lines_of_any_length(tmp_path):
    lines = ["id,t", *(f"{n},{'y' * (n * 37 % 100)}" for n in range(60))]
    expected = list(range(60))
    for text in ("\n".join(lines), "\n".join(lines) + "\n", "\r\n".join(lines)):
        (tmp_path / "a.csv").write_text(text, newline="")
        for block in (1, 7, 64, 500):
            with mock.patch.object(text_blocks, "BLOCK", block):
                assert read(tmp_path / "a.csv").to_table()["id"].to_pylist() == expected


def test_time_split_reads_only_its_row_groups(tmp_path):
    table = pa.table({"ts": pa.array(range(1000), pa.timestamp("ms")), "id": range(1000)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=50)
    train, valid, test = read(tmp_path).split_by_time(0.8, 0.1, time="ts")
    assert [len(each._selection.parts()) for each in (train, valid, test)] == [16, 2, 2]
    assert [len(each) for each in (train, valid, test)] == [800, 100, 100]
    assert test.select(["id"]).to_table()["id"].to_pylist() == list(range(900, 1000))


TIMES = {
    "seconds": pd.Series(range(100)),
    "floats": pd.Series(range(100)) + 0.25,
    "dates": pd.Series(pd.date_range("2024-01-01", periods=100)).dt.date,
    "timestamps": pd.Series(pd.date_range("2024-01-01", periods=100, tz="Europe/Berlin")),
    "texts": pd.Series(pd.date_range("2024-01-01", periods=100)).dt.strftime("%Y-%m-%d %H:%M:%S"),
    "texts with a time zone": pd.Series(
        pd.date_range("2024-01-01", periods=100, freq="20min", tz="Europe/Berlin")
    ).map(lambda time: time.isoformat() if time.minute else f"{time.tz_convert('UTC'):%FT%T}Z"),
    "categories": pd.Series(
        pd.date_range("2024-01-01", periods=100).strftime("%Y-%m-%d"), dtype="category"
    ),
}


@pytest.mark.parametrize("name", TIMES)
def test_time_split_of_every_type(name):
    times = TIMES[name].sample(frac=1, random_state=1)
    frame = pd.DataFrame({"ts": times, "id": times.index})
    frame.loc[frame["id"] == 99, "ts"] = None  # a row without a time is in the first part
    old, new = read(frame).split_by_time(0.75, time="ts")
    assert sorted(new.to_table()["id"].to_pylist()) == list(range(74, 99))
    assert sorted(old.to_table()["id"].to_pylist()) == [*range(74), 99]


def test_rows_of_one_time_stay_together():
    rows = read(pa.table({"ts": [1, 1, 1, 2, 2, 3, 3, 3, 3, 3]}))
    assert [len(each) for each in rows.split_by_time(0.4, 0.2, time="ts")] == [3, 2, 5]
    with pytest.raises(ValueError, match="too few distinct times"):
        rows.split_by_time(0.1, 0.1, 0.1, 0.1, time="ts")


def test_splits_of_two_views_are_disjoint(tmp_path):
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=70)
    parts = read(tmp_path / "a.parquet").where(pc.field("label") == 1).split(0.6, 0.3, seed=5)
    found = [set(each.to_table()["id"].to_pylist()) for each in parts]
    assert set.union(*found) == set(range(1, ROWS, 2))
    assert sum(map(len, found)) == ROWS // 2
    assert os.path.basename(parts[0].source) == "a.parquet"


def test_texts_such_as_na_are_values_in_every_format(tmp_path: Path) -> None:
    """NA is the code of Namibia. A missing text is an empty field of CSV."""
    rows = pa.table({"country": ["NA", "null", "nan", "N/A", None, "DE"], "n": [1.5, None] * 3})
    pq.write_table(rows, tmp_path / "rows.parquet")
    (tmp_path / "rows.csv").write_text("country,n\nNA,1.5\nnull,NA\nnan,1.5\nN/A,\n,1.5\nDE,NaN\n")
    for ending in ("csv", "parquet"):
        table = read(tmp_path / f"rows.{ending}").to_table()
        assert table["country"].to_pylist() == rows["country"].to_pylist(), ending
        known = np.nan_to_num(table["n"].to_numpy(), nan=-1.0)
        assert known.tolist() == [1.5, -1, 1.5, -1, 1.5, -1], ending
    named = read(tmp_path / "rows.csv", format=CsvFormat(missing=("NA", ""))).to_table()
    assert named["country"].to_pylist() == [None, "null", "nan", "N/A", None, "DE"]
