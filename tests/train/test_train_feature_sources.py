# SPDX-License-Identifier: Apache-2.0
"""FeatureBatches over rows of any kind, over streams as they are, and inside other wrappers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from mindspore import nn

from mindspore_rec import FeatureBatches, FeatureSpec, MapParameter, RecModel, TableConfig
from mindspore_rec.stream import (
    BatchWrapper,
    DataReceiver,
    DataSender,
    FeaturePipeline,
    MemoryTopic,
    MinMaxScale,
    Number,
    StopWhen,
    StreamingDataset,
    batch_source,
)

ROWS = [
    {
        "user": [f"u{i}", "ann", None],
        "price": np.array([1.0, 2.0, 10.0 * i]),
        "time": np.array([100, 101, 102 + i]),
        "click": np.array([0, 1, 0]),
    }
    for i in range(4)
]


def _pipeline(**options: Any) -> FeaturePipeline:
    return FeaturePipeline(
        {
            "user": FeatureSpec("user"),
            "time": FeatureSpec("time", is_timestamp=True),
            "dense": MinMaxScale("price"),
            "label": Number("click"),
        },
        **options,
    )


def _receiver(rows: list[Any], batch_size: int = 3) -> DataReceiver:
    topic = MemoryTopic()
    sender = DataSender(topic)
    for each in rows:
        sender.send(each)
    return DataReceiver(topic, batch_size=batch_size, stop=StopWhen(batches=len(rows)))


def _same(one: Any, two: Any) -> None:
    one, two = list(one), list(two)
    assert len(one) == len(two) > 0
    for first, second in zip(one, two, strict=True):
        assert first.names == second.names and first.event_time == second.event_time
        for a, b in zip(first.columns, second.columns, strict=True):
            assert type(a) is type(b) is np.ndarray and a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", [pd.DataFrame, pa.table, pa.RecordBatch.from_pydict])
def test_rows_of_any_kind(kind: Callable[[Any], Any]) -> None:
    rows = [kind(each) for each in ROWS]
    _same(FeatureBatches(rows, _pipeline()).read(), FeatureBatches(ROWS, _pipeline()).read())
    rest = [FeatureSpec("user")]
    _same(FeatureBatches(rows, rest).read(), FeatureBatches(ROWS, rest).read())


@pytest.mark.parametrize("kind", [pd.DataFrame, pa.table, pa.RecordBatch.from_pydict])
def test_one_batch_is_no_source(kind: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="data must be an iterable of batches, got a .*one batch"):
        batch_source(kind(ROWS[0]))


def test_columns_of_one_name() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(ValueError, match="different names"):
        list(batch_source([rows]))


def test_a_stream_reads_the_same_in_both_places() -> None:
    frame = pd.DataFrame(
        {
            "user": ["a", None],
            "price": pd.array([1, None], "Int64"),
            "time": pd.to_datetime(["2024-01-01", "2024-01-02"]),
            "click": [0, 1],
        }
    )
    one = FeatureBatches(_receiver([frame], 2), _pipeline())
    two = StreamingDataset(_receiver([frame], 2), _pipeline())
    _same(one.read(), two.read())


def test_the_rest_of_a_stream_is_arrays() -> None:
    stream = StreamingDataset(
        _receiver(ROWS), FeaturePipeline([FeatureSpec("user")], keep_rest=True)
    )
    _same(stream.read(), FeatureBatches(_receiver(ROWS), [FeatureSpec("user")]).read())


def _dear(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["price"] > 5]


@pytest.mark.parametrize("is_train", [True, False])
def test_a_batch_without_rows_is_passed_over(is_train: bool) -> None:
    stream = StreamingDataset(_receiver(ROWS), _pipeline(prepare=[_dear]))
    pipeline = _pipeline(prepare=[_dear])
    for source in (ROWS, _receiver(ROWS)):
        batches = FeatureBatches(source, pipeline, is_train=is_train)
        assert [len(batch.columns[0]) for batch in batches.read()] == [1, 1, 1]
    assert [len(batch.columns[0]) for batch in stream.read()] == [1, 1, 1]


def test_wrappers_set_the_time_of_the_inner_tables(unique: Callable[[], str]) -> None:
    def rewrapped(inner: FeatureBatches) -> FeatureBatches:
        return FeatureBatches(inner, [FeatureSpec("user")])

    specs = []
    for wrapper in (BatchWrapper, rewrapped):
        name = unique()
        specs = [FeatureSpec("user", table_name=name), FeatureSpec("time", is_timestamp=True)]
        table = MapParameter(config=TableConfig(4, name=name))
        batches = wrapper(FeatureBatches(ROWS, specs, [table]))
        assert [table.event_time for _ in batches] == [102, 103, 104, 105]
    with pytest.raises(ValueError, match="tables must be given: feature 'time'"):
        iter(BatchWrapper(FeatureBatches(ROWS, specs)))


def test_evaluation_learns_nothing() -> None:
    pipeline = _pipeline()
    model = RecModel(nn.Dense(1, 1), nn.MSELoss(), metrics={"loss": nn.Loss()})
    rows = [{"price": np.array([5.0]), "click": np.array([1])}]
    dense = FeaturePipeline({"dense": MinMaxScale("price"), "label": Number("click")})
    before = dense.state_dict()
    for learning in (
        FeatureBatches(rows, dense),
        BatchWrapper(FeatureBatches(rows, dense)),
        StreamingDataset(_receiver(rows, 1), dense),
    ):
        with pytest.raises(ValueError, match="features learn of its batches: evaluate FeatureB"):
            model.eval(learning, progress=False)
    for reading in (
        FeatureBatches(rows, dense, is_train=False),
        StreamingDataset(_receiver(rows, 1), dense.apply),
        FeatureBatches(rows, FeaturePipeline({"x": Number("price"), "label": Number("click")})),
    ):
        assert model.eval(reading, progress=False)["loss"] >= 0
    assert dense.state_dict() == before and pipeline.learns
