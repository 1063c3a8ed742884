# SPDX-License-Identifier: Apache-2.0
"""The clicks of the guides: the same rows each time, and what the docstring says of them."""

from __future__ import annotations

import pytest

from mindspore_rec.data import example_clicks


def test_rows_repeat_and_a_longer_table_begins_with_a_shorter_one():
    assert example_clicks(50, seed=3).equals(example_clicks(1_000, seed=3).head(50))
    assert not example_clicks(50).equals(example_clicks(50, seed=1))


def test_columns_and_values():
    clicks = example_clicks()
    assert list(clicks) == ["time", "user", "item", "city", "price", "clicked"]
    assert len(clicks) == 20_000 and clicks.time.is_monotonic_increasing and clicks.time.is_unique
    assert clicks.user.nunique() == 100 and clicks.item.nunique() == 40
    assert clicks.price.between(5, 300).all() and clicks.clicked.isin([0, 1]).all()
    assert clicks.city.isna().mean() == pytest.approx(1 / 3, abs=0.02)


def test_what_a_click_depends_on():
    clicks = example_clicks(50_000)
    odd = clicks.user.str[1:].astype(int) % 2 == 1
    lamp_or_rug = clicks.item.str.contains("lamp|rug")
    assert clicks.clicked[odd].mean() > clicks.clicked[~odd].mean() + 0.2
    assert (
        clicks.clicked[odd & lamp_or_rug].mean() > clicks.clicked[odd & ~lamp_or_rug].mean() + 0.5
    )
    assert (
        clicks.clicked[~odd & ~lamp_or_rug].mean() > clicks.clicked[~odd & lamp_or_rug].mean() + 0.1
    )
    assert (
        clicks.price[clicks.clicked == 1].median() < clicks.price[clicks.clicked == 0].median() - 5
    )
    assert clicks.groupby("city").clicked.mean().std() < 0.01


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"rows": 0}, ValueError, "rows must be in"),
        ({"rows": 1.5}, TypeError, "rows must be an int"),
        ({"seed": -1}, ValueError, "seed must be in"),
    ],
)
def test_wrong_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        example_clicks(**arguments)
