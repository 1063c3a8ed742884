# SPDX-License-Identifier: Apache-2.0
"""The protocol of batches: what comes out of which data, wrappers, going on at any batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import mindspore.dataset as ds
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec import FeatureBatches, FeatureSpec
from mindspore_rec.stream import (
    ArrowFormat,
    Batch,
    BatchSource,
    BatchWrapper,
    FeaturePipeline,
    MemoryTopic,
    Number,
    StandardScale,
    StopWhen,
    StreamingDataset,
    StreamSource,
    batch_source,
    pack,
)
from tests.support.topics import topic_of_messages

ROWS = 60
SCHEMA = pa.schema(
    {"user": pa.string(), "t": pa.float64(), "x": pa.float64(), "label": pa.float64()}
)
TIMES = 1000.0 + np.random.default_rng(3).permutation(ROWS)  # early and late in any order


def filled(partitions: int, message_rows: int) -> MemoryTopic:
    """A topic of 60 events whose label is their number."""
    number = np.arange(ROWS)
    table = pa.table([[f"u{n % 7}" for n in number], TIMES, number * 0.5, number * 1.0], SCHEMA)
    parts = (table.slice(begin, message_rows) for begin in range(0, ROWS, message_rows))
    return topic_of_messages(map(pack, parts), partitions)


class Scaled:
    """Numbers by what was learned, beside columns that are as they were."""

    column_names = ("user", "t", "x", "label")

    def __init__(self) -> None:
        self.pipeline = FeaturePipeline({"x": StandardScale("x"), "label": Number("label")})

    def __call__(self, rows: pa.RecordBatch) -> dict[str, np.ndarray]:
        raw = {name: rows[name].to_numpy(zero_copy_only=False) for name in ("user", "t")}
        return {**raw, **self.pipeline(rows)}

    def state_dict(self) -> dict[str, Any]:
        return self.pipeline.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.pipeline.load_state_dict(state)


def stream(topic: MemoryTopic, batch_size: int, done: int = 0) -> StreamingDataset:
    """Whole batches to the end of the topic, of which some are done."""
    stop = StopWhen(batches=max(1, ROWS // batch_size - done))
    source = StreamSource(
        topic.client(), ArrowFormat(SCHEMA), batch_size, event_time="t", stop=stop
    )
    return StreamingDataset(source, Scaled())


class Doubled(BatchWrapper):
    def change(self, batch: Batch) -> Batch:
        return replace(batch, columns=(*batch.columns[:-1], batch.columns[-1] * 2))


class Some(BatchWrapper):
    """Leaves some batches out."""

    def change(self, batch: Batch) -> Batch | None:
        return None if int(batch.columns[-1].ravel()[0]) // 5 % 3 == 0 else batch


class Counts(BatchWrapper):
    """Adds how many rows it has seen, which is what it learns."""

    class Seen:
        rows = 0

        def state_dict(self) -> int:
            return self.rows

        def load_state_dict(self, state: int) -> None:
            self.rows = state

    def __init__(self, source: BatchSource) -> None:
        self.seen = Counts.Seen()
        super().__init__(source, self.seen)

    def change(self, batch: Batch) -> Batch:
        self.seen.rows += len(batch.columns[-1])
        return replace(batch, columns=(*batch.columns[:-1], batch.columns[-1] + self.seen.rows))


class Duck:
    """An iterable with a state, that knows nothing of the protocol."""

    def __init__(self, inner: StreamingDataset) -> None:
        self.source = inner
        self.state_dict, self.load_state_dict = inner.state_dict, inner.load_state_dict

    @property
    def lag(self) -> int:
        return self.source.lag

    @property
    def stop_reason(self) -> str:
        return self.source.stop_reason

    def __iter__(self) -> Iterator[Any]:
        yield from self.source


USER = FeatureSpec("user")
TIME = FeatureSpec("t", is_timestamp=True)


def learning_stage() -> FeaturePipeline:
    """Keys of declared features, the time, and numbers by what was learned."""
    outputs = {"user": USER, "t": TIME, "x": StandardScale("x"), "label": Number("label")}
    return FeaturePipeline(outputs)


WRAPPED: dict[str, Callable[[StreamingDataset], BatchSource]] = {
    "stream": lambda s: s,
    "features": lambda s: FeatureBatches(s, USER),
    "features with time": lambda s: FeatureBatches(s, [USER, TIME]),
    "features by place": lambda s: FeatureBatches(s, FeatureSpec("user", index_key=0)),
    "features around features": lambda s: FeatureBatches(
        FeatureBatches(s, USER), FeatureSpec("again", index_key="user")
    ),
    "some": Some,
    "some doubled": lambda s: Some(Doubled(s)),
    "features of some": lambda s: FeatureBatches(Some(Doubled(s)), [USER, TIME]),
    "some features": lambda s: Some(FeatureBatches(s, [TIME, USER])),
    "learns": Counts,
    "some that learn twice": lambda s: Counts(Some(Counts(FeatureBatches(s, USER)))),
    "one stage that learns": lambda s: FeatureBatches(s, learning_stage()),
    "one stage that learns, of some": lambda s: FeatureBatches(Some(Doubled(s)), learning_stage()),
    "duck": lambda s: batch_source(Duck(s)),
    "some of a duck": lambda s: Some(batch_source(Duck(s))),
}


def test_a_stage_that_is_the_stream_s_transform_gives_the_batches_of_one_around_it() -> None:
    topic = filled(2, 7)
    with stream(topic, 6) as around, stream(topic, 6) as inside:
        one = StreamingDataset(inside.source, learning_stage())
        other = FeatureBatches(around.source, learning_stage())
        states = {}
        for mine, theirs in zip(one.read(), other.read(), strict=True):
            assert same(mine, theirs)
            assert mine.number is not None
            states[mine.number] = json.dumps(one.state_dict(batches=mine.number))
        whole = len(states)
    for number, state in states.items():
        if number == whole:
            continue
        with stream(topic, 6, number) as inner:
            again = StreamingDataset(inner.source, learning_stage())
            again.load_state_dict(json.loads(state))
            rest = [batch.number for batch in again.read()]
            assert rest == list(range(number + 1, whole + 1))
            assert json.dumps(again.state_dict()) == states[whole]


def same(one: Batch, other: Batch) -> bool:
    return (one.names, one.event_time, one.number) == (
        other.names,
        other.event_time,
        other.number,
    ) and all(np.array_equal(a, b) for a, b in zip(one.columns, other.columns, strict=True))


@pytest.mark.parametrize("kind", WRAPPED)
@given(
    partitions=st.integers(1, 3),
    message_rows=st.integers(1, 20),
    batch_size=st.integers(4, 25),
)
@settings(max_examples=3)
def test_whatever_wraps_a_stream_goes_on_at_every_batch(
    kind: str, partitions: int, message_rows: int, batch_size: int
) -> None:
    topic = filled(partitions, message_rows)

    inner = stream(topic, batch_size)
    source = WRAPPED[kind](inner)
    with inner:
        assert source.has_state and source.cannot_resume is None
        whole = list(source.read())
        assert source.stop_reason.endswith("batches") and source.lag == inner.lag
        numbers = [batch.number or 0 for batch in whole]
        assert numbers == sorted(set(numbers)) and source.batches == inner.batches
        if "some" not in kind:
            assert numbers == list(range(1, ROWS // batch_size + 1))
        states = {n: json.dumps(source.state_dict(batches=n)) for n in (0, *numbers)}
        assert source.state_dict()["batches"] == inner.batches
    for number, state in states.items():
        inner = stream(topic, batch_size, number)
        again = WRAPPED[kind](inner)
        with inner:
            again.load_state_dict(json.loads(state))
            assert again.batches == number
            rest = [batch for batch in whole if (batch.number or 0) > number]
            got = list(again.read()) if number < ROWS // batch_size else []
            assert len(got) == len(rest)
            assert all(same(a, b) for a, b in zip(got, rest, strict=True))


@pytest.mark.parametrize("kind", [kind for kind in WRAPPED if "duck" not in kind])
def test_the_event_time_is_the_latest_of_the_very_batch(kind: str) -> None:
    with stream(filled(1, 4), 5) as inner:
        seen = 0
        for batch in WRAPPED[kind](inner).read():
            assert batch.number is not None
            first = 5 * (batch.number - 1)
            assert batch.event_time == int(TIMES[first : first + 5].max())
            seen += 1
    assert seen > 4


def test_a_batch_without_a_legal_time_has_none() -> None:
    topic = MemoryTopic()
    for times in ([0.5, -3.0], [1.0, 0.0], [None, None], [None, 7.9], [float("-inf"), 2.0**32 - 1]):
        topic.append(pack(pa.table({"t": pa.array(times, pa.float64()), "x": [1.0, 2.0]})))
    schema = pa.schema({"t": pa.float64(), "x": pa.float64()})
    source = StreamSource(
        topic.client(), ArrowFormat(schema), 2, event_time="t", stop=StopWhen(batches=5)
    )
    with StreamingDataset(source) as batches:
        assert [batch.event_time for batch in batches.read()] == [None, 1, None, 7, 2**32 - 1]


def test_an_event_that_no_table_can_keep_is_bad() -> None:
    topic = MemoryTopic()
    topic.append(pack(pa.table({"t": [1.7e9]})))
    topic.append(pack(pa.table({"t": [1.7e12]})))
    source = StreamSource(
        topic.client(), ArrowFormat(pa.schema({"t": pa.float64()})), 1, event_time="t"
    )
    with StreamingDataset(source) as batches:
        assert next(batches)[0].tolist() == [1.7e9]
        with pytest.raises(ValueError, match=r"message 1 .* is bad .*1.7e\+12 .*milliseconds"):
            next(batches)


# ---- other data


def test_plain_iterables() -> None:
    a, b = np.array([1, 2]), np.array([3.0, 4.0])
    source = batch_source([(a, b), [b, a], a])
    assert [len(batch.columns) for batch in source.read()] == [2, 2, 1]
    assert source.length == 3 and not source.has_state and source.cannot_resume is None
    for batch in source.read():
        assert (batch.names, batch.event_time, batch.number) == (None, None, None)
    named = batch_source(iter([{"a": a, "b": b}, {"b": b, "a": a}]))
    first, second = named.read()
    assert first.names == second.names == ("a", "b") and second.columns[0] is a
    assert named.length is None and named.cannot_resume == "is a list_iterator"
    with pytest.raises(ValueError, match=r"same columns \['a'\], got \['b'\]"):
        list(batch_source([{"a": a}, {"b": b}]))
    for wrong in (7, None, "text", b"bytes", {"a": a}):
        with pytest.raises(TypeError, match="some_data must be a mindspore.dataset.Dataset or an"):
            batch_source(wrong, "some_data")
    for method, arguments in (("state_dict", ()), ("load_state_dict", ({},))):
        with pytest.raises(ValueError, match="a IterableBatches has no state"):
            getattr(source, method)(*arguments)


def test_data_sets() -> None:
    rows = {"a": np.arange(6), "b": np.ones((6, 1), np.float32)}
    sliced = batch_source(ds.NumpySlicesDataset(rows, shuffle=False).batch(2))
    assert sliced.column_names == ["a", "b"] and sliced.length == 3
    assert [batch.columns[0].asnumpy().tolist() for batch in sliced.read()] == [
        [0, 1], [2, 3], [4, 5]
    ]  # fmt: skip
    assert sliced.cannot_resume is None

    def endless() -> Iterator[Any]:
        while True:
            yield (np.zeros(2),)

    generated = batch_source(ds.GeneratorDataset(endless, ["a"], shuffle=False).map(np.abs, ["a"]))
    assert generated.length is None and generated.reads_in_pipeline
    reason = "is a GeneratorDataset over a endless without a length"
    assert generated.cannot_resume == reason
    assert Doubled(Some(generated)).cannot_resume == (
        f"is Doubled whose source is Some whose source {reason}"
    )


def test_a_source_that_says_nothing_cannot_be_resumed() -> None:
    class Own(BatchSource):
        def read(self) -> Iterator[Batch]:
            yield Batch((np.zeros(2),))

    assert Own().cannot_resume == "is a Own without a state or a length"
    assert [columns[0].tolist() for columns in Own()] == [[0.0, 0.0]]
    assert batch_source(own := Own()) is own
    learns = Counts(batch_source([(np.zeros(2),)]))
    assert learns.cannot_resume == "is Counts that learns of data without a state"
    with pytest.raises(TypeError, match="learner must have state_dict and load_state_dict, got 7"):
        BatchWrapper(own, 7)
    with pytest.raises(TypeError, match=r"source must be a BatchSource, .* got list"):
        BatchWrapper([1])  # type: ignore[arg-type]


# ---- streams of raw columns


def raw(topic: MemoryTopic) -> StreamSource:
    return StreamSource(
        topic.client(), ArrowFormat(SCHEMA), 10, event_time="t", stop=StopWhen(batches=2)
    )


def test_features_read_text_of_a_stream_as_it_is() -> None:
    with raw(filled(1, 7)) as source:
        batches = FeatureBatches(source, [USER, TIME])
        found = list(batches.read())
        state = batches.state_dict(batches=1)
    assert found[0].names == ("user", "x", "label") and found[0].columns[0].dtype == np.int64
    assert batches.column_names == ["user", "x", "label"]
    (users,) = FeatureBatches([(np.array([f"u{n % 7}" for n in range(10)]),)],
                              FeatureSpec("user", index_key=0))  # fmt: skip
    assert found[0].columns[0].tolist() == users[0].tolist()
    with raw(filled(1, 7)) as source:
        again = FeatureBatches(source, [USER, TIME])
        again.load_state_dict(state)
        assert same(next(iter(again.read())), found[1])


def test_columns_that_come_out() -> None:
    with StreamingDataset(raw(filled(1, 7)), columns=["label", "x"]) as some:
        assert some.column_names == ["label", "x"]
        assert [column[1] for column in next(some)] == [1.0, 0.5]
    with StreamingDataset(raw(filled(1, 7)), Scaled(), ["x", "label"]) as scaled:
        assert len(next(scaled)) == 2
    for columns, error, message in (
        ("label", TypeError, "columns must be a list of names, got 'label'"),
        ([], ValueError, "columns must be one or more different names"),
        (["x", "x"], ValueError, "columns must be one or more different names"),
        (["x", "y"], ValueError, r"columns must be among \['user', 't', 'x', 'label'\], got"),
    ):
        with raw(filled(1, 7)) as source, pytest.raises(error, match=message):
            StreamingDataset(source, columns=columns)
    unknown = StreamingDataset(raw(filled(1, 7)), lambda rows: {"a": np.zeros(1)}, ["b"])
    with unknown, pytest.raises(ValueError, match=r"columns must be among \['a'\], got \['b'\]"):
        next(unknown)
