# SPDX-License-Identifier: Apache-2.0
"""The example's broker: it keeps its data over a crash and never outlives who started it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from examples.online_learning.kafka.broker import Broker
from tests.support.processes import start_python
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


PARENT = """
import sys, time
from examples.online_learning.kafka.broker import Broker
broker = Broker(sys.argv[1]).start()
print(broker.pid, broker.address, flush=True)
time.sleep(600)
"""


def test_messages_survive_kill_and_restart(own_broker: Broker) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import KafkaAdminClient, NewTopic

    KafkaAdminClient(bootstrap_servers=own_broker.address).create_topics([NewTopic("kept", 1, 1)])
    producer = KafkaProducer(bootstrap_servers=own_broker.address, acks="all")
    for i in range(100):
        producer.send("kept", b"%d" % i)
    producer.flush()
    own_broker.kill()
    assert own_broker.pid is None
    own_broker.start()
    consumer = KafkaConsumer(bootstrap_servers=own_broker.address)
    partition = TopicPartition("kept", 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    values: list[bytes] = []
    deadline = time.monotonic() + 120
    while len(values) < 100 and time.monotonic() < deadline:
        for messages in consumer.poll(200).values():
            values += [message.value for message in messages]
    assert values == [b"%d" % i for i in range(100)]
    consumer.close()
    producer.close()


@pytest.mark.usefixtures("broker")  # skips where there is no Java; the jars are there then
def test_no_orphan_after_kill_of_the_parent(tmp_path: Path) -> None:
    parent = start_python("-c", PARENT, tmp_path)
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline().split()[0])
        assert _runs(pid)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    wait_until(lambda: not _runs(pid), 60)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_broker_that_cannot_start_says_why(broker: Broker, tmp_path: Path) -> None:
    second = Broker(tmp_path / "second", port=broker.port)
    with pytest.raises(RuntimeError, match="ended while starting.*broker.log"):
        second.start()
    with pytest.raises(RuntimeError, match="runs already"):
        broker.start()
