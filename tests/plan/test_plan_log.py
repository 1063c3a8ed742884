# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec.common.columns.hashing import category_keys, missing_key
from mindspore_rec.plan import KeyLog

USERS, ITEMS, TIMES = [7, -1, 7, 2**62 + 1], [10, 11, 12, 10], [100, 160, 130, 200]
STREAM = [7, 10, -1, 11, 7, 12, 2**62 + 1, 10]


def parquet(path):
    pq.write_table(pa.table({"user": USERS, "other": [0.5] * 4, "item": ITEMS, "t": TIMES}), path)


def delimited(delimiter, opener=open, header=True):
    def make(path):
        lines: list[list] = [["user", "other", "item", "t"]] if header else []
        lines += [[u, "x", i, t] for u, i, t in zip(USERS, ITEMS, TIMES, strict=True)]
        with opener(path, "wt") as file:
            file.writelines(delimiter.join(map(str, line)) + "\n" for line in lines)

    return make


def json_lines(opener=open):
    def make(path):
        with opener(path, "wt") as file:
            for u, i, t in zip(USERS, ITEMS, TIMES, strict=True):
                file.write(json.dumps({"other": {"a": 1}, "t": t, "item": i, "user": u}) + "\n")

    return make


def keys_of(log, batch_size=1000):
    return [batch.keys.tolist() for batch in log.batches(batch_size)]


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("log.parquet", parquet),
        ("log.csv", delimited(",")),
        ("log.csv.gz", delimited(",", gzip.open)),
        ("log.tsv", delimited("\t")),
        ("log.txt.gz", delimited("\t", gzip.open)),
        ("log.jsonl", json_lines()),
        ("log.json.gz", json_lines(gzip.open)),
    ],
)
def test_every_format_gives_the_same_stream(tmp_path, name, make):
    path = tmp_path / name
    make(path)
    log = KeyLog([path], ["user", "item"], "t")
    read: list[int] = []
    batches = list(log.batches(3, read.append))
    assert [batch.keys.tolist() for batch in batches] == [STREAM[:6], STREAM[6:]]
    assert [batch.samples for batch in batches] == [3, 1]
    assert [batch.time for batch in batches] == [160, 200]
    assert sum(read) == path.stat().st_size
    assert keys_of(log) == [STREAM]  # as often as asked


def test_columns_by_number(tmp_path):
    path = tmp_path / "log.tsv"
    delimited("\t", header=False)(path)
    assert keys_of(KeyLog([path], [0, 2])) == [STREAM]
    delimited("\t")(path)
    assert keys_of(KeyLog([path], [0, 2], header=True)) == [STREAM]


def test_numbers_are_names_where_a_format_has_names(tmp_path):
    pq.write_table(pa.table({"7": USERS, "8": ITEMS}), tmp_path / "log.parquet")
    assert keys_of(KeyLog([tmp_path / "log.parquet"], [7, 8])) == [STREAM]


def test_several_files_are_one_log(tmp_path):
    parquet(tmp_path / "a.parquet")
    json_lines()(tmp_path / "b.jsonl")
    log = KeyLog([tmp_path / "a.parquet", tmp_path / "b.jsonl"], ["user", "item"])
    both = STREAM + STREAM
    assert keys_of(log, 3) == [both[:6], both[6:12], both[12:]]


@given(
    st.lists(st.lists(st.integers(-3, 3), max_size=3), min_size=1, max_size=30),
    st.integers(1, 12),
)
@settings(max_examples=40)
def test_batches_cut_samples_of_any_length(tmp_path_factory, lists, batch_size):
    path = tmp_path_factory.mktemp("lists") / "log.parquet"
    singles = list(range(100, 100 + len(lists)))
    table = pa.table({"seen": pa.array(lists, pa.list_(pa.int64())), "item": singles})
    pq.write_table(table, path, row_group_size=4)
    samples = [[*seen, item] for seen, item in zip(lists, singles, strict=True)]
    expected = [sum(samples[i : i + batch_size], []) for i in range(0, len(samples), batch_size)]
    assert keys_of(KeyLog([path], ["seen", "item"]), batch_size) == expected


def test_batches_over_blocks_of_a_large_file(tmp_path):
    ids = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 150_000)
    pq.write_table(pa.table({"id": ids}), tmp_path / "log.parquet")
    batches = list(KeyLog([tmp_path / "log.parquet"], ["id"]).batches(40_000))
    assert [batch.samples for batch in batches] == [40_000] * 3 + [30_000]
    assert np.array_equal(np.concatenate([batch.keys for batch in batches]), ids)
    events = "".join(f'{{"id": {i}, "pad": "{"x" * 40}"}}\n' for i in ids)
    (tmp_path / "log.jsonl").write_text(events)
    batches = list(KeyLog([tmp_path / "log.jsonl"], ["id"]).batches(40_000))
    assert np.array_equal(np.concatenate([batch.keys for batch in batches]), ids)


def test_packed_ids_of_the_data_sets(tmp_path):
    ids = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4, 5, 6]), 2)
    pq.write_table(pa.table({"ids": ids}), tmp_path / "data.parquet")
    assert keys_of(KeyLog([tmp_path / "data.parquet"], ["ids"]), 2) == [[1, 2, 3, 4], [5, 6]]


def test_text_is_hashed_as_the_features_are(tmp_path):
    (tmp_path / "log.csv").write_text("site,app\na,x\nb,\n,x\n")
    site = category_keys("site", ["a", "b", None]).tolist()
    app = category_keys("app", ["x", None, "x"]).tolist()
    expected = [key for pair in zip(site, app, strict=True) for key in pair]
    assert expected[4] == missing_key("site")
    assert keys_of(KeyLog([tmp_path / "log.csv"], ["site", "app"])) == [expected]
    # what is text to another format is the same key
    pq.write_table(
        pa.table({"site": ["a", "b", None], "app": pa.array(["x", None, "x"]).dictionary_encode()}),
        tmp_path / "log.parquet",
    )
    assert keys_of(KeyLog([tmp_path / "log.parquet"], ["site", "app"])) == [expected]


def test_key_types_can_be_given(tmp_path):
    (tmp_path / "log.csv").write_text("id\n7\n\n9\n")
    (tmp_path / "log.jsonl").write_text('{"id": 7}\n{"other": 1}\n{"id": 9}\n')
    for name in ("log.csv", "log.jsonl"):
        assert keys_of(KeyLog([tmp_path / name], ["id"])) == [[7, 9]]
    hashed = category_keys("id", ["7", "9"]).tolist()
    (tmp_path / "log.csv").write_text("id\n7\n9\n")
    assert keys_of(KeyLog([tmp_path / "log.csv"], ["id"], key_type="category")) == [hashed]
    pq.write_table(pa.table({"id": ["7", "9"]}), tmp_path / "log.parquet")
    assert keys_of(KeyLog([tmp_path / "log.parquet"], ["id"], key_type="id")) == [[7, 9]]


def test_ids_that_pandas_turned_into_floats(tmp_path):
    pq.write_table(pa.table({"id": [7.0, None, 9.0]}), tmp_path / "log.parquet")
    assert keys_of(KeyLog([tmp_path / "log.parquet"], ["id"])) == [[7, 9]]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([86400, 86401]),
        pa.array([86400.0, 86401.9]),
        pa.array([86400_000, 86401_000], pa.timestamp("ms")),
        pa.array([86400, 86401], pa.timestamp("s", tz="Europe/Berlin")),
        pa.array(["1970-01-02", "1970-01-02T02:00:01.5+02:00"]),
        pa.array(["86400", "86401.5"]),
    ],
    ids=str,
)
def test_times_in_every_spelling(tmp_path, column):
    pq.write_table(pa.table({"id": [1, 2], "t": column}), tmp_path / "log.parquet")
    log = KeyLog([tmp_path / "log.parquet"], ["id"], "t")
    assert [batch.time for batch in log.batches(1)] == [86400, 86401]


def columns(**arrays):
    return lambda path: pq.write_table(pa.table(arrays), path)


def text(content):
    return lambda path: path.write_text(content)


@pytest.mark.parametrize(
    ("name", "make", "arguments", "message"),
    [
        ("a.parquet", parquet, {"keys": ["x"]}, "a.parquet: there is no column 'x'; there are 'us"),
        ("a.parquet", parquet, {"keys": [0]}, "there is no column '0'; there are 'user'"),
        ("a.parquet", text("junk"), {}, "a.parquet: is not parquet throughout"),
        ("a.csv", delimited(","), {"keys": ["x"]}, "no column 'x'; there are 'user', 'other'"),
        ("a.csv", delimited(","), {"keys": [4]}, "there is no column 4; there are 4, from 0"),
        ("a.csv", text(""), {}, "a.csv: is empty"),
        ("a.csv", text("id,b\n1,2\n1\n"), {}, "a.csv: is not csv throughout.*Expected 2 columns"),
        ("a.csv", text("id\n1.5\n"), {"key_type": "id"}, "'id' holds what is not an int64"),
        ("a.csv.gz", text("id\n1\n"), {}, "a.csv.gz: is not csv throughout"),
        ("a.jsonl", json_lines(), {"keys": ["x"]}, "no column 'x'; there are 'other', 't'"),
        ("a.jsonl", json_lines(), {"keys": [1]}, "there is no column '1'; there are 'other'"),
        ("a.jsonl", text(""), {}, "a.jsonl: is empty"),
        ("a.jsonl", text("CreateTime:1\n"), {}, "line 1 is not JSON"),
        ("a.csv", lambda path: path.write_bytes(b"\xff\n1\n"), {}, "a.csv: is not csv.*utf-8"),
        ("a.jsonl", text("[1]\n"), {}, "line 1 is not an object"),
        (
            "a.jsonl",
            text('{"id": 1}\n{"id": "a"}\n'),
            {},
            "a block of lines that begins with line 1",
        ),
        ("a.parquet", columns(id=[0.5]), {}, "a.parquet: column 'id' holds what is not an int64"),
        ("a.parquet", columns(id=[True]), {}, "'id' must hold whole numbers or text.*got bool"),
        ("a.parquet", columns(id=pa.array([2**63], pa.uint64())), {}, "not an int64"),
        ("a.parquet", columns(id=[1], t=[None]), {"time": "t"}, "'t' has missing values"),
        ("a.parquet", columns(id=[1], t=[1.7e12]), {"time": "t"}, "1700000000000; are these milli"),
        ("a.parquet", columns(id=[1], t=[-1]), {"time": "t"}, r"in \[0, 2\^32\), got -1"),
        ("a.parquet", columns(id=[1], t=["soon"]), {"time": "t"}, "or ISO 8601"),
        ("a.parquet", columns(id=[1], t=[[1]]), {"time": "t"}, "must hold seconds, timestamps"),
        ("a.dat", parquet, {}, r"a.dat: the format must be given \(parquet, csv, tsv, jsonl\)"),
        ("a.csv", delimited(","), {"header": False}, "header must not be False"),
        ("a.csv", delimited(","), {"keys": []}, "keys must name at least one column"),
        ("a.csv", delimited(","), {"keys": [-1]}, "names or numbers >= 0, got -1"),
        ("a.csv", delimited(","), {"key_type": "x"}, "key_type must be one of 'auto', 'id'"),
        ("a.csv", delimited(","), {"format": "xml"}, "format must be one of 'parquet', 'csv'"),
    ],
)
def test_bad_logs_are_named(tmp_path, name, make, arguments, message):
    make(tmp_path / name)
    with pytest.raises((TypeError, ValueError), match=message):
        keys_of(KeyLog([tmp_path / name], **{"keys": ["id"], **arguments}))


def test_a_column_that_turns_into_text_is_an_error(tmp_path):
    # Hashed from there on, the same number would be two keys.
    lines = "id\n" + "1234567\n" * 700_000 + "abc\n"
    (tmp_path / "log.csv").write_text(lines)
    with pytest.raises(ValueError, match="'id' holds what is not an int64.*--key-type category"):
        keys_of(KeyLog([tmp_path / "log.csv"], ["id"]))


def test_no_log_and_a_log_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="paths must name at least one log"):
        KeyLog([], ["id"])
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        KeyLog([tmp_path / "nowhere.csv"], ["id"])
