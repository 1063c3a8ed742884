# SPDX-License-Identifier: Apache-2.0
"""The place in a stream under RecCheckpoint: kept through FeatureBatches, refused where hidden."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback

from mindspore_rec import (
    FeatureBatches,
    FeatureSpec,
    HashEmbeddingLookup,
    LazyAdam,
    RecCheckpoint,
    RecModel,
    tables_of,
)
from mindspore_rec.stream import DataReceiver, MemoryTopic, StopWhen, StreamingDataset
from tests.support.topics import topic_of_rows

pytestmark = pytest.mark.usefixtures("graph_mode")

EVENTS, BATCH = 2000, 50


@pytest.fixture(scope="module")
def topic() -> MemoryTopic:
    """Events, each with a number of its own."""
    number = np.arange(EVENTS)[:, None]
    return topic_of_rows({"ids": number, "label": (number % 3 == 0).astype(np.float32)}, 20)


class Seen(Callback):
    """Ids as they are trained; dies before the checkpoint of a step, as a kill would."""

    def __init__(self, seen: list[int], steps: int | None = None) -> None:
        super().__init__()
        self.seen, self.steps = seen, steps

    def on_train_step_end(self, run_context: Any) -> None:
        run = run_context.original_args()
        if run.cur_step_num == self.steps:
            raise KeyError("killed")
        self.seen += run.train_dataset_element[0].asnumpy().ravel().tolist()


class Life:
    """A process of training, as far as it can be had within one."""

    def __init__(self, root: Path, name: str, **options: Any) -> None:
        ms.set_seed(1)
        self.net = nn.SequentialCell(
            HashEmbeddingLookup(4, ms.int64, name=name), nn.Flatten(), nn.Dense(4, 1)
        )
        optimizer = LazyAdam(self.net.trainable_params(), learning_rate=0.05)
        self.model = RecModel(self.net, nn.BCEWithLogitsLoss(), optimizer)
        self.checkpoint = RecCheckpoint(root, every_steps=8, delta_every_steps=2, **options)

    def train(self, data: Any, *more: Callback) -> Any:
        return self.model.online_train(data, [*more, self.checkpoint], progress=False)

    def close(self) -> None:
        for table in tables_of(self.net):
            table.close()


@pytest.fixture
def life(tmp_path: Path, unique: Callable[[], str]) -> Iterator[Callable[..., Life]]:
    """Makes lives of one trainer, one after the other."""
    name = unique()
    made: list[Life] = []

    def begin(**options: Any) -> Life:
        if made:
            made[-1].close()
        made.append(Life(tmp_path / "run", name, **options))
        return made[-1]

    yield begin
    made[-1].close()


def stream(topic: MemoryTopic) -> StreamingDataset:
    return StreamingDataset(DataReceiver(topic, batch_size=BATCH, stop=StopWhen(idle_seconds=0.2)))


SPEC = FeatureSpec("ids", index_key=0)


class Handed:
    """An iterable with a length around a stream."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return EVENTS // BATCH

    def __iter__(self) -> Iterator[Any]:
        yield from self.inner


class Rows:
    """One row of a channel at a time, as in MindRec's example."""

    def __init__(self, receiver: DataReceiver) -> None:
        self.receiver = receiver
        self.rows: list[Any] = []

    def __getitem__(self, item: int) -> Any:
        while not self.rows:
            self.rows = self.receiver.recv().to_pylist()
        row = self.rows.pop(0)
        return np.array(row["ids"]), np.array(row["label"], np.float32)

    def __len__(self) -> int:
        return 2**20 - 1


def test_two_kills_with_feature_batches(topic: MemoryTopic, life: Callable[..., Life]) -> None:
    seen: list[int] = []
    for steps in (9, 14, None):
        now, data = life(), FeatureBatches(stream(topic), SPEC)
        done = now.checkpoint.restore(now.model, data) or 0
        assert done % 2 == 0
        del seen[done * BATCH :]  # what came after the state is taken back
        if steps is None:
            summary = now.train(data, Seen(seen))
            assert summary.stop_reason.startswith("idle")
        else:
            with pytest.raises(KeyError):
                now.train(data, Seen(seen, steps))
    (keys, _), *_ = FeatureBatches([(np.arange(EVENTS)[:, None], np.zeros((EVENTS, 1)))], SPEC)
    assert seen == keys.ravel().tolist()
    counts = now.net[0].embedding_table.export_rows()["counts"]
    assert counts.sum() == EVENTS  # once each


HIDING = {
    "generator expression": (
        lambda topic: (batch for batch in stream(topic)),
        "train_dataset is a <genexpr>, and its place cannot be saved",
    ),
    "iterator": (lambda topic: map(tuple, stream(topic)), "is a map, and its place"),
    "GeneratorDataset": (
        lambda topic: ds.GeneratorDataset(stream(topic), ["ids", "label"], shuffle=False),
        "is a GeneratorDataset over a StreamingDataset, which reads it ahead, and its place",
    ),
    "GeneratorDataset over a function": (
        lambda topic: ds.GeneratorDataset(lambda: stream(topic), ["ids", "label"], shuffle=False),
        "is a GeneratorDataset over a <lambda> without a length, and its place",
    ),
    "pipeline": (
        lambda topic: ds.GeneratorDataset(
            stream(topic), ["ids", "label"], shuffle=False
        ).map(lambda ids: ids + 1, ["ids"]),
        "is a GeneratorDataset over a StreamingDataset",
    ),
    "FeatureBatches of a generator": (
        lambda topic: FeatureBatches((batch for batch in stream(topic)), SPEC),
        "is FeatureBatches whose source is a <genexpr>, and its place",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", HIDING)
def test_what_hides_a_stream_is_refused_before_a_step(
    topic: MemoryTopic, life: Callable[..., Life], tmp_path: Path, kind: str
) -> None:
    make, message = HIDING[kind]
    now, seen = life(), list[int]()
    with pytest.raises(ValueError, match=message):
        now.checkpoint.restore(now.model, make(topic))
    with pytest.raises(ValueError, match=f"{message}.*Train on the stream itself"):
        now.train(make(topic), Seen(seen))
    assert not seen and not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["sized", "rows"])
def test_a_stream_that_cannot_be_seen_from_outside_is_found_when_it_is_read(
    topic: MemoryTopic, life: Callable[..., Life], kind: str
) -> None:
    now, seen = life(), list[int]()
    data: Any = Handed(stream(topic))
    if kind == "rows":
        rows = Rows(DataReceiver(topic, batch_size=BATCH))
        data = ds.GeneratorDataset(rows, ["ids", "label"], shuffle=False).batch(BATCH)
    with pytest.raises((ValueError, RuntimeError), match="reads a stream which RecCheckpoint does"):
        now.train(data, Seen(seen))
    assert not seen
    with stream(topic) as other:  # afterwards, and by others, streams are read as ever
        assert len(next(other)[0]) == BATCH


def test_others_read_their_streams_meanwhile(topic: MemoryTopic, life: Callable[..., Life]) -> None:
    class Evaluates(Callback):
        def on_train_step_end(self, run_context: Any) -> None:
            with stream(topic) as other:
                assert len(next(other)[0]) == BATCH

    batch = np.array([[1], [2]]), np.array([[0], [1]], np.float32)
    assert life().train([batch] * 3, Evaluates()).steps == 3


def test_data_that_start_over_on_purpose(topic: MemoryTopic, life: Callable[..., Life]) -> None:
    for begun in (0, EVENTS // BATCH):
        now, seen = life(data_starts_over=True), list[int]()
        data = (batch for batch in stream(topic))
        assert (now.checkpoint.restore(now.model, data) or 0) == begun
        now.train(data, Seen(seen))
        assert seen == list(range(EVENTS))
    with pytest.raises(TypeError, match="data_starts_over must be a bool"):
        life(data_starts_over="yes")


def test_finite_data_need_no_declaration(life: Callable[..., Life]) -> None:
    batch = np.array([[1], [2]]), np.array([[0], [1]], np.float32)
    now = life()
    now.model.train(2, [batch] * 3, now.checkpoint, progress=False)
    again = life()
    assert again.checkpoint.restore(again.model, [batch] * 3, new_data=True) == 6
    rows = ds.NumpySlicesDataset((np.arange(8)[:, None], np.ones((8, 1), np.float32)), ["a", "b"])
    again.model.train(1, rows.batch(4), again.checkpoint, progress=False)
    assert again.checkpoint.step == 8


def test_a_checkpoint_with_a_place_and_one_without(
    topic: MemoryTopic, life: Callable[..., Life]
) -> None:
    batch = np.array([[1], [2]]), np.array([[0], [1]], np.float32)
    life().train([batch] * 4)
    now = life()
    with pytest.raises(ValueError, match="states and train_dataset must be those that were saved"):
        now.checkpoint.restore(now.model, stream(topic))
    assert now.checkpoint.restore(now.model) == 4
    with pytest.raises(ValueError, match="train_dataset has a place and .* has none for it"):
        now.train(stream(topic))
    assert now.checkpoint.step == 4


def test_a_restored_place_must_be_where_training_goes_on(
    topic: MemoryTopic, life: Callable[..., Life]
) -> None:
    now = life()
    with pytest.raises(KeyError):
        now.train(stream(topic), Seen([], 6))
    for data in (stream(topic), [(np.array([[1]]), np.array([[1]], np.float32))]):
        now = life()
        assert now.checkpoint.restore(now.model, stream(topic)) == 4
        with pytest.raises(ValueError, match="must be what restore.. was given.*after 4 batches"):
            now.train(data)
    over = life(data_starts_over=True)
    with pytest.raises(ValueError, match="must be those that were saved"):
        over.checkpoint.restore(over.model, stream(topic))


def test_a_state_that_cannot_say_what_was_trained_is_refused(life: Callable[..., Life]) -> None:
    class Torchlike(list):
        def state_dict(self) -> dict[str, int]:
            return {"samples": 3}

        def load_state_dict(self, state: Any) -> None:
            """Nothing."""

    with pytest.raises(ValueError, match="is a Torchlike whose state_dict does not tell 'batches'"):
        life().train(Torchlike([(np.array([[1]]), np.array([[1]], np.float32))]))
