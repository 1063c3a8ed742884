# SPDX-License-Identifier: Apache-2.0
"""Times of a batch in whatever pandas holds them."""

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
