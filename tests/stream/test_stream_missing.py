# SPDX-License-Identifier: Apache-2.0
"""Messages that a log removed before they were read: counted, told of, never taken for markers."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from examples.online_learning.kafka.broker import Broker
from mindspore_rec.common.stream.kafka_client import KafkaClient
from mindspore_rec.common.stream.memory import MemoryClient
from mindspore_rec.stream import (
    ArrowFormat,
    Journal,
    KafkaSource,
    MemoryTopic,
    Message,
    StopWhen,
    StreamLimits,
    StreamSource,
    pack,
)
from tests.support.topics import topic_of_messages

SCHEMA = pa.schema({"x": pa.int64()})
STOP = StreamLimits(on_missing="stop")


def message(number: int) -> bytes:
    return pack(pa.table({"x": [number]}, SCHEMA))


class Holes(MemoryClient):
    """A log without some of its messages, and with markers of transactions among the others."""

    def __init__(self, topic: MemoryTopic, most: int, gone: set[int], markers: set[int]) -> None:
        super().__init__(topic, most)
        self.gone, self.markers = gone, markers
        self.expected: dict[int, int] = {}

    def seek(self, offsets: Any) -> None:
        super().seek(offsets)
        self.expected = dict(offsets)

    def _take(self, paused: Any) -> dict[int, list[Message]]:
        kept: dict[int, list[Message]] = {}
        for p, messages in super()._take(paused).items():
            for each in messages:
                if each.offset in self.gone | self.markers:
                    continue
                before = set(range(self.expected[p], each.offset))
                self.expected[p] = each.offset + 1
                kept.setdefault(p, []).append(each._replace(skipped=len(before & self.markers)))
        return kept


@pytest.fixture
def topic() -> MemoryTopic:
    return topic_of_messages(map(message, range(1000)), name="clicks")


GONE = {0, 1, 50, *range(100, 200), *range(400, 900, 3)}
MARKERS = {10, 51, 52, 399, 901}


def stream(
    topic: MemoryTopic, most: int = 70, gone: set[int] = GONE, **options: Any
) -> StreamSource:
    options.setdefault("stop", StopWhen(idle_seconds=2.0))
    return StreamSource(Holes(topic, most, gone, MARKERS), ArrowFormat(SCHEMA), 30, **options)


def test_what_is_missing_is_counted_and_told(
    topic: MemoryTopic, caplog: pytest.LogCaptureFixture
) -> None:
    source = stream(topic)
    with caplog.at_level(logging.WARNING, "mindspore_rec"):
        rows = [x for batch in source for x in batch["x"].to_pylist()]
    assert rows == sorted(set(range(1000)) - GONE - MARKERS)
    assert source.missing == len(GONE)
    said = [each.getMessage() for each in caplog.records if "were removed" in each.getMessage()]
    assert 2 <= len(said) <= 10
    assert said[0].startswith("messages 0 to 1 of partition 0 of topic 'clicks'")
    assert said[0].endswith("2 in all") and "cleanup.policy=delete" in said[0]


def test_markers_of_transactions_are_not_missing(
    topic: MemoryTopic, caplog: pytest.LogCaptureFixture
) -> None:
    source = stream(topic, gone=set(), limits=STOP)
    assert sum(batch.num_rows for batch in source) == 1000 - len(MARKERS)
    # Only ours: kafka-python may log a retry while it looks for the broker.
    said = [each for each in caplog.records if each.name.startswith("mindspore_rec")]
    assert source.missing == 0 and not said


def test_they_are_an_error_by_option(topic: MemoryTopic) -> None:
    source = stream(topic, gone={500, 501, 502}, limits=STOP, stop=StopWhen(batches=40))
    with pytest.raises(LookupError, match="messages 500 to 502 of partition 0 .* were removed"):
        list(source)
    assert source.position[0] <= 500
    with pytest.raises(ValueError, match="on_missing must be one of"):
        stream(topic, limits=StreamLimits(on_missing="raise"))


def test_the_count_is_part_of_the_state(topic: MemoryTopic) -> None:
    whole = stream(topic)
    states = [whole.state_dict()]
    for _ in whole:
        states.append(whole.state_dict())
    for i in range(0, len(states), 5):
        again = stream(topic, most=150 + 9 * i)
        again.load_state_dict(json.loads(json.dumps(states[i])))
        list(again)
        assert again.missing == len(GONE)
    old = json.loads(json.dumps(states[3]))
    del old["order"]["missing"]  # of a state from before they were counted
    again = stream(topic, stop=StopWhen(batches=1))
    again.load_state_dict(old)
    assert again.missing == 0


# ---- a real broker


def make(broker: Broker, name: str, partitions: int = 1, **configs: Any) -> str:
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        admin.create_topics([NewTopic(name, partitions, 1, topic_configs=configs)])
    finally:
        admin.close()
    return name


@pytest.fixture
def producer(broker: Broker) -> Iterator[Callable[..., Any]]:
    from kafka import KafkaProducer

    made: list[Any] = []

    def begin(**options: Any) -> Any:
        made.append(KafkaProducer(bootstrap_servers=broker.address, **options))
        return made[-1]

    yield begin
    for each in made:
        each.close()


def from_kafka(broker: Broker, name: str, **options: Any) -> KafkaSource:
    options.setdefault("stop", StopWhen(idle_seconds=5.0))
    return KafkaSource(broker.address, name, SCHEMA, batch_size=10, **options)


@pytest.mark.kafka
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_transactions_leave_no_gaps(
    broker: Broker, producer: Callable[..., Any], isolation: str
) -> None:
    name = make(broker, f"transactions-{isolation}")
    plain = producer()
    writer = producer(transactional_id=f"writer-{isolation}", linger_ms=0)
    writer.init_transactions()
    committed: list[int] = []
    aborted: list[int] = []
    number = 0
    for turn in range(12):
        writer.begin_transaction()
        for _ in range(3):
            writer.send(name, message(number), partition=0)
            (aborted if turn % 3 == 1 else committed).append(number)
            number += 1
        writer.flush()
        if turn % 3 == 1:
            writer.abort_transaction()
        else:
            writer.commit_transaction()
        if turn % 2:
            plain.send(name, message(number), partition=0).get(60)
            committed.append(number)
            number += 1
    options = {"kafka_options": {"isolation_level": isolation}, "limits": STOP}
    with from_kafka(broker, name, **options) as source:
        rows = [x for batch in source for x in batch["x"].to_pylist()]
    expected = committed if isolation == "read_committed" else sorted(committed + aborted)
    assert rows == expected and source.missing == 0
    offsets = source.position[0]
    assert offsets > number  # markers took offsets
    for begin in range(offsets):  # from anywhere, a marker's offset too
        client = KafkaClient(broker.address, name, {"isolation_level": isolation})
        client.seek({0: begin})
        messages: list[Message] = []
        until = time.monotonic() + 60
        while (not messages or messages[-1].offset < offsets - 1) and time.monotonic() < until:
            messages += client.poll(0.2, ()).get(0, [])
        client.close()
        expected_next = begin
        for each in messages:
            assert each.offset == expected_next + each.skipped
            expected_next = each.offset + 1


@pytest.mark.kafka
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("aborted", [False, True], ids=["committed", "aborted"])
def test_a_marker_at_the_end_is_no_message_to_wait_for(
    broker: Broker, producer: Callable[..., Any], isolation: str, aborted: bool, tmp_path: Path
) -> None:
    name = make(broker, f"marker-{isolation}-{aborted}", partitions=2)
    writer = producer(transactional_id=f"marker-{isolation}-{aborted}", linger_ms=0)
    writer.init_transactions()
    writer.begin_transaction()
    for number in range(3):
        writer.send(name, message(100 + number), partition=1)
    writer.flush()
    (writer.abort_transaction if aborted else writer.commit_transaction)()
    plain = producer()
    for number in range(40):
        plain.send(name, message(number), partition=0)
    plain.flush()
    options = {
        "kafka_options": {"isolation_level": isolation},
        "limits": StreamLimits(skip_idle_seconds=0.3),
    }
    journal = Journal(tmp_path / "journal")
    with from_kafka(broker, name, journal=journal, **options) as source:
        rows = [x for batch in source for x in batch["x"].to_pylist()]
    hidden = aborted and isolation == "read_committed"
    assert sorted(rows) == [*range(40), *([] if hidden else [100, 101, 102])]
    assert journal[0].kind == "leave" and journal[0].partition == 1


@pytest.mark.kafka
def test_compaction_is_told(
    broker: Broker, producer: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    name = make(
        broker, "compacted", 1,
        **{
            "cleanup.policy": "compact", "segment.ms": "200", "delete.retention.ms": "0",
            "min.cleanable.dirty.ratio": "0.001", "min.compaction.lag.ms": "0",
            "max.compaction.lag.ms": "200",
        },
    )  # fmt: skip
    writer = producer()
    for number in range(300):
        writer.send(name, message(number), key=b"%d" % (number % 7), partition=0)
    writer.flush()
    begin, number = time.monotonic(), 300
    while time.monotonic() < begin + 240:  # until the cleaner has come by; a message rolls segments
        time.sleep(1.0)
        writer.send(name, message(number), key=b"last", partition=0).get(60)
        number += 1
        client = KafkaClient(broker.address, name)
        client.seek({0: 0})
        there: list[Message] = []
        until = time.monotonic() + 10
        while (not there or there[-1].offset < number - 1) and time.monotonic() < until:
            there += client.poll(0.2, ()).get(0, [])
        client.close()
        if len(there) < 100:
            break
    assert len(there) < 100, "the broker has not compacted the topic in 240 s"
    with caplog.at_level(logging.WARNING, "mindspore_rec"):
        with from_kafka(broker, name) as source:
            rows = [x for batch in source for x in batch["x"].to_pylist()]
    assert source.missing == number - len(rows) > 200
    assert any("were removed before they were read" in each.getMessage() for each in caplog.records)
    with from_kafka(broker, name, limits=STOP, start={0: 0}) as source:
        with pytest.raises(LookupError, match="of topic 'compacted'.* were removed before they"):
            list(source)


class Broken(str):
    """A name that is no UTF-8."""

    def encode(self, *how: Any) -> bytes:
        return b"\xff" + super().encode()


@pytest.mark.kafka
def test_a_header_whose_name_is_no_text_stops_nothing(
    broker: Broker, producer: Callable[..., Any]
) -> None:
    name = make(broker, "headers")
    writer = producer(linger_ms=100)
    rng = np.random.default_rng(0)
    for number in range(60):
        bad = rng.random() < 0.3
        headers = [(Broken("name") if bad else "name", b"\xff"), ("more", b"")]
        writer.send(name, message(number), partition=0, headers=headers)
    writer.flush()
    with from_kafka(broker, name, stop=StopWhen(batches=6, seconds=60.0)) as source:
        assert sum((batch["x"].to_pylist() for batch in source), []) == list(range(60))
