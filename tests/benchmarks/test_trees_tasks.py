# SPDX-License-Identifier: Apache-2.0
"""The tasks of `beside_trees.py`: labels and parts beside plain loops, on generated invoices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.trees.tasks import TASKS

ROWS = 4_000
MONTH = pd.Timedelta(days=30)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with invoices of 300 days, of which some have no customer."""
    rng = np.random.default_rng(3)
    minutes = np.sort(rng.integers(0, 300 * 1440, ROWS)) // 7 * 7  # so that times recur
    customers = rng.integers(1, 30, ROWS).astype(float)
    customers[rng.random(ROWS) < 0.1] = np.nan
    frame = pd.DataFrame(
        {
            "InvoiceNo": [f"{'C' if k % 17 == 0 else ''}{500_000 + k // 3}" for k in range(ROWS)],
            "StockCode": rng.choice(["85123A", "71053", "22423", "84879"], ROWS),
            "Description": "A THING",
            "Quantity": rng.integers(-2, 15, ROWS),
            "InvoiceDate": pd.Timestamp("2010-12-01") + pd.to_timedelta(minutes, unit="min"),
            "UnitPrice": rng.random(ROWS).round(2),
            "CustomerID": pd.array(customers, "Int64"),
            "Country": "France",
        }
    )
    directory = tmp_path_factory.mktemp("trees")
    (directory / "online-retail").mkdir()
    frame.to_csv(directory / "online-retail" / "online_retail.csv.gz", index=False)
    return directory


def sold(data: Path) -> pd.DataFrame:
    rows = pd.read_csv(data / "online-retail" / "online_retail.csv.gz", dtype={"CustomerID": str})
    rows["time"] = pd.to_datetime(rows.InvoiceDate)
    kept = ~rows.InvoiceNo.str.startswith("C") & rows.CustomerID.notna() & (rows.Quantity > 0)
    return rows[kept].reset_index(drop=True)


@pytest.mark.parametrize("name", ["retail_quantity", "retail_before", "retail_again"])
def test_parts_follow_each_other(data: Path, name: str) -> None:
    parts = TASKS[name].cut(data)
    train, valid, test = (getattr(parts, each).time for each in ("train", "valid", "test"))
    gap = MONTH if name == "retail_again" else pd.Timedelta(0)
    assert train.max() + gap <= valid.min() and valid.max() + gap <= test.min()
    assert min(len(train), len(valid), len(test)) > 100
    if name == "retail_again":  # the labels of the last rows are known
        assert test.max() + MONTH <= sold(data).time.max()
    else:
        assert len(train) + len(valid) + len(test) == len(sold(data))


def test_bought_before_and_again(data: Path) -> None:
    rows = sold(data)
    times: dict[tuple[str, str], list[pd.Timestamp]] = {}
    for customer, item, time in zip(rows.CustomerID, rows.StockCode, rows.time, strict=True):
        times.setdefault((customer, item), []).append(time)

    def labels(name: str, expected: str) -> None:
        parts = TASKS[name].cut(data)
        for part in (parts.train, parts.valid, parts.test):
            for row in part.itertuples():
                others = times[(row.CustomerID, row.StockCode)]
                if expected == "before":
                    assert row.label == any(each < row.time for each in others)
                else:
                    assert row.label == any(row.time < each <= row.time + MONTH for each in others)

    labels("retail_before", "before")
    labels("retail_again", "again")
