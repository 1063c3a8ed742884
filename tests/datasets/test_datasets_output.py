# SPDX-License-Identifier: Apache-2.0
"""What a command writes may be in a directory that is not there yet."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path

import pytest

from datasets.common.cli import report
from mindspore_rec.plan.__main__ import main as plan
from models.common.cli import check_training_options


def made(module: str, *arguments: str | Path) -> int:
    main = importlib.import_module(module).main
    code: int = main([str(each) for each in arguments])
    return code


@pytest.mark.parametrize("form", ["tsv", "parquet", "mindrecord"])
def test_synthetic_data_and_what_is_made_of_them(tmp_path, form):
    raw = tmp_path / "data" / "raw"
    command = [
        "--rows",
        "300",
        "--seed",
        "1",
        "--format",
        form,
        "--json",
        tmp_path / "out" / "a" / "made.json",
    ]
    assert made("datasets.synthetic.__main__", "--output", raw, *command) == 0
    assert json.loads((tmp_path / "out" / "a" / "made.json").read_text())["rows"] == 300
    if form == "tsv":
        place = tmp_path / "more" / "packed"
        text = next(raw.glob("*.tsv"))
        assert made("datasets.criteo.convert", "--input", text, "--output", place) == 0
        assert any(place.iterdir())


def test_figures_go_where_they_are_asked_to(tmp_path):
    report({"rows": 1}, tmp_path / "a" / "b" / "figures.json")
    assert json.loads((tmp_path / "a" / "b" / "figures.json").read_text()) == {"rows": 1}
    log = tmp_path / "log.csv"
    log.write_text("1\n2\n1\n")
    json_, plot = tmp_path / "c" / "plan.json", tmp_path / "d" / "plan.png"
    assert plan([str(log), "--keys", "0", "--json", str(json_), "--plot", str(plot)]) == 0
    assert json_.exists() and plot.exists()


def test_a_model_is_not_trained_for_a_place_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    options = argparse.Namespace(seed=1, seeds=None, json=None, report=None, save=None)
    for name in ("json", "report", "save"):
        setattr(options, name, tmp_path / name / "x")
    check_training_options(options)
    assert all((tmp_path / name).is_dir() for name in ("json", "report", "save"))
    options.save = tmp_path / "file" / "x" / "y"
    with pytest.raises(NotADirectoryError):
        check_training_options(options)
