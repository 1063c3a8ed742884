# SPDX-License-Identifier: Apache-2.0
"""Histories on the way through readers, streams, workers, feature workers and restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from mindspore import Tensor, nn

from mindspore_rec import (
    EmbeddingBag,
    FeatureBatches,
    LazyAdam,
    RecModel,
    Schema,
    TableConfig,
    load,
    models,
    tables_of,
)
from mindspore_rec.cache import CacheConfig, SsdConfig
from mindspore_rec.checkpoint import RecCheckpoint
from mindspore_rec.common.columns.arrow_columns import to_record_batch
from mindspore_rec.common.stream.schema_format import message_types, schema_format
from mindspore_rec.data import read
from mindspore_rec.feature import CategoryColumn, HistoryColumn, LabelColumn, TimeColumn
from mindspore_rec.serve.protocol.messages import RequestError, parse_request
from mindspore_rec.serve.server.served_model import ServedModel
from mindspore_rec.serving import Predictor
from mindspore_rec.stream import (
    ArrowFormat,
    Batch,
    BatchSource,
    DataReceiver,
    DataSender,
    DeadLetterPolicy,
    DeadLetters,
    FeatureWorker,
    MemoryTopic,
    StopWhen,
    StreamingDataset,
    StreamSource,
    pack,
    split_by_worker,
)
from mindspore_rec.train.data.schema_batches import SchemaBatches
from mindspore_rec.train.export.mindir import export_mindir
from tests.support import history_networks
from tests.support.history_networks import MeanOfHistory, clicks, schema_of
from tests.support.nightly import NIGHTLY

ROWS, BATCH = 600, 60
ARRAYS = ("ids", "numbers", "seen.values", "seen_at.values", "seen.offsets", "label")


def rows_of(names: tuple[str, ...] | None, columns: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return for each row its arrays as lists, and the values of its histories."""
    arrays = dict(zip(names or ARRAYS, columns, strict=True))
    offsets = arrays["seen.offsets"]
    made = []
    for row in range(len(arrays["label"])):
        part = slice(offsets[row], offsets[row + 1])
        cells = [arrays[name][part] for name in ("seen.values", "seen_at.values")]
        cells += [arrays[name][row] for name in ("ids", "numbers", "label") if name in arrays]
        made.append(tuple(tuple(np.asarray(each).ravel().tolist()) for each in cells))
    assert offsets[0] == 0 and offsets[-1] == len(arrays["seen.values"])
    return made


def rows_in(batches: Any) -> list[tuple[Any, ...]]:
    return [row for each in batches for row in rows_of(each.names, each.columns)]


def same(found: list[Batch], expected: list[Batch]) -> None:
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert one.names == other.names and one.event_time == other.event_time
        for left, right in zip(one.columns, other.columns, strict=True):
            np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


def source_of(table: pa.Table, rows: int = BATCH) -> StreamSource:
    topic = MemoryTopic(topic="clicks")
    for first in range(0, len(table), 40):
        topic.append(pack(table.slice(first, 40)))
    stop = StopWhen(batches=len(table) // rows, idle_seconds=0.3)
    return StreamSource(topic.client(), ArrowFormat(), rows, stop=stop)


# ---- readers and workers


@pytest.mark.parametrize("shuffle", [False, True])
def test_readers_keep_each_rows_history(tmp_path: Path, shuffle: bool) -> None:
    table = clicks(ROWS, longest=30)
    schema = schema_of(length=10).fit(table)
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=70)
    made = schema.arrays_of(table)
    every = sorted(rows_of(tuple(made), tuple(made.values())))
    reader = read(tmp_path / "rows.parquet", schema)
    batches = reader.batches(37, shuffle=shuffle, seed=3)
    assert sorted(rows_in(SchemaBatches(batches, schema).read())) == every
    shares = [reader.batches(37, shuffle=shuffle, seed=3).split_by_worker(k, 3) for k in range(3)]
    parts = [rows_in(SchemaBatches(share, schema).read()) for share in shares]
    assert all(parts) and sorted(sum(parts, [])) == every


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), st.integers(2, 5), st.integers(0, 99), st.sampled_from([0, 3, 9]))
def test_the_rows_of_a_batch_are_divided_with_their_histories(
    rows: int, workers: int, seed: int, longest: int
) -> None:
    table = clicks(rows, seed, longest)
    schema = schema_of().fit(table)
    arrays = schema.arrays_of(table)
    whole = rows_of(tuple(arrays), tuple(arrays.values()))
    parts = []
    for worker in range(workers):
        (share,) = split_by_worker([arrays]).split_by_worker(worker, workers).read()
        parts += rows_of(share.names, share.columns)
    assert parts == whole
    shares = split_by_worker([arrays], "batches").split_by_worker(workers - 1, workers).read()
    assert [rows_of(each.names, each.columns) for each in shares] == [[]]


# ---- streams


def test_every_reader_of_a_stream_makes_the_arrays_of_the_schema(tmp_path: Path) -> None:
    table = clicks(ROWS, longest=8)
    table = table.append_column("ts", pa.array(1_700_000_000 + np.arange(ROWS)))
    schema = Schema([*schema_of(length=4).columns, TimeColumn("ts")], embedding_dim=4).fit(table)
    made = schema.arrays_of(table)
    expected = list(StreamingDataset(source_of(table), schema).read())
    assert expected[0].names == ARRAYS and expected[-1].event_time == 1_700_000_000 + ROWS - 1
    assert rows_in(expected) == rows_of(tuple(made), tuple(made.values()))
    same(list(FeatureBatches(source_of(table), schema).read()), [*expected])
    channel = MemoryTopic()
    dataset = StreamingDataset(source_of(table), schema.with_times())
    FeatureWorker(dataset, DataSender(channel, sender_name="w"), tmp_path / "state").run()
    with DataReceiver(
        channel, batch_size=BATCH, stop=StopWhen(batches=10, idle_seconds=0.3)
    ) as receiver:
        same(list(StreamingDataset(receiver, schema.received()).read()), expected)
    parts = list(schema.arrow_batches(table.to_batches(max_chunksize=BATCH)))
    pq.write_table(pa.Table.from_batches(parts), tmp_path / "arrays.parquet")
    batches = read(tmp_path / "arrays.parquet").batches(BATCH)
    same(list(FeatureBatches(batches, schema.received()).read()), expected)


@pytest.mark.parametrize("format", ["json", "arrow", "tsv"])
def test_a_message_with_lists_of_other_lengths_goes_to_the_dead_letters(format: str) -> None:
    separator = "|" if format == "tsv" else None
    schema = Schema(
        [
            CategoryColumn("item", values="whole"),
            HistoryColumn("seen", values="whole", separator=separator),
            HistoryColumn("at", values="int64", side_of="seen", separator=separator),
            HistoryColumn("price", values="float32", side_of="seen", separator=separator),
            LabelColumn("clicked"),
        ]
    )
    good = {"item": 1, "seen": [1, 2], "at": [5, 6], "price": [0.5, 1.0], "clicked": 1}
    bad = good | {"at": [5]}

    def message(row: dict[str, Any]) -> bytes:
        if format == "arrow":
            kinds = {name: pa.list_(pa.int64()) for name in ("seen", "at")}
            kinds["price"] = pa.list_(pa.float64())
            arrays = {name: pa.array([v], kinds.get(name)) for name, v in row.items()}
            return pack(pa.table(arrays))
        if format == "json":
            return json.dumps(row).encode()
        cells = ["|".join(map(str, v)) if isinstance(v, list) else str(v) for v in row.values()]
        return "\t".join(cells).encode()

    topic, dead = MemoryTopic(topic="clicks"), MemoryTopic(topic="dead")
    for row in (good, bad, good | {"seen": [], "at": [], "price": []}):
        topic.append(message(row))
    letters = DeadLetterPolicy(DeadLetters(dead.producer(), "dead"), max_dead_share=1)
    stop = StopWhen(batches=1, idle_seconds=0.3)
    source = StreamSource(
        topic.client(), schema_format(format, schema), 2, dead_letters=letters, stop=stop
    )
    (batch,) = StreamingDataset(source, schema).read()
    made = dict(zip(batch.names or (), batch.columns, strict=True))
    assert made["seen.offsets"].tolist() == [0, 2, 2]
    assert made["at.values"].tolist() == [5, 6] and made["price.values"].tolist() == [0.5, 1.0]
    (letter,) = dead.messages()
    headers = dict(letter.headers)
    assert (
        headers["reason"] == b"value"
        and b"as long as the list of column 'seen'" in headers["detail"]
    )


def test_a_first_message_of_empty_lists_does_not_decide_the_type() -> None:
    columns = [
        CategoryColumn("item", values="whole"),
        HistoryColumn("seen", values="text"),
        HistoryColumn("price", values="float32", side_of="seen"),
        LabelColumn("clicked"),
    ]
    topic = MemoryTopic(topic="clicks")
    for seen, price in (([], []), (["a", "b"], [0.5, 1]), ([], [])):
        row = {"item": [1], "seen": [seen], "price": [price], "clicked": [1]}
        topic.append(pack(pa.table(row)))
    format = schema_format("arrow", Schema(columns))
    source = StreamSource(topic.client(), format, 3, stop=StopWhen(batches=1, idle_seconds=0.3))
    (rows,) = list(source)
    assert rows["seen"].to_pylist() == [[], ["a", "b"], []]
    assert rows["price"].to_pylist() == [[], [0.5, 1], []]


def test_types_of_messages_follow_from_histories() -> None:
    schema = schema_of().fit(clicks(10))
    types = message_types(schema, "json")
    assert types.field("seen").type == types.field("seen_at").type == pa.list_(pa.int64())
    with pytest.raises(ValueError, match="'seen' must have a separator for messages of tsv"):
        message_types(schema, "tsv")


# ---- training


@pytest.mark.skipif(not NIGHTLY, reason="a case that MINDSPORE_REC_NIGHTLY=1 runs")
def test_a_training_is_resumed_bit_for_bit(tmp_path: Path, unique: Any) -> None:
    name, table = unique(), clicks(ROWS, longest=8)

    def trained(kind: str, *most: int) -> list[Any]:
        for steps in most:
            ms.set_seed(3)
            schema = schema_of(length=4).fit(table)
            model = RecModel(MeanOfHistory(schema, name=name, seed=2))
            stream: BatchSource = model.batches(source_of(table))
            saves = RecCheckpoint(tmp_path / kind, every_steps=5, states=model.states)
            saves.restore(model, stream)
            summary = model.online_train(stream, saves, max_steps=steps, progress=False)
        return [summary.loss, *(each.digest() for each in tables_of(model.predict_network))]

    assert trained("cut", 5, 5) == trained("whole", 10)


class SumOfEvents(nn.Cell):
    """Logit of the sum of the events' vectors."""

    def __init__(self, config: TableConfig) -> None:
        super().__init__()
        self.bag = EmbeddingBag(config)
        self.dense = nn.Dense(4, 1)

    def construct(self, values: Tensor, offsets: Tensor) -> Tensor:
        return self.dense(self.bag(values, offsets[:-1]))


def test_rows_below_host_memory_are_prefetched_by_their_histories(
    graph_mode: None, tmp_path: Path, unique: Any
) -> None:
    cache = CacheConfig(host_rows=40, ssd=SsdConfig(tmp_path, direct=False), prefetch=2)
    net = SumOfEvents(TableConfig(4, name=unique(), cache=cache))
    rng, batches = np.random.default_rng(0), []
    for step in range(20):  # the first batches show no column
        offsets = np.cumsum([0, *rng.integers(0, 5 * (step > 1) + 1, 8)])
        values = rng.integers(0, 300, offsets[-1])
        batches.append((values, offsets, np.ones((8, 1), np.float32)))
    optimizer = LazyAdam(net.trainable_params())
    RecModel(net, nn.BCEWithLogitsLoss(), optimizer).train(2, batches, progress=False)
    assert net.bag.embedding_table.stats()["prefetched_rows"] > 0


# ---- predictors


def saved(path: Path, table: pa.Table, name: str) -> tuple[RecModel, np.ndarray]:
    """Train a model of a file in which the class is, and save the model."""
    ms.set_context(mode=ms.GRAPH_MODE)
    file = Path(history_networks.__file__)
    kind = models.get(f"{file}:MeanOfHistory")
    model = RecModel(kind(schema_of(length=4).fit(table), name=name))
    model.fit(2, table, progress=False)
    model.save(path)
    return model, model.predict(table)


def test_a_predictor_and_a_server_answer_rows_with_lists(tmp_path: Path, unique: Any) -> None:
    table = clicks(200, longest=8)
    model, answers = saved(tmp_path / "run", table, unique())
    np.testing.assert_array_equal(load(tmp_path / "run").predict(table), answers)
    for each in tables_of(model.predict_network):
        each.close()
    asked = table.drop_columns(["clicked"])
    with Predictor(tmp_path / "run") as predictor:
        assert predictor.network is not None  # of MindSpore
        assert [str(spec) for spec in predictor.inputs or ()] == [
            "ids:INT64:-1,3",
            "numbers:FP32:-1,1",
            "seen.values:INT64:-1:offsets=seen.offsets",
            "seen_at.values:INT64:-1:offsets=seen.offsets",
            "seen.offsets:INT64:-1",
        ]
        np.testing.assert_allclose(predictor.predict(asked)[:, 0], answers, atol=1e-6)
        one = asked.slice(5, 1).set_column(3, "seen", pa.array([[]], pa.list_(pa.int64())))
        one = one.set_column(4, "seen_at", pa.array([[]], pa.list_(pa.int64())))
        assert predictor.predict(one).shape == (1, 1)
        with pytest.raises(ValueError, match="'seen_at' must have as many values in each row as"):
            predictor.predict(one.set_column(4, "seen_at", pa.array([[1]])))
        _check_answers_of_requests(predictor, asked, answers)


def _check_answers_of_requests(predictor: Predictor, asked: pa.Table, answers: np.ndarray) -> None:
    """Check that requests of JSON have the answers, alone and together."""
    model = ServedModel("model", predictor, 1024)
    assert model.inputs == predictor.inputs and model.raw is not None
    rows, columns = asked.slice(0, 4).to_pylist(), asked.slice(4, 3).to_pydict()
    rows[1] |= {"seen": None, "seen_at": None} if not rows[1]["seen"] else {}
    bodies = [{"rows": rows}, {"columns": columns}, {"rows": asked.slice(7, 1).to_pylist()}]
    requests = [
        parse_request(json.dumps(body).encode(), model.inputs, model.outputs, raw=model.raw)
        for body in bodies
    ]
    futures = [model.batcher.submit(each.inputs) for each in requests]
    found = np.concatenate([future.result(60)[0][0][:, 0] for future in futures])
    np.testing.assert_allclose(found, answers[:8], atol=1e-6)
    assert predictor._maker is not None and predictor.features is not None
    batch = predictor._maker(predictor.features, to_record_batch(asked.slice(0, 3)))
    names = [spec.name for spec in model.inputs]
    tensors = [
        {"name": name, "shape": list(each.shape), "datatype": spec.datatype, "data": each.tolist()}
        for name, spec, each in zip(names, model.inputs, batch, strict=True)
    ]
    body = json.dumps({"inputs": tensors}).encode()
    one = parse_request(body, model.inputs, model.outputs, raw=model.raw)
    two = [np.copy(each) for each in one.inputs]
    futures = [model.batcher.submit(each) for each in (one.inputs, two, one.inputs)]
    for future in futures:
        np.testing.assert_allclose(future.result(60)[0][0][:, 0], answers[:3], atol=1e-6)
    model.batcher.close()
    with pytest.raises(RequestError, match="'seen' must have a list in each row, got 7"):
        wrong = json.dumps({"columns": columns | {"seen": [[1], 7, None]}}).encode()
        parse_request(wrong, model.inputs, model.outputs, raw=model.raw)


def test_networks_of_histories_are_not_written_as_mindir(tmp_path: Path, unique: Any) -> None:
    net = models.Served(MeanOfHistory(schema_of().fit(clicks(50)), name=unique()))
    with pytest.raises(ValueError, match="a network that reads histories is not written as MindIR"):
        export_mindir(net, tmp_path / "model")
