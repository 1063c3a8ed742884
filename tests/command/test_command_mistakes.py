# SPDX-License-Identifier: Apache-2.0
"""Wrong input of the command ends in one sentence that names place and mend."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from mindspore_rec.command.main import main
from tests.command.click_table import YAML, click_table, write_clicks
from tests.support.processes import run_program

TRAIN = ["train", "clicks.yaml"]

# Name: replacement in the YAML, arguments, and a pattern of the sentence.
WRONG = {
    "a key with a typo": (
        ("epochs:", "epocs:"),
        TRAIN,
        r"clicks\.yaml: 'train\.epocs' is not known: did you mean 'epochs'\?",
    ),
    "an option of a column": (
        ("length: 3", "lenght: 3"),
        TRAIN,
        r"columns\.tags\.lenght is not known for kind 'list': length is similar",
    ),
    "a kind": (("price: number", "price: numbr"), TRAIN, r"columns\.price\.kind 'numbr' is not"),
    "a network": (
        ("dcn_v2", "dcn_v3"),
        TRAIN,
        r"'model': no model has the name 'dcn_v3'.*'dcn_v2'",
    ),
    "a setting": (("layers: 1", "layer: 1"), TRAIN, r"'model': .*no setting 'layer'.*'layers'"),
    "a value": (("layers: 1", "layers: -1"), TRAIN, r"'model': layers must be"),
    "no label": (
        ("clicked: label", "clicked: ignored"),
        TRAIN,
        r"must have a column of kind label",
    ),
    "a missing column": (
        ("item: category", "item: category\n  city: category"),
        TRAIN,
        r"clicks\.parquet has no column 'city', which the schema has: its columns are",
    ),
    "two labels": (
        ("user: {kind: category, group: true}", "user: label"),
        TRAIN,
        r"'model': DCNv2 has one output, but the schema has 2 labels",
    ),
    "no file": (("clicks.parquet", "click.parquet"), TRAIN, r"click\.parquet"),
    "shares": (
        ("model:", "split: {train: 0.9, valid: 0.2}\nmodel:"),
        TRAIN,
        r"add up to at most 1",
    ),
    "a metric": (
        ("epochs: 3", "epochs: 1, early_stopping: {metric: acu}"),
        TRAIN,
        r"'train\.early_stopping\.metric' must be one of auc, log_loss, got 'acu'",
    ),
    "workers on a topic": (
        ("source: clicks.parquet", "source: {kafka: {servers: a, topic: b}}"),
        [*TRAIN, "--workers", "2"],
        r"'train\.workers' must be 1 for a topic",
    ),
    "nothing trained": (("a", "a"), ["eval", "clicks.yaml"], r"has no trained model: run `minds"),
    "nothing to resume": (("a", "a"), [*TRAIN, "--resume"], r"has no training to resume: leave"),
    "no YAML": (("a", "a"), ["train", "none.yaml"], r"none\.yaml: No such file or directory"),
    "--json": (("a", "a"), [*TRAIN, "--json", "none/a.json"], r"--json none/a.json: there is no f"),
    "init without a label": (("a", "a"), ["init", "clicks.parquet"], r"init needs a table and --l"),
    "init with another label": (
        ("a", "a"),
        ["init", "clicks.parquet", "--label", "clickd"],
        r"clickd.*clicked",
    ),
    "an ending": (
        ("a", "a"),
        ["predict", "clicks.yaml", "clicks.parquet", "-o", "s.xlsx"],
        r"has no trained model|s\.xlsx: scores are written as",
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_clicks(tmp_path, 500)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_one_sentence(name: str, folder: Path, capsys: pytest.CaptureFixture[str]):
    (before, after), arguments, pattern = WRONG[name]
    assert before in YAML
    (folder / "clicks.yaml").write_text(YAML.replace(before, after))
    assert main(arguments) == 1
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and re.search(pattern, errors[0]), errors


# Name: change of the table, and a pattern of the sentence.
WRONG_ROWS: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], str]] = {
    "no rows": (lambda t: t[:0], r"clicks\.parquet has no rows"),
    "one row": (lambda t: t[:1], r"'time' has too few distinct times .* set `split: {by: random}`"),
    "a constant label": (
        lambda t: t.assign(clicked=1),
        r"label 'clicked' is 1 in all training rows, .* choose another label or other rows",
    ),
    "a row without a label": (
        lambda t: t.assign(clicked=t.clicked.where(t.index != 7)),
        r"clicks\.parquet: column 'clicked' must be a label in each row, row 7 is",
    ),
    "three labels": (
        lambda t: t.assign(clicked=t.index % 3),
        r"clicks\.parquet: column 'clicked' must be 0 or 1 .* row 2 is 2",
    ),
    "numbers as texts": (
        lambda t: t.assign(price=t.price.astype(str)),
        r"column 'price' must be numbers .* texts such as",
    ),
    "a decimal comma": (
        lambda t: t.assign(price=t.price.astype(str).str.replace(".", ",")),
        r"column 'price' must be numbers .* name their decimal point",
    ),
    "dates as texts": (
        lambda t: t.assign(time=t.time.dt.strftime("%d.%m.%Y")),
        r"column 'time' .*texts such as",
    ),
}


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_wrong_rows_are_one_sentence(name: str, folder: Path, capsys: pytest.CaptureFixture[str]):
    change, pattern = WRONG_ROWS[name]
    change(click_table(500)).to_parquet("clicks.parquet")
    assert main(TRAIN) == 1
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and re.search(pattern, errors[0]), errors


def test_a_wrong_file_has_no_traceback_in_a_process(folder: Path):
    table = click_table(500)
    table["clicked"] = table["clicked"] * 2
    table.to_parquet("clicks.parquet")
    done = run_program("-m", "mindspore_rec", *TRAIN, cwd=folder)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert re.search(r"^error: .*'clicked' must be 0 or 1.*is 2", done.stderr, re.MULTILINE)
    assert done.stdout == ""
    with pytest.raises(ValueError, match="must be 0 or 1"):
        main([*TRAIN, "--traceback"])


def test_wrong_options_have_another_exit_code(capsys: pytest.CaptureFixture[str]):
    for arguments in (
        ["trian"],
        ["train"],
        ["train", "a.yaml", "--epochs", "0"],
        ["eval", "a", "-x"],
        ["train", "a.yaml", "--resume", "--overwrite"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
    errors = capsys.readouterr().err
    assert "must be a number of at least 1, got '0'" in errors
    assert "--overwrite: not allowed with argument --resume" in errors


@pytest.mark.parametrize(
    "name", ["init", "train", "eval", "predict", "explain", "tune", "serve", "doctor"]
)
def test_help_has_an_example(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    text = capsys.readouterr().out
    first = "--directory" if name == "doctor" else "clicks"
    assert ended.value.code == 0 and f"example:\n  mindspore-rec {name} {first}" in text


def test_help_of_explain_says_which_rows_are_read(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["explain", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "test rows to read; with --nearest, ten times as many training rows are read" in text
