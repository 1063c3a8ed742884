# SPDX-License-Identifier: Apache-2.0
"""Checkpoints by the clock: a checkpoint is due one interval after the last checkpoint."""

from __future__ import annotations

import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback, RunContext
from mindspore.train.callback import _InternalCallbackParam

from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecCheckpoint, RecModel
from mindspore_rec.common.run.chain import entries
from mindspore_rec.train.checkpoint import rec_checkpoint
from tests.parallel import loop_workers
from tests.parallel.loop_workers import Exchange, ThreadGroup, run_workers, this_worker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("graph_mode")

STEP = 10.0  # seconds by the test's clock
STEPS = 12


class Clock(Callback):
    """A clock that goes on with each step, when what was saved before is written."""

    def __init__(self, checkpoint: RecCheckpoint) -> None:
        super().__init__()
        self._checkpoint = checkpoint
        self.now = 1000.0

    def on_train_step_end(self, run_context: Any) -> None:
        wait_until(lambda: not self._checkpoint._writer.busy)
        self.now += STEP


@pytest.mark.parametrize(
    ("intervals", "fulls", "deltas"),
    [
        # The first full checkpoint is of the beginning; the last step is saved at the end.
        ({"every_steps": 100, "delta_every_seconds": 25.0}, [], [3, 6, 9, 12]),
        ({"every_steps": 100, "delta_every_seconds": 30.0}, [], [3, 6, 9, 12]),
        ({"every_steps": 100, "delta_every_seconds": 41.0}, [], [5, 10, 12]),
        ({"every_seconds": 45.0, "delta_every_seconds": 25.0}, [5, 10], [3, 8, 12]),
    ],
)
def test_intervals_begin_with_what_was_saved_last(
    intervals: dict[str, Any],
    fulls: list[int],
    deltas: list[int],
    tmp_path: Path,
    unique: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lookup = HashEmbeddingLookup(2, ms.int64, name=unique())
    net = nn.SequentialCell(lookup, nn.Flatten(), nn.Dense(2, 1))
    optimizer = LazyAdam(net.trainable_params(), learning_rate=0.1)
    checkpoint = RecCheckpoint(tmp_path / "run", keep=9, **intervals)
    clock = Clock(checkpoint)
    own_time = types.SimpleNamespace(monotonic=lambda: clock.now)
    monkeypatch.setattr(rec_checkpoint, "time", own_time)
    batch = np.array([[1], [2]]), np.ones((2, 1), np.float32)
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer)
    model.train(1, [batch] * STEPS, [clock, checkpoint], progress=False)
    saved = [(entry.step, entry.kind) for entry in entries(tmp_path / "run")]
    assert [step for step, kind in saved if kind == "delta" and step not in fulls] == deltas
    assert set(fulls) <= {step for step, kind in saved if kind == "full"}
    lookup.embedding_table.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_all_workers_save_by_the_clock_of_the_first_while_they_wait_for_data(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = threading.local()  # each worker is a thread
    monkeypatch.setattr(rec_checkpoint, "time", types.SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(rec_checkpoint, "worker_group", this_worker)
    monkeypatch.setattr(loop_workers, "_SECONDS", 20.0)
    exchanges = {name: Exchange(workers) for name in ("checkpoint", "merge")}

    def work(group: ThreadGroup) -> list[list[int]]:
        group.channel = lambda name: ThreadGroup(group.rank, exchanges[name])  # type: ignore[attr-defined]
        clock.now = 1000.0
        run = _InternalCallbackParam()
        run.train_network, run.train_dataset, run.cur_step_num = nn.Dense(1, 1), None, 0
        context = RunContext(run)
        checkpoint = RecCheckpoint(tmp_path / "run", every_steps=100, delta_every_seconds=25.0)
        checkpoint.on_train_begin(context)
        run.cur_step_num = 3
        checkpoint.on_train_step_end(context)
        saved = []
        for seconds in (24.0, 25.0, 99.0):
            if group.rank == 0:
                clock.now = 1000.0 + seconds
            checkpoint.on_train_wait(context)
            checkpoint._writer.finish_write()
            saved.append([each.step for each in checkpoint.saves])
        checkpoint.on_train_end(context)
        return saved

    assert run_workers(workers, work) == [[[0], [0, 3], [0, 3]]] * workers
