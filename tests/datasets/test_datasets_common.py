# SPDX-License-Identifier: Apache-2.0
"""Packed data sets: what is written comes back, in order or as a permutation, and never in part."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from datasets.common import as_dataset, batches, rebatch, write_packed
from datasets.common.blocks import Batch
from datasets.common.manifest import Manifest
from datasets.common.packed import FORMATS, new_directory
from datasets.common.reader import BlockOrder
from mindspore_rec.data import ArrowBatches, join_states, read

NAMES = ("ids", "dense", "label")


def make_rows(rows: int, fields: int = 3, numbers: int = 2, start: int = 0) -> Batch:
    """Row r holds r in its first id, the extremes of int64 in its second."""
    random = np.random.default_rng(start)
    ids = random.integers(-(2**63), 2**63 - 1, (rows, fields), endpoint=True)
    ids[:, 0] = np.arange(start, start + rows)
    if fields > 1 and rows > 1:
        ids[:2, 1] = (-(2**63), 2**63 - 1)
    return {
        "ids": ids,
        "dense": random.normal(size=(rows, numbers)).astype(np.float32),
        "label": random.integers(0, 2, (rows, 1)).astype(np.float32),
    }


def joined(stream) -> Batch:
    parts = list(stream)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def same(one: Batch, two: Batch) -> bool:
    return list(one) == list(two) and all(np.array_equal(one[n], two[n]) for n in one)


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 12))
def test_rebatch_keeps_rows_in_order_whatever_the_blocks(sizes, batch_size) -> None:
    blocks = [{"ids": np.arange(n).reshape(n, 1) + 100 * i} for i, n in enumerate(sizes)]
    rows = [int(row) for block in blocks for row in block["ids"][:, 0]]
    expected = [rows[i : i + batch_size] for i in range(0, len(rows), batch_size)]
    found = [batch["ids"][:, 0].tolist() for batch in rebatch(blocks, batch_size)]
    assert found == expected


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=8, deadline=None)
@given(st.integers(1, 60), st.integers(1, 25), st.integers(1, 30), st.integers(0, 3))
def test_what_is_written_comes_back(form, rows, block_rows, batch_size, numbers) -> None:
    expected = make_rows(rows, numbers=numbers)
    with tempfile.TemporaryDirectory() as folder:
        manifest = write_packed([expected], folder + "/set", form, block_rows)
        assert (manifest.rows, manifest.blocks) == (rows, -(-rows // block_rows))
        assert Manifest.read(Path(folder, "set")) == manifest
        manifest.verify(Path(folder, "set"))
        found = list(batches(folder + "/set", batch_size))
        assert [len(b["ids"]) for b in found[:-1]] == [batch_size] * (len(found) - 1)
        if numbers == 0:
            del expected["dense"]
        assert same(joined(found), expected)
        assert all(a.flags.writeable and a.flags.c_contiguous for b in found for a in b.values())


@pytest.fixture(scope="module", params=[*FORMATS, "arrays"])
def source(request, tmp_path_factory):
    rows = {**make_rows(5000), "bayes": np.full((5000, 1), 0.5, np.float32)}
    if request.param == "arrays":
        return rows
    path = tmp_path_factory.mktemp("packed") / request.param
    write_packed([rows], path, request.param, block_rows=128)
    return path


@given(st.integers(1, 700), st.integers(0, 50), st.integers(1, 50), st.booleans())
@settings(max_examples=8, deadline=None)
def test_a_shuffle_is_a_permutation_of_whole_rows(source, batch_size, seed, window, drop) -> None:
    expected = make_rows(5000)
    stream = batches(source, batch_size, True, seed, drop_remainder=drop, shuffle_blocks=window)
    found = list(stream)
    assert len(found) == len(stream)
    rows = joined(found)
    order = rows["ids"][:, 0]
    assert len(set(order.tolist())) == len(order)
    assert len(order) == (5000 // batch_size * batch_size if drop else 5000)
    assert same(rows, {name: array[order] for name, array in expected.items()})
    assert not np.array_equal(order, np.arange(len(order)))


def first_ids(stream) -> list[int]:
    return [int(i) for batch in stream for i in batch["ids"][:, 0]]


def test_epochs_differ_and_a_seed_gives_the_same_epochs(source) -> None:
    stream = batches(source, 512, shuffle=True, seed=7)
    one, two = first_ids(stream), first_ids(stream)
    assert one != two and sorted(one) == sorted(two)
    assert first_ids(batches(source, 512, shuffle=True, seed=7, repeat=2)) == one + two
    assert first_ids(batches(source, 512, shuffle=True, seed=8)) != one


def test_all_sources_shuffle_alike_where_blocks_are_alike(tmp_path) -> None:
    rows = make_rows(1000)
    for form in FORMATS:
        write_packed([rows], tmp_path / form, form, block_rows=100)
    one, two = (first_ids(batches(tmp_path / f, 64, shuffle=True, seed=3)) for f in FORMATS)
    assert one == two


@pytest.mark.parametrize("divide", ["rows", "windows"])
def test_the_order_of_blocks_is_resumed_and_divided(tmp_path, divide) -> None:
    write_packed([make_rows(1000)], tmp_path / "set", "parquet", block_rows=10)
    rows = read(tmp_path / "set" / "data.parquet")

    def share(worker: int, workers: int, state: object = None) -> ArrowBatches:
        made = rows.batches(60, order=BlockOrder(True, 3, 4), divide=divide)
        made.split_by_worker(worker, workers)
        if state is not None:
            made.load_state_dict(json.loads(json.dumps(state)))
        return made

    def ids(reading: Iterable[Any], most: int | None = None) -> list[int]:
        read = (each.plain["ids"] for each in itertools.islice(reading, most))
        return [int(row[0]) for column in read for row in column.to_pylist()]

    whole = first_ids(batches(tmp_path / "set", 60, True, 3, shuffle_blocks=4))
    alone = share(0, 1)
    assert ids(alone.read(), 5) == whole[:300]
    assert ids(share(0, 1, alone.state_dict()).read()) == whole[300:]
    three = [share(worker, 3) for worker in range(3)]
    found = [row for each in three for row in ids(each.read(), 7)]
    state = join_states([each.state_dict() for each in three])
    found += [row for worker in range(2) for row in ids(share(worker, 2, state).read())]
    assert sorted(found) == list(range(1000))


def test_a_changed_batch_changes_no_other(source) -> None:
    expected = make_rows(5000)
    found = []
    for batch in batches(source, 300):
        found.append({name: array.copy() for name, array in batch.items()})
        for array in batch.values():
            array.fill(-1)
    assert same(joined(found), expected)
    assert same(joined(batches(source, 5000)), expected)


def test_endless_stream_goes_on_and_has_no_length(source) -> None:
    stream = batches(source, 4000, repeat=None, columns=("label", "ids"))
    with pytest.raises(TypeError, match="no length"):
        len(stream)
    sizes = [len(batch["label"]) for batch, _ in zip(stream, range(5), strict=False)]
    assert sizes == [4000, 1000, 4000, 1000, 4000]


@pytest.mark.parametrize("shuffle", [False, True])
def test_dataset_yields_ready_batches(source, shuffle) -> None:
    dataset = as_dataset(source, 512, shuffle=shuffle, seed=5, repeat=2)
    assert dataset.get_dataset_size() == 20
    assert dataset.get_col_names() == list(NAMES)
    found = list(dataset.create_dict_iterator(num_epochs=1, output_numpy=True))
    expected = list(batches(source, 512, shuffle=shuffle, seed=5, repeat=2))
    assert len(found) == len(expected)
    assert all(same({n: f[n] for n in NAMES}, e) for f, e in zip(found, expected, strict=True))


def test_dataset_holds_queued_elements_apart(source) -> None:
    # MindSpore does not copy what a generator yields: elements kept must still all be right
    kept = list(as_dataset(source, 100).create_tuple_iterator(num_epochs=1, do_copy=False))
    rows = np.concatenate([element[0].asnumpy()[:, 0] for element in kept])
    assert rows.tolist() == list(range(5000))


def test_endless_dataset_can_be_left(source) -> None:
    dataset = as_dataset(source, 1000, repeat=None, columns=["bayes", "ids"])
    iterator = dataset.create_tuple_iterator(num_epochs=1, do_copy=False)
    shapes = [tuple(column.shape for column in next(iterator)) for _ in range(12)]
    assert set(shapes) == {((1000, 1), (1000, 3))}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"batch_size": 2, "shuffle_blocks": 0}, "shuffle_blocks"),
        ({"batch_size": 2, "repeat": 0}, "repeat"),
        ({"batch_size": 2, "seed": -1}, "seed"),
        ({"batch_size": 2, "columns": ["clicks"]}, "columns must be of"),
        ({"batch_size": 2, "columns": []}, "columns must be of"),
        ({"batch_size": 5001, "drop_remainder": True, "repeat": None}, "at most the 5000 rows"),
    ],
)
def test_bad_arguments_are_refused(source, options, words) -> None:
    with pytest.raises(ValueError, match=words):
        batches(source, **options)


@pytest.mark.parametrize("form", FORMATS)
def test_a_failure_leaves_nothing_and_keeps_what_was_there(tmp_path, form) -> None:
    def broken():
        yield make_rows(10)
        raise RuntimeError("source broke")

    with pytest.raises(RuntimeError, match="source broke"):
        write_packed(broken(), tmp_path / "set", form, block_rows=4)
    assert os.listdir(tmp_path) == []
    write_packed([make_rows(7)], tmp_path / "set", form)
    with pytest.raises(FileExistsError):
        write_packed([make_rows(9)], tmp_path / "set", form)
    with pytest.raises(RuntimeError, match="source broke"):
        write_packed(broken(), tmp_path / "set", form, overwrite=True)
    assert same(joined(batches(tmp_path / "set", 100)), make_rows(7))
    write_packed([make_rows(9)], tmp_path / "set", form, overwrite=True)
    assert same(joined(batches(tmp_path / "set", 100)), make_rows(9))
    assert os.listdir(tmp_path) == ["set"]


def test_the_directory_is_not_there_before_it_is_whole(tmp_path) -> None:
    seen = []

    def blocks():
        for _ in range(3):
            seen.append((tmp_path / "set").exists())
            yield make_rows(5)

    write_packed(blocks(), tmp_path / "set", "parquet", block_rows=2)
    assert seen == [False] * 3


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([], "at least one row"),
        ([make_rows(0)], "at least one row"),
        ([make_rows(2), make_rows(2, fields=4)], "same columns"),
        ([{"ids": np.zeros((2, 1), np.int32)}], "int64"),
        ([{"ids": np.zeros(2, np.int64)}], "int64"),
        ([{"clicks": np.zeros((2, 1), np.float32)}], "'clicks' is not one of"),
        (
            [{"ids": np.zeros((2, 1), np.int64), "label": np.zeros((3, 1), np.float32)}],
            "same number of rows",
        ),
    ],
)
def test_bad_blocks_are_refused(tmp_path, blocks, words) -> None:
    with pytest.raises(ValueError, match=words):
        write_packed(blocks, tmp_path / "set", "parquet")
    assert os.listdir(tmp_path) == []


def test_bad_writing_arguments_are_refused(tmp_path) -> None:
    rows = [make_rows(2)]
    with pytest.raises(ValueError, match="format must be one of"):
        write_packed(rows, tmp_path / "a", "csv")
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        write_packed(rows, tmp_path / "a", "parquet", block_rows=0)
    with pytest.raises(ValueError, match="width 3, got 1 fields"):
        write_packed(rows, tmp_path / "a", "parquet", fields={"ids": ["C1"]})
    with pytest.raises(ValueError, match="block_rows must be at most"):
        write_packed(rows, tmp_path / "a", "mindrecord", block_rows=1 << 24)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        write_packed(rows, tmp_path / "file" / "a", "parquet")


def test_a_damaged_set_is_refused(tmp_path) -> None:
    write_packed([make_rows(50)], tmp_path / "set", "parquet")
    data = tmp_path / "set" / "data.parquet"
    whole = data.read_bytes()
    data.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=f"must have {len(whole)} bytes, found {len(whole) - 1}"):
        batches(tmp_path / "set", 2)
    data.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    with pytest.raises(ValueError, match="SHA-256"):
        Manifest.read(tmp_path / "set").verify(tmp_path / "set")
    data.unlink()
    with pytest.raises(ValueError, match="found None"):
        batches(tmp_path / "set", 2)
    with pytest.raises(ValueError, match="not a packed data set"):
        batches(tmp_path, 2)


def test_new_directory_clears_up_and_takes_nested_ones(tmp_path) -> None:
    with new_directory(tmp_path / "a") as beside:
        write_packed([make_rows(3)], beside / "train", "mindrecord")
    assert same(joined(batches(tmp_path / "a" / "train", 10)), make_rows(3))
