# SPDX-License-Identifier: Apache-2.0
"""What infer_columns proposes for public data: the kinds that a data scientist chooses by hand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import yaml

from datasets.census_income.schema import COLUMNS, FILES, MONEY, NUMERIC, category_columns
from mindspore_rec import Schema
from mindspore_rec.common.columns.schema.inference import Inferred, infer_columns
from mindspore_rec.common.columns.schema.proposal import proposal_yaml
from mindspore_rec.feature import (
    CategoryColumn,
    IgnoredColumn,
    LabelColumn,
    ListColumn,
    TextColumn,
    TimeColumn,
)
from tests.support.missing import missing


def directory(part: str, variable: str) -> Path:
    if variable not in os.environ:
        missing(part, f"{variable} does not name its files")
    return Path(os.environ[variable])


def read_and_inferred(frame: pd.DataFrame, **roles: Any) -> Inferred:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    inferred = infer_columns(table, **roles)
    schema = Schema(inferred.columns)
    schema.check(table)
    schema.fit(table.slice(0, 5000)).arrays_of(table.slice(0, 100))
    text = proposal_yaml(inferred, "rows.csv", total_rows=10**6)
    document = yaml.safe_load(text)
    assert Schema.from_description({"columns": document["columns"]}).columns == inferred.columns
    assert text.count("# ") >= len(inferred.entries) + 1
    assert max(map(len, text.splitlines())) <= 120
    return inferred


def test_census_income() -> None:
    folder = directory("census", "MINDSPORE_REC_CENSUS_DIR")
    frame = pd.read_csv(
        folder / FILES["train"],
        header=None,
        names=COLUMNS,
        skipinitialspace=True,
        keep_default_na=False,
        nrows=60_000,
    )
    inferred = read_and_inferred(frame, label="income_50k")
    kinds = {each.name: each.kind for each in inferred.columns}
    assert inferred.column("income_50k").column == LabelColumn("income_50k", positive="50000+.")
    assert inferred.column("instance_weight").column == IgnoredColumn("instance_weight")
    assert {kinds[name] for name in NUMERIC} == {"integer"}
    # Codes of three values are whole numbers too: their order may tell something.
    by_hand = {*category_columns(("income",))} - {"own_or_self", "vet_benefits"}
    assert {kinds[name] for name in by_hand} == {"category"}
    assert {kinds[name] for name in ("own_or_self", "vet_benefits")} == {"integer"}
    assert not inferred.warnings
    assert set(MONEY) <= set(kinds)


def test_movielens() -> None:
    folder = directory("movielens", "MINDSPORE_REC_MOVIELENS_DIR")
    ratings = pd.read_csv(folder / "ratings.csv.gz").sample(30_000, random_state=0)
    frame = ratings.merge(pd.read_csv(folder / "movies.csv.gz"))
    frame["liked"] = frame.rating >= 4
    inferred = read_and_inferred(frame, label="liked", total_rows=100_836)
    assert inferred.columns == (
        CategoryColumn("userId", values="whole", statistics="past"),
        CategoryColumn("movieId", values="whole", statistics="past"),
        IgnoredColumn("rating"),
        TimeColumn("timestamp", parts=("hour", "weekday")),
        TextColumn("title"),
        ListColumn("genres", length=10, separator="|"),
        LabelColumn("liked", positive=True),
    )
    assert "'rating' decides the label 'liked'" in inferred.warnings[0]
    with pytest.raises(ValueError, match="label 'rating' must have two values, it has 10: .*"):
        read_and_inferred(frame, label="rating")


def test_a_shop_as_online_retail() -> None:
    """Rows as in the Online Retail data: invoices of several lines, some of them returned."""
    import numpy as np

    rng = np.random.default_rng(0)
    rows = 8000
    invoice = 536365 + np.arange(rows) // 8
    returned = (invoice * 2654435761 % 2**32) % 10 == 0
    product = (rng.pareto(1.0, rows) * 10).astype(int) % 900
    words = np.array(["WHITE", "METAL", "LANTERN", "HEART", "HOLDER", "SET", "RED", "CUP"])
    names = [" ".join(words[rng.integers(0, 8, 4)]) + f" {i}" for i in range(900)]
    times = pd.Timestamp("2010-12-01 08:26") + pd.to_timedelta((invoice - 536365) * 97, unit="min")
    frame = pd.DataFrame(
        {
            "InvoiceNo": [f"{'C' if r else ''}{i}" for i, r in zip(invoice, returned, strict=True)],
            "StockCode": [f"{71053 + i}{'A' if i % 7 == 0 else ''}" for i in product],
            "Description": [names[i] for i in product],
            "Quantity": rng.integers(1, 24, rows) * np.where(returned, -1.0, 1.0),
            "InvoiceDate": times.strftime("%Y-%m-%d %H:%M:%S"),
            "UnitPrice": np.round(rng.exponential(3, 900)[product], 2),
            "CustomerID": [f"{17850 + i % 300}" if i % 4 else None for i in invoice],
            "Country": rng.choice(["United Kingdom", "France", "EIRE"], rows),
            "returned": returned.astype(int),
        }
    )
    inferred = read_and_inferred(frame, label="returned")
    kinds = {each.name: each.kind for each in inferred.columns}
    assert kinds == {
        "InvoiceNo": "ignored",
        "StockCode": "category",
        "Description": "text",
        "Quantity": "ignored",
        "InvoiceDate": "time",
        "UnitPrice": "number",
        "CustomerID": "category",
        "Country": "category",
        "returned": "label",
    }
    assert len(inferred.warnings) == 2
    dearer = frame.assign(dear=(frame.UnitPrice * rng.random(rows) > 2).astype(int))
    inferred = read_and_inferred(dearer, label="dear")
    assert "recurs later" in inferred.column("InvoiceNo").why
