# SPDX-License-Identifier: Apache-2.0
"""Agreement of the workers of a training on batches, ends, stops and errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mindspore import Tensor

from mindspore_rec.common.stream import source as source_module
from mindspore_rec.common.stream.read_watch import reading
from mindspore_rec.common.stream.worker_states import join_states
from mindspore_rec.stream import (
    Batch,
    BatchSource,
    StopWhen,
    StreamLimits,
    batch_source,
    pack,
    split_by_worker,
)
from mindspore_rec.train.data.worker_split import WorkerSplit
from mindspore_rec.train.graph.tensors import as_tensors
from mindspore_rec.train.workers.agreement import Agreement, State, loss_of
from mindspore_rec.train.workers.feed import Reader
from mindspore_rec.train.workers.worker_data import agreed_length, worker_source
from mindspore_rec.train.workers.worker_feed import WorkerBatch, WorkerFeed
from tests.parallel.loop_workers import (  # noqa: F401
    Ended,
    ThreadGroup,
    only_error,
    run_workers,
    short_grace,
    this_worker,
)
from tests.support.topics import stream_of, topic_of


class Lists(BatchSource):
    """Source of batches of given sizes and times; the rows are numbered."""

    def __init__(self, sizes: list[int], first: int, times: list[int] | None = None) -> None:
        self.sizes, self.first = sizes, first
        self.times = times

    def read(self) -> Any:
        row = self.first
        for i, size in enumerate(self.sizes):
            column = np.arange(row, row + size)
            row += size
            yield Batch((column,), None, self.times[i] if self.times else None, i + 1)

    @property
    def length(self) -> int:
        return len(self.sizes)


def feed_of(
    group: ThreadGroup, source: BatchSource, wants_stop: Callable[[], bool] = lambda: False
) -> WorkerFeed:
    """Return a feed that has begun."""
    feed = WorkerFeed(Agreement(group, "t"), source, "train_dataset")
    batches = source.read()

    def read() -> Batch | None:
        with reading(feed.on_wait):
            batch = next(batches, None)
        return batch and replace(batch, columns=as_tensors(batch.columns))

    feed.start(read, Reader(wants_stop))
    return feed


def taken(feed: WorkerFeed) -> list[WorkerBatch]:
    """Return all batches of a feed."""
    found = []
    while (batch := feed.next()) is not None:
        found.append(batch)
    feed.check()
    return found


workers_sizes = st.lists(st.lists(st.integers(0, 4), max_size=5), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(sizes=workers_sizes, data=st.data())
def test_all_take_the_same_steps_and_each_row_once(sizes: list[list[int]], data: Any) -> None:
    steps = max(len(each) for each in sizes)
    grid = [[each[k] if k < len(each) else 0 for each in sizes] for k in range(steps)]
    if any(not any(rows) for rows in grid):
        return  # a batch without rows anywhere is an error
    times = [
        data.draw(st.lists(st.integers(1, 9), min_size=len(s), max_size=len(s))) for s in sizes
    ]

    def work(group: ThreadGroup) -> list[WorkerBatch]:
        source = Lists(sizes[group.rank], 1000 * group.rank, times[group.rank])
        return taken(feed_of(group, source))

    results = run_workers(len(sizes), work)
    for rank, batches in enumerate(results):
        assert [batch.samples for batch in batches] == [tuple(rows) for rows in grid]
        rows = [b.columns[0].asnumpy() for b in batches if not b.idle]
        expected = 1000 * rank + np.arange(sum(sizes[rank]))
        np.testing.assert_array_equal(np.concatenate([np.zeros(0, int), *rows]), expected)
        for k, batch in enumerate(batches):
            assert batch.own_samples == grid[k][rank]
            # An idle worker has rows to compute with, its own last ones or another's.
            assert len(batch.columns[0]) > 0
            assert batch.event_time == max(t[k] for t in times if k < len(t))
            if k < len(sizes[rank]):
                assert batch.number == k + 1
            elif sizes[rank]:
                assert batch.number == len(sizes[rank])


@settings(max_examples=30, deadline=None)
@given(
    workers=st.integers(1, 4),
    at=st.dictionaries(st.integers(0, 3), st.integers(0, 6), max_size=4),
)
def test_a_stop_of_any_worker_stops_all_before_the_same_step(
    workers: int, at: dict[int, int]
) -> None:
    def work(group: ThreadGroup) -> tuple[int, bool]:
        feed = feed_of(group, Lists([2] * 6, 0), lambda: at.get(group.rank, 99) <= steps)
        steps = 0
        while feed.next() is not None:
            steps += 1
        return steps, feed.stopped

    expected = min([6, *(step for rank, step in at.items() if rank < workers)])
    stopped = any(step <= 6 for rank, step in at.items() if rank < workers)
    assert run_workers(workers, work) == [(expected, stopped)] * workers


def test_stop_without_a_batch_is_agreed() -> None:
    def work(group: ThreadGroup) -> list[bool]:
        stops: set[int] = set()
        feed = feed_of(group, Lists([1], 0), lambda: group.rank in stops)
        first = feed.agree_stop()
        stops.add(1)
        return [first, feed.agree_stop(), feed.agree_stop(), feed.next() is None]

    assert run_workers(3, work) == [[False, True, True, True]] * 3


@pytest.mark.usefixtures("short_grace")
def test_an_error_of_one_workers_data_is_its_own() -> None:
    class Broken(Lists):
        def read(self) -> Any:
            yield from super().read()
            raise OSError("the disk is gone")

    def work(group: ThreadGroup) -> int:
        source = (Broken if group.rank == 1 else Lists)([2, 2], 0)
        feed = feed_of(group, source)
        steps = 0
        while feed.next() is not None:
            steps += 1
        assert steps == 2
        feed.check()
        return steps

    results: list[Any] = list(run_workers(3, work))
    assert isinstance(results[1], OSError)
    # Had the job gone on, the others would have been told.
    assert all("worker 1 could not read" in str(results[rank]) for rank in (0, 2)), results


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize("kind", ["dtype", "number", "dimensions"])
def test_other_columns_on_a_worker_are_named(kind: str) -> None:
    odd = {
        "dtype": (np.zeros(2, np.float32), np.zeros(2, np.float32)),
        "number": (np.zeros(2),),
        "dimensions": (np.zeros((2, 3)), np.zeros(2, np.float32)),
    }[kind]

    def work(group: ThreadGroup) -> Any:
        columns = odd if group.rank == 1 else (np.zeros(2), np.zeros(2, np.float32))
        return taken(feed_of(group, batch_source([columns])))

    results = run_workers(2, work)
    text = str(results[1])
    assert "train_dataset must have the same columns on all workers: worker 1 has" in text
    assert "and worker 0 has 2 columns (float64 of 1 dimensions, float32 of 1 dimensions)" in text


@pytest.mark.usefixtures("short_grace")
def test_data_that_differ_are_not_divided_by_rows() -> None:
    def work(group: ThreadGroup) -> Any:
        generator = np.random.default_rng(group.rank if group.size > 1 else 0)
        data = [(np.arange(8), generator.normal(size=8)) for _ in range(3)]
        return taken(feed_of(group, worker_source(batch_source(data), group, "train_dataset")))

    results = run_workers(2, work)
    assert "train_dataset must be the same on all workers" in str(results[1])
    assert "a batch of 8 rows on worker 1 is not that of 8 rows on worker 0" in str(results[1])
    assert "split_by_worker(data, by='worker')" in str(results[1])


@pytest.mark.usefixtures("short_grace")
def test_data_that_end_earlier_on_a_worker_are_not_divided_by_rows() -> None:
    def work(group: ThreadGroup) -> Any:
        data = [(np.arange(8),)] * (3 - group.rank)
        return taken(feed_of(group, worker_source(batch_source(data), group, "train_dataset")))

    results = run_workers(2, work)
    assert "worker 1 has no more batches, and worker 0 has one" in str(results[1])


@pytest.mark.usefixtures("short_grace")
def test_a_batch_without_rows_anywhere_is_an_error_of_one_worker() -> None:
    def work(group: ThreadGroup) -> Any:
        return taken(feed_of(group, Lists([1, 0], 0)))

    assert "has a batch without rows on any worker" in str(run_workers(2, work)[0])


@settings(max_examples=40, deadline=None)
@given(
    workers=st.integers(1, 4),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    by=st.sampled_from(["rows", "batches"]),
)
def test_split_data_have_each_row_once(workers: int, sizes: list[int], by: str) -> None:
    """Over all workers, whether the program or the training divides the data."""

    def work(group: ThreadGroup) -> list[WorkerBatch]:
        source: Any = Lists(sizes, 0)
        given = split_by_worker(source, by) if by == "batches" else source
        share = worker_source(given, group, "train_dataset")
        assert agreed_length(share.length, group) == (
            len(sizes) if by == "rows" or workers == 1 else -(-len(sizes) // workers)
        )
        return taken(feed_of(group, share))

    results = run_workers(workers, work)
    whole: list[Any] = []
    for step in range(len(results[0])):
        parts = [b.columns[0].asnumpy() for b in (r[step] for r in results) if not b.idle]
        whole += np.concatenate(parts).tolist()
        if by == "rows":
            assert sum(results[0][step].samples) == sizes[step]
            assert all(r[step].number == step + 1 for r in results)
        else:
            done = min((step + 1) * workers, len(sizes))
            assert all(r[step].number == done for r in results)
    assert whole == list(range(sum(sizes)))


def test_columns_without_rows_of_their_own_are_not_divided() -> None:
    ragged = [(np.arange(7), np.zeros(3, np.float32))]
    share = split_by_worker(ragged).split_by_worker(0, 2)
    with pytest.raises(ValueError, match=r"column 0 .* \[7\] and the last one 3 rows.*'batches'"):
        list(share.read())


def test_one_workers_split_is_the_data() -> None:
    data = [(np.arange(7), np.zeros(3, np.float32))]
    for by in ("rows", "batches", "worker"):
        assert [len(b[0]) for b in split_by_worker(data, by)] == [7]
    with pytest.raises(ValueError, match="by must be"):
        split_by_worker(data, "row")


def test_a_silent_stream_stops_with_the_others_and_loses_nothing() -> None:
    """Worker 1 waits for messages that do not come when worker 0 asks to stop."""
    topic = topic_of([[4], [1]])
    began = time.monotonic()

    def work(group: ThreadGroup) -> Any:
        stream = stream_of(topic, 4)
        source = worker_source(stream, group, "train_dataset")
        assert source is stream and stream.source.partitions == [group.rank]
        feed = feed_of(group, source, lambda: group.rank == 0 and time.monotonic() > began + 1.5)
        found = taken(feed)
        state = stream.state_dict()["source"]["order"]["offsets"]
        with stream:
            return [len(batch.columns[0]) for batch in found], state, feed.stopped

    results = run_workers(2, work)
    assert results[0] == ([], {"0": 0}, True) or results[0][2], results
    assert results[1] == ([], {"1": 0}, True)


def test_messages_that_come_late_are_waited_for() -> None:
    import pyarrow as pa

    topic = topic_of([[2, 2], [2]])

    def later() -> None:
        time.sleep(2.5)
        topic.append(pack(pa.table({"x": np.array([7, 8])})), 1)

    thread = threading.Thread(target=later)
    thread.start()

    def work(group: ThreadGroup) -> Any:
        with stream_of(topic, 4, stop=StopWhen(batches=2)) as stream:
            source = worker_source(stream, group, "train_dataset")
            feed = feed_of(group, source)
            return [batch.columns[0].asnumpy().tolist() for batch in taken(feed)]

    assert run_workers(2, work) == [[[0, 1], [2, 3]], [[1000, 1001], [7, 8]]]
    thread.join()


def test_a_condition_that_ends_one_stream_ends_all() -> None:
    topic = topic_of([[2] * 5, [2] * 5])

    def work(group: ThreadGroup) -> Any:
        stop = StopWhen(batches=2 + group.rank)
        with stream_of(topic, 4, stop=stop) as stream:
            feed = feed_of(group, worker_source(stream, group, "train_dataset"))
            return len(taken(feed)), feed.condition

    assert run_workers(2, work) == [(2, True)] * 2


def test_a_topic_with_fewer_partitions_is_divided_by_rows() -> None:
    topic = topic_of([[3, 3]])

    def work(group: ThreadGroup) -> Any:
        with stream_of(topic, 3, stop=StopWhen(batches=2)) as stream:
            source = worker_source(stream, group, "train_dataset")
            assert isinstance(source, WorkerSplit) and source.by == "rows"
            rows = [b.columns[0].asnumpy().tolist() for b in taken(feed_of(group, source))]
            return rows, stream.state_dict()

    results = run_workers(2, work)
    assert [rows for rows, _ in results] == [[[0], [3]], [[1, 2], [4, 5]]]
    assert results[0][1] == results[1][1]


@pytest.mark.usefixtures("short_grace")
def test_partitions_given_to_two_workers_are_refused() -> None:
    topic = topic_of([[3], [3], [3]])

    def work(group: ThreadGroup) -> Any:
        mine = [[0, 1], [1, 2]][group.rank]
        return worker_source(stream_of(topic, 3, partitions=mine), group, "train_dataset")

    assert "partitions [1] of topic 'memory' are given to worker 0 and worker 1" in str(
        run_workers(2, work)[1]
    )


def test_partitions_that_the_program_has_divided_stay() -> None:
    topic = topic_of([[3], [3], [3]])

    def work(group: ThreadGroup) -> Any:
        mine = [[0, 2], [1]][group.rank]
        stream = stream_of(topic, 2, partitions=mine)
        source = worker_source(stream, group, "train_dataset")
        return isinstance(source, WorkerSplit) and source.by, stream.source.partitions

    assert run_workers(2, work) == [("worker", [0, 2]), ("worker", [1])]


@pytest.mark.usefixtures("short_grace")
def test_partitions_of_a_checkpoint_that_nobody_reads_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = topic_of([[3], [3], [3]])
    monkeypatch.setattr(source_module, "worker_group", this_worker)

    def begin(mine: list[list[int]], state: Any) -> list[Any]:
        def work(group: ThreadGroup) -> Any:
            stream = stream_of(topic, 2, partitions=mine[group.rank])
            if state is not None:
                stream.load_state_dict(state)
            worker_source(stream, group, "train_dataset")
            return stream.state_dict()

        return run_workers(len(mine), work)

    state = join_states(begin([[0, 2], [1]], None))
    assert [each["source"]["partitions"] for each in begin([[0], [1, 2]], state)] == [[0], [1, 2]]
    assert "partitions [2] of topic 'memory' were read before the checkpoint" in str(
        begin([[0], [1]], state)[0]
    )


def test_batches_that_depend_on_the_time_are_not_divided_by_rows() -> None:
    topic = topic_of([[3]])
    for limits in (StreamLimits(skip_idle_seconds=1.0), StreamLimits(max_wait_seconds=1.0)):
        share = split_by_worker(stream_of(topic, 2, limits=limits))
        with pytest.raises(ValueError, match="depend on the time"):
            share.split_by_worker(0, 2)


@pytest.mark.usefixtures("short_grace")
def test_workers_in_different_places_are_named() -> None:
    def work(group: ThreadGroup) -> Any:
        return Agreement(group, "te"[group.rank]).say(State.NOTHING)

    assert "worker 1 is in an evaluation, round 0 while worker 0 is in training" in str(
        run_workers(2, work)[1]
    )


def test_losses() -> None:
    assert loss_of([(1.0, 4), (float("nan"), 2), (float("inf"), 1)], False).bad == 1
    assert loss_of([(1.0, 4), (2.5, 2), (9.0, 0)], True).value == 3.5


def test_borrowed_batch_is_a_copy_of_any_dtype() -> None:
    def work(group: ThreadGroup) -> Any:
        columns = (np.array([[1, 2]]), np.array([[True]]), np.array([0.5], np.float32))
        data = [columns] if group.rank == 1 else []
        (batch,) = taken(feed_of(group, split_by_worker(data, "worker")))
        assert all(isinstance(column, Tensor) for column in batch.columns)
        return [column.asnumpy().tolist() for column in batch.columns], batch.own_samples

    values = [[[1, 2]], [[True]], [0.5]]
    assert run_workers(2, work) == [(values, 0), (values, 1)]


def test_the_others_are_ended_by_an_error_of_one() -> None:
    """As under a launcher, which ends the workers that wait."""

    def work(group: ThreadGroup) -> Any:
        if group.rank == 1:
            raise KeyError("of the program")
        return taken(feed_of(group, Lists([1], 0)))

    assert isinstance(only_error(run_workers(3, work), 1), KeyError)
    assert Ended is not None
