# SPDX-License-Identifier: Apache-2.0
"""Parts of the command that need no network: metrics, explanations, files, search space."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from mindspore_rec import Schema
from mindspore_rec.command.explain import _explained
from mindspore_rec.command.explaining import column_importance, nearest, surprising_rows
from mindspore_rec.command.figures import by_group, calibration_bins, figures_of
from mindspore_rec.command.json_file import read_json, write_json
from mindspore_rec.command.json_schema import object_schema
from mindspore_rec.command.main import main
from mindspore_rec.command.report import Report, write_report
from mindspore_rec.command.run_folder import RunFolder
from mindspore_rec.command.scores import (
    check_not_read,
    check_output,
    score_names,
    with_scores,
    writing,
)
from mindspore_rec.command.settings import Settings, TrainSettings, settings_of
from mindspore_rec.command.thresholds import with_thresholds
from mindspore_rec.common.columns.schema.inference import infer_columns
from mindspore_rec.common.metrics import functional
from mindspore_rec.common.yaml_text import parse_yaml
from mindspore_rec.data import read
from mindspore_rec.feature import CategoryColumn, LabelColumn, NumberColumn
from tests.command.click_table import click_table


def rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    prediction = rng.random(count).round(2).astype(np.float32)
    return (rng.random(count) < prediction).astype(np.float32), prediction


# ---- metrics


def test_metrics_are_those_of_the_library():
    label, prediction = rows(500)
    made = figures_of(label, prediction, group=np.arange(500) % 7)
    assert made["auc"] == functional.auc(label, prediction)
    assert made["log_loss"] == pytest.approx(functional.log_loss(label, prediction))
    assert made["calibration"] == pytest.approx(functional.calibration(label, prediction))
    expected = functional.normalized_entropy(label, prediction)
    assert made["normalized_entropy"] == pytest.approx(expected)
    assert made["gauc"] == functional.gauc(label, prediction, np.arange(500) % 7)


def test_a_weight_of_3_counts_like_three_rows():
    label, prediction = rows(300)
    weight = np.random.default_rng(1).integers(1, 4, 300)
    weighted = figures_of(label, prediction, weight.astype(np.float32))
    repeated = figures_of(np.repeat(label, weight), np.repeat(prediction, weight))
    assert weighted == pytest.approx(repeated)
    bins = calibration_bins(label, prediction, weight.astype(np.float32), bins=1)
    assert bins[0].observed == pytest.approx(np.repeat(label, weight).mean())


def test_one_class_has_no_auc():
    made = figures_of(np.ones(3, np.float32), np.array([0.5, 0.6, 0.7], np.float32))
    assert np.isnan(made["auc"]) and np.isnan(made["normalized_entropy"])


def test_groups_come_by_their_number_of_rows():
    label, prediction = rows(100)
    values = np.array(["a"] * 20 + ["b"] * 50 + ["c"] * 30)
    found = by_group(label, prediction, values, most=2)
    assert [(each.value, each.rows) for each in found] == [("b", 50), ("c", 30)]
    assert found[0].metrics == figures_of(label[20:70], prediction[20:70])


def test_bins_cover_all_rows_in_order():
    label, prediction = rows(1000)
    bins = calibration_bins(label, prediction)
    assert len(bins) == 10 and sum(each.rows for each in bins) == 1000
    assert all(each.low <= each.predicted <= each.high for each in bins)
    assert all(one.high < other.low for one, other in zip(bins, bins[1:], strict=False))
    constant = calibration_bins(label, np.full(1000, 0.5, np.float32))
    assert [each.rows for each in constant] == [1000]


# ---- explanations


def test_the_column_that_decides_is_the_most_important():
    rng = np.random.default_rng(0)
    table = pa.table({"noise": rng.random(2000), "good": rng.random(2000)})
    label = (rng.random(2000) < table["good"].to_numpy()).astype(np.float32)
    found = column_importance(lambda t: t["good"].to_numpy(), table, label, table.column_names)
    assert [each.column for each in found] == ["good", "noise"]
    assert found[0].auc_drop > 0.2 and found[0].log_loss_rise > 0.1
    assert (found[1].auc_drop, found[1].log_loss_rise) == (0, 0)


def test_the_side_columns_of_a_history_are_shuffled_with_the_history():
    lists = pa.array([[k] * (k % 4) for k in range(100)], pa.list_(pa.int64()))
    table = pa.table({"seen": lists, "at": lists})
    shuffled = []

    def predict(rows):
        assert rows["seen"] == rows["at"]
        shuffled.append(rows["seen"] != table["seen"])
        return np.full(100, 0.5)

    label = (np.arange(100) % 2).astype(np.float32)
    found = column_importance(predict, table, label, ["seen"], together={"seen": ["at"]})
    assert [each.column for each in found] == ["seen"] and shuffled == [False, True]


def test_surprising_rows_have_the_greatest_loss():
    label, prediction = rows(100)
    places = surprising_rows(label, prediction, 3)
    assert set(places) == set(np.argsort(-np.abs(label - prediction))[:3])


def test_nearest_ids_skip_those_without_a_row():
    vectors = np.array([[1, 0], [0.9, 0.1], [0, 0], [-1, 0]], np.float32)
    found = nearest(["a", "b", "never", 7], vectors, "a")
    assert [each.value for each in found] == ["b", 7] and found[1].cosine == -1
    with pytest.raises(ValueError, match="'zz' is no value"):
        nearest(["a"], vectors[:1], "zz")
    with pytest.raises(ValueError, match="'never' has no row"):
        nearest(["a", "never"], np.array([[1, 0], [0, 0]]), "never")
    ids = [1e19, 15159]
    assert nearest(ids, vectors[:2], "10000000000000000000")[0].value == 15159


class Halves:
    """Model that predicts 0.5 for each row."""

    schema = Schema([CategoryColumn("user"), NumberColumn("price"), LabelColumn("clicked")])

    def predict(self, rows: Any) -> np.ndarray:
        return np.full(rows.num_rows, 0.5)


def test_explained_rows_have_ids_as_in_the_data(capsys: pytest.CaptureFixture[str]):
    ids, price = [15159, 7], [1e19, 2.5]
    table = pa.record_batch({"user": ids, "price": price, "clicked": [1, 0]})
    model: Any = Halves()
    figures = _explained(model, table, seed=0).figures
    printed = capsys.readouterr().out.split("Most surprising rows\n")[1]
    assert [line.split() for line in printed.splitlines()] == [
        ["user", "price", "clicked", "prediction"],
        ["15159", "10000000000000000000", "1", "0.50000"],
        ["7", "2.5", "0", "0.50000"],
    ]
    row = {"user": 15159, "price": 1e19, "clicked": 1, "prediction": 0.5}
    assert figures["surprising"][0] == row


# ---- files


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_scores_are_written_batch_by_batch(tmp_path: Path, ending: str):
    path = tmp_path / f"scores.{ending}"
    check_output(path)
    with writing(path) as writer:
        for start in (0, 3):
            batch = pa.record_batch({"user": ["a", "b", None], "n": [start, start + 1, start + 2]})
            scores = np.array([0.1, 0.2, 0.3], np.float32)
            writer.write(with_scores(batch, ["n", "none"], ["probability"], scores))
    table = pq.read_table(path) if ending == "parquet" else pyarrow.csv.read_csv(path)
    assert table.column_names == ["n", "probability"]
    assert table["n"].to_pylist() == [0, 1, 2, 3, 4, 5]
    assert table["probability"].to_pylist() == pytest.approx([0.1, 0.2, 0.3] * 2)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_folder_is_no_output(tmp_path: Path):
    (tmp_path / "scores.csv").mkdir()
    with pytest.raises(ValueError, match="is a folder: name a file"):
        check_output(tmp_path / "scores.csv")


def test_a_failure_leaves_no_file(tmp_path: Path):
    path = tmp_path / "scores.csv"
    with pytest.raises(ZeroDivisionError), writing(path) as writer:
        writer.write(pa.record_batch({"a": [1]}))
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_scores_replace_no_file_that_is_read(tmp_path: Path):
    folder = tmp_path / "rows"
    folder.mkdir()
    path = folder / "part.csv"
    path.write_text("user\n7\n")
    for source in (str(path), str(folder), f"{folder}/*.csv", (str(tmp_path / "no"), str(folder))):
        with pytest.raises(ValueError, match="is a file that is read"):
            check_not_read(path, source)
        check_not_read(folder / "new.csv", source)
        check_not_read(tmp_path / "new.csv", source, None)


@pytest.mark.parametrize("name", ["rows", "rows[1]", "what?*"])
def test_scores_replace_no_file_that_is_read_under_another_name(tmp_path: Path, name: str):
    folder = tmp_path / name
    folder.mkdir()
    path, link = folder / "part.csv", folder / "link.csv"
    hard, target, other = (tmp_path / each for each in ("hard.csv", "target.csv", "other.csv"))
    for each in (path, target, other):
        each.write_text("user\n7\n")
    hard.hardlink_to(path)
    link.symlink_to(target)
    pairs = [(path, hard), (hard, path), (target, link), (link, target)]
    pairs += [(output, folder) for output in (path, link, hard, target)]
    for output, source in pairs:
        with pytest.raises(ValueError, match="is a file that is read"):
            check_not_read(output, str(source))
    check_not_read(other, str(folder), str(path), str(link), "s3://bucket/rows")
    if name == "rows":
        for text in (f"file://{folder}", f"{folder}/*.csv", f"{tmp_path}/**/*.csv"):
            with pytest.raises(ValueError, match="is a file that is read"):
                check_not_read(target, text)


def test_names_of_scores():
    assert score_names(["clicked"], [True]) == ["probability"]
    assert score_names(["price"], [False]) == ["prediction"]
    assert score_names(["clicked", "bought"], [True, True]) == ["clicked", "bought"]
    batch = pa.record_batch({"clicked": [1], "user": ["a"]})
    made = with_scores(batch, ["clicked", "user"], ["clicked", "bought"], np.array([[0.5, 0.25]]))
    assert made.to_pylist() == [{"user": "a", "clicked": 0.5, "bought": 0.25}]


def test_the_run_directory_is_protected(tmp_path: Path):
    folder = RunFolder(tmp_path / "clicks.yaml")
    assert folder.path == tmp_path / "clicks.run"
    assert RunFolder(tmp_path / "clicks.yaml", tmp_path / "other").path == tmp_path / "other"
    with pytest.raises(ValueError, match="has no trained model: run `mindspore-rec train`"):
        folder.trained()
    with pytest.raises(ValueError, match="has no training to resume: leave --resume out"):
        folder.begin(resume=True, overwrite=False)
    folder.begin(resume=False, overwrite=False)
    folder.settings.write_text("")  # of a training that has not begun
    folder.begin(resume=False, overwrite=False)
    folder.model.mkdir()
    with pytest.raises(ValueError, match="--resume continues it, --overwrite replaces it"):
        folder.begin(resume=False, overwrite=False)
    folder.begin(resume=False, overwrite=True)
    assert [path.name for path in folder.path.iterdir()] == ["lock"]


def test_json_is_written_whole(tmp_path: Path):
    write_json(tmp_path / "a.json", {"b": (1, float("nan"))})
    assert read_json(tmp_path / "a.json") == {"b": [1, None]}
    with pytest.raises(ValueError, match="none/a.json cannot be written"):
        write_json(tmp_path / "none" / "a.json", {})
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("with_pictures", [True, False])
def test_the_report_is_one_page(tmp_path: Path, with_pictures: bool, monkeypatch: Any):
    if not with_pictures:
        monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    table = (["", "auc"], [["dcn_v2", 0.75]])
    curves = {"loss": {"training": [(1, 0.7), (2, 0.6)]}}
    report = Report("<dcn>", "2 steps", {"Test rows": table}, curves, "a: <b>")
    write_report(tmp_path / "report.html", report)
    page = (tmp_path / "report.html").read_text()
    assert "&lt;dcn&gt;" in page and "0.75000" in page and "a: &lt;b&gt;" in page
    assert ("<svg" in page) == with_pictures and page.count("<td>training</td>") == (
        0 if with_pictures else 2
    )


# ---- thresholds


def test_a_category_with_many_rare_values_gets_a_threshold():
    rng = np.random.default_rng(0)
    rare = np.where(rng.random(20_000) < 0.2, 1000 + np.arange(20_000), rng.integers(0, 50, 20_000))
    columns = {"item": rare, "city": rng.integers(0, 9, 20_000).astype(str)}
    table = pa.table({**columns, "clicked": rng.integers(0, 2, 20_000)})
    inferred = infer_columns(table, label="clicked")
    made = with_thresholds(inferred, read(table), least_keys=1000)
    item = made.column("item")
    assert item.column.kind == "category" and (item.column.admission or 0) > 1
    assert "In a dry run, admission" in item.why
    assert made.column("city") == inferred.column("city")
    assert with_thresholds(inferred, read(table)) == inferred  # too few keys to matter


# ---- JSON Schema


def test_editors_get_the_descriptions_of_the_dataclasses():
    schema = object_schema(TrainSettings)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["epochs"]["type"] == "integer"
    assert "passes over the training rows" in schema["properties"]["epochs"]["description"]
    assert all("description" in each for each in schema["properties"].values())


def test_the_schema_and_the_program_agree():
    schema = object_schema(Settings)
    good = {"source": "a.csv", "columns": {"user": {"kind": "category"}}, "train": {"epochs": 2}}
    jsonschema.validate(good, schema)
    for bad in ({**good, "trian": {}}, {"source": "a.csv"}, {**good, "train": {"epochs": "2"}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)
        with pytest.raises(ValueError):
            settings_of(bad)


def test_a_proposal_in_another_folder(tmp_path: Path, monkeypatch: Any, capsys: Any):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    click_table(300).to_csv("folder/clicks.csv", index=False)
    assert main(["init", "folder/clicks.csv", "--label", "clicked"]) == 0
    Path("folder/clicks.yaml").write_text(capsys.readouterr().out)
    assert main(["train", "folder/clicks.yaml"]) == 1
    assert "begin in the folder of the file, so write 'clicks.csv'" in capsys.readouterr().err
    Path("folder/clicks.yaml").write_text("")
    assert main(["train", "folder/clicks.yaml"]) == 1
    assert "and is empty: did init print an error?" in capsys.readouterr().err


def test_labels_may_be_repeated(tmp_path: Path, monkeypatch: Any, capsys: Any):
    monkeypatch.chdir(tmp_path)
    table = click_table(300)
    table.assign(bought=table.clicked[::-1].to_numpy()).to_csv("clicks.csv", index=False)
    assert main(["init", "clicks.csv", "--label", "clicked", "--label", "bought"]) == 0
    columns = parse_yaml(capsys.readouterr().out)["columns"]
    assert [columns[name]["kind"] for name in ("clicked", "bought")] == ["label", "label"]


def test_the_command_is_beside_the_interpreter_that_build_sh_made() -> None:
    command = Path(sys.executable).parent / "mindspore-rec"
    done = subprocess.run([command, "--help"], capture_output=True, text=True, check=True)
    assert "init" in done.stdout and "doctor" in done.stdout
