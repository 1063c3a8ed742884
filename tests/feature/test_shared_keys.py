# SPDX-License-Identifier: Apache-2.0
"""SharedKeys: outputs that read the same keys compute them once, and get the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mindspore_rec import Schema
from mindspore_rec.common.columns import hashing, transforms
from mindspore_rec.common.columns.batch_rows import BatchRows
from mindspore_rec.feature import (
    Category,
    CategoryColumn,
    Cross,
    CrossColumn,
    FeaturePipeline,
    LabelColumn,
    Number,
    NumberColumn,
    QuantileBucket,
    TimePart,
)


def rows_of(count: int) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        "city": np.array(["Rome", "Oslo", "Bern"])[rng.integers(0, 3, count)],
        "page": np.array([f"p{each}" for each in range(9)])[rng.integers(0, 9, count)],
        "price": rng.normal(size=count),
        "label": rng.integers(0, 2, count),
    }


def test_each_text_is_hashed_once_for_ids_statistics_folds_and_crosses(monkeypatch):
    columns = [
        CategoryColumn("city", statistics="folds"),
        CategoryColumn("page"),
        CrossColumn("both", ("city", "page"), statistics="folds"),
        NumberColumn("price", buckets=0),
        LabelColumn("label"),
    ]
    schema = Schema(columns).fit(rows_of(300))
    hashed: list[str] = []

    def counted(field: str, values: pa.Array, where: str) -> np.ndarray:
        hashed.append(field)
        return keys_of(field, values, where)

    keys_of = hashing.keys_of
    monkeypatch.setattr(transforms, "keys_of", counted)
    schema.pipeline.batch(rows_of(50), learn=False, training=True)
    assert sorted(hashed) == ["city", "page"]


def test_values_are_those_of_each_transform_alone():
    members = [
        Category("city"),
        Category("city", field="place"),
        Category("city", values="text"),
        Category("city"),
        Cross([Category("city"), Category("page")]),
        Cross([Category("page"), Category("city")]),
        Cross([Category("city"), Category("page")], field="z"),
        Cross([Category("city"), QuantileBucket("price", 4)]),
        TimePart("time", "hour"),
        TimePart("time", "minute"),
        TimePart("time", "hour", unit="ms"),
    ]
    rows = rows_of(40) | {"time": np.arange(40) * 1_000_000}
    together = FeaturePipeline({"ids": members}).fit(rows).apply(rows)["ids"]
    for place, member in enumerate(members):
        alone = FeaturePipeline({"ids": [member]}).fit(rows).apply(rows)["ids"]
        np.testing.assert_array_equal(together[:, place], alone[:, 0])


class Counting(Category):
    """A transform of a user, whose values differ from call to call."""

    calls = 0

    def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
        self.calls += 1
        return super().apply(values, learn) + self.calls


def test_a_class_of_a_user_computes_its_values_at_each_call():
    member = Counting("city")
    made = FeaturePipeline({"ids": [member, member]}).apply(rows_of(5))["ids"]
    np.testing.assert_array_equal(made[:, 1] - made[:, 0], np.ones(5))


def test_a_transform_that_learns_computes_its_values_at_each_call():
    bucket = QuantileBucket("price", 4)
    rows = BatchRows(rows_of(30))
    first = rows.keys.of(bucket, rows.arrow("price"), learn=True)
    assert rows.keys.of(bucket, rows.arrow("price"), learn=True) is not first


@pytest.mark.parametrize("threads", [1, 4])
def test_two_batches_share_nothing(threads):
    pipeline = FeaturePipeline({"ids": [Category("city")] * 3, "x": Number("price")}, (), threads)
    for value in ("Rome", "Oslo"):
        made = pipeline.apply({"city": [value] * 4, "price": [1.0] * 4})["ids"]
        np.testing.assert_array_equal(made, np.repeat(made[:1, :1], 4, 0).repeat(3, 1))
        assert made[0, 0] == Category("city").apply(pa.array([value]), learn=False)[0]


def test_the_arrow_form_of_a_column_is_made_once():
    rows = BatchRows({"city": np.array(["Rome", "Oslo"])})
    assert rows.arrow("city") is rows.arrow("city")
