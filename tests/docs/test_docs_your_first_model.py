# SPDX-License-Identifier: Apache-2.0
"""The newcomer's guide, run as it is written."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from tests.support.processes import ROOT, run_python

GUIDE = ROOT / "docs" / "your_first_model.md"


def code(language: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1
    return blocks[0]


def clicks(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    user, item = rng.integers(0, 50, rows), rng.integers(0, 30, rows)
    price = np.exp(rng.normal(3, 1, rows)).round(2)
    score = 2.0 * (user % 2 + item % 2) - 2 + np.log(price) - 3
    table = pd.DataFrame(
        {
            "time": pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(rows), unit="s"),
            "user": [f"u{k}" for k in user],
            "item": [f"item-{k}" for k in item],
            "city": rng.choice(np.array(["Lyon", "Oslo", None], object), rows),
            "price": price,
            "clicked": (rng.random(rows) < 1 / (1 + np.exp(-score))).astype(int),
        }
    )
    table.loc[3, "price"] = np.nan
    return table


def test_the_guide_shows_the_columns_its_code_reads():
    header = code("csv").splitlines()[0].split(",")
    assert header == list(clicks(4).columns)


def test_under_40_lines():
    assert len([line for line in code("python").splitlines() if line.strip()]) < 40


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_from_file_to_prediction(tmp_path, kind):
    table = clicks(20_000)
    text = code("python")
    if kind == "csv":
        table.to_csv(tmp_path / "clicks.csv", index=False)
    else:
        table.to_parquet(tmp_path / "clicks.parquet")
        assert 'pd.read_parquet("clicks.parquet")' in GUIDE.read_text(encoding="utf-8")
        text = text.replace('pd.read_csv("clicks.csv")', 'pd.read_parquet("clicks.parquet")')
    (tmp_path / "first_model.py").write_text(text)
    printed = run_python("first_model.py", cwd=tmp_path)
    found = re.search(r"'auc': ([0-9.]+)", printed)
    assert found and float(found[1]) > 0.8  # of the price alone: below 0.7
    probabilities = re.findall(r"\[\s*([0-9.e+-]+)\s*\]", printed)
    assert len(probabilities) == 5 and all(0 < float(p) < 1 for p in probabilities)
    assert (tmp_path / "first_model.saved").exists()


USE_IT_LATER = """
from mindspore_rec import load_checkpoint
scales = {name: QuantileScale(name) for name in NUMBERS}
model = RecModel(net := ClickModel(), nn.BCEWithLogitsLoss())
load_checkpoint(model, "first_model.saved", states=scales)
print(ops.sigmoid(model.predict(*columns(test[:5]))).asnumpy())
"""


def test_a_second_run_and_later_use_with_numbers_of_every_kind(tmp_path):
    table = clicks(20_000)
    for row, price in ((7, -1.0), (8, np.inf), (9, -np.inf), (10, np.nan), (11, 1e300)):
        table.loc[row::2_000, "price"] = price
    table.to_csv(tmp_path / "clicks.csv", index=False)
    (tmp_path / "first_model.py").write_text(code("python") + USE_IT_LATER)
    first, second = (run_python("first_model.py", cwd=tmp_path) for _ in range(2))
    for printed in (first, second):
        found = re.search(r"'auc': ([0-9.]+)", printed)
        assert found and float(found[1]) > 0.8
        probabilities = re.findall(r"\[\s*([0-9.e+-]+)\s*\]", printed)
        assert len(probabilities) == 10 and probabilities[:5] == probabilities[5:]
    assert [each.name for each in tmp_path.glob("*saved*")] == ["first_model.saved"]
