# SPDX-License-Identifier: Apache-2.0
"""A stream that goes on with some of the partitions of a state, as one of several workers."""

from __future__ import annotations

import types

import pytest

from mindspore_rec.common.stream import source
from mindspore_rec.stream import ArrowFormat, StopWhen, StreamSource
from tests.support.topics import topic_of

MESSAGES = [[2, 2, 2]] * 3


@pytest.mark.parametrize(
    ("workers", "readers"), [(2, [[0], [1, 2]]), (2, [[0, 1], [2]]), (3, [[0], [1], [2]])]
)
def test_each_worker_goes_on_in_its_partitions(
    workers: int, readers: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic_of(MESSAGES)
    with StreamSource(topic.client(), ArrowFormat(), 6) as whole:
        seen = next(iter(whole))["x"].to_pylist()
        state = whole.state_dict()
    assert sorted(seen) == [0, 1, 1000, 1001, 2000, 2001]
    rest = []
    monkeypatch.setattr(source, "worker_group", lambda: types.SimpleNamespace(size=workers))
    for partitions in readers:
        stop = StopWhen(idle_seconds=0.1)
        stream = StreamSource(topic.client(), ArrowFormat(), 2, partitions=partitions, stop=stop)
        with stream:
            stream.load_state_dict(state)
            rows = [row for batch in stream for row in batch["x"].to_pylist()]
        assert {row // 1000 for row in rows} == set(partitions)
        rest += rows
    assert sorted(rest) == [1000 * partition + row for partition in range(3) for row in range(2, 6)]


def test_one_process_reads_all_partitions_of_a_state() -> None:
    topic = topic_of(MESSAGES)
    with StreamSource(topic.client(), ArrowFormat(), 6) as whole:
        next(iter(whole))
        state = whole.state_dict()
    of_workers = []
    for partitions in ([0], [1, 2]):
        with StreamSource(topic.client(), ArrowFormat(), 2, partitions=partitions) as part:
            next(iter(part))
            of_workers.append(part.state_dict())
    for each in (state, {"batches": 1, "workers": of_workers}):
        with (
            StreamSource(topic.client(), ArrowFormat(), 2, partitions=[0]) as stream,
            pytest.raises(ValueError, match="partitions"),
        ):
            stream.load_state_dict(each)
