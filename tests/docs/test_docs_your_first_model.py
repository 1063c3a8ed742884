# SPDX-License-Identifier: Apache-2.0
"""The newcomer's guide, run as it is written."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pytest

from mindspore_rec.data import example_clicks
from tests.support.processes import ROOT, run_python

GUIDE = ROOT / "docs" / "your_first_model.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


TEN_LINES, OWN_NETWORK = blocks("python")


def test_the_command_writes_the_rows_that_the_guide_shows(tmp_path):
    (rows,), (command,) = blocks("csv"), blocks("bash")
    python, *arguments = shlex.split(command)
    assert python == "python"
    run_python(*arguments, cwd=tmp_path)
    assert (tmp_path / "clicks.csv").read_text(encoding="utf-8").startswith(rows)


def test_ten_lines_and_under_40():
    lengths = [
        len([line for line in code.splitlines() if line.strip()])
        for code in (TEN_LINES, OWN_NETWORK)
    ]
    assert lengths[0] <= 10 and lengths[1] < 40


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_from_file_to_prediction(tmp_path, kind):
    table = example_clicks()
    table.loc[3, "price"] = np.nan
    text = TEN_LINES.replace("clicks.csv", f"clicks.{kind}")
    if kind == "csv":
        table.to_csv(tmp_path / "clicks.csv", index=False)
    else:
        table.to_parquet(tmp_path / "clicks.parquet")
    (tmp_path / "first_model.py").write_text(text)
    # A warning, for example that training is slow, would be an error.
    printed = run_python("-W", "error::RuntimeWarning", "first_model.py", cwd=tmp_path)
    auc = re.search(r"'auc': ([0-9.]+)", printed)
    assert auc and float(auc[1]) > 0.8  # of the price alone: below 0.7
    scores = re.search(r"\[([0-9. e+-]+)\]", printed)
    assert scores and len(scores[1].split()) == 5
    assert all(0 < float(p) < 1 for p in scores[1].split())
    assert (tmp_path / "clicks.model").exists()


USE_IT_LATER = """
from mindspore_rec import load_checkpoint
scales = {name: QuantileScale(name) for name in NUMBERS}
model = RecModel(net := ClickModel(), nn.BCEWithLogitsLoss())
load_checkpoint(model, "own_model.saved", states=scales)
print(ops.sigmoid(model.predict(*columns(test[:5]))).asnumpy())
"""


def test_own_network_again_and_later_with_numbers_of_every_kind(tmp_path):
    table = example_clicks()
    for row, price in ((7, -1.0), (8, np.inf), (9, -np.inf), (10, np.nan), (11, 1e300)):
        table.loc[row::2_000, "price"] = price
    table.to_csv(tmp_path / "clicks.csv", index=False)
    (tmp_path / "own_model.py").write_text(OWN_NETWORK + USE_IT_LATER)
    first, second = (run_python("own_model.py", cwd=tmp_path) for _ in range(2))
    for printed in (first, second):
        found = re.search(r"'auc': ([0-9.]+)", printed)
        assert found and float(found[1]) > 0.8
        probabilities = re.findall(r"\[\s*([0-9.e+-]+)\s*\]", printed)
        assert len(probabilities) == 10 and probabilities[:5] == probabilities[5:]
    assert [each.name for each in tmp_path.glob("*saved*")] == ["own_model.saved"]
