# SPDX-License-Identifier: Apache-2.0
"""StreamingDataset under RecModel.online_train and GeneratorDataset; going on from a state."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback

from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecModel, load_checkpoint, save_checkpoint
from mindspore_rec.stream import DataReceiver, DataSender, MemoryTopic, StopWhen, StreamingDataset
from mindspore_rec.train import ProgressBar

pytestmark = pytest.mark.usefixtures("graph_mode")

BATCH = 32


def filled(messages: int) -> MemoryTopic:
    topic = MemoryTopic(2)
    rng = np.random.default_rng(5)
    sender = DataSender(topic, num_shards=2, message_rows=20)
    for _ in range(messages):
        ids = rng.integers(-50, 50, (20, 3))
        label = (ids.sum(axis=1, keepdims=True) > 0).astype(np.float32)
        sender.send({"ids": ids, "label": label})
    return topic


def stream(topic: MemoryTopic, stop: StopWhen, transform: Any = None) -> StreamingDataset:
    receiver = DataReceiver(topic, shard_id=None, batch_size=BATCH, stop=stop)
    return StreamingDataset(receiver, transform)


def make(name: str) -> tuple[nn.Cell, RecModel]:
    ms.set_seed(1)
    net = nn.SequentialCell(
        HashEmbeddingLookup(4, ms.int64, name=name), nn.Flatten(), nn.Dense(12, 1)
    )
    optimizer = LazyAdam(net.trainable_params(), learning_rate=0.05)
    return net, RecModel(net, nn.BCEWithLogitsLoss(), optimizer)


def contents(net: nn.Cell) -> list[np.ndarray]:
    keys, values, *_ = net[0].embedding_table.export_data()
    keys, values = np.asarray(keys), np.asarray(values)
    order = np.argsort(keys)
    return [keys[order], values[order], net[2].weight.asnumpy(), net[2].bias.asnumpy()]


def test_going_on_from_a_state_gives_the_same_bits(
    unique: Callable[[], str], tmp_path: Path
) -> None:
    topic, name = filled(50), unique()

    def run(stop: StopWhen, saved: Path | None, state: Any) -> tuple[list[np.ndarray], Any]:
        """One life of the trainer; its weights and its stream's state at the end."""
        net, model = make(name)
        source = stream(topic, stop)
        if saved is not None:
            load_checkpoint(model, saved)
            source.load_state_dict(state)
        begin = source.state_dict()["batches"]
        summary = model.online_train(source, progress=False)
        save_checkpoint(model, tmp_path / f"{begin}.{summary.steps}")
        made = contents(net), source.state_dict(batches=begin + summary.steps)
        net[0].embedding_table.close()
        return made

    expected, _ = run(StopWhen(idle_seconds=0.5), None, None)
    assert (tmp_path / "0.32").exists()
    half, state = run(StopWhen(batches=13), None, None)
    assert not np.array_equal(half[2], expected[2])
    rest, _ = run(StopWhen(idle_seconds=0.5), tmp_path / "0.13", state)
    assert (tmp_path / "13.19").exists()
    for got, want in zip(rest, expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_as_a_source_of_generator_dataset() -> None:
    source = stream(filled(10), StopWhen(idle_seconds=0.5))
    dataset = ds.GeneratorDataset(source, ["ids", "label"], shuffle=False)
    shapes = [
        (ids.shape, label.shape)
        for ids, label in dataset.create_tuple_iterator(num_epochs=1, output_numpy=True)
    ]
    assert shapes == [((32, 3), (32, 1))] * 6 + [((8, 3), (8, 1))]
    later = stream(filled(10), StopWhen(batches=1))
    later.load_state_dict(source.state_dict(batches=3))
    assert later.state_dict()["source"]["rows"] == 96


class Running:
    """A transform that learns: how many rows it has seen."""

    column_names = ("ids", "label")

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, rows: Any) -> dict[str, np.ndarray]:
        self.seen += rows.num_rows
        keep = 0 if self.seen < 100 else rows.num_rows
        return {"ids": np.full((keep, 1), self.seen), "label": np.zeros((keep, 1), np.float32)}

    def state_dict(self) -> dict[str, int]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.seen = state["seen"]


def test_what_a_transform_learned_is_part_of_the_state() -> None:
    topic = filled(20)
    whole = stream(topic, StopWhen(idle_seconds=0.5), Running())
    expected = [ids[0, 0] for ids, _ in whole]
    assert expected[0] == 128  # batches without rows are passed over
    for i in range(1, len(expected)):
        again = stream(topic, StopWhen(idle_seconds=0.5), Running())
        again.load_state_dict(whole.state_dict(batches=i))
        assert next(again)[0][0, 0] == expected[i]
        again.close()
    with pytest.raises(ValueError, match="batches must be in"):
        whole.state_dict(batches=99)
    with pytest.raises(ValueError, match="the same transform"):
        stream(topic, StopWhen(batches=1)).load_state_dict(whole.state_dict())
    with pytest.raises(TypeError, match="what state_dict"):
        stream(topic, StopWhen(batches=1)).load_state_dict({"x": 1})


def test_the_summary_says_why_it_ended_and_the_bar_shows_the_lag(
    unique: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, model = make(unique())
    bar = ProgressBar(every_seconds=1e-9)
    summary = model.online_train(stream(filled(20), StopWhen(batches=3)), bar, progress=False)
    assert (summary.steps, summary.stop_reason) == (3, "3 batches")
    assert "Stopped (3 batches)" in str(summary)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("step ")]
    assert len(lines) == 3 and all(", lag " in line for line in lines)


def test_sigterm_ends_the_wait_for_a_silent_stream(unique: Callable[[], str]) -> None:
    _, model = make(unique())
    source = stream(filled(10), StopWhen(seconds=600.0))  # rows for 6 batches, then silence
    trained = threading.Event()

    class Sixth(Callback):
        def on_train_step_end(self, run_context: Any) -> None:
            if run_context.original_args().cur_step_num == 6:
                trained.set()

    def press() -> None:
        trained.wait()
        time.sleep(1.0)  # the wait for the seventh batch has begun
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=press, daemon=True).start()
    begin = time.monotonic()
    summary = model.online_train(source, Sixth(), progress=False)
    assert time.monotonic() - begin < 300
    assert (summary.steps, summary.interrupted) == (6, True)
    rest = stream(filled(10), StopWhen(idle_seconds=0.5))
    rest.load_state_dict(source.state_dict(batches=6))
    assert [len(label) for _, label in rest] == [8]
    source.close()


class _Signalled(threading.Condition):
    """Condition with a SIGTERM between the acquisition of its lock and the `with` block."""

    left = 0  # acquisitions by the main thread

    def __enter__(self) -> bool:
        taken = super().__enter__()
        if threading.current_thread() is threading.main_thread():
            self.left -= 1
            if not self.left:
                os.kill(os.getpid(), signal.SIGTERM)
        return taken


@pytest.mark.parametrize("steps", [3, 6])  # with messages that wait, and in a silent stream
def test_sigterm_while_a_lock_is_taken_ends_the_training(
    unique: Callable[[], str], steps: int
) -> None:
    _, model = make(unique())
    source = stream(filled(10), StopWhen(seconds=600.0))
    changed = source.source._changed = _Signalled()

    class Begin(Callback):
        def on_train_step_end(self, run_context: Any) -> None:
            if run_context.original_args().cur_step_num == steps:
                changed.left = 1

    summary = model.online_train(source, Begin(), progress=False)
    assert (summary.steps, summary.interrupted) == (steps, True)
    source.close()
    rest = stream(filled(10), StopWhen(idle_seconds=0.5))
    rest.load_state_dict(source.state_dict(batches=steps))
    assert sum(len(label) for _, label in rest) == 200 - steps * BATCH


def test_wall_time_ends_a_stream_that_never_pauses(unique: Callable[[], str]) -> None:
    topic = filled(2000)
    _, model = make(unique())
    model.online_train(stream(topic, StopWhen(batches=2)), progress=False)  # compiles
    begin = time.monotonic()
    summary = model.online_train(stream(topic, StopWhen(seconds=0.3)), progress=False)
    assert summary.stop_reason == "0.3 seconds"
    assert 0.3 <= time.monotonic() - begin < 60
    assert summary.steps < 1250  # of which a busy machine may train none
