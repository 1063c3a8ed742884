# SPDX-License-Identifier: Apache-2.0
"""RecModel on sources of batches: the event time of each step, checkpoints under wrappers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback

from mindspore_rec import (
    CacheConfig,
    EmbeddingLookup,
    FeatureBatches,
    FeatureSpec,
    HashEmbeddingLookup,
    LazyAdam,
    RecCheckpoint,
    RecModel,
    SsdConfig,
    tables_of,
)
from mindspore_rec.stream import (
    Batch,
    BatchSource,
    BatchWrapper,
    DataReceiver,
    DataSender,
    MemoryTopic,
    StopWhen,
    StreamingDataset,
    batch_source,
)
from tests.support.native_table import native_of

pytestmark = pytest.mark.usefixtures("pynative")

EVENTS, BATCH = 200, 10
TIMES = 1000 + np.random.default_rng(3).permutation(EVENTS)  # early and late in any order
TIMES[-1], LAST = EVENTS + 1000, EVENTS + 1000  # the stream's end
OF_BATCH = TIMES.reshape(-1, BATCH).max(1).tolist()


@pytest.fixture(scope="module")
def topic() -> MemoryTopic:
    made = MemoryTopic()
    number = np.arange(EVENTS)[:, None]
    label = (number % 3 == 0).astype(np.float32)
    DataSender(made, message_rows=20).send({"sent": TIMES, "ids": number, "label": label})
    return made


def stream(topic: MemoryTopic, columns: Any = ("ids", "label")) -> StreamingDataset:
    schema = topic_schema(topic)
    stop = StopWhen(watermark=float(LAST))
    receiver = DataReceiver(topic, schema=schema, batch_size=BATCH, event_time="sent", stop=stop)
    return StreamingDataset(receiver, columns=columns)


def untimed(topic: MemoryTopic) -> StreamingDataset:
    stop = StopWhen(batches=EVENTS // BATCH)
    receiver = DataReceiver(topic, schema=topic_schema(topic), batch_size=BATCH, stop=stop)
    return StreamingDataset(receiver, columns=["ids", "label"])


def topic_schema(topic: MemoryTopic) -> Any:
    with DataReceiver(topic, batch_size=1, stop=StopWhen(batches=1)) as receiver:
        return next(receiver).schema


class Net(nn.Cell):
    def __init__(self, name: str, cache: CacheConfig | None = None) -> None:
        super().__init__()
        self.rows = HashEmbeddingLookup(4, ms.int64, name=name, cache=cache)
        self.fixed = EmbeddingLookup(EVENTS, 2, name=f"{name}.fixed")
        self.dense = nn.Dense(6, 1)

    def construct(self, ids):
        rows = (self.rows(ids).reshape((-1, 4)), self.fixed(ids).reshape((-1, 2)))
        return self.dense(ms.ops.concat(rows, 1))

    @property
    def table(self) -> Any:
        return self.rows.embedding_table


def model_of(net: nn.Cell) -> RecModel:
    return RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params()))


class Times(Callback):
    """Event times that a table has as steps begin, and how many batches have been read by then."""

    def __init__(self, table: Any, inner: StreamingDataset | None = None) -> None:
        super().__init__()
        self.table, self.inner = table, inner
        self.seen: list[int | None] = []
        self.read: list[int] = []

    def on_train_step_begin(self, run_context: Any) -> None:
        self.seen.append(self.table.event_time)
        self.read.append(0 if self.inner is None else self.inner.batches)


class Odd(BatchWrapper):
    """Batches of odd numbers only."""

    def change(self, batch: Batch) -> Batch | None:
        return batch if batch.number is None or batch.number % 2 else None


def watermarks(times: list[int]) -> list[int]:
    return np.maximum.accumulate(times).tolist()


SPECS = [FeatureSpec("sent", is_timestamp=True)]


def specs(name: str, **more: Any) -> list[FeatureSpec]:
    return [FeatureSpec("ids", table_name=name, **more), *SPECS]


@pytest.mark.parametrize("prefetch", [0, 1, 2])
@pytest.mark.parametrize("kind", ["source", "features", "features of features", "odd", "dicts"])
def test_the_time_of_a_step_is_that_of_its_batch(
    topic: MemoryTopic, unique: Callable[[], str], tmp_path: Path, prefetch: int, kind: str
) -> None:
    name = unique()
    cache = CacheConfig(host_rows=60, ssd=SsdConfig(tmp_path, direct=False), prefetch=prefetch)
    net = Net(name, cache)
    every = ("sent", "ids", "label")
    features, times = specs(name), OF_BATCH
    source: Any
    inner = stream(topic, ("ids", "label") if kind == "source" else every)
    if kind == "source":
        source = inner
    elif kind == "features":
        source = FeatureBatches(inner, features)
    elif kind == "features of features":
        outer = FeatureSpec("ids", table_name=name)
        source = FeatureBatches(FeatureBatches(inner, features), outer)
    elif kind == "odd":
        source, times = Odd(FeatureBatches(inner, features)), OF_BATCH[::2]
    else:
        source = FeatureBatches((dict(zip(every, b, strict=True)) for b in inner), features)
    seen = Times(net.table, inner)
    model_of(net).online_train(source, seen, progress=False)
    assert seen.seen == watermarks(times)
    if kind != "odd":
        assert seen.read[4] == 5 + prefetch


def test_a_stream_without_a_time_column_sets_none(
    topic: MemoryTopic, unique: Callable[[], str]
) -> None:
    net = Net(unique())
    model_of(net).online_train(untimed(topic), progress=False)
    assert net.table.event_time is None


def test_tables_that_are_given_are_those_that_are_set(
    topic: MemoryTopic, unique: Callable[[], str]
) -> None:
    class Two(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = (HashEmbeddingLookup(1, ms.int64, name=unique()) for _ in "12")

        def construct(self, ids):
            return (self.one(ids) + self.two(ids)).reshape((-1, 1))

    every = ("sent", "ids", "label")
    net = Two()
    one, two = tables_of(net)
    model_of(net).online_train(
        FeatureBatches(stream(topic, every), specs(one.name)), progress=False
    )
    assert (one.event_time, two.event_time) == (max(TIMES), None)  # of the specs
    net = Two()
    one, two = tables_of(net)
    batches = FeatureBatches(stream(topic, every), specs(two.name), [two])
    model_of(net).online_train(batches, progress=False)
    assert (one.event_time, two.event_time) == (None, max(TIMES))


def test_a_network_without_the_features_tables_is_refused_before_a_step(
    topic: MemoryTopic, unique: Callable[[], str]
) -> None:
    net = Net(unique())
    for features, message in (
        (specs("other"), r"the network's tables must have at least one of \['other'\], got none"),
        (specs("other", eviction_threshold=9), "the network's tables must have 'other', which ev"),
    ):
        batches = FeatureBatches(stream(topic, ("sent", "ids", "label")), features)
        with pytest.raises(ValueError, match=message):
            model_of(net).online_train(batches, progress=False)
    assert net.table.step == 0


def test_evaluation_sets_no_time(unique: Callable[[], str]) -> None:
    name = unique()
    net = Net(name)
    label = np.array([[0], [1]], np.float32)
    data = [{"sent": np.array([9, 8]), "ids": np.array([[1], [2]]), "label": label}]
    model = RecModel(net, nn.BCEWithLogitsLoss(), metrics={"loss": nn.Loss()})
    for is_train in (False, True):
        model.eval(FeatureBatches(data, specs(name), is_train=is_train), progress=False)
    assert net.table.event_time is None


def test_features_of_a_data_set(unique: Callable[[], str]) -> None:
    name = unique()
    net = Net(name)
    rows = {"ids": np.arange(8)[:, None], "sent": np.arange(8) + 100, "label": np.ones((8, 1))}
    rows["label"] = rows["label"].astype(np.float32)
    batches = FeatureBatches(ds.NumpySlicesDataset(rows, shuffle=False).batch(2), specs(name))
    assert batches.column_names == ["ids", "label"] and len(batches) == 4
    seen = Times(net.table)
    model_of(net).train(2, batches, seen, progress=False)
    assert seen.seen == [101, 103, 105, 107, 107, 107, 107, 107]


# ---- checkpoints


def checkpoint(root: Path) -> RecCheckpoint:
    return RecCheckpoint(root, every_steps=100, delta_every_steps=1)


WRAPPERS: dict[str, Callable[[Any, str], Any]] = {
    "features": lambda data, name: FeatureBatches(data, specs(name)),
    "odd features": lambda data, name: Odd(FeatureBatches(data, specs(name))),
    "features of odd": lambda data, name: FeatureBatches(Odd(data), specs(name)),
}


@pytest.mark.parametrize("kind", WRAPPERS)
def test_a_wrapped_stream_goes_on_after_a_kill(
    topic: MemoryTopic, unique: Callable[[], str], tmp_path: Path, kind: str
) -> None:
    name = unique()
    trained: list[list[int]] = []

    class Seen(Callback):
        def __init__(self, done: int, steps: int | None) -> None:
            super().__init__()
            del trained[done:]
            self.steps = steps

        def on_train_step_end(self, run_context: Any) -> None:
            run = run_context.original_args()
            if run.cur_step_num == self.steps:
                raise KeyError("killed")
            trained.append(run.train_dataset_element[0].asnumpy().ravel().tolist())

    for life, steps in enumerate((1, 4, None)):
        rows = tmp_path / str(life)
        cache = CacheConfig(host_rows=60, ssd=SsdConfig(rows, direct=False), prefetch=2)
        net = Net(name, cache)
        model, saves = model_of(net), checkpoint(tmp_path / "run")
        data = WRAPPERS[kind](stream(topic, ("sent", "ids", "label")), name)
        done = saves.restore(model, data) or 0
        each = [Seen(done, steps), saves]
        if steps is None:
            model.online_train(data, each, progress=False)
        else:
            with pytest.raises(KeyError):
                model.online_train(data, each, progress=False)
        if steps is not None:
            for table in tables_of(net):
                table.close()
    whole = np.arange(EVENTS).reshape(-1, BATCH)
    assert trained == (whole[::2] if "odd" in kind else whole).tolist()
    counts = native_of(net.table).export_rows()["counts"]
    assert len(counts) == sum(map(len, trained)) and set(counts.tolist()) == {1}


class Own(BatchSource):
    """A source of one's own, with some parts of the protocol."""

    def __init__(self, **parts: Any) -> None:
        self.parts = parts

    def read(self) -> Iterator[Batch]:
        yield Batch((np.array([[1]]), np.array([[1]], np.float32)))

    @property
    def length(self) -> int | None:
        return self.parts.get("length")

    @property
    def has_state(self) -> bool:
        return bool(self.parts.get("has_state"))

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        return {"batches": 0}


def test_what_cannot_be_resumed_is_refused_by_its_own_reason(
    topic: MemoryTopic, unique: Callable[[], str], tmp_path: Path
) -> None:
    net = Net(unique())
    model = model_of(net)
    generator = batch_source(batch for batch in stream(topic))
    for data, message in (
        (Own(), "train_dataset is a Own without a state or a length, and its place cannot be"),
        (Odd(Own()), "is Odd whose source is a Own without a state or a length, and its place"),
        (Odd(generator), "is Odd whose source is a <genexpr>, and its place cannot be saved"),
        (
            FeatureBatches(Odd(generator), FeatureSpec("ids", index_key=0)),
            "is FeatureBatches whose source is Odd whose source is a <genexpr>, and its place",
        ),
    ):
        saves = checkpoint(tmp_path / "run")
        with pytest.raises(ValueError, match=message):
            saves.restore(model, data)
        with pytest.raises(ValueError, match=f"{message}.*data_starts_over=True"):
            model.online_train(data, saves, progress=False)
    assert net.table.step == 0 and not (tmp_path / "run").exists()


def test_a_state_whose_batches_have_no_number_is_refused(
    unique: Callable[[], str], tmp_path: Path
) -> None:
    net = Net(unique())
    saves = checkpoint(tmp_path / "run")
    with pytest.raises(ValueError, match="a Own with a state whose batches have no number"):
        model_of(net).online_train(Own(has_state=True), saves, progress=False)


def test_a_stream_hidden_in_a_source_of_ones_own_is_found(
    topic: MemoryTopic, unique: Callable[[], str], tmp_path: Path
) -> None:
    class Hides(Own):
        def read(self) -> Iterator[Batch]:
            for batch in stream(topic).read():
                yield replace(batch, number=None)

    net = Net(unique())
    with pytest.raises(ValueError, match="is a Hides that reads a stream which RecCheckpoint does"):
        model_of(net).online_train(Hides(length=20), checkpoint(tmp_path / "run"), progress=False)
    assert net.table.step == 0
