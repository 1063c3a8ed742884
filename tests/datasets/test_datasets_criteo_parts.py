# SPDX-License-Identifier: Apache-2.0
"""Conversion in parts: on several cores, killed and gone on with, from all forms of the data."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import importlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from datasets.common import batches
from datasets.common.manifest import Manifest
from datasets.criteo.convert import convert, main
from datasets.criteo.lines import pieces
from datasets.criteo.reader import CriteoReader
from datasets.criteo.schema import PARQUET_FIELDS
from tests.support.processes import start_python
from tests.support.waiting import wait_until


def lines(rows: int, seed: int = 0) -> list[bytes]:
    """Good lines; a tenth of the cells is empty."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, rows)
    counts = rng.integers(-2, 3000, (rows, 13))
    words = rng.integers(0, 1 << 16, (rows, 26))
    empty = rng.random((rows, 39)) < 0.1
    made = []
    for label, count, word, gap in zip(labels, counts, words, empty, strict=True):
        cells = [f"{c}" for c in count] + [f"{w:08x}" for w in word]
        made.append("\t".join([f"{label}", *np.where(gap, "", cells)]).encode())
    return made


def files_of(directory: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in directory.iterdir()}


def rows_of(stream) -> dict[str, np.ndarray]:
    found = list(stream)
    return {name: np.concatenate([each[name] for each in found]) for name in found[0]}


def same(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> bool:
    return one.keys() == two.keys() and all(np.array_equal(one[k], two[k]) for k in one)


@given(st.lists(st.binary(max_size=9).map(lambda b: b.replace(b"\n", b"")), max_size=9),
       st.integers(1, 12), st.sampled_from([b"", b"\n", b"\r"]))  # fmt: skip
@settings(deadline=None)
def test_ranges_of_a_file_make_up_its_lines(tmp_path_factory, given_lines, step, end) -> None:
    path = tmp_path_factory.mktemp("ranges") / "file"
    path.write_bytes(b"\n".join(given_lines) + end)
    size = path.stat().st_size
    if path.read_bytes().startswith(b"\x1f\x8b"):
        return
    whole = b"".join(piece.text for piece in pieces(path, 5))
    cut = [
        piece.text
        for start in range(0, size, step)
        for piece in pieces(path, 3, (start, min(start + step, size)))
    ]
    assert b"".join(cut) == whole
    assert sum(text.count(b"\n") for text in cut) == whole.count(b"\n")


def works_in(folder: Path) -> bool:
    """Return whether a process has a folder as its working directory."""
    for place in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if os.readlink(place) == str(folder):
                return True
    return False


@pytest.mark.parametrize("form", ["mindrecord", "parquet"])
def test_a_killed_conversion_goes_on_to_the_same_bytes(tmp_path, form) -> None:
    path = tmp_path / "train.txt"
    made = lines(6000)
    made[100], made[5900] = b"bad", b"2" + made[5900][1:]
    # many small parts of a file that takes a while
    path.write_bytes(b"\n".join(made * 8) + b"\n")
    command = ["-m", "datasets.criteo.convert", "--input", str(path), "--format", form]
    command += ["--part-mib", "1", "--batch-size", "500"]

    def start(workers: str) -> subprocess.Popen[str]:
        more = ["--output", str(tmp_path / "out"), "--workers", workers]
        return start_python(*command, *more, cwd=tmp_path, stdout=None)

    killed = start("2")
    state = tmp_path / ".out.converting" / "parts"
    deadline = time.monotonic() + 300
    while len(list(state.glob("*.json"))) < 3:
        assert killed.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    wait_until(lambda: not works_in(tmp_path), 120)  # its processes end with it
    kept = {p.name: p.stat().st_mtime_ns for p in state.glob("*.json")}
    assert not (tmp_path / "out").exists()
    time.sleep(0.3)
    assert kept == {p.name: p.stat().st_mtime_ns for p in state.glob("*.json")}
    data = tmp_path / ".out.converting" / "data"
    inodes = {name: (data / name).stat().st_ino for name in os.listdir(data)
              if f"{name.split('.')[0]}.json" in kept}  # fmt: skip

    going_on = start("1")  # the number of processes decides no byte
    assert going_on.wait() == 0
    assert 3 <= len(kept) < Manifest.read(tmp_path / "out").rows / 1000
    for name, inode in inodes.items():
        assert (tmp_path / "out" / name).stat().st_ino == inode
    assert sorted(os.listdir(tmp_path)) == ["out", "train.txt"]

    figures = convert(path, tmp_path / "once", form, 500, workers=1, part_bytes=1 << 20)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "once")
    Manifest.read(tmp_path / "out").verify(tmp_path / "out")
    reader = CriteoReader(path)
    assert same(rows_of(batches(tmp_path / "out", 999)), rows_of(reader))
    assert figures == {"file": "train.txt", **reader.report.to_json()}
    shuffled = rows_of(batches(tmp_path / "out", 999, shuffle=True))
    ids = rows_of(batches(tmp_path / "out", 999))["ids"]
    assert not np.array_equal(shuffled["ids"], ids)
    assert np.array_equal(np.sort(shuffled["ids"][:, 0]), np.sort(ids[:, 0]))


def test_gzip_is_cut_into_parts_and_gone_on_with(tmp_path, monkeypatch) -> None:
    made = lines(3000)
    made[2500] = b"bad"
    path = tmp_path / "day_0.gz"
    path.write_bytes(gzip.compress(b"\n".join(made)))
    size = 100_000
    once = convert(path, tmp_path / "once", "parquet", 128, part_bytes=size)
    assert len(Manifest.read(tmp_path / "once").data_files) > 4
    assert once["first_bad"] == [(2501, "columns")]

    parts: Any = importlib.import_module("datasets.common.parts")

    write, left = parts.write_file, iter(range(3))

    def breaks(*arguments):
        next(left)  # StopIteration at the fourth part
        return write(*arguments)

    monkeypatch.setattr(parts, "write_file", breaks)
    with pytest.raises((RuntimeError, StopIteration)):
        convert(path, tmp_path / "out", "parquet", 128, part_bytes=size)
    monkeypatch.setattr(parts, "write_file", write)
    with pytest.raises(ValueError, match="interrupted conversion with other batch_size"):
        convert(path, tmp_path / "out", "parquet", 64, part_bytes=size)
    before = len(list((tmp_path / ".out.converting" / "parts").glob("*.json")))
    assert before == 3
    assert convert(path, tmp_path / "out", "parquet", 128, part_bytes=size) == once
    assert files_of(tmp_path / "out") == files_of(tmp_path / "once")
    assert not (tmp_path / ".out.converting").exists()


def test_restart_forgets_and_damaged_parts_are_made_again(tmp_path, monkeypatch) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes(b"\n".join(lines(900)) + b"\n")
    convert(path, tmp_path / "once", "parquet", 100, workers=1, part_bytes=50_000)
    parts: Any = importlib.import_module("datasets.common.parts")

    with monkeypatch.context() as patch:
        patch.setattr(parts, "replace_directory", lambda *_: 1 / 0)
        for name in ("a", "b"):
            with pytest.raises(ZeroDivisionError):
                convert(path, tmp_path / name, "parquet", 100, workers=1, part_bytes=50_000)
    victim = sorted((tmp_path / ".a.converting" / "data").glob("*.parquet"))[2]
    victim.write_bytes(victim.read_bytes()[:-1])
    convert(path, tmp_path / "a", "parquet", 100, workers=1, part_bytes=50_000)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "once")
    convert(path, tmp_path / "b", "parquet", 50, workers=1, part_bytes=50_000, restart=True)
    assert Manifest.read(tmp_path / "b").block_rows == 50


def terabyte_table(rows: list[bytes], float_counts: bool) -> pa.Table:
    """The same rows as Criteo's Parquet files have them."""
    cells = [row.decode().split("\t") for row in rows]
    columns = []
    for k in range(40):
        values = [row[k] or None for row in cells]
        if k < 14:
            numbers = [None if v is None else int(v) for v in values]
            float_kind = pa.float64() if float_counts and k else pa.int32()
            columns.append(pa.array(numbers, pa.int32()).cast(float_kind))
        else:
            columns.append(pa.array(values, pa.string()))
    return pa.table(columns, names=list(PARQUET_FIELDS))


def test_all_forms_of_the_terabyte_set_are_the_same_rows(tmp_path) -> None:
    days = [lines(700, seed) for seed in (1, 2, 3)]
    for form in ("text", "gzip", "parquet"):
        (tmp_path / form).mkdir()
    for day, rows in zip((0, 2, 10), days, strict=True):  # day_10 is behind day_2
        text = b"\n".join(rows) + b"\n"
        (tmp_path / "text" / f"day_{day}").write_bytes(text)
        (tmp_path / "gzip" / f"day_{day}.gz").write_bytes(gzip.compress(text))
        part = tmp_path / "parquet" / f"day=2015-02-{15 + day}" / "part-0.snappy.parquet"
        part.parent.mkdir()
        pq.write_table(terabyte_table(rows, day == 2), part, row_group_size=300)
    (tmp_path / "all.txt").write_bytes(b"\n".join(sum(days, [])))
    expected = rows_of(CriteoReader(tmp_path / "all.txt"))
    for form, workers in (("text", 1), ("gzip", 1), ("parquet", 2)):
        figures = convert(
            tmp_path / form, tmp_path / f"{form}.out", "parquet", 256, workers=workers
        )
        assert figures["rows"] == 2100 and len(figures["files"]) == 3
        assert same(rows_of(batches(tmp_path / f"{form}.out", 500)), expected)


def test_bad_rows_of_several_files_are_named(tmp_path, capsys) -> None:
    first, second = lines(50), lines(50, 1)
    second[7] = b"bad"
    (tmp_path / "day_0").write_bytes(b"\n".join(first))
    (tmp_path / "day_1").write_bytes(b"\n".join(second))
    rows = terabyte_table(lines(9), True).set_column(
        0, "label", pa.array([0, 1, 2, None, 1, 1, 1, 1, 1], pa.int32())
    )
    endless = pa.array([0, np.inf, 1, 1, 1, 1, 1, 1, None], pa.float64())
    pq.write_table(rows.set_column(5, PARQUET_FIELDS[5], endless), tmp_path / "x.parquet")
    inputs = [str(tmp_path / name) for name in ("day_0", "day_1", "x.parquet")]
    command = ["--input", *inputs, "--output", str(tmp_path / "out"), "--format", "parquet"]
    command += ["--workers", "1"]
    assert main([*command, "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["rows"], found["bad"]["label"], found["bad"]["number"]) == (50 + 49 + 6, 2, 1)
    assert found["first_bad"] == [
        ["day_1", 8, "columns"],
        ["x.parquet", 2, "number"],
        ["x.parquet", 3, "label"],
        ["x.parquet", 4, "label"],
    ]
    assert main([*command, "--strict", "--overwrite"]) == 1
    assert "day_1, line 8: bad columns" in capsys.readouterr().err


def test_a_bad_row_of_a_later_part_is_named_by_its_line_in_the_file(tmp_path) -> None:
    made = lines(400)
    made[333] = b"bad"
    (tmp_path / "a").write_bytes(b"\n".join(made))
    with pytest.raises(ValueError, match="a, line 334: bad columns"):
        convert(
            tmp_path / "a", tmp_path / "o", "parquet", strict=True, workers=1, part_bytes=20_000
        )
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"\n".join(made)))
    with pytest.raises(ValueError, match=r"b\.gz, line 334: bad columns"):
        convert(tmp_path / "b.gz", tmp_path / "p", "parquet", strict=True, part_bytes=20_000)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda d: [d / "none"], "does not exist"),
        (lambda d: [], "at least one file"),
        (lambda d: [d], "it has neither"),
        (lambda d: [d / "a", d / "a"], "twice"),
    ],
)
def test_inputs_that_cannot_be(tmp_path, make, words) -> None:
    (tmp_path / "a").write_bytes(b"1")
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        convert(make(tmp_path), tmp_path / "out")
    assert os.listdir(tmp_path) == ["a"]


def test_arguments_out_of_range(tmp_path) -> None:
    (tmp_path / "a").write_bytes(b"\n".join(lines(3)))
    for name, value in (("workers", 0), ("part_bytes", 0)):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            wrong: dict[str, Any] = {name: value}
            convert(tmp_path / "a", tmp_path / "out", **wrong)
    pq.write_table(pa.table({"label": [1]}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="not of the terabyte set: it has no columns"):
        convert(tmp_path / "x.parquet", tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["a", "x.parquet"]


def test_two_conversions_to_one_place_do_not_meet(tmp_path) -> None:
    import fcntl

    (tmp_path / "a").write_bytes(b"\n".join(lines(3)))
    (tmp_path / ".out.converting").mkdir()
    with open(tmp_path / ".out.converting" / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="made by another process"):
            convert(tmp_path / "a", tmp_path / "out", "parquet")
    convert(tmp_path / "a", tmp_path / "out", "parquet")
