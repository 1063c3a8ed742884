# SPDX-License-Identifier: Apache-2.0
"""infer_schema proposes the pairs of columns that decide a label, and no others."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mindspore_rec import Schema
from mindspore_rec.common.data import propose_crosses
from mindspore_rec.common.data.propose_crosses import _rows_of_values
from mindspore_rec.data import infer_schema, read
from mindspore_rec.feature import CategoryColumn, CrossColumn, LabelColumn

ROWS = 12_000
WITHOUT = ["user", "item", "shop", "price", "clicked"]


def frame(rows: int = ROWS, *, recurring: bool = True, seed: int = 0) -> pd.DataFrame:
    """Return rows whose label depends on the pair of user and item alone.

    A shop is another name of an item.
    """
    rng = np.random.default_rng(seed)
    values = 300 if recurring else 60_000
    user = rng.integers(0, values, rows)
    item = (user + rng.integers(0, 10, rows)) % values  # 10 items per user
    likes = (user * 7919 + item * 104_729) % 11 < 5
    clicked = rng.random(rows) < np.where(likes, 0.9, 0.1)
    return pd.DataFrame(
        {
            "user": np.char.add("u", user.astype(str)),
            "item": np.char.add("i", item.astype(str)),
            "shop": np.char.add("s", item.astype(str)),
            "price": rng.normal(size=rows).round(3),
            "clicked": clicked.astype(int),
        }
    )


def crosses(schema: Schema) -> list[tuple[str, ...]]:
    return [each.columns for each in schema.columns if isinstance(each, CrossColumn)]


@pytest.mark.parametrize("has_time", [False, True], ids=["folds", "past"])
def test_pairs_that_decide_the_label_are_proposed_once(has_time: bool) -> None:
    rows = frame()
    if has_time:
        rows["ts"] = 1_700_000_000 + 60 * np.arange(ROWS)
    schema = infer_schema(rows, "clicked")
    assert len(crosses(schema)) == 1
    assert crosses(schema)[0] in {("user", "item"), ("user", "shop")}
    cross = schema.column("_and_".join(crosses(schema)[0]))
    assert cross.statistics == ("past" if has_time else "folds")
    schema.fit(rows)
    assert f"{cross.name}.mean" in schema.numbers


def test_a_number_as_label_has_crosses_too() -> None:
    rows = frame()
    rows["clicked"] = rows["clicked"] * 3.5 + np.random.default_rng(1).normal(size=ROWS)
    label = LabelColumn("clicked", binary=False)
    assert len(crosses(infer_schema(rows, label))) == 1


def test_nothing_is_proposed_for_labels_of_single_columns() -> None:
    rows = frame()
    rng = np.random.default_rng(2)
    rate = rows["user"].str[1:].astype(int) % 7 / 8 + 0.05
    rows["clicked"] = (rng.random(ROWS) < rate).astype(int)
    assert crosses(infer_schema(rows, "clicked")) == []


def test_nothing_is_proposed_if_pairs_do_not_recur() -> None:
    assert crosses(infer_schema(frame(recurring=False), "clicked")) == []


def test_nothing_is_proposed_from_few_rows() -> None:
    assert crosses(infer_schema(frame(900), "clicked")) == []


def test_the_name_of_a_cross_is_new() -> None:
    rows = frame().drop(columns="shop")
    rows["user_and_item"] = np.arange(ROWS) % 3
    schema = infer_schema(rows, "clicked")
    assert crosses(schema) == [("user", "item")]
    assert schema.column("user_and_item_").kind == "cross"


def test_a_small_sample_of_many_rows_shows_the_pairs() -> None:
    schema = infer_schema(frame(40_000), "clicked", sample_rows=2_000)
    assert len(crosses(schema)) == 1


def test_rows_of_some_values_are_all_of_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propose_crosses, "_KEPT_ROWS", 3_000)
    rows = frame()
    table = _rows_of_values(read(rows), CategoryColumn("user"))
    assert 500 < table.num_rows <= 3_000
    kept = table.to_pandas()
    users = set(kept["user"])
    assert len(kept) == int(rows["user"].isin(users).sum())


def test_the_first_rows_are_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propose_crosses, "_READ_ROWS", 1_234)
    table = _rows_of_values(read(frame()), CategoryColumn("user"))
    assert table.to_pandas().equals(frame()[:1_234])
