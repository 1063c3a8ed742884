# SPDX-License-Identifier: Apache-2.0
"""Passes over rows: each row exactly once, on any workers, with restarts anywhere; same bits."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec.common.data import text_blocks
from mindspore_rec.common.data.data_parts import DataParts
from mindspore_rec.common.stream.worker_states import join_states
from mindspore_rec.data import ArrowBatches, Rows, Sample, read

DECODE = DataParts.decode
SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=3)
GROUPS = st.integers(1, 40)
BATCH = st.integers(1, 50)
ORDERS = st.fixed_dictionaries(
    {
        "shuffle": st.sampled_from([False, True, "near"]),
        "seed": st.integers(0, 3),
        "buffer_rows": st.integers(1, 80),
        "divide": st.sampled_from(["rows", "windows"]),
    }
)


def table_of(rows: int, start: int = 0) -> pa.Table:
    """Row r holds r, and texts and missing values that follow from r."""
    numbers = range(start, start + rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "text": pa.array([f"t{r % 7}" if r % 5 != 4 else None for r in numbers]),
            "x": pa.array([r / 4 + 0.1 if r % 3 != 2 else None for r in numbers], pa.float64()),
            "label": pa.array([int(r % 4 == 0) for r in numbers], pa.int64()),
        }
    )


def write(folder: Path, sizes: list[int], group: int, kind: str) -> Rows:
    start = 0
    for number, rows in enumerate(sizes):
        table, start = table_of(rows, start), start + rows
        path = folder / f"{number}.{kind}"
        if kind == "parquet":
            pq.write_table(table, path, row_group_size=group)
        elif kind == "arrow":
            with pa.ipc.new_file(path, table.schema) as file:
                file.write_table(table, max_chunksize=group)
        else:
            with pa.output_stream(path, compression="gzip" if kind == "csv.gz" else None) as out:
                pa.csv.write_csv(table, out)
    return read(folder)


def ids(batch) -> list[int]:
    return batch["id"].to_pylist()


def rest(batches: ArrowBatches) -> list[list[int]]:
    return [ids(each) for each in batches]


@settings(max_examples=40)
@given(SIZES, GROUPS, BATCH, ORDERS, st.sampled_from(["parquet", "arrow", "csv", "csv.gz"]))
def test_a_pass_has_each_row_once_and_follows_from_seed_and_number(sizes, group, size, order, kind):
    total = sum(sizes)
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(text_blocks, "BLOCK", 20 * group),
    ):
        rows = write(Path(folder), sizes, group, kind)
        batches = rows.batches(size, threads=2, **order)
        passes = [rest(batches) for _ in range(2)]
        again = rest(rows.batches(size, threads=1, **order))
        assert len(rows) == total
        assert rows.to_table().equals(pa.concat_tables([table_of(total)]))
    assert passes[0] == again
    for each in passes:
        assert [len(batch) for batch in each] == [
            min(size, total - at) for at in range(0, total, size)
        ]
        assert sorted(sum(each, [])) == list(range(total))
        if not order["shuffle"]:
            assert sum(each, []) == list(range(total))
        if order["shuffle"] == "near":
            moved = np.abs(np.array(sum(each, [])) - np.arange(total))
            assert moved.max() < order["buffer_rows"]


@settings(max_examples=15)
@given(SIZES, GROUPS, BATCH, ORDERS, st.integers(1, 4), st.data())
def test_a_restart_anywhere_goes_on_with_the_same_bits(sizes, group, size, order, workers, data):
    with tempfile.TemporaryDirectory() as folder:
        rows = write(Path(folder), sizes, group, "parquet")

        def share(worker: int, state: dict | None = None) -> ArrowBatches:
            made = rows.batches(max(size, workers), threads=2, **order)
            made.split_by_worker(worker, workers)
            if state is not None:
                made.load_state_dict(json.loads(json.dumps(state)))
            return made

        for worker in range(workers):
            one = share(worker)
            # Numbers of batches count the last batch also if the worker has no rows of it.
            whole = [(each.number, ids(each.plain)) for _ in range(2) for each in one.read()]
            assert one.passes == 2 and one.batches >= len(whole)
            for number in range(one.batches + 1):
                if data.draw(st.integers(0, 3)):
                    continue
                resumed = share(worker, one.state_dict(number))
                assert resumed.batches == number
                left = [batch for after, batch in whole if after is not None and after > number]
                assert (rest(resumed) + rest(resumed))[: len(left)] == left


@settings(max_examples=60)
@given(SIZES, GROUPS, BATCH, ORDERS, st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_workers_may_change_in_the_middle_of_a_pass(sizes, group, size, order, counts, data):
    """Each row is read exactly once in a pass, by whichever workers there are."""
    total, found, state = sum(sizes), [], None
    with tempfile.TemporaryDirectory() as folder:
        rows = write(Path(folder), sizes, group, "parquet")
        for place, workers in enumerate(counts):
            last, states = place == len(counts) - 1, []
            together = data.draw(st.integers(0, 4))
            for worker in range(workers):
                one = rows.batches(max(size, 4), threads=1, **order)
                one.split_by_worker(worker, workers)
                if state is not None:
                    one.load_state_dict(state)
                # Workers that divide rows read the same batches in step.
                apart = order["divide"] == "windows" and not last
                taken = data.draw(st.integers(0, 4)) if apart else 10**6 if last else together
                reading = one.read()
                while taken and (batch := next(reading, None)) is not None:
                    found += batch.columns[0].to_pylist()
                    taken -= 1
                states.append(one.state_dict())
            if all(each["ended"] for each in states):
                break
            state = json.loads(json.dumps(join_states(states)))
    assert sorted(found) == list(range(total))


@pytest.mark.parametrize("workers", [2, 5])
def test_any_workers_divide_the_rows_of_the_same_batches(tmp_path, workers):
    rows = write(tmp_path, [97, 30], 20, "parquet")
    whole = rest(rows.batches(10, shuffle=True, buffer_rows=40))
    shares = [
        rest(rows.batches(10, shuffle=True, buffer_rows=40).split_by_worker(each, workers))
        for each in range(workers)
    ]
    joined = [
        sum((each[number] for each in shares if number < len(each)), [])
        for number in range(len(whole))
    ]
    assert joined == whole


@pytest.mark.parametrize("workers", [2, 5])
def test_more_workers_than_row_groups_share_the_rows(tmp_path, workers):
    rows = write(tmp_path, [97], 97, "parquet")
    shares = [
        rest(rows.batches(10, shuffle=True, divide="windows").split_by_worker(each, workers))
        for each in range(workers)
    ]
    sizes = [sum(map(len, each)) for each in shares]
    assert sorted(sum(sum(shares, []), [])) == list(range(97))
    assert max(sizes) - min(sizes) <= 1
    lengths = [
        rows.batches(10, shuffle=True, divide="windows").split_by_worker(each, workers).length
        for each in range(workers)
    ]
    assert lengths == list(map(len, shares))


@pytest.mark.parametrize("divide", ["rows", "windows"])
def test_workers_that_divide_the_rows_after_loading_go_on_with_the_same_bits(tmp_path, divide):
    rows = write(tmp_path, [240], 10, "parquet")

    def share(worker: int, state: dict | None = None) -> ArrowBatches:
        made = rows.batches(24, shuffle=True, divide=divide, threads=1)
        if state is not None:
            made.load_state_dict(json.loads(json.dumps(state)))
        return made.split_by_worker(worker, 3)

    whole = [share(worker) for worker in range(3)]
    batches = [rest(each) for each in whole]
    for number in range(1, 10):
        state = join_states([each.state_dict(number) for each in whole])
        for worker in range(3):
            resumed = share(worker, state)
            assert resumed.state_dict() == whole[worker].state_dict(number)
            assert rest(resumed) == batches[worker][number:]


def test_a_restart_reads_only_the_windows_that_are_left(tmp_path):
    rows = write(tmp_path, [400], 10, "parquet")
    batches = rows.batches(7, shuffle=True, buffer_rows=40)
    reading = batches.read()
    for _ in range(30):
        next(reading)
    state = batches.state_dict()
    assert len(json.dumps(state)) < 400
    resumed = read(tmp_path).batches(7, shuffle=True, buffer_rows=40)
    resumed.load_state_dict(state)
    decoded = []

    def decode(data: DataParts, *args):
        if data is resumed.selection.data:  # and not of `reading`, which reads ahead
            decoded.append(args)
        return DECODE(data, *args)

    with mock.patch.object(DataParts, "decode", decode):
        assert len(sum(rest(resumed), [])) == 400 - 210
    assert len(decoded) == 20


def test_a_sample_and_a_split_follow_from_the_place_of_a_row(tmp_path):
    rows = write(tmp_path, [300, 200], 30, "parquet")
    part, other = rows.split(0.5, seed=3)
    assert sorted(ids(part.to_table()) + ids(other.to_table())) == list(range(500))
    thinned = read(tmp_path, sample=Sample(negatives=0.25, seed=1, label="label"))
    expected = set(ids(thinned.to_table()))
    for workers in (1, 3):
        found: dict[int, float] = {}
        for worker in range(workers):
            batches = thinned.batches(16, shuffle=True, seed=workers)
            for batch in batches.split_by_worker(worker, workers):
                found.update(zip(ids(batch), batch["weight"].to_pylist(), strict=True))
        assert set(found) == expected
        assert all(weight == (1 if row % 4 == 0 else 4) for row, weight in found.items())
    assert set(range(0, 500, 4)) <= expected and len(expected) < 300


def test_nested_splits_of_one_seed_are_independent():
    rows = read(pa.table({"id": np.arange(20_000)}))
    half = rows.split(0.5)[0]
    assert 4_700 < len(half.split(0.5)[0]) < 5_300


def test_batch_numbers_and_kept_states(tmp_path):
    batches = write(tmp_path, [50], 10, "parquet").batches(10)
    assert batches.length == 5 and batches.has_state and batches.batches == 0
    assert [each.number for each in batches.read()] == [1, 2, 3, 4, 5]
    assert batches.state_dict(2)["batches"] == 2
    with pytest.raises(ValueError, match=r"batches must be in \[0, 5\], got 6"):
        batches.state_dict(6)
    with pytest.raises(RuntimeError, match="before the first batch"):
        batches.load_state_dict(batches.state_dict())


def test_a_state_of_other_data_or_order_is_refused(tmp_path):
    rows = write(tmp_path, [50], 10, "parquet")
    state = rows.batches(10, shuffle=True, seed=1).state_dict()
    with pytest.raises(ValueError, match="seed=1, and the batches have 2"):
        rows.batches(10, shuffle=True, seed=2).load_state_dict(state)
    with pytest.raises(ValueError, match="other data: files, filter, split or sample"):
        rows.split(0.5)[0].batches(10, shuffle=True, seed=1).load_state_dict(state)
    with pytest.raises(TypeError, match="what state_dict"):
        rows.batches(10).load_state_dict({"batches": 1})
    lonely = rows.batches(10, divide="windows").split_by_worker(0, 2).state_dict()
    with pytest.raises(ValueError, match=r"workers \[0\] of 2, and worker 0 of 3 needs all 2"):
        rows.batches(10, divide="windows").split_by_worker(0, 3).load_state_dict(lonely)
    resized = rows.batches(3, shuffle=True, seed=1)
    resized.load_state_dict(state)
    assert sorted(sum(rest(resized), [])) == list(range(50))


def test_each_worker_has_batches_of_its_own(tmp_path):
    batches = write(tmp_path, [50], 10, "parquet").batches(10)
    assert batches.split_by_worker(0, 1) is batches
    assert batches.split_by_worker(1, 2) is batches and batches.split_by_worker(1, 2) is batches
    with pytest.raises(ValueError, match=r"worker 1 of 2: call rows.batches\(\) for worker 0"):
        batches.split_by_worker(0, 2)


@pytest.mark.parametrize("divide", ["rows", "windows"])
def test_a_state_may_be_loaded_before_the_workers_are_known(tmp_path, divide):
    """As RecCheckpoint does: restore() comes before the training divides its data."""
    rows = write(tmp_path, [300], 5, "parquet")

    def share(worker: int) -> ArrowBatches:
        return rows.batches(12, shuffle=True, buffer_rows=10, divide=divide).split_by_worker(
            worker, 3
        )

    whole, states = [], []
    for worker in range(3):
        one = share(worker)
        whole.append(rest(one))
        states.append(one.state_dict(4))
    for worker in range(3):
        resumed = rows.batches(12, shuffle=True, buffer_rows=10, divide=divide)
        resumed.load_state_dict(join_states(states))
        assert resumed.batches == 4
        assert rest(resumed.split_by_worker(worker, 3)) == whole[worker][4:]


def test_a_batch_has_rows_for_each_worker():
    batches = read(table_of(9)).batches(2)
    with pytest.raises(ValueError, match="at least the number of workers, 3, .* got 2"):
        batches.split_by_worker(0, 3)


def test_an_iteration_that_is_left_early_is_over(tmp_path):
    batches = write(tmp_path, [50], 10, "parquet").batches(10, shuffle=True)
    next(iter(batches))
    assert sorted(sum(rest(batches), [])) == list(range(50))
    other = write(tmp_path, [50], 10, "parquet").batches(10, shuffle=True)
    other.skip_passes(1)
    rest(other)
    assert other.passes == 2
