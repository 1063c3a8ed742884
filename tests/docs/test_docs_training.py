# SPDX-License-Identifier: Apache-2.0
"""The page on training is one program: it runs as it is written, and prints what the page says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pandas as pd
import pytest

from tests.support.missing import missing
from tests.support.processes import ROOT, run_python

PAGE = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Where the program has run, and the lines that it printed."""
    try:
        import tensorboardX  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        missing("tensorboardX", "pip install tensorboardX")
    folder = tmp_path_factory.mktemp("training")
    code = "".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    (folder / "training.py").write_text(code)
    return folder, run_python("training.py", cwd=folder).splitlines()


def test_what_the_program_prints(printed: tuple[Path, list[str]]) -> None:
    _, lines = printed
    first, second = (line.split() for line in lines[:2])
    assert (first[0], second[0]) == ("32", "64")
    assert float(second[1]) > 0.65 and 0 < float(second[2]) < 0.69
    assert lines[2] == "True"  # seeds
    stopped = re.fullmatch(r"auc no better than 0\.\d+ for 3 times (\d+) (\d+)", lines[3])
    assert stopped and int(stopped[2]) == 32 * (int(stopped[1]) - 3)
    assert lines[4] == "True"  # the best weights
    assert ast.literal_eval(lines[5])["auc"] > 0.65  # a schedule
    assert lines[6] == "(256, 1)"
    both = ast.literal_eval(lines[7])
    assert list(both) == ["click", "buy"] and min(both.values()) > 0.6
    drops = {name: float(value) for name, value in (line.split(": ") for line in lines[8:])}
    assert list(drops) == ["user", "item", "price"] and min(drops.values()) > 0.02


def test_the_files_that_it_writes(printed: tuple[Path, list[str]]) -> None:
    folder, _ = printed
    table = pd.read_csv(folder / "predictions.csv")
    assert list(table.columns) == ["user", "item", "click"] and len(table) == 2_000
    assert table["click"].between(0, 1).all() and table["click"].std() > 0.1
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    curves = events.EventAccumulator(str(folder / "curves"))
    curves.Reload()
    assert [each.step for each in curves.Scalars("auc")] == [32, 64]
    assert [each.step for each in curves.Scalars("loss")] == [10, 20, 30, 40, 50, 60]
    assert list((folder / "curves" / "tables").iterdir())
    assert (folder / "clicks.saved" / "manifest.json").exists()


def test_the_page_links_to_what_is_there() -> None:
    for path in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", PAGE):
        assert path.startswith("https://") or (ROOT / "docs" / path).exists(), path
