# SPDX-License-Identifier: Apache-2.0
"""Assignment alone: which partitions are read, and where they begin."""

from __future__ import annotations

from typing import Any

import pytest

from mindspore_rec.common.stream.assignment import Assignment
from mindspore_rec.common.stream.memory import MemoryClient
from mindspore_rec.stream import MemoryTopic


class Trimmed(MemoryClient):
    """A log whose partition p has lost its first p messages."""

    def bounds(self, partitions: Any) -> dict[int, tuple[int, int]]:
        return {p: (p, last) for p, (_, last) in super().bounds(partitions).items()}


@pytest.fixture
def client() -> MemoryClient:
    topic = MemoryTopic(3)
    for number in range(9):
        topic.append(b"x", number % 3)
    return Trimmed(topic, 500)


def test_where_a_stream_begins(client: MemoryClient) -> None:
    assert Assignment(client, None, "earliest").first_offsets() == {0: 0, 1: 1, 2: 2}
    assert Assignment(client, [2, 0], "latest").first_offsets() == {0: 3, 2: 3}
    assert Assignment(client, [1], {1: 2}).first_offsets() == {1: 2}


def test_where_partitions_begin_that_come_later(client: MemoryClient) -> None:
    whole = Assignment(client, None, "latest")
    assert whole.begins([0, 1, 2], [0]) == {1: 0, 2: 0}  # new, so none of their messages is missing
    chosen = Assignment(client, [0, 2], "latest")
    assert chosen.begins([0, 2], [0]) == {2: 2}
    offsets = Assignment(client, [0, 2], {0: 1, 2: 3})
    assert offsets.begins([0, 2, 4], [0]) == {2: 3, 4: 0}


def test_partitions_are_added_in_order_and_divided(client: MemoryClient) -> None:
    assignment = Assignment(client, None, "earliest")
    assignment.add(7, 1)
    assert assignment.partitions == [0, 1, 2, 7]
    assert assignment.share_of([0, 1, 2, 3]) == [0, 1, 2, 3]
    assignment.split = (0, 2)
    assert assignment.share_of([0, 1, 2, 3]) == [0, 2]
