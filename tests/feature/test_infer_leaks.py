# SPDX-License-Identifier: Apache-2.0
"""Columns that decide the label are found, and columns that only look so are features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

from mindspore_rec.common.columns.schema.inference import infer_columns
from mindspore_rec.common.columns.schema.leaks import _auc, leak_of
from mindspore_rec.common.columns.schema.profile import profile_of
from mindspore_rec.feature import IgnoredColumn, LabelColumn

ROWS = 4000
RNG = np.random.default_rng(11)
LABEL = RNG.random(ROWS) < 0.05
NOISE = RNG.normal(size=ROWS)
INVOICE = np.cumsum(RNG.random(ROWS) < 0.2)
PAID_INVOICES = (INVOICE * 2654435761 % 2**32) % 20 == 0

LEAKS: dict[str, Any] = {
    "equal to the label": LABEL.astype(int),
    "the label in words": np.where(LABEL, "clicked", "not"),
    "the label and its opposite": (~LABEL).astype(float),
    "set only if positive": np.where(LABEL, NOISE, np.nan),
    "an id only if positive": [f"order {i}" if LABEL[i] else None for i in range(ROWS)],
    "the same id if negative": np.where(LABEL, np.arange(ROWS), 0),
    "separated by its order": np.abs(NOISE) * np.where(LABEL, 1, -1),
    "separated in both tails": np.where(LABEL, np.sign(NOISE) * 9 + NOISE / 9, NOISE / 9),
    "a reason for each negative": np.where(
        LABEL, "none", np.char.add("reason ", (np.arange(ROWS) % 9).astype(str))
    ),
    "lists only if positive": pa.array([[1, 2] if each else None for each in LABEL]),
}
FEATURES: dict[str, Any] = {
    "noise": NOISE,
    "an id per row": RNG.permutation(ROWS) * 7,
    "a hash per row": [f"{i:x}" for i in RNG.permutation(10**7)[:ROWS]],
    "ids that seldom recur": RNG.integers(0, 10 * ROWS, ROWS),
    "a strong feature": NOISE + 3 * LABEL,
    "a feature that is positive in one value only": np.where(LABEL & (NOISE > 0), "a", "b"),
    "a constant": np.ones(ROWS),
    "missing": np.full(ROWS, np.nan),
}


def leak(values: Any, label: Any = LABEL) -> str | None:
    column = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
    return leak_of(profile_of("x", column), np.asarray(label, float))


@pytest.mark.parametrize("case", LEAKS)
def test_leaks_are_ignored_with_a_warning(case: str) -> None:
    values = LEAKS[case]
    column = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
    table = pa.table({"x": column, "city": ["a", "b"] * (ROWS // 2), "y": LABEL})
    inferred = infer_columns(table, label="y")
    assert inferred.column("x").column == IgnoredColumn("x")
    assert inferred.column("x").why.startswith("Decides the label 'y': ")
    assert len(inferred.warnings) == 1
    assert inferred.warnings[0].startswith("column 'x' decides the label 'y': ")


@pytest.mark.parametrize("case", FEATURES)
def test_features_are_no_leaks(case: str) -> None:
    assert leak(FEATURES[case]) is None


def test_one_wrong_row_of_thousands_is_still_a_leak() -> None:
    label = RNG.random(ROWS) < 0.5
    assert leak(np.where(np.arange(ROWS) == 7, ~label, label).astype(int), label)


def test_numbers_of_invoices_that_have_one_label_each() -> None:
    assert leak(INVOICE.astype(str), PAID_INVOICES)
    assert leak(INVOICE.astype(str), LABEL) is None


def test_few_rows_prove_nothing() -> None:
    label = np.arange(18) % 2
    assert leak(label, label) is None


def test_a_number_as_label() -> None:
    label = RNG.exponential(9, ROWS)
    assert leak(label * 3 + 1, label)
    assert leak(NOISE, label) is None


def test_the_auc_is_that_of_scikit_learn() -> None:
    """A column of few values whose means the halves learn equally well."""
    scores = RNG.integers(0, 5, ROWS)
    positive = RNG.random(ROWS) < 0.1 + 0.15 * scores
    ones = np.bincount(scores[positive], minlength=5)
    zeros = np.bincount(scores[~positive], minlength=5)
    expected = roc_auc_score(positive, scores)
    assert _auc(np.arange(5.0), ones, zeros) == pytest.approx(expected, abs=1e-12)
    shuffled = RNG.permutation(5)
    assert _auc(shuffled * 1.0, ones[shuffled], zeros[shuffled]) == pytest.approx(expected)


@pytest.mark.parametrize("values", ["floats", "texts"])
def test_independent_columns_never_decide_a_number(values: str) -> None:
    """Values that all occur once belong to one label each, by chance."""
    rows: dict[str, Any] = {
        "size": NOISE,
        "age": RNG.permutation(ROWS) + 0.5,
        "city": RNG.choice(list("abc"), ROWS),
    }
    if values == "texts":
        rows["size"] = [f"{each:.12f}" for each in NOISE]
    label = LabelColumn("price", binary=False)
    table = pa.table({**rows, "price": RNG.exponential(9, ROWS), "copy": np.arange(ROWS) * 0.5})
    inferred = infer_columns(table, label=label)
    kinds = {each.name: each.kind for each in inferred.columns}
    assert "ignored" not in (kinds["size"], kinds["age"], kinds["city"])
    copied = table.set_column(4, "copy", pa.array(table["price"].to_numpy() * 2 + 1))
    (column,) = [each for each in infer_columns(copied, label=label).columns if each.name == "copy"]
    assert column.kind == "ignored"
