# SPDX-License-Identifier: Apache-2.0
"""Spark counts the labels and makes the arrays of a schema, with the same bits as a training."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mindspore_rec import Schema
from mindspore_rec.data import read
from mindspore_rec.feature import CategoryColumn, CrossColumn, LabelColumn, NumberColumn, TimeColumn
from tests.support.missing import need_package
from tests.support.nightly import NIGHTLY


def frame(rows: int = 3000) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "row": np.arange(rows),
            "user": rng.integers(0, 90, rows),
            "item": [f"i{each}" for each in rng.integers(0, 50, rows)],
            "price": rng.normal(0, 9, rows),
            "ts": 1_700_000_000 + rng.integers(0, 99_999, rows),
            "clicked": rng.integers(0, 2, rows),
        }
    )


def schema_of() -> Schema:
    columns = [
        CategoryColumn("user", statistics="folds"),
        CategoryColumn("item", statistics="past"),
        CrossColumn("user_hour", ("user", "ts.hour"), statistics="folds"),
        NumberColumn("price"),
        TimeColumn("ts"),
        LabelColumn("clicked"),
    ]
    return Schema(columns, embedding_dim=4)


pytestmark = pytest.mark.skipif(not NIGHTLY, reason="MINDSPORE_REC_NIGHTLY=1 runs Spark")


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    sql = need_package("pyspark.sql", "Spark, and Java: pip install pyspark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        session = builder.config("spark.sql.shuffle.partitions", "3").getOrCreate()
        yield session
        session.stop()


def test_spark_makes_the_keys_and_numbers_of_a_training(spark: Any, tmp_path: Path) -> None:
    rows = frame()
    whole = schema_of().fit(rows.drop(columns="row"))
    expected = whole.pipeline.batch(rows, learn=False, training=True)[0]
    driver = schema_of().fit(rows.drop(columns="row"))
    described, state = driver.describe(), driver.state_dict()

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part = Schema.from_description(described)
        part.load_state_dict(state)
        part.fit_statistics(batches)
        yield pa.record_batch({"state": [json.dumps(part.state_dict())]})

    table = spark.createDataFrame(rows).repartition(3)
    states = table.mapInArrow(counted, "state string").collect()
    assert len(states) == 3
    driver.merge_statistics(json.loads(each.state) for each in states)
    assert driver.state_dict() == whole.state_dict()
    state = driver.state_dict()

    def made(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part = Schema.from_description(described)
        part.load_state_dict(state)
        for batch in batches:
            (arrays,) = part.arrow_batches([batch])
            yield arrays.append_column("row", batch.column("row"))

    columns = "time long, ids array<long>, numbers array<float>, label array<float>, row long"
    table.mapInArrow(made, columns).write.parquet(str(tmp_path / "arrays"))
    read_back = read(f"{tmp_path}/arrays/*.parquet")
    received = driver.received().pipeline
    batches = [each.plain for each in read_back.batches(512).read()]
    order = np.concatenate([np.asarray(each["row"]) for each in batches])  # type: ignore[call-overload]
    assert sorted(order.tolist()) == rows["row"].tolist()
    for name, array in expected.items():
        arrays = [received.batch(each, learn=False)[0][name] for each in batches]
        np.testing.assert_array_equal(np.concatenate(arrays), array[order])
