# SPDX-License-Identifier: Apache-2.0
"""A topic in memory alone: what a reader gets, and when."""

from __future__ import annotations

import threading

from mindspore_rec.common.stream.client import Message
from mindspore_rec.common.stream.memory import MemoryClient, MemoryTopic
from tests.support.waiting import wait_until

FOREVER = 100_000.0  # seconds


def reader(topic: MemoryTopic, most: int = 500) -> MemoryClient:
    client = topic.client(most)
    client.seek(dict.fromkeys(client.partitions(), 0))
    return client


def values(by_partition: dict[int, list[Message]]) -> dict[int, list[bytes | None]]:
    return {p: [each.value for each in messages] for p, messages in by_partition.items()}


def test_a_reader_that_waits_gets_a_message_when_it_comes() -> None:
    topic = MemoryTopic(2)
    client, got = reader(topic), list[dict[int, list[Message]]]()
    waits = threading.Thread(target=lambda: got.append(client.poll(FOREVER, ())), daemon=True)
    waits.start()
    wait_until(lambda: topic._changed._waiters, seconds=60)  # type: ignore[attr-defined]
    assert topic.append(b"now", 1) == 0
    wait_until(lambda: not waits.is_alive(), seconds=60)
    assert values(got[0]) == {1: [b"now"]}


def test_a_poll_has_at_most_so_many_messages_and_leaves_paused_partitions() -> None:
    topic = MemoryTopic(2)
    for number in range(5):
        topic.append(b"%d" % number, number % 2)
    client = reader(topic, most=2)
    assert values(client.poll(0, [1])) == {0: [b"0", b"2"]}
    assert values(client.poll(0, ())) == {0: [b"4"], 1: [b"1", b"3"]}
    assert client.poll(0, ()) == {} == client.poll(0.001, ())
    assert client.bounds([0, 1]) == {0: (0, 3), 1: (0, 2)} and client.ends() == {0: 3, 1: 2}
    assert [client.position(p) for p in (0, 1)] == [3, 2]
