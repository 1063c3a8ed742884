# SPDX-License-Identifier: Apache-2.0
"""Census-Income: made-up files for the rules, real ones where MINDSPORE_REC_CENSUS_DIR is set."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from datasets.census_income import convert, load
from datasets.census_income.data import RARE, read_table
from datasets.census_income.schema import COLUMNS, FILES, MONEY, NUMERIC, WEIGHT
from datasets.common import batches
from mindspore_rec.common.columns.hashing import category_keys
from tests.support.missing import missing

REAL = os.environ.get("MINDSPORE_REC_CENSUS_DIR")


def make_line(number: int, **cells: object) -> str:
    values: dict[str, object] = dict.fromkeys(COLUMNS, "Not in universe")
    values.update(dict.fromkeys(NUMERIC, 0), instance_weight=1000.5 + number)
    values.update(age=20 + number % 50, weeks_worked=number % 53, hisp_origin="NA")
    values.update(education=("High school graduate", "Children")[number % 2])
    values.update(marital_stat=("Never married", "Divorced", "Widowed")[number % 3])
    values.update(income_50k=("- 50000.", "50000+.")[number % 10 == 0])
    values.update(cells)
    return ", ".join(str(values[name]) for name in COLUMNS) + "\n"


def write_files(folder: Path, train: list[str], test: list[str]) -> Path:
    for name, lines in (("train", train), ("test", test)):
        (folder / FILES[name]).write_bytes(gzip.compress("".join(lines).encode()))
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    gains = [0] * 80 + [7688] * 10 + [15024] * 9 + [99999]
    train = [make_line(i, capital_gains=gains[i]) for i in range(100)]
    test = [make_line(i, capital_gains=g) for i, g in enumerate((7688, 99999, 123, 0))]
    return write_files(tmp_path, train, test)


def test_labels_features_and_weight(folder) -> None:
    data = load(folder)
    assert data.tasks == ("income",)
    assert data.train.labels[:, 0].tolist() == [float(i % 10 == 0) for i in range(100)]
    assert len(data.test) == 4 and len(data.validation) == 0
    assert data.id_names[-4:] == tuple(f"{name}_exact" for name in MONEY)
    assert data.dense_names == NUMERIC
    assert not {WEIGHT, "income_50k"} & {*data.id_names, *data.dense_names}
    assert data.train.weight[:2].tolist() == [1000.5, 1001.5]
    assert (data.train.ids.dtype, data.train.dense.dtype) == (np.int64, np.float32)
    hisp = data.train.ids[:, data.id_names.index("hisp_origin")]
    assert set(hisp.tolist()) == {int(category_keys("hisp_origin", ["NA"])[0])}


def test_two_tasks_hide_marital_status(folder) -> None:
    data = load(folder, tasks=("income", "never_married"))
    assert "marital_stat" in load(folder).id_names
    assert "marital_stat" not in data.id_names
    assert data.train.labels[:, 1].tolist() == [float(i % 3 == 0) for i in range(100)]
    assert np.array_equal(data.train.labels[:, :1], load(folder).train.labels)


def test_amounts_have_keys_by_exact_value_if_common(folder) -> None:
    data = load(folder, min_count=9)
    column = data.id_names.index("capital_gains_exact")
    rare = int(category_keys("capital_gains_exact", [RARE])[0])
    common = int(category_keys("capital_gains_exact", [7688])[0])
    none = int(category_keys("capital_gains_exact", [0])[0])
    assert data.test.ids[:, column].tolist() == [common, rare, rare, none]
    assert len(set(data.train.ids[:, column].tolist())) == 4
    assert len(set(load(folder, min_count=10).train.ids[:, column].tolist())) == 3
    assert load(folder, exact=()).train.ids.shape[1] == data.train.ids.shape[1] - 4


def test_statistics_are_of_the_training_split_alone(folder) -> None:
    data = load(folder, validation=0.3, seed=4)
    assert 10 < len(data.validation) < 50
    assert len(data.train) + len(data.validation) == 100
    np.testing.assert_allclose(data.train.dense.mean(axis=0), 0, atol=1e-6)
    spread = data.train.dense.std(axis=0)
    assert np.all(np.isclose(spread, 1, atol=1e-5) | (spread == 0))
    assert abs(data.validation.dense[:, 0].mean()) > 1e-4
    weights = np.concatenate([data.train.weight, data.validation.weight])
    assert sorted(weights.tolist()) == [1000.5 + i for i in range(100)]
    again = load(folder, validation=0.3, seed=4)
    assert np.array_equal(again.validation.weight, data.validation.weight)
    other = load(folder, validation=0.3, seed=5)
    assert other.validation.weight.tolist() != data.validation.weight.tolist()


def test_convert_writes_every_split(folder, tmp_path) -> None:
    arguments = ["--data", str(folder), "--output", str(tmp_path / "out"), "--format", "parquet"]
    arguments += ["--validation", "0.2", "--tasks", "income", "never_married"]
    assert convert.main(arguments) == 0
    data = load(folder, ("income", "never_married"), validation=0.2)
    for name in ("train", "validation", "test"):
        found = next(iter(batches(tmp_path / "out" / name, 1000)))
        expected = getattr(data, name).arrays()
        assert all(np.array_equal(found[column], expected[column]) for column in expected)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tasks": ()}, "tasks must name"),
        ({"tasks": "income"}, "tasks must be different"),
        ({"tasks": ("income", "income")}, "tasks must be different"),
        ({"tasks": ("age",)}, "tasks must be different"),
        ({"exact": ("instance_weight",)}, "exact must be different"),
        ({"min_count": 0}, "min_count"),
        ({"validation": 1.0}, "validation"),
        ({"validation": -0.1}, "validation"),
    ],
)
def test_bad_arguments_are_refused(folder, options, words) -> None:
    with pytest.raises(ValueError, match=words):
        load(folder, **options)


def test_bad_files_are_refused(folder, tmp_path) -> None:
    path = tmp_path / "census-income.data"
    good = make_line(1)
    for text, words in (
        ("", "not a Census-Income file"),
        (good + good.rpartition(",")[0] + "\n", "as column 42"),
        (good + make_line(2, age="old"), "not a Census-Income file"),
        (good + make_line(2, income_50k="many"), "many"),
        (good.replace("\n", ", x\n") + good, "could not convert string to float"),
        (good.replace("\n", ",\n") * 2, "could not convert string to float"),
        (good + good.replace("\n", ", x\n"), "not a Census-Income file"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=words):
            read_table(path)
    with pytest.raises(ValueError, match="is not there"):
        load(tmp_path / "nowhere")
    whole = (folder / FILES["train"]).read_bytes()
    (folder / FILES["train"]).write_bytes(whole[:-20])
    with pytest.raises(ValueError, match="not a Census-Income file"):
        load(folder)


def test_real_files_have_the_published_figures() -> None:
    if not REAL:
        missing("census", "MINDSPORE_REC_CENSUS_DIR does not name the Census-Income files")
    data = load(REAL, ("income", "never_married"), validation=0.1)
    assert len(data.train) + len(data.validation) == 199_523
    assert data.test.ids.shape == (99_762, 36) and data.test.dense.shape == (99_762, 7)
    labels = np.concatenate([data.train.labels, data.validation.labels])
    assert labels.mean(axis=0) == pytest.approx([0.06206, 0.43346], abs=1e-5)
    assert data.test.labels.mean(axis=0) == pytest.approx([0.06201, 0.43246], abs=1e-5)
    assert abs(len(data.validation) / 199_523 - 0.1) < 0.005
    assert np.isfinite(data.test.dense).all()
