# SPDX-License-Identifier: Apache-2.0
"""A batch has as many times as rows, in whatever pandas holds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from mindspore_rec import FeatureSpec
from mindspore_rec.stream import FeaturePipeline, MinMaxScale, TimePart

FIRST = 1_704_067_200  # 2024-01-01 00:00:00 UTC


def pipeline() -> FeaturePipeline:
    return FeaturePipeline(
        {
            "user": FeatureSpec("user"),
            "hour": TimePart("time", "hour"),
            "price": MinMaxScale("price"),
            "time": FeatureSpec("time", is_timestamp=True),
        }
    )


@pytest.mark.parametrize("rows", [1, 3])
def test_times_of_another_number_of_rows_are_refused_and_nothing_is_learned(rows: int) -> None:
    made = FeaturePipeline(
        {
            "user": FeatureSpec("user"),
            "price": MinMaxScale("price"),
            "time": FeatureSpec("time", is_timestamp=True),
        }
    )
    before = made.state_dict()
    batch = {"user": [1, 2], "price": [1.0, 5.0], "time": np.full(rows, FIRST)}
    with pytest.raises(ValueError, match=f"got 2 of 'user' and {rows} of 'time'"):
        made.batch(batch)
    assert made.state_dict() == before
    assert made.batch({**batch, "time": [FIRST, FIRST + 1]})[1] == FIRST + 1
    assert made.batch(batch, with_time=False)[1] is None  # whoever does not read them


def held(times: pd.Series, how: str) -> Any:
    return {"series": times, "index": pd.DatetimeIndex(times), "array": times.array}[how]


@pytest.mark.parametrize("how", ["series", "index", "array"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_times_with_a_zone_are_those_of_a_frame(zone: str, how: str) -> None:
    times = pd.Series(pd.to_datetime([FIRST, FIRST + 5], unit="s", utc=True).tz_convert(zone))
    rows = {"user": [1, 2], "price": [1.0, 5.0], "time": held(times, how)}
    columns, seconds = pipeline().batch(rows)
    plain = {**rows, "time": [FIRST, FIRST + 5]}
    for given in (pd.DataFrame({**rows, "time": times}), plain):
        expected, expected_seconds = pipeline().batch(given)
        assert seconds == expected_seconds == FIRST + 5
        for name, array in columns.items():
            np.testing.assert_array_equal(array, expected[name])
