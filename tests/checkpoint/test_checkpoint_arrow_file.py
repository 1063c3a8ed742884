# SPDX-License-Identifier: Apache-2.0
"""Arrow files of several record batches, as tables of more than 65,536 rows have them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mindspore_rec import CheckpointError
from mindspore_rec.common.run.arrow_file import read_batches
from mindspore_rec.common.run.row_format import NUMBERS
from mindspore_rec.common.run.table_file import (
    _schema,
    check_rows,
    read_rows,
    row_type,
    write_rows,
)

SCHEMA = pa.schema([("key", pa.int64()), ("count", pa.uint32())])
LENGTHS = (3, 0, 1, 70)


def written(path: Path, **options: str) -> list[pa.RecordBatch]:
    batches = [
        pa.record_batch([pa.array(range(n), pa.int64()), pa.array([n] * n, pa.uint32())], SCHEMA)
        for n in LENGTHS
    ]
    with pa.ipc.new_file(path, SCHEMA, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return batches


def test_each_batch_is_read(tmp_path: Path) -> None:
    batches = written(tmp_path / "a.arrow")
    assert list(read_batches(tmp_path / "a.arrow", SCHEMA)) == batches
    assert list(read_batches(tmp_path / "a.arrow", SCHEMA, sum(LENGTHS))) == batches
    for wrong in (sum(LENGTHS) - 1, sum(LENGTHS) + 1):
        with pytest.raises(CheckpointError, match=f"it has {sum(LENGTHS)} rows of {wrong}"):
            list(read_batches(tmp_path / "a.arrow", SCHEMA, wrong))


def test_a_compressed_file_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "a.arrow", compression="zstd")
    with pytest.raises(CheckpointError, match="compress"):
        list(read_batches(tmp_path / "a.arrow", SCHEMA))


def test_rows_of_several_batches_are_read_as_written(tmp_path: Path) -> None:
    names = ("count", "last_step", "last_time")
    fields = [("key", "<i8"), ("value", NUMBERS["float32"], (2,))]
    dtype = np.dtype([*fields, *((name, "<u4") for name in names)])
    rows = np.zeros(150_000, dtype)
    rows["key"] = np.arange(len(rows)) - 70_000
    rows["value"] = np.arange(2 * len(rows)).reshape(-1, 2)
    parts = [rows[:10], rows[10:90_000], rows[90_000:]]
    assert write_rows(iter(parts), dtype, tmp_path / "a.arrow") == len(rows)
    parts = list(read_rows(tmp_path / "a.arrow", dtype, len(rows)))
    assert [len(part) for part in parts] == [65_536, 65_536, 18_928]
    with pa.memory_map(str(tmp_path / "a.arrow")) as source:
        batches = [batch.num_rows for batch in pa.ipc.open_file(source).read_all().to_batches()]
    assert batches == [65_536, 65_536, 18_928]
    assert np.concatenate(parts).tobytes() == rows.tobytes()
    assert max(len(part) for part in read_rows(tmp_path / "a.arrow", dtype, len(rows), most=9)) == 9


ROW = row_type(2, 0)


def rows_of(count: int) -> np.ndarray:
    rows = np.zeros(count, ROW)
    rows["key"] = np.arange(count)
    return rows


@pytest.mark.parametrize("size", [0, 7, 1000, 1 << 20, -1])
def test_a_file_truncated_while_it_is_read_is_damaged(tmp_path: Path, size: int) -> None:
    file, rows = tmp_path / "a.arrow", rows_of(200_000)
    write_rows(iter([rows]), ROW, file)
    parts = read_rows(file, ROW, len(rows))
    first = next(parts)
    os.truncate(file, size % file.stat().st_size)
    assert first.tobytes() == rows[: len(first)].tobytes()
    with pytest.raises(CheckpointError, match="a.arrow is damaged"):
        list(parts)


def test_a_file_truncated_while_its_keys_are_checked_is_damaged(tmp_path: Path) -> None:
    file, rows = tmp_path / "a.arrow", rows_of(200_000)
    write_rows(iter([rows]), ROW, file)
    batches = read_batches(file, _schema(ROW), len(rows), ["key"])
    assert next(batches).column_names == ["key"]
    os.truncate(file, 1200)
    with pytest.raises(CheckpointError, match="a.arrow is damaged"):
        list(batches)


def accepts(read: Callable[[Path, np.dtype, int], object], file: Path, count: int) -> bool:
    try:
        read(file, ROW, count)
    except CheckpointError:
        return False
    return True


def test_the_check_of_the_keys_accepts_the_files_that_a_reader_accepts(tmp_path: Path) -> None:
    file, random = tmp_path / "a.arrow", np.random.default_rng(7)
    write_rows(iter([rows_of(2)]), ROW, file)
    whole = file.read_bytes()
    outcomes = []
    for _ in range(500):
        changed = bytearray(whole)
        for at in random.integers(len(whole), size=random.integers(1, 3)):
            changed[at] = random.choice([0, 1, 8, 16, 255, changed[at] ^ (1 << random.integers(8))])
        file.write_bytes(changed)
        outcomes.append(accepts(check_rows, file, 2))
        assert outcomes[-1] == accepts(lambda *of: list(read_rows(*of)), file, 2)
    assert 50 < sum(outcomes) < 450
