# SPDX-License-Identifier: Apache-2.0
"""Twenty ways to be wrong, by `init` and `train`: each works, or ends in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pytest

from mindspore_rec.command.main import main
from mindspore_rec.command.opened import rows_of
from mindspore_rec.command.settings import read_settings
from mindspore_rec.data import BadRows, CsvFormat, read
from tests.command.click_table import click_table
from tests.support.disks import fill_up, mounted
from tests.support.nightly import nightly

ROWS = 200
TRAIN = ("train", "clicks.yaml", "--epochs", "1", "--model", "logistic_regression")


def clicks(rows: int = ROWS) -> pd.DataFrame:
    return click_table(rows).drop(columns="tags")


def write_csv(table: pd.DataFrame, **how: str) -> None:
    table.to_csv("clicks.csv", index=False, **how)


def with_column(name: str, values: Callable[[pd.DataFrame], object]) -> Callable[[], None]:
    """Return a function that writes clicks with other values of a column, or one more column."""

    def write() -> None:
        table = clicks()
        table[name] = values(table)
        write_csv(table)

    return write


def write_parts(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[], None]:
    """Return a function that writes two files, of which the second is changed."""

    def write() -> None:
        table = clicks()
        Path("logs").mkdir()
        table[:100].to_csv("logs/1.csv", index=False)
        change(table[100:]).to_csv("logs/2.csv", index=False)

    return write


def write_latin() -> None:
    table = clicks()
    table["stra\xdfe"] = ["K\xf6ln", "Malm\xf6"] * (ROWS // 2)
    write_csv(table, encoding="latin-1")


def write_same_names() -> None:
    write_csv(clicks().set_axis(["time", "user", "item", "item", "clicked"], axis=1))


def write_nothing() -> None:
    Path("clicks.csv").touch()


def all_missing(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(**{name: np.nan for name in table if name != "clicked"})


@dataclass(frozen=True)
class Case:
    """One way to be wrong.

    Args:
        write: function that writes the rows.
        init: patterns of what `init` says on stderr; the last one is its error.
        options: options of `init`.
        source: path of the rows.
        edit: replacement in the YAML. Default: the YAML is as `init` proposes it.
        train: pattern of what `train` says on stderr.
        is_error: whether the last sentence is an error.
        yaml: text that the proposed YAML has.
    """

    write: Callable[[], None]
    init: str = ""
    options: tuple[str, ...] = ()
    source: str = "clicks.csv"
    edit: tuple[str, str] = ("", "")
    train: str = ""
    is_error: bool = True
    yaml: str = ""


def works(write: Callable[[], None], yaml: str, *options: str, **more: str) -> Case:
    return Case(write, options=options, yaml=yaml, is_error=False, **more)  # type: ignore[arg-type]


WAYS = {
    "ids as floats": works(
        with_column("user", lambda t: [7.0, 8.0, np.nan, 9.0] * (ROWS // 4)),
        "user: {kind: category, values: whole}",
    ),
    "integers as text": works(
        with_column("price", lambda t: t.price.round().astype(int).astype(str).map("'{}'".format)),
        "price: {kind: category}",
    ),
    "time in milliseconds": works(
        with_column("time", lambda t: t.time.astype("datetime64[ms]").astype("int64")),
        "time: {kind: time, unit: ms}",
    ),
    "Latin-1 that is named": works(
        write_latin, "csv: {encoding: latin-1}", "--encoding", "latin-1"
    ),
    "Latin-1 that is not named": Case(
        write_latin, r"clicks\.csv has a header that is not UTF-8 text: .* --encoding 'latin-1'"
    ),
    "label with three values": Case(
        with_column("clicked", lambda t: np.arange(ROWS) % 3),
        r"clicks\.csv: label 'clicked' must have two values, it has 3: 0, 1, 2; name the value "
        r"that counts as 1, --positive \d, or --number to predict a number",
    ),
    "constant label": Case(
        with_column("clicked", lambda t: 1),
        r"clicks\.csv: label 'clicked' must have two values, all 200 rows .* have 1: name another",
    ),
    "leaking column": works(
        with_column("dwell", lambda t: t.clicked * (1 + np.arange(ROWS))),
        "dwell: {kind: ignored}",
        init="column 'dwell' decides the label 'clicked': .* it is ignored",
    ),
    "label in the features": works(
        with_column("is_click", lambda t: t.clicked),
        "is_click: {kind: ignored}",
        init="column 'is_click' decides the label 'clicked': .* it is ignored",
        edit=("is_click: {kind: ignored}", "is_click: {kind: number}"),  # type: ignore[arg-type]
        train="column 'is_click' decides the label .* make it `is_click: ignored` in the YAML",
    ),
    "column missing in the second file": Case(
        write_parts(lambda part: part.drop(columns="price")),
        r"logs/2\.csv has no column 'price', which logs/1\.csv has: its columns are",
        source="logs",
    ),
    "type that changes between files": Case(
        write_parts(lambda part: part.assign(price="cheap")),
        r"logs/2\.csv, line 2: column 'price' has the value 'cheap', and must be double; .* "
        r"--text price .* or leave such rows out with --bad-rows",
        source="logs",
    ),
    "dates as text": works(
        with_column("time", lambda t: t.time.dt.strftime("%d.%m.%Y %H:%M")),
        'time: {kind: time, format: "%d.%m.%Y %H:%M"}',
        *("--time", "time"),
    ),
    "texts that are no dates": Case(
        with_column("time", lambda t: ["noon", "night"] * (ROWS // 2)),
        r"clicks\.csv: time 'time' must be of .* texts in one known format, it is string such as",
        options=("--time", "time"),
    ),
    "NaN everywhere": Case(
        lambda: write_csv(all_missing(clicks())),
        r"clicks\.csv: no column is left to predict from: 'time': Missing in all rows",
    ),
    "NaN as label": Case(
        with_column("clicked", lambda t: t.clicked.where(t.index != 3)),
        r"label 'clicked' is missing in 1 of 200 rows .*, first in row 3 .*: fill it, or leave",
    ),
    "decimal comma": works(
        lambda: write_csv(clicks(), sep=";", decimal=","),
        'price: {kind: number, decimal: ","}',
    ),
    "duplicate columns": Case(
        write_same_names, r"clicks\.csv has two columns named 'item': .* so rename one"
    ),
    "empty file": Case(write_nothing, r"clicks\.csv is empty: it has 0 bytes"),
    "only a header": Case(
        lambda: write_csv(clicks(0)), r"clicks\.csv: the data have no rows, only the columns"
    ),
    "one row": Case(lambda: write_csv(clicks(1)), r"clicks\.csv: .* got one row: read more rows"),
    "three rows": Case(
        lambda: write_csv(clicks(2).assign(clicked=[0, 1])),
        train=r"'time' has too few distinct times \(2\) .* set `split: {by: random}` in the YAML",
    ),
    "a YAML with a typo": Case(
        lambda: write_csv(clicks()),
        edit=("epochs:", "epocs:"),
        train=r"clicks\.yaml: 'train\.epocs' is not known: did you mean 'epochs'\?",
    ),
}
MORE = {
    "label with three values, one of them named": works(
        with_column("clicked", lambda t: np.arange(ROWS) % 3),
        "clicked: {kind: label, positive: 2}",
        *("--positive", "2"),
    ),
    "NaN in a column and in some rows": works(
        lambda: write_csv(
            clicks().assign(user=np.nan, price=lambda t: t.price.where(t.index % 3 > 0))
        ),
        "user: {kind: ignored}",
    ),
}
WAYS |= {name: MORE[name] for name in nightly(*MORE)}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sentences(text: str) -> list[str]:
    """Return the warnings and errors among the lines of stderr."""
    return [each for each in re.split(r"[\r\n]+", text) if re.match("(error|warning): ", each)]


def check(said: str, pattern: str, is_error: bool) -> None:
    """Check that a command said one sentence, or nothing if there is no pattern."""
    found = sentences(said)
    assert "Traceback" not in said
    if not pattern:
        assert not found
        return
    assert len(found) == 1 and re.search(pattern, found[0]), found
    assert found[0].startswith("error: " if is_error else "warning: ")


@pytest.mark.parametrize("name", WAYS)
def test_it_works_or_one_sentence_names_place_and_mend(
    name: str, capsys: pytest.CaptureFixture[str]
):
    case = WAYS[name]
    case.write()
    fails_early = case.is_error and not case.train
    code = main(["init", case.source, "--label", "clicked", *case.options])
    printed, said = capsys.readouterr()
    assert code == int(fails_early), said
    check(said, case.init, fails_early)
    if fails_early:
        return
    assert case.yaml in printed and case.edit[0] in printed, printed
    Path("clicks.yaml").write_text(printed.replace(*case.edit))
    code = main(TRAIN)
    said = capsys.readouterr().err
    assert code == int(case.is_error), said
    check(said, case.train, case.is_error)


def test_a_filter_that_leaves_no_rows():
    rows = read(clicks()).where(pc.field("price") < 0)
    with pytest.raises(ValueError, match=r"the DataFrame has no rows for which .*price < 0"):
        list(rows.batches(10))


def test_init_writes_how_csv_is_read(capsys: pytest.CaptureFixture[str]):
    rows = [f"{k % 5:05d}|{k / 2}|{'no' if k % 2 else 'yes'}" for k in range(99)]
    Path("zips.csv").write_text("\n".join(["zip|price|bought", *rows, "1|2|3|4"]))
    options = ["--label", "bought", "--positive", "no", "--text", "zip", "--bad-rows", "0.02"]
    assert main(["init", "zips.csv", *options, "--separator", "|"]) == 0
    printed = capsys.readouterr().out
    Path("zips.yaml").write_text(printed)
    settings = read_settings(Path("zips.yaml"))
    assert settings.csv == CsvFormat(separator="|", types={"zip": "string"})
    assert settings.bad_rows == BadRows(most_share=0.02)
    assert settings.columns["bought"] == {"kind": "label", "positive": "no"}
    assert rows_of("zips.csv", settings, None).head(1)["zip"].to_pylist() == ["00000"]
    assert main(["init", "zips.csv", *options[4:], "--label", "price", "--number"]) == 0
    assert "price: {kind: label, binary: false}" in capsys.readouterr().out


@pytest.mark.parametrize("left", [0, 80_000, 160_000])
def test_a_disk_that_is_full_while_the_model_is_saved(
    left: int, folder: Path, capsys: pytest.CaptureFixture[str]
):
    write_csv(clicks())
    assert main(["init", "clicks.csv", "--label", "clicked"]) == 0
    Path("clicks.yaml").write_text(capsys.readouterr().out)
    with mounted(folder / "disk", 1):
        fill_up(folder / "disk" / "filler", left)
        assert main([*TRAIN, "--run", "disk/run"]) == 1
    said = capsys.readouterr().err
    check(
        said,
        r"disk/run.* cannot be written, since the disk is full: make room, or .* --run$",
        True,
    )
