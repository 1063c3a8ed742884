# SPDX-License-Identifier: Apache-2.0
"""The page of the command: its commands run as they are written, on the file that it shows."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from mindspore_rec.command.doctor.probes import PROBES
from mindspore_rec.command.main import main
from mindspore_rec.command.opened import schema_of
from mindspore_rec.command.settings import (
    KafkaSource,
    Settings,
    TrainSettings,
    read_settings,
    settings_of,
)
from mindspore_rec.common.stream.schema_format import message_types
from mindspore_rec.common.yaml_text import parse_yaml
from tests.support.processes import ROOT, run_python

PAGE = (ROOT / "docs" / "command.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """Return the first block of a language."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def run(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a line of a shell, which may write what is printed to a file."""
    words = shlex.split(line)
    if words[0] == "python":
        run_python(*words[1:], cwd=Path())
        return
    assert words.pop(0) == "mindspore-rec"
    target = words[words.index(">") + 1] if ">" in words else None
    capsys.readouterr()
    assert main(words[: words.index(">")] if ">" in words else words) == 0
    if target is not None:
        Path(target).write_text(capsys.readouterr().out)


def test_the_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in block("bash").splitlines():
        run(line, capsys)
    assert json.loads(Path("metrics.json").read_text())["metrics"]["clicked"]["auc"] > 0.6
    scores = pd.read_parquet("scores.parquet")
    assert list(scores.columns) == ["user", "item", "probability"] and len(scores) == 20_000
    assert Path("clicks.run/report.html").exists()


def test_the_topic_is_legal() -> None:
    source = re.findall(r"```yaml\n(source: {kafka.*?)```", PAGE, re.DOTALL)
    columns = "columns: {user: {kind: category, values: text}, price: number, clicked: label}"
    settings = settings_of(parse_yaml(source[0] + columns))
    assert isinstance(settings.source, KafkaSource)
    types = message_types(schema_of(settings), settings.source.kafka.format)
    assert [str(each) for each in types.types] == ["string", "double", "double"]


def test_the_yaml_is_legal_and_its_keys_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "clicks.yaml"
    path.write_text(block("yaml"))
    assert read_settings(path).model.settings == {"hidden": [64, 32]}
    table = PAGE.partition("| key | meaning |")[2].partition("\n\n")[0]
    keys = re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    assert keys == list(Settings.__dataclass_fields__)
    for name in TrainSettings.__dataclass_fields__:
        assert f"`{name}`" in table


def test_the_page_of_the_doctor_has_every_item_and_state() -> None:
    *lines, last = block("text").splitlines()
    assert [line.split()[1] for line in lines] == list(PROBES)
    states = re.findall(r"^\| `(\w+)`", PAGE.partition("| state |")[2].partition("\n\n")[0], re.M)
    assert states == ["ok", "slow", "missing", "broken", "off"]
    assert {line.split()[0] for line in lines} <= set(states)
    assert last == "mindspore_rec can be used here"


def test_the_doctor_prints_the_shape_of_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MINDSPORE_REC_SIMD", raising=False)
    assert main(["doctor", "--only", "core,redis,prometheus,broker"]) == 0
    shown = {line.split()[1]: line for line in block("text").splitlines()[:-1]}
    for line in capsys.readouterr().out.splitlines():
        item = line.split()[1]
        assert shape(line) == shape(shown[item])


def shape(line: str) -> str:
    """Return a line with one sign for each number, and without names that differ by machine."""
    return re.sub(r"\b(base|avx2|avx512) |\d[\d.,]*|, glibc", "#", line)
