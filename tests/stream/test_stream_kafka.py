# SPDX-License-Identifier: Apache-2.0
"""KafkaSource against a real broker: resume, crashes of the broker, poison by the thousand."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from examples.online_learning.kafka.broker import Broker
from mindspore_rec import Schema
from mindspore_rec.common.stream.kafka_client import KafkaClient, KafkaWriter
from mindspore_rec.feature import CategoryColumn, LabelColumn
from mindspore_rec.stream import DeadLetterPolicy, KafkaSource, StopWhen, StreamLimits, pack
from tests.support.kafka_broker import make_topic

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore:read_text is deprecated"),
    pytest.mark.filterwarnings("ignore:open_text is deprecated"),
]

SCHEMA = pa.schema({"x": pa.int64(), "t": pa.float64()})


def message(begin: int, rows: int, at: float = 0.0) -> bytes:
    x = np.arange(begin, begin + rows)
    return pack(pa.table({"x": x, "t": np.full(rows, at)}, SCHEMA))


def write(brokers: str, topic: str, values: list[bytes], partitions: int = 1) -> None:
    writer = KafkaWriter(brokers)
    for i, value in enumerate(values):
        writer.send(topic, i % partitions, value)
    writer.close()


def xs(batch: pa.RecordBatch) -> list[int]:
    return batch["x"].to_pylist()


def test_resume_gives_the_same_batches(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic(2)
    rng = np.random.default_rng(0)
    write(broker.address, name, [message(1000 * i, int(rng.integers(1, 90))) for i in range(60)], 2)

    def stream() -> KafkaSource:
        return KafkaSource(
            broker.address, name, SCHEMA, batch_size=64, stop=StopWhen(idle_seconds=5.0)
        )

    whole = stream()
    expected = [xs(batch) for batch in whole]
    assert whole.lag == 0 and len(set(sum(expected, []))) == whole.state_dict()["rows"]
    for i in (0, 1, len(expected) // 2, len(expected) - 1):
        with stream() as again:
            again.load_state_dict(whole.state_dict(batches=i))
            assert [xs(batch) for batch in again] == expected[i:]


@pytest.mark.parametrize("format", ["tsv", "json"])
def test_single_rows(broker: Broker, topic: Callable[..., str], format: str) -> None:
    name = topic()
    text = {"tsv": b"%d\t0.5", "json": b'{"t": 0.5, "x": %d}'}[format]
    write(broker.address, name, [text % i for i in range(3000)])
    stop = StopWhen(batches=3)
    stream = KafkaSource(broker.address, name, SCHEMA, format=format, batch_size=1000, stop=stop)
    assert sum((xs(batch) for batch in stream), []) == list(range(3000))


def test_a_killed_broker_loses_and_repeats_nothing(own_broker: Broker) -> None:
    name = make_topic(own_broker.address)
    write(own_broker.address, name, [message(10 * i, 10) for i in range(400)])
    stream = KafkaSource(
        own_broker.address, name, SCHEMA, batch_size=7, limits=StreamLimits(buffer_bytes=20_000),
        stop=StopWhen(batches=571, seconds=120.0),
        kafka_options={"max_partition_fetch_bytes": 9000},
    )  # fmt: skip
    rows: list[int] = []
    killed = 0
    for batch in stream:
        rows += xs(batch)
        if len(rows) >= (1000, 2500, 1 << 60)[killed]:
            killed += 1
            own_broker.kill()
            time.sleep(0.3)
            own_broker.start()
    assert killed == 2
    assert rows == list(range(571 * 7))


def test_poison_by_the_thousand(broker: Broker, topic: Callable[..., str]) -> None:
    name, dead = topic(), topic()
    now = time.time()
    rng = np.random.default_rng(3)
    good = message(0, 5, now)
    poison: dict[str, Callable[[int], bytes]] = {
        "schema": lambda i: pack(pa.table({"x": [i], "t": ["now"]})),
        "format": lambda i: good[: 10 + i % (len(good) - 40)],
        "time": lambda i: message(i, 2, now + 7200),
        "null": lambda i: pack(pa.table({"x": [None, i], "t": [now, now]}, SCHEMA)),
    }
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False), SCHEMA.field("t")])
    values: list[bytes] = []
    expected: Counter[str] = Counter()
    fine = 0
    for i in range(4000):
        reason = str(rng.choice([*poison, "good"], p=[0.2, 0.2, 0.2, 0.2, 0.2]))
        if reason == "good":
            values.append(message(fine, 5, now))
            fine += 5
        else:
            values.append(poison[reason](i))
            expected[reason] += 1
    values[1000:1000] = [b"\xff" * (10 << 20)] * 2
    expected["size"] += 2
    write(broker.address, name, values)

    def stream(stop: StopWhen) -> KafkaSource:
        return KafkaSource(
            broker.address, name, schema, batch_size=50, event_time="t", stop=stop,
            dead_letters=DeadLetterPolicy(dead, max_dead_share=1),
            limits=StreamLimits(max_future_seconds=600.0),
        )  # fmt: skip

    first = stream(StopWhen(batches=30))
    rows = sum((xs(batch) for batch in first), [])
    state = first.state_dict(batches=20)  # as after a crash, ten batches later
    second = stream(StopWhen(idle_seconds=5.0))
    second.load_state_dict(state)
    rows = rows[:1000] + sum((xs(batch) for batch in second), [])
    assert rows == list(range(fine))
    counts = second.state_dict()
    assert counts["dead"] == dict(expected)
    assert counts["order"]["taken"] == len(values) == fine // 5 + sum(expected.values())
    letters = read_all(broker.address, dead)
    reasons = Counter(dict(m.headers)["reason"].decode() for m in letters)
    assert reasons == expected and len({m.key for m in letters}) == len(letters)
    for letter in letters:
        headers = {key: value.decode() for key, value in letter.headers}
        assert (headers["topic"], headers["partition"]) == (name, "0")
        original = values[int(headers["offset"])]
        assert int(headers["size"]) == len(original) and original.startswith(letter.value or b"-")


def read_all(brokers: str, topic: str) -> list[Any]:
    client = KafkaClient(brokers, topic)
    end = client.bounds([0])[0][1]
    client.seek({0: 0})
    found: list[Any] = []
    while len(found) < end:
        found += client.poll(0.5, ()).get(0, [])
    client.close()
    return found


def test_a_broker_that_knows_no_broker_yet_is_waited_for(
    broker: Broker, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker answers so for a moment after it has started."""
    from kafka.errors import MetadataEmptyBrokerList

    client = KafkaClient(broker.address, topic())
    answer, empty = client._consumer.partitions_for_topic, [True] * 3
    calls, ready = 0, time.monotonic() + 0.3

    def partitions_for_topic(name: str) -> Any:
        nonlocal calls
        calls += 1
        if empty or time.monotonic() < ready:
            del empty[:1]
            raise MetadataEmptyBrokerList("no brokers")
        return answer(name)

    monkeypatch.setattr(client._consumer, "partitions_for_topic", partitions_for_topic)
    assert client.partitions() == [0] and not empty
    assert calls < 9  # it is not asked without a pause
    client.close()


def test_messages_deleted_unread_are_an_error(broker: Broker, topic: Callable[..., str]) -> None:
    from kafka import TopicPartition
    from kafka.admin import KafkaAdminClient

    name = topic()
    write(broker.address, name, [message(i, 1) for i in range(100)])
    late = KafkaSource(broker.address, name, SCHEMA, batch_size=10, start={0: 20})
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    admin.delete_records({TopicPartition(name, 0): 50})
    admin.close()
    with late, pytest.raises(LookupError, match="30 messages were deleted unread"):
        next(late)
    client = KafkaClient(broker.address, name)  # as it happens to a stream that is reading
    client.seek({0: 20})
    with pytest.raises(LookupError, match="no longer has messages that are to be read next"):
        for _ in range(50):
            client.poll(0.2, ())
    client.close()


def test_refusals(broker: Broker, topic: Callable[..., str]) -> None:
    with pytest.raises(ValueError, match="topic must exist"):
        KafkaSource(broker.address, "no-such-topic", SCHEMA)
    with pytest.raises(ConnectionError, match="no Kafka broker answers"):
        KafkaSource("127.0.0.1:1", "x", SCHEMA, kafka_options={"bootstrap_timeout_ms": 500})
    name = topic()
    with pytest.raises(ValueError, match="dead_letters must be another topic"):
        KafkaSource(broker.address, name, SCHEMA, dead_letters=name)
    with pytest.raises(ValueError, match="schema must be given"):
        KafkaSource(broker.address, name, format="json")
    with pytest.raises(ValueError, match="format must be one of"):
        KafkaSource(broker.address, name, SCHEMA, format="avro")


def recreate(brokers: str, topic: str) -> None:
    """Delete a topic, and make one of the same name."""
    from kafka.admin import KafkaAdminClient, NewTopic
    from kafka.errors import TopicAlreadyExistsError

    admin = KafkaAdminClient(bootstrap_servers=brokers)
    try:
        admin.delete_topics([topic])
        for _ in range(600):
            try:
                admin.create_topics([NewTopic(topic, 1, 1)])
                return
            except TopicAlreadyExistsError:  # it is being deleted
                time.sleep(0.1)
        raise AssertionError(f"{topic} is still there")
    finally:
        admin.close()


def test_a_topic_made_anew_is_refused(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic()
    write(broker.address, name, [message(10 * i, 10) for i in range(3)])
    stop = StopWhen(batches=3, seconds=300.0)
    with KafkaSource(broker.address, name, SCHEMA, batch_size=10, stop=stop) as stream:
        assert len(list(stream)) == 3
        state = stream.state_dict()
    recreate(broker.address, name)
    write(broker.address, name, [message(1000 + 10 * i, 10) for i in range(9)])
    with (
        KafkaSource(broker.address, name, SCHEMA, batch_size=10, stop=stop) as again,
        pytest.raises(LookupError, match="was deleted and made anew"),
    ):
        again.load_state_dict(state)


def test_partitions_that_a_topic_gets_are_read(broker: Broker, topic: Callable[..., str]) -> None:
    from kafka.admin import KafkaAdminClient

    name = topic()
    write(broker.address, name, [message(0, 10)])
    stream = KafkaSource(
        broker.address, name, SCHEMA, batch_size=10, stop=StopWhen(batches=9, seconds=60.0),
        limits=StreamLimits(skip_idle_seconds=1.0), kafka_options={"metadata_max_age_ms": 500},
    )  # fmt: skip
    with stream:
        found = xs(next(stream))
        admin = KafkaAdminClient(bootstrap_servers=broker.address)
        admin.create_partitions({name: 3})
        admin.close()
        # A producer may know the topic as it was for a while.
        write(broker.address, name, [message(10 * i, 10) for i in range(1, 13)], 3)
        found += sum((xs(batch) for batch in stream), [])
        assert len(found) == len(set(found)) == 90
        assert stream.partitions == [0, 1, 2]


def test_a_schema_takes_the_place_of_types(broker: Broker, topic: Callable[..., str]) -> None:
    name, dead = topic(), topic()
    schema = Schema([CategoryColumn("user", values="whole"), LabelColumn("clicked")])
    labels = [0, 1, 5, 1]
    rows = [{"user": k, "clicked": label, "more": 1} for k, label in enumerate(labels)]
    write(broker.address, name, [json.dumps(row).encode() for row in rows])
    policy = DeadLetterPolicy(dead, max_dead_share=1)
    stop = StopWhen(batches=1)
    with KafkaSource(
        broker.address, name, schema, format="json", batch_size=3, dead_letters=policy, stop=stop
    ) as source:
        (batch,) = source
    assert batch.to_pydict() == {"user": [0, 1, 3], "clicked": [0, 1, 1]}
    (letter,) = read_all(broker.address, dead)
    headers = {key: value.decode() for key, value in letter.headers}
    assert headers["reason"] == "value"
    assert headers["detail"].startswith("column 'clicked' must be 0 or 1 (positive: names")
