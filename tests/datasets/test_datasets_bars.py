# SPDX-License-Identifier: Apache-2.0
"""BARS's files of Criteo, against Python's own CSV reader."""

from __future__ import annotations

import csv
import importlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from datasets.common import batches
from datasets.criteo import bars
from datasets.criteo.schema import CATEGORY_FIELDS, COUNT_FIELDS, FIELDS
from mindspore_rec.common.columns.hashing import category_keys


def write(path: Path, version: str, rows: int, seed: int = 0) -> None:
    """Rows in the form of one of the splits; x4 has missing counts and categories."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(FIELDS)
        for _ in range(rows):
            if version == "x1":
                counts = [f"{x:.6f}" for x in rng.random(13)]
                categories = [str(x) for x in rng.integers(0, 50, 26)]
            else:
                counts = ["" if rng.random() < 0.2 else str(x) for x in rng.integers(-3, 500, 13)]
                categories = ["" if x < 5 else f"{x:08x}" for x in rng.integers(0, 50, 26)]
            out.writerow([rng.integers(0, 2), *counts, *categories])


def expected(path: Path, version: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    ids = np.stack(
        [category_keys(name, [row[name] or None for row in rows]) for name in CATEGORY_FIELDS], 1
    )
    numbers = [[float(row[name]) if row[name] else 0.0 for name in COUNT_FIELDS] for row in rows]
    if version == "x4":
        numbers = [[math.log1p(max(x, 0.0)) for x in row] for row in numbers]
    return ids, np.array(numbers, np.float32), np.array([[float(row["label"])] for row in rows])


@pytest.mark.parametrize("format", ["mindrecord", "parquet"])
@pytest.mark.parametrize("version", ["x1", "x4"])
def test_what_was_converted_is_what_the_file_says(tmp_path, version, format):
    for k, name in enumerate(bars.SPLITS):
        write(tmp_path / f"{name}.csv", version, 700, k)
    out = tmp_path / "packed"
    figures = tmp_path / "figures.json"
    command = ["--input", tmp_path, "--version", version, "--output", out, "--json", figures]
    assert bars.main([*map(str, command), "--format", format, "--batch-size", "256"]) == 0
    said = json.loads(figures.read_text())
    assert (said["test_rows"], said["test_complete"]) == (700, False)
    for name in bars.SPLITS:
        ids, dense, label = expected(tmp_path / f"{name}.csv", version)
        (batch,) = batches(out / name, 1000)
        np.testing.assert_array_equal(batch["ids"], ids)
        np.testing.assert_allclose(batch["dense"], dense, rtol=1e-6)
        np.testing.assert_array_equal(batch["label"], label)


def test_an_interrupted_command_goes_on_to_the_same_bytes(tmp_path, monkeypatch, capsys):
    for k, name in enumerate(bars.SPLITS):
        write(tmp_path / f"{name}.csv", "x4", 700, k)
    command = ["--input", tmp_path, "--version", "x4", "--format", "parquet", "--workers", "1"]
    small: dict[str, Any] = {"workers": 1, "part_bytes": 20_000}

    def run(out: str) -> int:
        return bars.main([*map(str, command), "--output", str(tmp_path / out)])

    parts: Any = importlib.import_module("datasets.common.parts")

    convert = bars.convert

    def in_small_parts(*arguments, **_):
        return convert(*arguments, **small)

    monkeypatch.setattr(bars, "convert", in_small_parts)
    write_file, left = parts.write_file, iter(range(13))

    def breaks(*arguments):
        if next(left, None) is None:
            raise OSError("disk full")
        return write_file(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(parts, "write_file", breaks)
        assert run("out") == 1
    assert "disk full" in capsys.readouterr().err
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [".valid.converting", "train"]
    inode = (tmp_path / "out" / "train").stat().st_ino
    assert run("out") == run("once") == 0
    assert (tmp_path / "out" / "train").stat().st_ino == inode
    for path in (tmp_path / "once").rglob("*.*"):
        other = tmp_path / "out" / path.relative_to(tmp_path / "once")
        assert path.read_bytes() == other.read_bytes()
    assert run("out") == 1  # all of it is there
    assert "exists" in capsys.readouterr().err


def test_counts_of_x4_become_categories(tmp_path):
    path = tmp_path / "train.csv"
    write(path, "x4", 50)
    (block,) = bars.blocks(path, "x4", counts_as_categories=True)
    assert block["ids"].shape == (50, 39)
    with path.open(newline="") as file:
        first = [row["I1"] for row in csv.DictReader(file)]
    bins = [None if not x else math.floor(math.log(int(x)) ** 2) if int(x) > 2 else int(x)
            for x in first]  # fmt: skip
    wanted = category_keys("I1", pd.array(bins, dtype="Int64"))
    np.testing.assert_array_equal(block["ids"][:, 26], wanted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("label,", "click,", 1), "header"),
        (lambda text: text.replace("\n1,", "\n2,").replace("\n0,", "\n2,"), "label"),
        (lambda text: text + "1,2,3\n", "not a file of Criteo_x4"),
        (lambda text: text + "1,many" + "," * 38 + "\n", "not a file of Criteo_x4"),
        (lambda text: text + "1,inf" + "," * 38 + "\n", "finite"),
    ],
)
def test_files_that_are_refused(tmp_path, capsys, change, message):
    path = tmp_path / "train.csv"
    write(path, "x4", 20)
    path.write_text(change(path.read_text()))
    command = ["--input", tmp_path, "--version", "x4", "--output", tmp_path / "out"]
    assert bars.main(list(map(str, command))) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out" / "train").exists()


def test_arguments_that_are_refused(tmp_path):
    with pytest.raises(ValueError, match="version"):
        next(bars.blocks(tmp_path / "train.csv", "x2"))
    with pytest.raises(ValueError, match="counts_as_categories"):
        next(bars.blocks(tmp_path / "train.csv", "x1", counts_as_categories=True))
