# SPDX-License-Identifier: Apache-2.0
"""Poison messages by the thousand: training goes on, and is what the good rows alone make of it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pyarrow as pa
import pytest
from mindspore import nn

from examples.online_learning.kafka.broker import Broker
from mindspore_rec import (
    HashEmbeddingLookup,
    LazyAdam,
    RecModel,
    load_checkpoint,
    save_checkpoint,
)
from mindspore_rec.stream import (
    Category,
    DeadLetterPolicy,
    FeaturePipeline,
    KafkaSource,
    LogScale,
    Number,
    StopWhen,
    StreamingDataset,
    StreamLimits,
    pack,
)
from tests.stream.test_stream_kafka import read_all
from tests.support.networks import LogitBeside

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.usefixtures("graph_mode"),
    pytest.mark.filterwarnings("ignore:read_text is deprecated"),
    pytest.mark.filterwarnings("ignore:open_text is deprecated"),
]

SCHEMA = pa.schema(
    [
        pa.field("user", pa.string(), nullable=False),
        pa.field("views", pa.int64()),
        pa.field("t", pa.float64()),
        pa.field("click", pa.int8(), nullable=False),
    ]
)
PARTITIONS, MESSAGES, ROWS, BATCH = 3, 2000, 8, 64
NOW = time.time()


def table(rng: np.random.Generator, rows: int = ROWS) -> pa.Table:
    """Rows as they should be."""
    user = rng.integers(0, 200, rows)
    columns = {
        "user": [f"u{i}" for i in user],
        "views": rng.integers(0, 1000, rows),
        "t": np.full(rows, NOW),
        "click": (rng.random(rows) < user / 200).astype(np.int8),
    }
    return pa.table(columns, SCHEMA)


def put(rows: pa.Table, name: str, column: Any) -> bytes:
    """The rows with another column."""
    return pack(rows.set_column(rows.schema.names.index(name), name, column))


def at(rows: pa.Table, second: float) -> bytes:
    """The rows with the last event at that time."""
    return put(rows, "t", pa.array([NOW] * (len(rows) - 1) + [second]))


POISON: dict[str, Callable[[pa.Table, np.random.Generator], bytes | None]] = {
    "schema: no column": lambda rows, rng: pack(rows.drop_columns("views")),
    "schema: twice": lambda rows, rng: pack(rows.append_column("user", rows["user"])),
    "schema: text": lambda rows, rng: put(rows, "views", rows["views"].cast(pa.string())),
    "schema: lists": lambda rows, rng: put(rows, "click", pa.array([[1]] * len(rows))),
    "format: cut": lambda rows, rng: pack(rows)[: int(rng.integers(1, len(pack(rows))))],
    "format: noise": lambda rows, rng: rng.bytes(int(rng.integers(1, 2000))),
    "format: json": lambda rows, rng: json.dumps(rows.to_pylist()).encode(),
    "format: more": lambda rows, rng: pack(rows) + b"more",
    "empty: bytes": lambda rows, rng: b"",
    "empty: none": lambda rows, rng: None,
    "null: label": lambda rows, rng: put(rows, "click", pa.nulls(len(rows), pa.int8())),
    "value: label": lambda rows, rng: put(
        rows, "click", pa.array([0] * (len(rows) - 1) + [int(rng.choice([-1, 2]))], pa.int8())
    ),
    "time: day": lambda rows, rng: at(rows, NOW + 86_400.0),
    "time: end": lambda rows, rng: at(rows, np.inf),
    "size: row": lambda rows, rng: put(rows[:1], "user", pa.array(["u" * (10 << 20)])),
}
RARE = {"size: row": 6}  # the others come by the hundred


def values(rng: np.random.Generator) -> tuple[list[bytes | None], list[str], list[pa.Table]]:
    """Messages in the order of the turns, the defect of each message or '', and the good rows in
    order."""
    often = [kind for kind in POISON if kind not in RARE]
    kinds = [str(rng.choice(often)) if rng.random() < 0.6 else "" for _ in range(MESSAGES)]
    for kind, count in RARE.items():
        for place in rng.choice(MESSAGES - 100, count, replace=False):
            kinds[place] = kind
    kinds[-1] = ""  # the state after the last batch is that at the end of the topic
    good = [i for i, kind in enumerate(kinds) if not kind]
    for i in good[: len(good) % (BATCH // ROWS)]:  # whole batches of good rows
        kinds[i] = "empty: bytes"
    tables = [table(rng) for _ in kinds]
    made = [
        POISON[kind](rows, rng) if kind else pack(rows)
        for kind, rows in zip(kinds, tables, strict=True)
    ]
    return made, kinds, [rows for kind, rows in zip(kinds, tables, strict=True) if not kind]


def write(brokers: str, topic: str, messages: list[bytes | None]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=brokers, max_request_size=32 << 20, linger_ms=5)
    for i, value in enumerate(messages):
        producer.send(topic, value, key=b"k", partition=i % PARTITIONS)
    producer.close()


class Life:
    """A trainer from its start to its end."""

    def __init__(self, name: str) -> None:
        ms.set_seed(3)
        self.pipeline = FeaturePipeline(
            {"ids": Category("user"), "dense": LogScale("views", True), "label": Number("click")}
        )
        self.net = LogitBeside(HashEmbeddingLookup(4, ms.int64, name=name), 4, 1)
        optimizer = LazyAdam(self.net.trainable_params(), learning_rate=0.05)
        self.model = RecModel(self.net, nn.BCEWithLogitsLoss(), optimizer)

    def end(self) -> list[Any]:
        """All that it learned; its table is gone then."""
        rows = self.net.embedding.embedding_table.export_rows(with_state=True)
        order = np.argsort(rows["keys"])
        found = [rows[name][order] for name in ("keys", "values", "states", "counts", "last_steps")]
        found += [self.net.dense.weight.asnumpy().copy(), self.net.dense.bias.asnumpy().copy()]
        self.net.embedding.embedding_table.close()
        return [*found, self.pipeline.state_dict()]


def from_memory(life: Life, good: list[pa.Table]) -> Iterator[tuple[np.ndarray, ...]]:
    rows = pa.concat_tables(good).combine_chunks()
    for begin in range(0, len(rows), BATCH):
        made = life.pipeline(rows[begin : begin + BATCH])
        yield made["ids"], made["dense"], made["label"]


def test_poison_by_the_thousand(
    broker: Broker, topic: Callable[..., str], unique: Callable[[], str], tmp_path: Path
) -> None:
    name, dead = topic(PARTITIONS), topic()
    messages, kinds, good = values(np.random.default_rng(11))
    write(broker.address, name, messages)
    table_name = unique()

    def stream(life: Life, stop: StopWhen) -> StreamingDataset:
        source = KafkaSource(
            broker.address, name, SCHEMA, batch_size=BATCH, event_time="t", stop=stop,
            dead_letters=DeadLetterPolicy(dead, max_dead_share=1),
            limits=StreamLimits(max_future_seconds=3600.0, value_ranges={"click": (0, 1)}),
        )  # fmt: skip
        return StreamingDataset(source, life.pipeline)

    alone = Life(table_name)
    alone.model.online_train(from_memory(alone, good), progress=False)
    expected = alone.end()

    batches = len(good) * ROWS // BATCH
    saved, crash = batches // 3, batches // 2
    first = Life(table_name)
    begun = stream(first, StopWhen(batches=crash))
    first.model.online_train(begun, progress=False, max_steps=saved)
    save_checkpoint(first.model, tmp_path / "saved")
    state = json.dumps(begun.state_dict(batches=saved))
    first.model.online_train(begun, progress=False)  # and then it crashes
    first.end()

    second = Life(table_name)
    rest = stream(second, StopWhen(idle_seconds=5.0))
    rest.load_state_dict(json.loads(state))
    load_checkpoint(second.model, tmp_path / "saved")
    summary = second.model.online_train(rest, progress=False)
    assert summary.steps == batches - saved
    for got, want in zip(second.end(), expected, strict=True):
        np.testing.assert_array_equal(got, want)

    bad = Counter(kind.split(":")[0] for kind in kinds if kind)
    assert sum(bad.values()) > 1000 and min(bad.values()) >= RARE["size: row"]
    counts = rest.state_dict()["source"]
    assert counts["dead"] == dict(bad)
    assert counts["order"]["taken"] == MESSAGES == len(good) + sum(bad.values())
    letters = {}
    for letter in read_all(broker.address, dead):
        headers = {key: value.decode() for key, value in letter.headers}
        partition, offset = int(headers["partition"]), int(headers["offset"])
        number = offset * PARTITIONS + partition
        assert number not in letters, "sent twice"
        letters[number] = headers["reason"]
        value = messages[number] or b""
        assert (headers["topic"], int(headers["size"])) == (name, len(value))
        assert value.startswith(letter.value or b"") and len(letter.value or b"") >= min(
            len(value), 1 << 16
        )
    assert letters == {i: kind.split(":")[0] for i, kind in enumerate(kinds) if kind}
