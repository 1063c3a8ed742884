# SPDX-License-Identifier: Apache-2.0
"""A stream that goes quiet: what was read is trained, and saved by the clock."""

from __future__ import annotations

import errno
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback

from mindspore_rec import (
    CacheConfig,
    HashEmbeddingLookup,
    LazyAdam,
    RecCheckpoint,
    RecModel,
    SsdConfig,
    tables_of,
)
from mindspore_rec.common.run.chain import newest_chain
from mindspore_rec.stream import (
    BatchWrapper,
    DataReceiver,
    DataSender,
    MemoryTopic,
    StopWhen,
    StreamingDataset,
)
from mindspore_rec.train.checkpoint import run_writer

pytestmark = pytest.mark.usefixtures("graph_mode")

BATCH = 10
QUIET = 30.0  # seconds after which a test has failed: nothing else ends the stream
Make = Callable[..., RecModel]


@pytest.fixture
def make(unique: Callable[[], str], tmp_path: Path) -> Iterator[Make]:
    """Makes a model, with rows on SSD that are prefetched or not."""
    nets: list[nn.Cell] = []

    def model(prefetch: int = 0) -> RecModel:
        cache = CacheConfig(
            host_rows=40, ssd=SsdConfig(tmp_path / "rows", direct=False), prefetch=prefetch
        )
        lookup = HashEmbeddingLookup(4, ms.int64, name=unique(), cache=cache if prefetch else None)
        net = nn.SequentialCell(lookup, nn.Flatten(), nn.Dense(4, 1))
        nets.append(net)
        optimizer = LazyAdam(net.trainable_params(), learning_rate=0.05)
        return RecModel(net, nn.BCEWithLogitsLoss(), optimizer)

    yield model
    for net in nets:
        for table in tables_of(net):
            table.close()


def send(topic: MemoryTopic, first: int, batches: int) -> None:
    ids = np.arange(first, first + batches * BATCH)[:, None]
    DataSender(topic, message_rows=5).send({"ids": ids, "label": (ids % 2).astype(np.float32)})


def dataset(topic: MemoryTopic) -> StreamingDataset:
    stop = StopWhen(idle_seconds=QUIET)
    return StreamingDataset(DataReceiver(topic, batch_size=BATCH, stop=stop))


class Ends(Callback):
    """Notes the steps; ends the training when a condition of them holds while it waits.

    Attributes:
        step: the last one.
        seconds: time from the last step until the condition held.
    """

    def __init__(self, condition: Callable[[int], bool]) -> None:
        super().__init__()
        self.step, self.condition, self.seconds = 0, condition, math.inf
        self._quiet = time.monotonic()

    def on_train_step_end(self, run_context: Any) -> None:
        self.step = run_context.original_args().cur_step_num
        self._quiet = time.monotonic()

    def on_train_wait(self, run_context: Any) -> None:
        if self.condition(self.step):
            self.seconds = time.monotonic() - self._quiet
            raise KeyboardInterrupt


class OddOnes(BatchWrapper):
    """Leaves out every second batch."""

    def change(self, batch: Any) -> Any:
        return batch if batch.number % 2 else None


@pytest.mark.parametrize("wrapped", [False, True])
def test_batches_that_are_read_ahead_are_trained_while_nothing_else_comes(
    make: Make, wrapped: bool
) -> None:
    topic = MemoryTopic()
    send(topic, 0, 6)
    data: Any = OddOnes(dataset(topic)) if wrapped else dataset(topic)
    ends = Ends(lambda step: step == (3 if wrapped else 6))
    summary = make(prefetch=2).online_train(data, ends, progress=False)
    assert ends.step == summary.steps == (3 if wrapped else 6)
    assert ends.seconds < QUIET / 3
    assert data.lag == 0


def newest(root: Path) -> int:
    return newest_chain(root)[-1].step


def test_the_clock_saves_while_the_stream_is_quiet(make: Make, tmp_path: Path) -> None:
    topic = MemoryTopic()
    send(topic, 0, 5)
    root = tmp_path / "run"
    checkpoint = RecCheckpoint(root, every_seconds=3.0, delta_every_seconds=0.5)
    ends = Ends(lambda step: step == 5 and (root / f"{5:012d}.full").is_dir())
    make().online_train(dataset(topic), [ends, checkpoint], progress=False)
    assert ends.seconds < QUIET / 3
    # Once each: nothing is saved again while nothing changes. If it was already time for a full
    # checkpoint when the step ended, the full checkpoint replaces the delta.
    kinds = [each.kind for each in checkpoint.saves if each.step == 5]
    assert kinds in (["delta", "full"], ["full"])


@pytest.mark.parametrize("interval", [{"delta_every_seconds": 0.3}, {"delta_every_steps": 5}])
def test_a_delta_that_failed_is_tried_again_while_the_stream_is_quiet(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval: dict[str, Any]
) -> None:
    topic = MemoryTopic()
    send(topic, 0, 5)
    root = tmp_path / "run"
    checkpoint = RecCheckpoint(root, every_steps=1000, **interval)
    write = run_writer.write_checkpoint  # type: ignore[attr-defined]
    fails = [True]

    def full_disk(target: Path, *more: Any) -> Any:
        if target.suffix == ".delta" and fails[0]:
            raise OSError(errno.ENOSPC, "no space")
        return write(target, *more)

    monkeypatch.setattr(run_writer, "write_checkpoint", full_disk)

    def freed() -> None:
        deadline = time.monotonic() + QUIET
        while not checkpoint.failures and time.monotonic() < deadline:
            time.sleep(0.01)
        fails[0] = False

    thread = threading.Thread(target=freed)
    monkeypatch.setattr("mindspore_rec.train.checkpoint.rec_checkpoint._RETRY_SECONDS", 0.5)
    # The failure is noticed by whoever looks for the write's end.
    ends = Ends(lambda step: step == 5 and newest(root) == 5)
    thread.start()
    make().online_train(dataset(topic), [ends, checkpoint], progress=False)
    thread.join()
    assert checkpoint.failures >= 1
    assert ends.seconds < QUIET / 3
