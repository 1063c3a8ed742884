# SPDX-License-Identifier: Apache-2.0
"""Positions in a topic travel with their partitions between any numbers of workers."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec.common.stream import source as source_module
from mindspore_rec.common.stream.journal import Decision
from mindspore_rec.common.stream.partition_split import partitions_of
from mindspore_rec.common.stream.worker_states import join_states, state_for, states_in
from mindspore_rec.stream import (
    BatchWrapper,
    Journal,
    MemoryTopic,
    StreamingDataset,
    StreamLimits,
    pack,
    split_by_worker,
)
from tests.support.topics import stream_of, topic_of

PARTITIONS = 4


def batches_of(stream: StreamingDataset, most: int, left: int) -> list[int]:
    """Return the rows of the next batches, as many as there surely are."""
    found: list[int] = []
    size = stream.source.batch_size
    for _ in range(min(most, left // size)):
        found += next(stream)[0].tolist()
    return found


# So many messages of each partition in turn that nobody has to wait for one.
messages = st.lists(st.integers(1, 5), min_size=8, max_size=8)


@settings(max_examples=40, deadline=None)
@given(
    sizes=messages,
    numbers=st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4),
    steps=st.lists(st.integers(0, 2), min_size=4, max_size=4),
)
def test_every_row_once_however_often_the_number_changes(
    sizes: list[int], numbers: list[int], steps: list[int]
) -> None:
    """A run of trainings, each with another number of workers, reads each row once and in order."""
    topic = topic_of([sizes * 4] * PARTITIONS)
    seen: dict[int, list[int]] = {p: [] for p in range(PARTITIONS)}
    state: Any = None
    for workers, count in zip(numbers, steps, strict=False):
        states = []
        for worker in range(workers):
            with stream_of(topic) as stream:
                if state is not None:
                    stream.load_state_dict(json.loads(json.dumps(state)))
                    assert stream.batches == state["batches"]
                if workers > 1:
                    assert stream.split_by_worker(worker, workers) is stream
                for row in batches_of(stream, count, 12):
                    seen[row // 1000].append(row % 1000)
                states.append(stream.state_dict())
                mine = partitions_of(worker, workers, range(PARTITIONS))
                assert stream.source.partitions == mine
        state = join_states(states)
    for rows in seen.values():
        assert rows == list(range(len(rows)))


def test_equal_numbers_of_workers_go_on_as_if_never_stopped() -> None:
    """The turns too, so that batches are those of a training that was never interrupted."""
    topic = topic_of([[2, 3, 1, 4] * 6] * 3)
    for worker in range(2):
        with stream_of(topic, 5) as whole:
            whole.split_by_worker(worker, 2)
            expected = [next(whole)[0].tolist() for _ in range(6)]
        with stream_of(topic, 5) as other, stream_of(topic, 5) as first:
            other.split_by_worker(1 - worker, 2)
            first.split_by_worker(worker, 2)
            begun = [next(first)[0].tolist() for _ in range(3)]
            states = [first.state_dict(), other.state_dict()]
            state = join_states(states if worker == 0 else states[::-1])
        with stream_of(topic, 5) as again:
            again.load_state_dict(state)
            again.split_by_worker(worker, 2)
            assert begun + [next(again)[0].tolist() for _ in range(3)] == expected


def test_shares_of_a_batch_are_its_rows() -> None:
    topic = topic_of([[8] * 4] * 2)
    sizes = []
    for worker in range(2):
        with stream_of(topic, 5) as stream:
            stream.split_by_worker(worker, 2)
            sizes.append(stream.source.batch_size)
    assert sizes == [2, 3]


def test_a_message_that_two_workers_have_begun_goes_on() -> None:
    """One worker then reads the rest of both messages."""
    topic = topic_of([[9], [9]])
    states = []
    for worker in range(2):
        with stream_of(topic, 8) as stream:
            stream.split_by_worker(worker, 2)
            assert next(stream)[0].tolist() == [1000 * worker + i for i in range(4)]
            states.append(stream.state_dict())
    with stream_of(topic, 5) as one:
        one.load_state_dict(join_states(states))
        assert next(one)[0].tolist() == [4, 5, 6, 7, 8]
        again = one.state_dict()
        assert next(one)[0].tolist() == [1004, 1005, 1006, 1007, 1008]
    with stream_of(topic, 5) as one:
        one.load_state_dict(json.loads(json.dumps(again)))
        assert next(one)[0].tolist() == [1004, 1005, 1006, 1007, 1008]


def test_what_cannot_be_divided_is_refused() -> None:
    topic = topic_of([[4] * 3] * 2)
    with stream_of(topic, 1) as stream:
        with pytest.raises(ValueError, match="batch_size must be at least 1 a worker"):
            stream.split_by_worker(0, 2)
        assert stream.split_by_worker(0, 3) is None  # rows are divided then
        assert stream.source.partitions == [0, 1]
    with stream_of(topic, 4) as stream:
        next(stream)
        with pytest.raises(RuntimeError, match="before its first batch"):
            stream.split_by_worker(0, 2)


def test_a_wrapped_stream_is_divided_by_its_partitions_too() -> None:
    """Each worker reads its own messages, as of a stream that is not wrapped."""
    topic = topic_of([[4] * 3] * 2)
    for worker in range(2):
        with stream_of(topic, 8) as stream:
            share = BatchWrapper(stream).split_by_worker(worker, 2)
            assert share is not None and share.covered_streams()[0].partitions == [worker]


WAIT = StreamLimits(max_wait_seconds=0.05)


def test_decisions_by_time_need_the_same_number_of_workers() -> None:
    topic = topic_of([[3], [3]])
    states = []
    for worker in range(2):
        with stream_of(topic, 8, limits=WAIT) as stream:
            stream.split_by_worker(worker, 2)
            assert len(next(stream)[0]) == 3  # cut short of 4 rows
            states.append(stream.state_dict())
    state = join_states(states)
    with stream_of(topic, 8, limits=WAIT) as stream:
        stream.load_state_dict(state)
        with pytest.raises(ValueError, match="go on with as many workers as before"):
            next(stream)
    with stream_of(topic, 8, limits=WAIT) as stream:
        stream.load_state_dict(state)
        stream.split_by_worker(1, 2)
        assert stream.source.position == {1: 1}


def test_each_worker_repeats_its_own_decisions(tmp_path: Path) -> None:
    """With the journal of one path, as a script has it that knows nothing of workers."""
    topic = topic_of([[], []])

    def stream() -> StreamingDataset:
        return stream_of(topic, 8, limits=WAIT, journal=Journal(tmp_path / "journal"))

    states: list[list[Any]] = []
    expected = []
    for worker in range(2):
        with stream() as first:
            first.split_by_worker(worker, 2)
            found, places = [], []
            for size in (1 + worker, 3 - worker, 2):
                topic.append(pack(pa.table({"x": np.arange(size)})), worker)
                found.append(next(first)[0].tolist())
                places.append(first.state_dict())
        assert [len(rows) for rows in found] == [1 + worker, 3 - worker, 2]  # each cut short of 4
        states.append(places)
        expected.append(found)
    for worker in range(2):  # now all messages are there at once
        with stream() as again:
            again.load_state_dict(json.loads(json.dumps(join_states([s[0] for s in states]))))
            again.split_by_worker(worker, 2)
            assert [next(again)[0].tolist() for _ in range(2)] == expected[worker][1:]
            assert again.state_dict()["source"] == states[worker][2]["source"]
    names = ["journal.0-of-2", "journal.1-of-2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_a_journal_of_another_stream_is_refused(tmp_path: Path) -> None:
    """A stream may begin late only if it begins anew."""
    topic = topic_of([[3], [3]])
    Journal(tmp_path / "journal.0-of-2").append(Decision(1, "cut", -1))

    def stream(**options: Any) -> StreamingDataset:
        return stream_of(topic, 8, start="latest", **options)

    states = []
    for worker in range(2):
        with stream() as before:
            before.split_by_worker(worker, 2)
            states.append(before.state_dict())
    with stream(journal=Journal(tmp_path / "journal")) as anew:
        with pytest.raises(ValueError, match="journal must be new where start is 'latest'"):
            anew.split_by_worker(0, 2)
    with stream(journal=Journal(tmp_path / "journal")) as restored:
        restored.load_state_dict(join_states(states))
        assert restored.split_by_worker(0, 2) is restored
    alone = Journal(tmp_path / "journal.0-of-2")
    with stream(journal=alone) as anew, pytest.raises(ValueError, match="journal must be new"):
        next(anew)


def own_streams(topic: MemoryTopic, shares: list[list[int]], state: Any) -> list[Any]:
    """Return the rows of the next batch, and the state after it, of workers that were given their
    partitions by the program."""
    found = []
    for worker, partitions in enumerate(shares):
        with stream_of(topic, 2 * len(partitions), partitions=partitions) as stream:
            if state is not None:
                stream.load_state_dict(json.loads(json.dumps(state)))
            split_by_worker(stream, "worker").split_by_worker(worker, len(shares))
            found.append((sorted(next(stream)[0].tolist()), stream.state_dict()))
    return found


def test_partitions_that_the_program_gives_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many workers as before, and with others."""
    topic = topic_of([[2] * 8] * 4)
    state: Any = None
    changes = [
        [[0, 2], [1, 3]], [[0, 2], [1, 3]], [[3], [0, 1], [2]], [[0, 1, 2, 3]], [[0, 1], [2, 3]],
    ]  # fmt: skip
    for step, shares in enumerate(changes):
        workers = SimpleNamespace(size=len(shares), rank=0)
        monkeypatch.setattr(source_module, "worker_group", lambda workers=workers: workers)
        found = own_streams(topic, shares, state)
        for (rows, _), partitions in zip(found, shares, strict=True):
            assert rows == [1000 * p + 2 * step + i for p in partitions for i in range(2)]
        state = join_states([each for _, each in found])
    assert sum(each["source"]["rows"] for each in state["workers"]) == 5 * 8
    monkeypatch.undo()
    with stream_of(topic, 2, partitions=[0, 1]) as one:  # alone, it would leave out the others
        with pytest.raises(ValueError, match=r"partitions \[0, 1\]; it is of"):
            one.load_state_dict(state)


def test_states_of_other_topics_or_partitions_do_not_fit() -> None:
    topic = topic_of([[4] * 3] * 3)
    states = []
    for worker in range(2):
        with stream_of(topic) as stream:
            stream.split_by_worker(worker, 2)
            next(stream)
            states.append(stream.state_dict())
    with stream_of(topic_of([[4]])) as other, pytest.raises(ValueError, match="partitions"):
        other.load_state_dict(join_states(states))


def test_joined_states() -> None:
    assert states_in(join_states([1, 2])) == [1, 2]
    assert states_in({"batches": 1}) is None
    assert state_for({"a": 1}, 3, 4) == {"a": 1}
    with pytest.raises(ValueError, match="of 2 workers with a part each, and there are 3"):
        state_for(join_states([{"a": 1}, {"a": 2}]), 0, 3)
    with pytest.raises(ValueError, match="at least one"):
        join_states([])
