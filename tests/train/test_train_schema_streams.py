# SPDX-License-Identifier: Apache-2.0
"""A Schema in every place of a stream: feature stage, feature worker, training, predictor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pyarrow as pa
import pytest

from mindspore_rec import FeatureBatches, RecModel, Schema, models, tables_of
from mindspore_rec.checkpoint import RecCheckpoint
from mindspore_rec.feature import (
    CategoryColumn,
    CrossColumn,
    LabelColumn,
    ListColumn,
    NumberColumn,
    TimeColumn,
)
from mindspore_rec.serving import Predictor
from mindspore_rec.stream import (
    ArrowFormat,
    Batch,
    BatchSource,
    DataReceiver,
    DataSender,
    FeatureWorker,
    MemoryTopic,
    StopWhen,
    StreamingDataset,
    StreamSource,
    pack,
)

ROWS, BATCH = 1000, 100


def schema_of() -> Schema:
    columns = [
        CategoryColumn("user", eviction=100, statistics="folds"),
        ListColumn("tags", length=3, separator="|"),
        NumberColumn("price"),
        TimeColumn("ts", unit="ms"),
        CrossColumn("price_hour", ("price", "ts.hour"), statistics="past"),
        LabelColumn("clicked"),
    ]
    return Schema(columns, embedding_dim=4)


@pytest.fixture(scope="module")
def clicks() -> pa.Table:
    rng = np.random.default_rng(0)
    user = rng.integers(0, 20, ROWS) + 20 * (np.arange(ROWS) // 200)  # none comes again later
    return pa.table(
        {
            "user": [f"u{each}" for each in user],
            "tags": ["|".join("abcde"[: int(k)]) for k in rng.integers(0, 5, ROWS)],
            "price": rng.normal(0, 9, ROWS),
            "ts": 1_700_000_000_000 + np.arange(ROWS) * 1000,
            "clicked": (user % 3 == 0).astype(np.int8),
        }
    )


def source_of(clicks: pa.Table) -> StreamSource:
    topic = MemoryTopic(topic="clicks")
    for first in range(0, ROWS, 50):
        topic.append(pack(clicks.slice(first, 50)))
    stop = StopWhen(batches=ROWS // BATCH)
    return StreamSource(topic.client(), ArrowFormat(), BATCH, stop=stop)


def same(found: list[Batch], expected: list[Batch]) -> None:
    assert len(found) == len(expected) == ROWS // BATCH
    for one, other in zip(found, expected, strict=True):
        assert one.names == other.names and one.event_time == other.event_time
        for left, right in zip(one.columns, other.columns, strict=True):
            np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


def test_every_reader_of_a_stream_makes_the_arrays_of_the_schema(
    clicks: pa.Table, tmp_path: Path, unique: Any
) -> None:
    schema = schema_of().fit(clicks)
    before = schema.state_dict()
    model = RecModel(models.LogisticRegression(schema, name=unique()))
    expected = list(model.batches(source_of(clicks)).read())
    assert expected[-1].event_time == 1_700_000_000 + ROWS - 1
    assert expected[0].names == ("ids", "numbers", "label")
    same(list(StreamingDataset(source_of(clicks), schema).read()), expected)
    same(list(FeatureBatches(source_of(clicks), schema).read()), expected)
    channel = MemoryTopic()
    dataset = StreamingDataset(source_of(clicks), schema.with_times())
    FeatureWorker(dataset, DataSender(channel, sender_name="w"), tmp_path / "state").run()
    stop = StopWhen(batches=ROWS // BATCH)
    with DataReceiver(channel, batch_size=BATCH, stop=stop) as receiver:
        received = StreamingDataset(receiver, schema.received())
        same(list(received.read()), expected)
    assert schema.state_dict() == before


def test_training_on_a_topic_is_saved_and_served(
    clicks: pa.Table, tmp_path: Path, unique: Any
) -> None:
    name = unique()

    def trained(kind: str, *most: int) -> np.ndarray:
        for steps in most:
            ms.set_seed(3)
            schema = schema_of().fit(clicks)
            model = RecModel(models.DCN(schema, hidden=(8,), name=name, seed=2))
            stream: BatchSource
            if kind == "model":
                stream = model.batches(source_of(clicks))
            elif kind == "features":
                stream = FeatureBatches(source_of(clicks), schema)
            else:
                stream = StreamingDataset(source_of(clicks), schema)
            path = tmp_path / f"{kind}{len(most)}"
            news = model.publication if kind == "model" else None
            saves = RecCheckpoint(path, every_steps=5, states=model.states, publication=news)
            saves.restore(model, stream)
            model.online_train(stream, saves, max_steps=steps, progress=False)
            tables = tables_of(model.predict_network)
            (users,) = [each for each in tables if each.config.eviction is not None]
            assert 0 < users.stats()["rows"] <= 60
        if kind == "model":
            answers = model.predict(clicks)
            with Predictor(path) as predictor:
                np.testing.assert_allclose(predictor.predict(clicks)[:, 0], answers, atol=1e-6)
        return model.predict(clicks)

    whole = trained("model", 10)
    np.testing.assert_array_equal(trained("stream", 5, 5), whole)
    np.testing.assert_array_equal(trained("features", 10), whole)


def test_a_schema_that_has_learned_nothing_is_refused(clicks: pa.Table, unique: Any) -> None:
    schema = schema_of()
    model = RecModel(models.LogisticRegression(schema, name=unique()))
    for read in (
        lambda: model.online_train(source_of(clicks), progress=False),
        lambda: FeatureBatches(source_of(clicks), schema),
        lambda: next(StreamingDataset(source_of(clicks), schema)),
    ):
        with pytest.raises(ValueError, match="scales of the schema have learned nothing"):
            read()
    with pytest.raises(ValueError, match="must have a time"):
        Schema([CategoryColumn("user")]).with_times()
