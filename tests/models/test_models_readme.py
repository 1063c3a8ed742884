# SPDX-License-Identifier: Apache-2.0
"""A model added as models/README.md says trains, with all that the commands offer."""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import models
from tests.models.census_file import write_census

README = (Path(models.__file__).parent / "README.md").read_text(encoding="utf-8")
NAME = "shared_bottom"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Iterator[Path]:
    """Write the new model's folder from the page's code, where `models` finds it."""
    section = README.partition("## Add a model")[2].partition("\n## ")[0]
    net, config, yaml = re.findall(r"```(?:python|yaml)\n(.*?)```", section, re.S)
    made = tmp_path / NAME
    (made / "configs").mkdir(parents=True)
    (made / "__init__.py").touch()
    (made / "net.py").write_text(net)
    (made / "config.py").write_text(config)
    (made / "configs" / "census.yaml").write_text(yaml)
    for command in ("train.py", "eval.py"):
        text = (Path(models.__file__).parent / "mmoe" / command).read_text()
        (made / command).write_text(text.replace("mmoe", NAME))
    monkeypatch.setattr(models, "__path__", [*models.__path__, str(tmp_path)])
    yield made
    for module in [each for each in sys.modules if each.startswith(f"models.{NAME}")]:
        del sys.modules[module]


def run(monkeypatch, command: str, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [command, *map(str, arguments)])
    with pytest.raises(SystemExit) as done:
        runpy.run_module(f"models.{NAME}.{command}", run_name="__main__")
    assert done.value.code == 0


def test_the_readmes_model_trains_several_tasks(graph_mode, folder, tmp_path, monkeypatch, capsys):
    write_census(tmp_path, train=2000, test=1000)
    out, page, saved = tmp_path / "out.json", tmp_path / "page.html", tmp_path / "saved"
    given = ("--config", "census.yaml", "--data", tmp_path)
    outputs = ("--json", out, "--report", page, "--save", saved)
    run(monkeypatch, "train", *given, "--epochs", 6, *outputs, "--admission-threshold", 2)
    figures = json.loads(out.read_text())
    assert figures["steps"] == 24 and figures["config"]["model"]["hidden"] == [32, 16]
    assert [table["name"] for table in figures["tables"]] == [f"{NAME}.embedding"]
    for task in ("income", "never_married"):
        assert figures["mean"][f"auc.{task}"] > 0.7
        assert 0.5 < figures["evaluation"][f"calibration.{task}"] < 2
        assert f"<!-- observed {task} -->" in page.read_text()
    assert re.search(r"^adult +never_married +0\.\d+", capsys.readouterr().out, re.M)

    again = tmp_path / "again.json"
    run(monkeypatch, "eval", *given, "--load", saved, "--json", again, "--admission-threshold", 2)
    assert json.loads(again.read_text())["metrics"] == figures["metrics"]
