# SPDX-License-Identifier: Apache-2.0
"""What changes without a step is saved when training ends, with or without steps before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from mindspore.train import Callback

from mindspore_rec import (
    CountAdmission,
    Eviction,
    HashEmbeddingLookup,
    LazyAdam,
    RecCheckpoint,
    RecModel,
)
from mindspore_rec.stream import DataReceiver, MemoryTopic, StopWhen, StreamingDataset
from tests.support.topics import topic_of_rows

pytestmark = pytest.mark.usefixtures("graph_mode")

KEYS = np.array([[1], [2], [3], [4]])


class Life:
    """A trainer, until its table is closed for the next one."""

    def __init__(self, root: Path, name: str, topic: MemoryTopic) -> None:
        lookup = HashEmbeddingLookup(4, ms.int64, name=name, admission=CountAdmission(1))
        self.table = lookup.embedding_table
        self.net = nn.SequentialCell(lookup, nn.Flatten(), nn.Dense(4, 1))
        optimizer = LazyAdam(self.net.trainable_params(), learning_rate=0.1)
        self.model = RecModel(self.net, nn.BCEWithLogitsLoss(), optimizer)
        stop = StopWhen(idle_seconds=0.2)
        self.data = StreamingDataset(DataReceiver(topic, batch_size=4, stop=stop))
        self.checkpoint = RecCheckpoint(root, every_steps=4, delta_every_steps=1)
        self.step = self.checkpoint.restore(self.model, self.data)

    def train(self, *callbacks: Callback) -> None:
        self.model.online_train(self.data, [*callbacks, self.checkpoint], progress=False)

    def contents(self) -> dict[str, Any]:
        rows = self.table.export_rows(with_state=True)
        order = np.argsort(rows["keys"])
        found = {name: np.asarray(array)[order].tolist() for name, array in rows.items()}
        eviction = self.table.eviction
        limits = None if eviction is None else (eviction.max_idle_steps, eviction.max_idle_seconds)
        return {**found, "weight": self.net[2].weight.asnumpy().tolist(), "limits": limits}


@pytest.fixture
def begin(tmp_path: Path, unique: Callable[[], str]) -> Iterator[Callable[[], Life]]:
    """Makes lives of one run, one after the other, with a topic of three batches."""
    name, made = unique(), list[Life]()
    label = (KEYS % 2).astype(np.float32)
    topic = topic_of_rows({"ids": np.tile(KEYS, (3, 1)), "label": np.tile(label, (3, 1))}, 4)

    def life() -> Life:
        if made:
            made[-1].table.close()
        made.append(Life(tmp_path / "run", name, topic))
        return made[-1]

    yield life
    made[-1].table.close()


def write_weight(life: Life) -> None:
    life.net[2].weight.set_data(Tensor(np.full((1, 4), 7, np.float32)))


def evict(life: Life) -> None:
    life.table.set_eviction(Eviction(1, -1))
    life.table.evict(at_once=True)


CHANGES: dict[str, Callable[[Life], Any]] = {
    "insert": lambda life: life.table.insert_rows(np.array([9])),
    "erase": lambda life: life.table.erase_rows(np.array([2])),
    "write": lambda life: life.table.write_rows(np.array([3]), np.ones((1, 4), np.float32)),
    "weight": write_weight,
    "import": lambda life: life.table.import_rows(np.array([1]), np.ones((1, 4), np.float32)),
    "limits": lambda life: life.table.set_eviction(Eviction(1000, -1)),
    "evict": evict,
    "clear": lambda life: life.table.clear_rows(),
}


class AtTheEnd(Callback):
    """Changes something after the last step's save."""

    def __init__(self, life: Life, change: Callable[[Life], Any]) -> None:
        super().__init__()
        self.life, self.change = life, change

    def on_train_end(self, run_context: Any) -> None:
        self.change(self.life)


def test_changes_outside_of_steps_are_saved(begin: Callable[[], Life]) -> None:
    life = begin()
    life.train(AtTheEnd(life, lambda life: life.table.erase_rows(np.array([4]))))
    for name, change in CHANGES.items():
        want = life.contents()
        life, before = begin(), life
        life.table.set_eviction(before.table.eviction)  # the program's, not the checkpoint's
        assert life.contents() == want, name
        change(life)
        assert life.contents() != want, name
        life.train()  # without a batch
    want = life.contents()
    assert begin().contents() == {**want, "limits": None}


class AtAnHour(Callback):
    """Sets the event time before each step."""

    def __init__(self, life: Life) -> None:
        super().__init__()
        self.life = life

    def on_train_step_begin(self, run_context: Any) -> None:
        self.life.table.set_event_time(3600)


@pytest.mark.parametrize("timed", [False, True])
def test_a_training_without_a_step_or_a_change_saves_nothing(
    begin: Callable[[], Life], tmp_path: Path, timed: bool
) -> None:
    life = begin()
    life.train(*([AtAnHour(life)] if timed else []))
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    for _ in range(2):
        life = begin()
        assert life.step == 3
        life.train()
        assert sorted(path.name for path in (tmp_path / "run").iterdir()) == names
